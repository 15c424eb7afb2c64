"""The proxy before the API server: each fault, as a real client sees it."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faults.proxy import Proxy
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until


@dataclass(frozen=True)
class Case:
    """A fault, a pattern for kubectl's words, and how a connection that is there ends by it."""

    harm: Callable[[Proxy], None]
    words: str
    ending: str
    at_once: bool = False  # without another byte from either side


REFUSED = "was refused"
RESET = "connection reset by peer|unexpected EOF"
"""In the midst of an answer kubectl says either."""
FAULTS = {
    "reset": Case(lambda p: p.reset(), "connection reset by peer", "RST", at_once=True),
    "reset-late": Case(lambda p: p.reset(after=9000), RESET, "RST"),
    "reset-inside-a-record": Case(
        lambda p: p.reset(inside_record=True), "connection reset by peer", "RST"
    ),
    "close": Case(lambda p: p.close(), "EOF", "FIN", at_once=True),
    "truncate": Case(lambda p: p.truncate(9000), "unexpected EOF", "FIN"),
    "stall": Case(lambda p: p.stall(), "exceeded", "silence"),
    "refuse": Case(lambda p: p.refuse(), REFUSED, "RST", at_once=True),
}
second = pytest.mark.second("rig")
each_fault = pytest.mark.parametrize("case", FAULTS.values(), ids=FAULTS)


@pytest.fixture
def big(namespace: Namespace) -> str:
    """The path of an object of 100 kB, so that an answer has a middle."""
    namespace.create_objects(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "big"},
            "data": {"text": "x" * 100_000},
        }
    )
    return f"/api/v1/namespaces/{namespace.name}/configmaps/big"


@pytest.fixture
def connection(local_cluster: Cluster, proxy: Proxy) -> Iterator[http.client.HTTPSConnection]:
    """A connection that is there already, and stays between requests."""
    pki = local_cluster.at.pki
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    made = http.client.HTTPSConnection("127.0.0.1", proxy.port, timeout=60, context=context)
    made.request("GET", "/version")
    assert json.loads(made.getresponse().read())["major"] == "1"
    yield made
    made.close()


def ending(connection: http.client.HTTPSConnection, patience: float = 60) -> str:
    """Return how the connection ends, as the kernel says it; Python's TLS does not always."""
    raw = socket.socket(fileno=connection.sock.fileno())
    raw.settimeout(patience)
    try:
        while raw.recv(1 << 16):
            pass
        return "FIN"
    except ConnectionResetError:
        return "RST"
    except TimeoutError:
        return "silence"
    finally:
        raw.detach()


def fetch(connection: http.client.HTTPSConnection, path: str) -> bytes:
    connection.request("GET", path)
    return connection.getresponse().read()


@pytest.mark.stands_for("rig")
def test_without_a_fault_everything_goes_through_and_is_counted(
    proxy: Proxy, big: str, kubectl_as: Any, tmp_path: Path
) -> None:
    through = proxy.kubeconfig(tmp_path / "kubeconfig")

    done = kubectl_as(through, "get", "--raw", big)

    assert "x" * 100_000 in done.stdout
    assert proxy.url in through.read_text()
    assert proxy.traffic.accepted == 1
    assert proxy.traffic.received > 100_000 > proxy.traffic.sent > 0
    until(lambda: proxy.traffic.present == 0, "the connection to be gone", 60)


@second
@each_fault
def test_a_new_connection_meets_the_fault_and_none_after_it(
    proxy: Proxy,
    big: str,
    kubectl_as: Any,
    tmp_path: Path,
    case: Case,
) -> None:
    through = proxy.kubeconfig(tmp_path / "kubeconfig")
    case.harm(proxy)

    limit = f"--request-timeout={3 if case.ending == 'silence' else 50}s"
    failed = kubectl_as(through, "get", "--raw", big, limit)
    proxy.pass_on()
    done = kubectl_as(through, "get", "--raw", big)

    assert failed.returncode
    assert re.search(case.words, failed.stderr)
    assert (proxy.traffic.accepted == 1) == (case.words == REFUSED)
    assert done.returncode == 0, done.stderr


@second
@each_fault
def test_a_connection_that_is_there_meets_the_fault(
    proxy: Proxy,
    big: str,
    connection: http.client.HTTPSConnection,
    case: Case,
) -> None:
    case.harm(proxy)

    if not case.at_once:
        connection.request("GET", big)

    assert ending(connection, 3 if case.ending == "silence" else 60) == case.ending
    assert proxy.traffic.accepted == 1


@second
def test_an_answer_is_cut_at_the_byte_that_was_asked_for(
    proxy: Proxy, big: str, connection: http.client.HTTPSConnection
) -> None:
    before = proxy.traffic.received
    proxy.truncate(50_000)

    with pytest.raises(http.client.IncompleteRead):
        fetch(connection, big)

    assert proxy.traffic.received - before == 50_000


@second
def test_a_reset_inside_a_record_comes_before_its_end(
    proxy: Proxy, big: str, connection: http.client.HTTPSConnection
) -> None:
    before = proxy.traffic.received
    proxy.reset(inside_record=True)

    connection.request("GET", big)

    assert ending(connection) == "RST"
    assert proxy.traffic.received - before == 6  # the record's head and one byte of it


@second
def test_a_delay_is_added_both_ways(
    proxy: Proxy, big: str, connection: http.client.HTTPSConnection
) -> None:
    proxy.delay(0.3)
    began = time.monotonic()

    fetch(connection, big)

    assert time.monotonic() - began >= 0.6


@second
def test_a_throttled_answer_comes_at_the_rate_until_the_fault_ends(
    proxy: Proxy, big: str, connection: http.client.HTTPSConnection
) -> None:
    proxy.throttle(60_000)
    began = time.monotonic()

    fetch(connection, big)

    # Less the last of the pieces, of which a second has twenty: nobody waits behind it.
    assert time.monotonic() - began >= 97_000 / 60_000
    proxy.throttle(100)
    connection.request("GET", big)
    proxy.pass_on()
    assert b"x" * 100_000 in connection.getresponse().read()


@second
def test_a_watch_that_stalls_misses_nothing_when_it_goes_on(
    local_cluster: Cluster, proxy: Proxy, namespace: Namespace, tmp_path: Path
) -> None:
    through = proxy.kubeconfig(tmp_path / "kubeconfig")
    output = tmp_path / "seen"
    watch = local_cluster.kubectl_argv(
        "--kubeconfig", str(through), "-n", namespace.name, "get", "configmaps", "-w", "-o", "name"
    )
    with output.open("w") as file, subprocess.Popen(watch, stdout=file) as watching:
        try:
            namespace.kubectl("create", "configmap", "early")
            until(lambda: "configmap/early" in output.read_text(), "the first event", 30)
            proxy.stall()
            namespace.kubectl("create", "configmap", "late")
            received = proxy.traffic.received
            time.sleep(1)  # nothing may come: there is no event to wait for
            assert proxy.traffic.received == received
            assert "configmap/late" not in output.read_text()
            proxy.pass_on()
            until(lambda: "configmap/late" in output.read_text(), "the second event", 30)
        finally:
            watching.kill()
