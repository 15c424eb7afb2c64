"""What each image consists of, and what the node's root does: change one here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster import dockerfile, pins
from tests.cluster.debian import Layer
from tests.cluster.store import digest

FORMAT = 2
"""Version of the form in which images.py writes layers and images: raise it when that changes."""
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DEPLOY = Path(__file__).parents[2] / "deploy"

# Debian builds torch without libuv, yet torch.distributed asks its store for it by default, so
# that torchrun fails at once. PyPI's build would do, but brings 4 GB of CUDA.
_WITHOUT_LIBUV = r"""python3 - <<'PATCH'
from pathlib import Path

module = Path("/usr/lib/python3/dist-packages/torch/distributed/__init__.py")
imports = "        TCPStore,\n        Work as _Work,\n    )\n"
patched = '''        TCPStore as _TCPStore,
        Work as _Work,
    )

    class TCPStore(_TCPStore):
        def __init__(self, *args, **options):
            super().__init__(*args, **(options | {"use_libuv": False}))
'''
text = module.read_text()
assert text.count(imports) == 1, "torch.distributed looks different from 2.6"
module.write_text(text.replace(imports, patched))
PATCH
"""

_ASSEMBLE = """#!/bin/sh
set -e
cp -R /tmp/src/. /opt/app-root/src/
if [ -f requirements.txt ]; then python3 -m pip install --user -r requirements.txt; fi
"""
_RUN = """#!/bin/sh
exec python3 -u "${APP_FILE:-app.py}"
"""

BASE = Layer("base", packages=("ca-certificates", "python3", "busybox-static"))
TOOLS = Layer(
    "tools",
    BASE.stack,
    # The PyTorchJob's init container runs nslookup with a bare name and expects that the search
    # domains are tried, which busybox's own does not do.
    files=(("usr/local/bin/nslookup", '#!/bin/sh\nexec getent ahostsv4 "$1"\n'),),
)
PYTHON = Layer(
    "python",
    BASE.stack,
    packages=("python3-pip",),
    shell="ln -s /usr/bin/python3 /usr/local/bin/python",
)
SCIENCE = Layer("science", PYTHON.stack, packages=("python3-numpy", "python3-sklearn"))
# A pod keeps nothing of what Python compiles. All of TensorFlow would take a minute: what an import
# needs is compiled once, here.
TENSORFLOW = Layer(
    "tensorflow",
    SCIENCE.stack,
    pip=(pins.TENSORFLOW,),
    shell="python3 -c 'import tensorflow; tensorflow.keras.Model'",
)
PYTORCH = Layer("pytorch", SCIENCE.stack, packages=("python3-torch",), shell=_WITHOUT_LIBUV)
XGBOOST = Layer("xgboost", SCIENCE.stack, pip=(pins.XGBOOST,))
JAX = Layer("jax", SCIENCE.stack, pip=(pins.JAX,))
PADDLE = Layer("paddle", SCIENCE.stack, pip=pins.PADDLE)
MPI = Layer("mpi", PYTHON.stack, packages=("openmpi-bin", "python3-mpi4py", "python3-numpy"))
# mpi-operator's MPIJobs start ranks by ssh.
MPI_SSH = Layer("mpi-ssh", PYTHON.stack, packages=(*MPI.packages, "openssh-server"))
S2I = Layer(
    "s2i",
    PYTHON.stack,
    files=(("usr/libexec/s2i/assemble", _ASSEMBLE), ("usr/libexec/s2i/run", _RUN)),
    shell="useradd -u 1001 -g 0 -d /opt/app-root/src -M s2i && mkdir -p /opt/app-root/src"
    " && chown -R 1001:0 /opt/app-root && chmod -R g=u /opt/app-root",
)
NODE = Layer(
    "node",
    BASE.stack,
    packages=(
        "containerd", "runc", "containernetworking-plugins", "etcd-server", "docker-registry",
        "iptables", "ipset", "iproute2", "mount", "kmod", "apache2-utils",
    ),
)  # fmt: skip


# A kernel's pod under a gateway, but for ciao itself, which `kernel` puts on top.
KERNEL_FILE = dockerfile.read(_DEPLOY / "enterprise-gateway" / "Dockerfile", _PATH)
KERNEL = Layer("kernel", BASE.stack, shell=KERNEL_FILE.first)
# Enterprise Gateway wants a pyzmq that Python 3.13 cannot build.
BOOKWORM = Layer(
    "bookworm", packages=("ca-certificates", "python3", "python3-pip"), suite="bookworm"
)
# The gateway itself looks for its own address when it is imported, and finds none here.
GATEWAY = Layer(
    "gateway",
    BOOKWORM.stack,
    pip=pins.GATEWAY,
    shell="python3 -c 'import jupyter_server.serverapp, kubernetes'",
)
# A user's Jupyter server, but for ciao: `jupyter` puts it on top.
JUPYTER_FILE = dockerfile.read(_DEPLOY / "jupyterhub" / "Dockerfile", _PATH)
JUPYTER = Layer("jupyter", BOOKWORM.stack, shell=JUPYTER_FILE.first)


@dataclass(frozen=True)
class Image:
    """One image.

    Args:
        name: repository and tag in the registry, without its address.
        layer: the uppermost of its layers, or None for an image of programs alone.
        programs: (module folder, program, path in the image) of what is added on top.
        files: further empty folders (path ending in /) and files, by path.
        config: the `config` of the OCI image configuration.
    """

    name: str
    layer: Layer | None = None
    programs: tuple[tuple[str, str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    config: Mapping[str, object] = field(default_factory=dict)


def kernel(wheel: Path) -> Image:
    """Return the image of a kernel's pod, with ciao from a wheel, by deploy/'s own Dockerfile."""
    return _with_ciao("ciao-kernel", KERNEL_FILE, KERNEL, wheel)


def jupyter(wheel: Path) -> Image:
    """Return the image of a user's Jupyter server, likewise."""
    return _with_ciao("jupyter", JUPYTER_FILE, JUPYTER, wheel)


