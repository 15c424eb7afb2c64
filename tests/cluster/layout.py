"""Names, addresses and folders of one cluster. All of it can be told before anything exists."""

import os
from dataclasses import dataclass
from pathlib import Path

# The registry has one name everywhere, so that images keep theirs: an address of the node that
# pods, the node and (for the main cluster) this machine reach.
REGISTRY_ADDRESS = "10.200.0.2"


def cache() -> Path:
    """Return the folder of what is built and of what runs: outside the checkout, kept by `down`."""
    named = os.environ.get("CIAO_CLUSTER_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "ciao-cluster"


@dataclass(frozen=True)
class Layout:
    """Where one cluster lives. Two with different names and numbers can run side by side.

    Args:
        name: in the names of its folder, device and cgroups.
        number: 0 to 63; picks the node's addresses, 10.200.NUMBER.1 and .2.
        folder: of everything that goes when the cluster goes.
    """

    name: str
    number: int
    folder: Path

    # Inside the node's own network; nothing outside the node has a route to them.
    pods = "10.244.0.0/16"
    services = "10.96.0.0/16"
    api_service = "10.96.0.1"
    dns_service = "10.96.0.10"
    domain = "cluster.local"
    node = "ciao-node"

    @property
    def host_address(self) -> str:
        """The machine's end of the cable to the node."""
        return f"10.200.{self.number}.1"

    @property
    def address(self) -> str:
        """The node's end of it, where the API server and the registry listen."""
        return f"10.200.{self.number}.2"

    @property
    def device(self) -> str:
        """The machine's end of the cable as a network device (15 characters at most)."""
        return f"ciao-{self.name}"[:15]

    @property
    def cgroup(self) -> str:
        """The cgroup that holds all pods, in each hierarchy."""
        return f"ciao-cluster-{self.name}"

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://{self.address}:6443"

    @property
    def registry(self) -> str:
        """Host and port of the registry, the first part of each image's name."""
        return f"{REGISTRY_ADDRESS}:5000"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def pki(self) -> Path:
        """Certificates, keys and the parts' own kubeconfigs."""
        return self.folder / "pki"

    @property
    def logs(self) -> Path:
        """One file a part."""
        return self.folder / "logs"

    @property
    def control(self) -> Path:
        """The folder with the socket that the node's first process listens on."""
        return self.folder / "control"

    @property
    def pod_logs(self) -> Path:
        """What containers wrote, as the kubelet keeps it."""
        return self.folder / "root" / "upper" / "var" / "log" / "pods"


def layout(name: str = "main") -> Layout:
    """Return the cluster of that name.

    `scratch` is the one that tests raise and lower; in `policies` NetworkPolicies have an effect,
    and jobs wait in queues; in `mpi` MPIJobs are those of mpi-operator; in `older` a test
    replaces the training operator by an older one; `parts` is the one whose parts fail.
    """
    return Layout(name=name, number=_NUMBERS[name], folder=cache() / "run" / name)


_NUMBERS = {"main": 0, "scratch": 1, "build": 2, "policies": 3, "mpi": 4, "older": 5, "parts": 6}
NAMES = ("main", "scratch", "policies", "mpi", "older", "parts")
"""Those that one may raise by hand; the other one builds what is unpacked on nodes."""
