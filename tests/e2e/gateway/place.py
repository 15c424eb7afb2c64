"""Gateways in the tests' cluster, made from deploy/: images, objects, addresses."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster import recipes, store
from tests.cluster.cluster import Cluster
from tests.cluster.faults import pods
from tests.cluster.namespace import Kubernetes, Namespace
from tests.cluster.waiting import until
from tests.e2e.gateway.client import Api, RemoteKernel
from tests.helpers import installed

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
SPEC = "ciao_kubernetes"
_JOB_LABEL = "training.kubeflow.org/job-name"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def wheel() -> Path:
    """Return a wheel of this tree, built unless it is in the cache."""
    files = [ROOT / name for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")]
    files += sorted((ROOT / "ciao_kernel").rglob("*.py")) + sorted((ROOT / "kernelspec").iterdir())
    key = store.digest(*files)

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as at:
            (made,) = installed.build(Path(at), "--wheel").glob("*.whl")
            (folder / made.name).write_bytes(made.read_bytes())

    with store.lock():
        (found,) = store.make("wheel", key, build).glob("*.whl")
    return found


class Team:
    """A namespace in which kernels and their jobs run, with the rights of deploy/.

    Args:
        cluster: Where.
        name: What its name begins with.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.namespace = Namespace(cluster, name, RESTRICTED)
        self.namespace.create()

    @property
    def name(self) -> str:
        return self.namespace.name

    def jobs(self) -> set[str]:
        """The jobs that are there and not being deleted."""
        found = self.namespace.get("tfjobs")["items"]
        return {
            one["metadata"]["name"] for one in found if "deletionTimestamp" not in one["metadata"]
        }

    def phases(self, job: str) -> list[str]:
        """The phases of a job's pods."""
        found = self.namespace.get("pods", "-l", f"{_JOB_LABEL}={job}")["items"]
        return [one["status"]["phase"] for one in found]

    def kernels(self) -> dict[str, dict[str, Any]]:
        """The pods of kernels, by the kernels' ids."""
        found = self.namespace.get("pods", "-l", "component=kernel")["items"]
        return {one["metadata"]["labels"]["kernel_id"]: one for one in found}

    def pods(self) -> set[str]:
        """The uids of all pods, those that are ending too."""
        return {one["metadata"]["uid"] for one in self.namespace.get("pods")["items"]}

    def pod(self, kernel: str) -> str:
        """The name of a kernel's pod."""
        name: str = self.kernels()[kernel]["metadata"]["name"]
        return name

    def left(self, job: str) -> list[str]:
        """What there is of a job: itself, its pods, its ConfigMap."""
        labels = {"pods": _JOB_LABEL, "configmaps": "ciao-kernel/job", "tfjobs": "ciao-kernel/job"}
        found = [
            one
            for kind, label in labels.items()
            for one in self.namespace.get(kind, "-l", f"{label}={job}")["items"]
        ]
        return [f"{one['kind']} {one['metadata']['name']}" for one in found]


@dataclass(frozen=True)
class Kind:
    """A folder of deploy/ with a server that starts kernels as pods.

    Args:
        folder: In deploy/.
        team: In deploy/, with the rights in a team's namespace.
        name: Of its own namespace, the Deployment, the Service and the Secret.
        image: Of the Deployment, as deploy/ names it.
        kernelspec: In deploy/.
        table: Where in the kernelspec's metadata the kernel's image stands.
    """

    folder: str
    team: str
    name: str
    image: str
    kernelspec: str
    table: str


ENTERPRISE_GATEWAY = Kind(
    "enterprise-gateway/gateway",
    "enterprise-gateway/team",
    "enterprise-gateway",
    "elyra/enterprise-gateway",
    "enterprise-gateway/kernelspec/kernel.json",
    "process_proxy",
)
PROVISIONERS = Kind(
    "gateway-provisioners",
    "gateway-provisioners/team",
    "jupyter",
    "registry.example.com/jupyter",
    "gateway-provisioners/kernel.json",
    "kernel_provisioner",
)