def tag(layer: Layer, config: Mapping[str, object], form: int = FORMAT) -> str:
    """Return a tag for the content of an image: a node that has a tag asks no registry for it."""
    return digest(form, layer.key, config)


def _with_ciao(name: str, file: dockerfile.Dockerfile, below: Layer, wheel: Path) -> Image:
    ((_, folder),) = file.copies
    ciao = Layer("ciao", below.stack, copies=((wheel, folder),), shell=file.then)
    return Image(f"{name}:{tag(ciao, file.config)}", ciao, config=file.config)


def _config(command: list[str], *env: str, **more: object) -> dict[str, object]:
    return {"Env": [_PATH, *env], "Cmd": command, **more}


OPERATOR = Image(
    "training-operator:1",
    programs=(("operator", "training-operator.v1", "manager"),),
    config={"Entrypoint": ["/manager"], "Env": [_PATH]},
)
OLDER_OPERATOR = Image(
    f"training-operator:{pins.OLDER_OPERATOR.removeprefix('v')}",
    programs=(("older-operator", "training-operator.v1", "manager"),),
    config={"Entrypoint": ["/manager"], "Env": [_PATH]},
)
JOBSET = Image(
    f"jobset:{pins.JOBSET.removeprefix('v')}",
    programs=(("trainer", "jobset", "manager"),),
    # Its pod must not run as root.
    config={"Entrypoint": ["/manager"], "Env": [_PATH], "User": "65532"},
)
TRAINER = Image(
    f"trainer-controller-manager:{pins.TRAINER.removeprefix('v')}",
    programs=(("trainer", "trainer-controller-manager", "manager"),),
    config={"Entrypoint": ["/manager"], "Env": [_PATH], "User": "65532"},
)
KUEUE = Image(
    "kueue:1",
    programs=(("kueue", "kueue", "manager"),),
    config={"Entrypoint": ["/manager"], "Env": [_PATH]},
)
METRICS_SERVER = Image(
    "metrics-server:1",
    programs=(("metrics-server", "metrics-server", "metrics-server"),),
    config={"Entrypoint": ["/metrics-server"], "Env": [_PATH], "User": "65532"},
)
_GATEWAY_CONFIG = _config(["jupyter"])
ENTERPRISE_GATEWAY = Image(
    f"enterprise-gateway:{tag(GATEWAY, _GATEWAY_CONFIG)}", GATEWAY, config=_GATEWAY_CONFIG
)
# Those whose trees others stand on; of the rest only the packed form is kept.
TREES = (BASE, PYTHON, SCIENCE, NODE, BOOKWORM, KERNEL, JUPYTER)

