"""Raising and lowering leaves the machine as it was; what is up is mended, not raised again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import operators, recipes
from tests.cluster.cluster import Cluster
from tests.cluster.layout import layout
from tests.cluster.programs import on_demand
from tests.cluster.waiting import until

# Other tests have processes, devices and network namespaces too.
pytestmark = [pytest.mark.alone, pytest.mark.second("rig")]
ROOT = Path(__file__).parents[3]


def command(verb: str) -> list[str]:
    return [sys.executable, "-m", "tests.cluster", "--name", "scratch", verb]


def told(verb: str) -> str:
    done = subprocess.run(command(verb), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rules() -> str:
    """The machine's iptables rules, listed by the node's own program: it may have none."""
    base, node = recipes.BASE.folder(), recipes.NODE.folder()
    loader = next((base / "usr/lib64").glob("ld-linux*"), None) or next(
        (base / "usr/lib").rglob("ld-linux*")
    )
    folders = {str(library.parent) for tree in (base, node) for library in tree.rglob("lib*.so.*")}
    argv = [loader, "--library-path", ":".join(sorted(folders))]
    saved = subprocess.run(
        [*argv, node / "usr/sbin/xtables-nft-multi", "iptables-save"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return "\n".join(line for line in saved.splitlines() if not line.startswith("#"))


def shown(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def machine() -> dict[str, object]:
    """What a cluster could change on the machine."""
    settings = (
        "vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops",
        "kernel/keys/root_maxkeys", "net/ipv4/ip_forward", "net/netfilter/nf_conntrack_max",
    )  # fmt: skip
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    of_scratch = [
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if b"run/scratch" in _content(path)
    ]
    return {
        "mounts": sorted(mounts),
        "devices": [line.split(":")[1] for line in shown("ip", "-o", "link").splitlines()],
        "routes": shown("ip", "route", "show", "table", "all"),
        "rules": shown("ip", "rule"),
        "iptables": rules(),
        "settings": {
            name: Path("/proc/sys", name).read_text()
            for name in settings
            if Path("/proc/sys", name).exists()
        },
        "process namespaces": _namespaces(),
        "processes": of_scratch,
        "cgroups": sorted(
            str(path)
            for pattern in ("ciao-cluster*", "*/ciao-cluster*")
            for path in Path("/sys/fs/cgroup").glob(pattern)
        ),
        "folder": layout("scratch").folder.exists(),
    }


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended meanwhile
        return b""


def _namespaces() -> set[str]:
    """Network namespaces that processes are in, but for those of the other tests' clusters."""
    found = set()
    others = {Cluster(layout(name)).node.pid for name in ("main", "policies")}
    for link in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            if others.isdisjoint(_line(int(link.parts[2]))):
                found.add(str(link.readlink()))
        except OSError:  # it ended meanwhile
            continue
    return found


def _line(pid: int) -> list[int]:
    """A process, its parent, and so on up to the machine's first."""
    line = [pid]
    while line[-1] > 1:
        line.append(int(Path(f"/proc/{line[-1]}/stat").read_text().rpartition(")")[2].split()[1]))
    return line


@pytest.fixture
def lowered(local_cluster: Cluster) -> Cluster:
    """A cluster of its own beside the one that the other tests use."""
    scratch = Cluster(layout("scratch"))
    scratch.down()
    yield scratch
    scratch.down()


def test_two_rounds_of_up_and_down_leave_the_machine_as_it_was(lowered: Cluster) -> None:
    before = machine()
    for _ in range(2):
        assert f"export KUBECONFIG={lowered.at.kubeconfig}" in told("up")
        up = machine()
        assert lowered.at.device in str(up["devices"])
        assert up["folder"]
        # All of it but the cable, the cgroups and the folder is the node's own.
        assert up["mounts"] == before["mounts"]
        assert up["iptables"] == before["iptables"]
        assert up["settings"] == before["settings"]
        told("down")
        assert machine() == before


def test_an_up_that_is_killed_half_way_is_cleaned_up_by_down(lowered: Cluster) -> None:
    before = machine()
    raising = subprocess.Popen(
        command("up"), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(lambda: "etcd" in _parts(lowered), "the first part", 150)
    raising.kill()
    raising.wait()
    assert machine() != before
    told("down")
    assert machine() == before


def _parts(cluster: Cluster) -> dict[str, dict[str, float]]:
    try:
        return cluster.node.parts()
    except OSError:  # its socket is not there yet
        return {}


def test_up_and_status_on_a_cluster_that_is_down_and_up(lowered: Cluster) -> None:
    status = subprocess.run(
        command("status"), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert status.returncode == 1
    assert "not up" in status.stdout
    told("up")
    text = told("status")
    for name in [*lowered.parts, "coredns", "training-operator"]:
        line = next(line for line in text.splitlines() if line.startswith(name))
        assert "well" in line or name in ("kwok", "policies"), text
    pids = {name: part["pid"] for name, part in lowered.node.parts().items()}
    lowered.kill("scheduler")
    assert "scheduler does not do its work; starting it again" in told("up")
    again = {name: part["pid"] for name, part in lowered.node.parts().items()}
    assert again.pop("scheduler") != pids.pop("scheduler")
    assert again == pids


@pytest.mark.usefixtures("with_older_operator")
def test_an_older_operator_that_was_left_is_put_back_by_up(lowered: Cluster) -> None:
    told("up")
    on_demand("older-operator")
    operators.replace(lowered.at, lowered.kubectl, recipes.OLDER_OPERATOR)  # and nobody goes on
    assert "mxjobs" in lowered.kubectl("get", "customresourcedefinitions", "-o", "name")
    assert "putting the usual one back" in told("up")
    kinds = lowered.kubectl("get", "customresourcedefinitions", "-o", "name")
    assert "jaxjobs" in kinds
    assert "mxjobs" not in kinds
    assert "putting the usual one back" not in told("up")
    path = "jsonpath={.spec.template.spec.containers[*].image}"
    image = lowered.kubectl("get", "deployment/training-operator", "-n", "kubeflow", "-o", path)
    assert image == lowered.image("training-operator")


def test_a_device_of_that_name_is_an_error_and_nothing_is_touched(lowered: Cluster) -> None:
    device = lowered.at.device
    shown("ip", "link", "add", device, "type", "veth", "peer", "name", "ciao-other")
    try:
        before = machine()
        done = subprocess.run(command("up"), cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert f"a device named {device} is there" in done.stderr
        assert "ip link delete" in done.stderr
        assert machine() == before
    finally:
        shown("ip", "link", "delete", device)