class Gateway:
    """A server that starts kernels as pods, and the namespace of a team that uses it.

    Args:
        cluster: Where.
        folder: An empty folder.
        kind: Which server.
    """

    def __init__(self, cluster: Cluster, folder: Path, kind: Kind) -> None:
        self.cluster, self.folder, self.kind = cluster, folder, kind
        self.token = secrets.token_hex(8)
        self.kernel = cluster.put(recipes.kernel(wheel()))
        theirs = kind is ENTERPRISE_GATEWAY
        self.image = cluster.put(recipes.ENTERPRISE_GATEWAY if theirs else recipes.jupyter(wheel()))
        self.team = Team(cluster, "team")
        self.namespace = Namespace(cluster, kind.name)

    def up(self, folder: str = "", *, args: list[str] | None = None, kernel_class: str = "") -> Api:
        """Put it into the cluster, or change it there, and wait until it answers.

        Args:
            folder: Of deploy/; "" means the usual one.
            args: Of its command line instead of those of deploy/.
            kernel_class: Of its kernels; "" means ciao's.
        """
        self._apply("server", folder or self.kind.folder, self._changes(args), kernel_class)
        self._apply("team", self.kind.team, self._rights())
        ours = ("-n", self.namespace.name)
        self.cluster.kubectl(
            "rollout", "status", f"deployment/{self.kind.name}", *ours, "--timeout=140s"
        )
        service = self.namespace.get(f"service/{self.kind.name}")
        port = service["spec"]["ports"][0]["nodePort"]
        api = Api(f"http://{self.cluster.at.address}:{port}", self.token)
        until(api.answers, "the server to answer", 120, every=0.2)
        return api

    def down(self) -> None:
        """Remove all that is of it, cluster-wide roles too."""
        if (self.folder / "server").exists():
            rendered = self.cluster.kubectl("kustomize", str(self.folder / "server"))
            self.cluster.kubectl(
                "delete", "--ignore-not-found", "--wait=false", "-f", "-", text=rendered
            )
        self.team.namespace.delete()

    def start(self, api: Api, **env: str) -> RemoteKernel:
        """Start a kernel in the team's namespace."""
        usual = {
            "KERNEL_USERNAME": "ada",
            "KERNEL_NAMESPACE": self.team.name,
            # The gateway takes answers of starting kernels one after another, and other tests
            # may keep the machine busy.
            "KERNEL_LAUNCH_TIMEOUT": "280",
        }
        return api.start(SPEC, **{**usual, **env})

    def kill(self) -> None:
        """Kill it without a word (SIGKILL), and wait until its pod has started it again."""
        before = self._container()
        pods.send(self.cluster, before, signal.SIGKILL)
        until(lambda: self._container() not in ("", before), "the server to start again", 60)

    def freeze(self) -> None:
        """Let it stand still (SIGSTOP): connections stay, nobody answers."""
        pods.send(self.cluster, self._container(), signal.SIGSTOP)

    def restarts(self) -> int:
        """How often its container was started again."""
        found = self.namespace.get("pods", "-l", f"app={self.kind.name}")["items"]
        states = [one["status"].get("containerStatuses") or () for one in found]
        return sum(one["restartCount"] for each in states for one in each)

    def _container(self) -> str:
        """What runs in its pod now; "" while nothing does."""
        found = self.namespace.get("pods", "-l", f"app={self.kind.name}")["items"]
        running = [
            str(status["containerID"]).rpartition("/")[2]
            for pod in found
            for status in pod["status"].get("containerStatuses", ())
            if "running" in status["state"]
        ]
        return "".join(running)

    def log(self) -> str:
        """The end of what it wrote."""
        return self.namespace.kubectl("logs", f"deployment/{self.kind.name}", "--tail=60")

    def _apply(self, name: str, base: str, overlay: dict[str, Any], kernel_class: str = "") -> None:
        """Apply a folder of deploy/ with some changes."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "kernel.json").write_text(json.dumps(self._spec(kernel_class)))
        resources = [os.path.relpath(DEPLOY / base, folder.resolve())]
        content = json.dumps({"resources": resources, **overlay})
        (folder / "kustomization.yaml").write_text(content)
        self.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(folder))

    def _spec(self, kernel_class: str) -> dict[str, Any]:
        """The kernelspec of deploy/ with this cluster's images."""
        spec: dict[str, Any] = json.loads((DEPLOY / self.kind.kernelspec).read_text())
        spec["metadata"][self.kind.table]["config"]["image_name"] = self.kernel
        if kernel_class:
            spec["argv"][-1] = kernel_class
        # An image with a user: the namespace takes no other.
        return {
            **spec,
            "env": {"CIAO_IMAGES": f"tensorflow={self.kernel}", "CIAO_CPU_REQUEST": "10m"},
        }

    def _changes(self, args: list[str] | None) -> dict[str, Any]:
        """This cluster's images, and an address that this machine reaches."""
        image, _, tag = self.image.rpartition(":")
        changes: list[dict[str, Any]] = [
            {"op": "replace", "path": f"{_POD}/readinessProbe/periodSeconds", "value": 1}
        ]
        if args is not None:
            changes.append({"op": "replace", "path": f"{_POD}/args", "value": args})
        spec = {"name": "ciao-kernelspec", "behavior": "merge", "files": ["kernel.json"]}
        return {
            "namespace": self.namespace.name,
            "images": [{"name": self.kind.image, "newName": image, "newTag": tag}],
            "configMapGenerator": [{**spec, "namespace": self.kind.name}],
            "secretGenerator": [{"name": self.kind.name, "literals": [f"token={self.token}"]}],
            "patches": [
                patch("Service", [{"op": "add", "path": "/spec/type", "value": "NodePort"}]),
                patch("Deployment", changes),
                patch("NetworkPolicy", [api_server(self.cluster)], "api-server"),
                *self._kernels(),
            ],
        }

    def _kernels(self) -> list[dict[str, Any]]:
        """Where a server's kernels run whose users do not name a namespace."""
        name = self.kind.name
        env = [{"name": "KERNEL_NAMESPACE", "value": self.team.name}]
        change = {"template": {"spec": {"containers": [{"name": name, "env": env}]}}}
        head = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}}
        made = {"patch": json.dumps({**head, "spec": change})}
        return [made] if self.kind is PROVISIONERS else []

    def _rights(self) -> dict[str, Any]:
        """Those of the team's namespace, for the gateway in its own."""
        change = {"op": "replace", "path": "/subjects/0/namespace", "value": self.namespace.name}
        return {
            "namespace": self.team.name,
            "patches": [patch("RoleBinding", [change], self.kind.name)],
        }


