"""Who really reaches whom: pods that take connections on all ports in question, and open some."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until

LISTENS = """
import selectors, socket, sys
ready = selectors.DefaultSelector()
for port in sys.argv[1:]:
    ready.register(socket.create_server(("", int(port))), selectors.EVENT_READ)
print("listens", flush=True)
while True:
    for key, _ in ready.select():
        key.fileobj.accept()[0].close()
"""
"""A program that takes TCP connections on the ports of its arguments."""

# What is refused may also be dropped: then nobody answers, and two seconds are long on one node.
_TRIES = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor

QUERY = bytes.fromhex("001201000001000000000000") + b"\\6others\\4test\\0" + bytes([0, 1, 0, 1])

def passes(way):
    address, port, protocol = way
    try:
        if protocol == "UDP":
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
                asked.settimeout(2)
                asked.connect((address, port))
                asked.send(QUERY)
                return asked.recv(512)[:2] == QUERY[:2]
        socket.create_connection((address, port), 2).close()
    except OSError:
        return False
    return True

ways = json.loads(sys.argv[1])
with ThreadPoolExecutor(16) as pool:
    print(json.dumps(list(pool.map(passes, ways))))
"""

Way = tuple[str, int, str]
"""Address, port and protocol. A question by UDP is one for a name."""


class End:
    """A pod that takes connections, and opens some when it is asked to.

    Args:
        namespace: Where it runs.
        name: Of the pod.
        labels: Of the pod.
        ports: Where it takes connections.
    """

    def __init__(
        self, namespace: Namespace, name: str, labels: Mapping[str, str], ports: Iterable[int]
    ) -> None:
        self.namespace, self.name, self.labels = namespace, name, dict(labels)
        self._ports = [str(port) for port in ports]

    def start(self) -> None:
        """Create the pod; does not wait for it."""
        container = {
            "name": "tools",
            "image": self.namespace.cluster.image("tools"),
            "command": ["python3", "-uc", LISTENS, *self._ports],
        }
        self.namespace.create_objects(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": self.name, "labels": self.labels},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
            }
        )

    def wait(self) -> None:
        """Wait until it takes connections."""
        pod = f"pod/{self.name}"
        self.namespace.wait_for_pod(self.name, "Running")
        until(lambda: "listens" in self.namespace.kubectl("logs", pod), f"{pod} to listen", 60)

    @property
    def address(self) -> str:
        """Its own."""
        return str(self._pod()["status"]["podIP"])

    def _pod(self) -> Any:
        return self.namespace.get(f"pod/{self.name}")

    def reached(self, ways: Mapping[str, Way]) -> set[str]:
        """Open a connection for each way; return the names of those that were taken."""
        asked = json.dumps(list(ways.values()))
        told = self.namespace.kubectl("exec", self.name, "--", "python3", "-c", _TRIES, asked)
        return {name for name, open_ in zip(ways, json.loads(told), strict=True) if open_}
