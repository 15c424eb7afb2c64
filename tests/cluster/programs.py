"""The programs that are built from Go modules."""

import os
import shutil
from pathlib import Path

from tests.cluster import pins
from tests.cluster.commands import run
from tests.cluster.layout import cache
from tests.cluster.store import digest, lock, made, make

_STAMP = "k8s.io/component-base/version"
_KUBE = pins.KUBERNETES.removeprefix("v").split(".")

# Without the version that is stamped in, the kubelet and the API server report v0.0.0.
_FLAGS = {
    "kubernetes": f" -X {_STAMP}.gitVersion={pins.KUBERNETES} -X {_STAMP}.gitMajor={_KUBE[0]}"
    f" -X {_STAMP}.gitMinor={_KUBE[1]} -X {_STAMP}.gitTreeState=clean",
}
# Without it, s2i would check signatures by a library in C.
_TAGS = {"s2i": ("containers_image_openpgp",)}
_PACKAGES = {
    "kubernetes": (
        "k8s.io/kubernetes/cmd/kube-apiserver",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-proxy",
        "k8s.io/kubernetes/cmd/kube-scheduler",
        "k8s.io/kubernetes/cmd/kubectl",
        "k8s.io/kubernetes/cmd/kubelet",
        "./pull",
    ),
    "operator": ("github.com/kubeflow/training-operator/cmd/training-operator.v1",),
    "coredns": ("./coredns",),
    "kaniko": ("github.com/GoogleContainerTools/kaniko/cmd/executor",),
    "kwok": ("sigs.k8s.io/kwok/cmd/kwok",),
    "kube-router": ("./policies",),
    "kueue": ("sigs.k8s.io/kueue/cmd/kueue",),
    "metrics-server": ("sigs.k8s.io/metrics-server/cmd/metrics-server",),
    "older-operator": ("github.com/kubeflow/training-operator/cmd/training-operator.v1",),
    "s2i": ("github.com/openshift/source-to-image/cmd/s2i",),
    "trainer": (
        "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
        "sigs.k8s.io/jobset",
    ),
    "mpi-operator": ("github.com/kubeflow/mpi-operator/cmd/mpi-operator",),
    "stern": ("github.com/stern/stern",),
    "crane": ("github.com/google/go-containerregistry/cmd/crane",),
}
# Folders of a module that are needed beside its programs: manifests are applied as released.
_EXTRA = {
    "operator": (("github.com/kubeflow/training-operator", "manifests"),),
    "older-operator": (("github.com/kubeflow/training-operator", "manifests"),),
    "trainer": (("github.com/kubeflow/trainer/v2", "manifests"), ("sigs.k8s.io/jobset", "config")),
    "mpi-operator": (("github.com/kubeflow/mpi-operator", "manifests"),),
    "kueue": (("sigs.k8s.io/kueue", "config"),),
}

NAMES = ("kubernetes", "operator", "coredns")
"""Those that every cluster is made of; extras.py names those that some tests need."""
FOR_BENCHMARKS = ("stern", "crane")


_PLENTY = 4 << 30  # bytes for each core


def _memory() -> int:
    """Return how many bytes this machine can give without swapping."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def key(name: str) -> str:
    """Return the digest of all that decides what module folder `name` becomes."""
    tags = _TAGS.get(name, ())
    beside = _EXTRA.get(name, (None,))
    return digest(pins.MODULES / name, _PACKAGES[name], _FLAGS.get(name), *beside, *tags)


def ready(name: str) -> bool:
    """Tell whether the programs of module folder `name` are in the cache."""
    return made(f"go-{name}", key(name)) is not None


def programs(name: str, log: Path | None = None) -> Path:
    """Return the folder with the programs of modules/`name`, built unless they are there."""

    def build(folder: Path) -> None:
        module = pins.MODULES / name
        env = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
        if _memory() > _PLENTY * (os.cpu_count() or 1):
            # The compiler looks for garbage less often: a tenth less work, for more memory.
            env = {"GOGC": "400"} | env
        run(
            ["go", "build", "-trimpath", "-ldflags", f"-s -w{_FLAGS.get(name, '')}",
             "-tags", ",".join(_TAGS.get(name, ())), "-o", f"{folder}/", *_PACKAGES[name]],
            cwd=module, env=env, log=log,
            hint="the Go module proxy must be reachable; `go env GOPROXY` names it",
        )  # fmt: skip
        for path, inside in _EXTRA.get(name, ()):
            source = run(["go", "list", "-m", "-f", "{{.Dir}}", path], cwd=module, env=env).strip()
            shutil.copytree(Path(source) / inside, folder / Path(inside).name)
            # Files of a module are read-only, folders too: nobody could remove the copy.
            for item in [folder, *folder.rglob("*")]:
                item.chmod(item.stat().st_mode | 0o200)

    return make(f"go-{name}", key(name), build)


def on_demand(name: str) -> Path:
    """Return the folder with programs that no cluster is made of, built by whoever is first.

    Raises:
        ClusterError: it cannot be built; names the log.
    """
    if not ready(name):
        with lock():
            if not ready(name):
                print(f"==> building {name} (the first time: minutes)", flush=True)
                programs(name, cache() / "logs" / f"{name}.log")
    return programs(name)
