"""Machines outside a cluster: a network of its own on the node, with addresses of three kinds."""

from __future__ import annotations

from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.parts import ENVIRONMENT
from tests.cluster.waiting import until
from tests.e2e.policies.reach import LISTENS

WEB = "198.51.100.7"
"""A public address; RFC 5737 has it for examples."""
NEAR = "10.1.2.3"
"""Another machine of the company."""
METADATA = "169.254.169.254"
"""Where clouds tell a machine its passwords."""
PORTS = (22, 80, 443)

# The last address is of the node, which needs one in the network that leads there.
_NETWORK = f"""
set -e
ip netns add outside
ip link add outside type veth peer name eth0 netns outside
ip address add 10.1.2.1/24 dev outside
ip link set outside up
ip -n outside link set lo up
ip -n outside link set eth0 up
ip -n outside address add {NEAR}/24 dev eth0
ip -n outside route add default via 10.1.2.1
for address in {WEB} {METADATA}; do
    ip -n outside address add $address/32 dev lo
    ip route add $address/32 via {NEAR}
done
"""


class Outside:
    """These machines, of one cluster; they go with its node."""

    def __init__(self, cluster: Cluster) -> None:
        self._node = cluster.node
        self._log = cluster.at.logs / "outside.log"

    def start(self) -> None:
        """Start them unless they are there; they take connections when it returns."""
        if "outside" in self._node.parts():
            return
        self._node.run(["sh", "-c", _NETWORK])
        argv = ["ip", "netns", "exec", "outside", "python3", "-uc", LISTENS, *map(str, PORTS)]
        self._node.launch("outside", argv, ENVIRONMENT)
        until(self._listens, "the machines outside to listen", 30)

    def _listens(self) -> bool:
        if self._node.parts()["outside"]["code"] is not None:
            raise ClusterError(f"they do not listen: {self._log.read_text()}")
        return "listens" in self._log.read_text()
