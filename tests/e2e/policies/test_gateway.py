"""Gateways of deploy/ with their policies and the team's, on a network that enforces them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.e2e.gateway import place
from tests.e2e.gateway.place import Gateway, Kind, listens
from tests.e2e.policies.outside import NEAR, WEB, Outside
from tests.e2e.policies.test_networks import rendered

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.second("gateway"),
    pytest.mark.xdist_group("policies"),
    pytest.mark.usefixtures("with_enterprise_gateway", "with_jupyter"),
]
KINDS = {kind.name: kind for kind in (place.ENTERPRISE_GATEWAY, place.PROVISIONERS)}

MEETS = """\
%framework=tensorflow
%ps=1
%worker=2
%successPolicy=allWorkers
import json, os, socket, time
config = json.loads(os.environ["TF_CONFIG"])
host, _, port = config["cluster"]["ps"][0].partition(":")
if config["task"]["type"] == "ps":
    server = socket.create_server(("", int(port)))
    while True:
        server.accept()[0].sendall(b"from the ps")
while True:
    try:
        with socket.create_connection((host, int(port)), 5) as connection:
            print("got", connection.recv(100).decode(), flush=True)
        break
    except OSError:
        time.sleep(0.2)
"""

TRIES = """\
import socket

def passes(*place):
    try:
        socket.create_connection(place, 3).close()
        return True
    except OSError:
        return False
"""


@pytest.fixture(scope="module", params=KINDS)
def gateway(
    request: pytest.FixtureRequest, enforced: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    kind: Kind = KINDS[request.param]
    folder = tmp_path_factory.mktemp("network")
    with place.serving(enforced, kind) as made:
        made.team.namespace.create_objects(
            *rendered("team/network", folder, enforced, made.team.name)
        )
        made.namespace.create()
        # This machine is a user outside the cluster, as one behind an Ingress controller is.
        made.namespace.create_objects(_opens(enforced.at.host_address))
        yield made


def _opens(address: str) -> dict[str, object]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "this-machine"},
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"ipBlock": {"cidr": f"{address}/32"}}], "ports": [{"port": 8888}]}
            ],
        },
    }


def test_a_kernel_runs_a_job_behind_all_policies(gateway: Gateway, outside: Outside) -> None:
    """It starts, reports, gets its cells, and submits a job whose replicas meet."""
    kernel = gateway.start(gateway.up())
    done = kernel.run(MEETS)
    assert done.status == "ok", done.of("error")
    assert done.text.count("got from the ps") == 2
    kernel.run(TRIES)
    address, port = listens(gateway.cluster)
    assert kernel.value(f"print(passes({address!r}, {port}))") == "True"
    assert kernel.value(f"print(passes({WEB!r}, 443))") == "True"
    assert kernel.value(f"print(passes({NEAR!r}, 443))") == "False"
    kernel.delete()