def api_server(cluster: Cluster) -> dict[str, Any]:
    """The change that writes a cluster's API server into a NetworkPolicy of deploy/."""
    block = {"cidr": f"{cluster.at.address}/32"}
    return {"op": "replace", "path": "/spec/egress/0/to/0/ipBlock", "value": block}


def listens(cluster: Kubernetes) -> tuple[str, int]:
    """Where the API server takes connections, as deploy/team/README.md has it looked up."""
    label = "kubernetes.io/service-name=kubernetes"
    (found,) = cluster.api.get("default", "endpointslices.discovery.k8s.io", "-l", label)["items"]
    (end,), (port,) = found["endpoints"], found["ports"]
    return str(end["addresses"][0]), int(port["port"])


_POD = "/spec/template/spec/containers/0"


def patch(kind: str, changes: list[dict[str, Any]], name: str = "") -> dict[str, Any]:
    target = {"kind": kind, **({"name": name} if name else {})}
    return {"target": target, "patch": json.dumps(changes)}


@contextlib.contextmanager
def serving(cluster: Cluster, kind: Kind) -> Iterator[Gateway]:
    """A server that is removed in the end, whatever happens."""
    with tempfile.TemporaryDirectory() as folder:
        made = Gateway(cluster, Path(folder), kind)
        try:
            yield made
        finally:
            made.down()


def memory(uid: str) -> float:
    """Bytes of all processes of a pod; what they share with others counts by halves (PSS)."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if uid in (process / "cgroup").read_text():
                rollup = (process / "smaps_rollup").read_text()
                total += int(rollup.partition("\nPss:")[2].split()[0]) * 1024
    return float(total)