# Images that only some tests use: extras.py says which belong together.
FRAMEWORKS = (
    Image("tensorflow:2.21", TENSORFLOW, config=_config(["python3"])),
    Image("pytorch:2.6", PYTORCH, config=_config(["python3"])),
)
XGBOOST_IMAGE = Image("xgboost:3.4", XGBOOST, config=_config(["python3"]))
JAX_IMAGE = Image("jax:0.12", JAX, config=_config(["python3"]))
PADDLE_IMAGE = Image("paddle:3.3", PADDLE, config=_config(["python3"]))
MPI_IMAGE = Image("mpi:1", MPI, config=_config(["/bin/sh"]))
MPI_SSH_IMAGE = Image("mpi-ssh:1", MPI_SSH, config=_config(["/bin/sh"]))
MPI_OPERATOR = Image(
    f"mpi-operator:{pins.MPI_OPERATOR.removeprefix('v')}",
    programs=(("mpi-operator", "mpi-operator", "opt/mpi-operator"),),
    config={"Entrypoint": ["/opt/mpi-operator"], "Env": [_PATH]},
)
KANIKO = Image(
    "kaniko:1",
    programs=(("kaniko", "executor", "kaniko/executor"),),
    files=(
        ("kaniko/.docker/", ""),
        ("kaniko/ssl/certs/", ""),
        ("workspace/", ""),
        # Without it a static program may not look into /etc/hosts.
        ("etc/nsswitch.conf", "hosts: files dns\n"),
    ),
    config={
        "Entrypoint": ["/kaniko/executor"],
        "WorkingDir": "/workspace",
        "Env": [
            "HOME=/root", "USER=root", "PATH=/usr/local/bin:/kaniko",
            "SSL_CERT_DIR=/kaniko/ssl/certs", "DOCKER_CONFIG=/kaniko/.docker/",
        ],
    },
)  # fmt: skip

# Those that every cluster has in its registry and on its node.
IMAGES = (
    Image("tools:1", TOOLS, config=_config(["/bin/sh"])),
    Image("pause:1", BASE, config=_config(["/bin/busybox", "sleep", "2147483647"])),
    Image("python:3.13", PYTHON, config=_config(["python3"])),
    Image(
        "s2i-python:3.13",
        S2I,
        config=_config(
            ["/usr/libexec/s2i/run"],
            "HOME=/opt/app-root/src",
            User="1001",
            WorkingDir="/opt/app-root/src",
            Labels={
                "io.openshift.s2i.scripts-url": "image:///usr/libexec/s2i",
                "io.s2i.scripts-url": "image:///usr/libexec/s2i",
            },
        ),
    ),
    # The MPIJob's init container has no command of its own: it is this image's.
    Image(
        "kubectl:1",
        BASE,
        programs=(("kubernetes", "kubectl", "usr/local/bin/kubectl"),),
        config=_config(["cp", "/usr/local/bin/kubectl", "/opt/kube/kubectl"]),
    ),
    Image(
        "coredns:1",
        programs=(("coredns", "coredns", "coredns"),),
        config={"Entrypoint": ["/coredns"], "Env": [_PATH]},
    ),
    OPERATOR,
)
