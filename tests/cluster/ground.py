"""Looks at the machine before anything is changed, and says what stands in the way."""

import ipaddress
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from tests.cluster import pins
from tests.cluster.errors import ClusterError
from tests.cluster.layout import Layout, cache

_ALWAYS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux",
           "pivot_root": "util-linux", "mount": "mount", "openssl": "openssl"}  # fmt: skip
_BUILD = {"go": "golang", "apt-get": "apt", "dpkg-deb": "dpkg", "wget": "wget",
          "gpgv": "gpgv", "perl": "perl"}  # fmt: skip
_NETLINK_NETFILTER = 12  # linux/netlink.h
GIB = 1 << 30
ROOM_TO_BUILD, ROOM_TO_RUN, MEMORY = 14 * GIB, 3 * GIB, 4 * GIB


def unfit() -> str | None:
    """Return why no cluster can be raised on this kind of machine, or None if it can.

    Asked by the tests: on such a machine they are left out, which they say.
    """
    if sys.platform != "linux":
        return f"it needs Linux, this is {sys.platform}"
    if os.geteuid() != 0:
        return "it needs root: sudo make cluster"
    if not shutil.which("apt-get"):
        return "it needs Debian or a system made from it (no apt-get here)"
    return None


def check(at: Layout, *, building: bool) -> None:
    """Make sure that a cluster can be raised here.

    Args:
        at: where it would be.
        building: whether something has to be built first.

    Raises:
        ClusterError: names what is wrong, what was expected and what mends it.
    """
    if reason := unfit():
        raise ClusterError(
            f"a cluster cannot be raised here: {reason}",
            "tests can use another cluster: CIAO_TEST_KUBECONFIG=FILE (docs/cluster.md)",
        )
    if platform.machine() not in ("x86_64", "aarch64"):
        raise ClusterError(f"no recipe for {platform.machine()}", "expected x86_64 or aarch64")
    wanted = _ALWAYS | (_BUILD if building else {})
    if missing := {name: package for name, package in wanted.items() if not shutil.which(name)}:
        raise ClusterError(
            f"missing programs: {', '.join(missing)}",
            f"apt-get install {' '.join(sorted(set(missing.values())))}",
        )
    _room(building)
    _kernel()
    _network(at)
    if building:
        _packages()


def _room(building: bool) -> None:
    folder = cache()
    while not folder.exists():
        folder = folder.parent
    need = ROOM_TO_BUILD if building else ROOM_TO_RUN
    free = shutil.disk_usage(folder).free
    if free < need:
        raise ClusterError(
            f"{cache()} has {free / GIB:.1f} GiB free, and {need / GIB:.0f} GiB are needed",
            "name a folder on a larger disk: CIAO_CLUSTER_CACHE=FOLDER",
        )
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:") and int(line.split()[1]) * 1024 < MEMORY:
            raise ClusterError(
                f"{int(line.split()[1]) / 1024**2:.1f} GiB of memory are free, "
                f"and {MEMORY / GIB:.0f} GiB are needed",
                "end other programs",
            )


# What the node needs of the kernel, tried in namespaces that are gone at once.
_PROBES = (
    ("namespaces (CAP_SYS_ADMIN)", "true", "run on the machine itself or in a privileged VM"),
    ("veth devices", "ip link add ciao0 type veth peer name ciao1", "modprobe veth"),
    ("bridge devices", "ip link add ciao2 type bridge", "modprobe bridge"),
    ("netfilter on bridges", "test -e /proc/sys/net/bridge/bridge-nf-call-iptables",
     "modprobe br_netfilter"),
    ("overlay file systems here",
     'mkdir "$0/l" "$0/u" "$0/w" "$0/m" && mount -t overlay o '
     '-o "lowerdir=$0/l,upperdir=$0/u,workdir=$0/w" "$0/m"',
     "the cache must lie on a disk (ext4, xfs), not on an overlay: CIAO_CLUSTER_CACHE=FOLDER"),
)  # fmt: skip


def _kernel() -> None:
    if shutil.which("modprobe"):
        for module in ("overlay", "br_netfilter", "nf_tables", "veth"):
            subprocess.run(["modprobe", module], capture_output=True, check=False)
    for feature, command, hint in _PROBES:
        scratch = cache() / "probe"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        try:
            tried = subprocess.run(
                ["unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork",
                 "sh", "-c", command, str(scratch)],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if tried.returncode:
            raise ClusterError(
                f"the kernel lacks {feature}: {tried.stderr.strip()[-200:] or 'no reason given'}",
                hint,
            )
    try:
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER).close()
    except OSError as error:
        raise ClusterError("the kernel lacks netfilter", "modprobe nf_tables") from error
    if not Path("/sys/fs/cgroup").is_dir() or not os.access("/sys/fs/cgroup", os.W_OK):
        raise ClusterError("cgroups are not mounted at /sys/fs/cgroup", "expected cgroup v1 or v2")


def _network(at: Layout) -> None:
    mine = ipaddress.ip_network(f"{at.address}/24", strict=False)
    listed = subprocess.run(["ip", "-json", "address"], capture_output=True, text=True, check=True)
    for device in json.loads(listed.stdout):
        if device["ifname"] == at.device:
            raise ClusterError(
                f"a device named {at.device} is there, and no cluster of this user's that it "
                "belongs to",
                f"another one's? lower that, or remove it: ip link delete {at.device}",
            )
        for entry in device.get("addr_info", ()):
            if entry["family"] == "inet":
                other = ipaddress.ip_network(f"{entry['local']}/{entry['prefixlen']}", strict=False)
                if other.overlaps(mine):
                    raise ClusterError(
                        f"{device['ifname']} has {other}, which overlaps the cluster's {mine}",
                        "change the addresses in tests/cluster/layout.py",
                    )


def _packages() -> None:
    asked = ["GOVERSION", "GOTOOLCHAIN", "GOPROXY"]
    answer = subprocess.run(["go", "env", *asked], capture_output=True, text=True, check=True)
    version, toolchain, proxy = answer.stdout.split("\n")[:3]
    # From 1.21 on, go fetches the toolchain that a module asks for, unless it is told not to.
    oldest = pins.GO if toolchain.startswith("local") else min((1, 21), pins.GO)
    number = re.match(r"go(\d+)\.(\d+)", version)  # anything else is built from its sources
    if number and (int(number[1]), int(number[2])) < oldest:
        raise ClusterError(
            f"{version} is too old, and fetches no newer one",
            f"expected go{pins.GO[0]}.{pins.GO[1]} (https://go.dev/dl), "
            "or at least go1.21 with GOTOOLCHAIN=auto",
        )
    proxy = proxy.split(",")[0]
    places = {"Debian's packages": f"{pins.MIRROR}/dists/{pins.DEBIAN}/InRelease"}
    if proxy.startswith("http"):
        places["Go modules"] = f"{proxy}/github.com/coredns/coredns/@v/{pins.COREDNS}.info"
    for what, url in places.items():
        try:
            urllib.request.urlopen(url, timeout=20).close()
        except (OSError, urllib.error.URLError) as error:
            raise ClusterError(
                f"{what} cannot be fetched: {error}",
                "a first build needs the network (Debian, PyPI, the Go module proxy)",
            ) from error
