"""What an answer means: a refusal, something that passes, or no API server at all."""

from __future__ import annotations

import json
import socket
import ssl
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube import connection_faults, responses
from ciao_kernel.kube.access import Access
from ciao_kernel.kube.identity import Identity
from ciao_kernel.kube.object_shape import normalize
from ciao_kernel.kube.server import Server

pytestmark = pytest.mark.stands_for("oldest")


def status(reason: str, message: str = "because") -> bytes:
    return json.dumps({"kind": "Status", "reason": reason, "message": message}).encode()


@pytest.mark.parametrize(
    ("code", "data", "passes"),
    [
        (429, b"", True),
        (502, b"<html>", True),
        (503, b"", True),
        (504, status("Timeout"), True),
        (500, status("InternalError", 'failed calling webhook "x"'), True),
        (500, status("InternalError", "etcdserver: leader changed"), True),
        (500, status("InternalError", "rpc error: code = Unavailable desc = x"), True),
        (500, status("", "rpc error: code = Unknown desc = transport is closing"), True),
        (500, status("InternalError", "http2: client connection lost"), True),
        (
            500,
            status("InternalError", "dial tcp 127.0.0.1:2379: connect: connection refused"),
            True,
        ),
        (
            500,
            status("InternalError", "conversion webhook failed: connection refused"),
            False,
        ),
        (500, status("", 'admission webhook "x" denied it: rpc error: code = Unavailable'), False),
        (422, status("Invalid", "connection refused"), False),
        (500, status("InternalError", "rpc error: code = PermissionDenied"), False),
        (500, status("InternalError", "panic"), False),
        (409, status("Conflict"), True),
        (409, status("AlreadyExists"), False),
        (403, status("Forbidden"), False),
        (404, b"404 page not found", False),
        (422, status("Invalid"), False),
    ],
)
def test_what_passes_by_waiting(code: int, data: bytes, passes: bool) -> None:
    assert responses.passes(responses.refused(code, data, "/x")) is passes


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (status("Forbidden", "no"), "no"),
        (b"", "/x: no reason given"),
        (b"  ", "/x: no reason given"),
        (b"plain words", "/x: 'plain words'"),
        (b"[1]", "/x: '[1]'"),
        (b"<html><title> Log\n in </title><p>x</p>", "/x: 'Log in'"),
        (b"<p>Bad <b>gateway</b></p>", "/x: 'Bad gateway'"),
        (b"[" * 100_000, "/x: '" + "[" * 200 + "'"),
    ],
)
def test_the_words_of_a_refusal(data: bytes, message: str) -> None:
    assert responses.refused(400, data, "/x").message == message


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"null", b"{", b"\xff", b"<html></html>"])
def test_what_is_no_object(data: bytes) -> None:
    with pytest.raises(ClusterFault, match="did not return a Kubernetes object"):
        responses.object_of(data, "/x")


GOOD: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {
        "name": "a",
        "namespace": "b",
        "uid": "c",
        "labels": {"x": "1"},
        "ownerReferences": [{"uid": "d"}],
        "generation": 3,
    },
    "spec": {"containers": []},
    "status": {},
}


def test_an_object_as_it_should_be_stays_as_it_is() -> None:
    text = json.dumps(GOOD)
    assert responses.object_of(text.encode(), "/x") == GOOD
    listed = responses.object_of(json.dumps({"metadata": {}, "items": [GOOD]}).encode(), "/x")
    assert listed["items"] == [GOOD]


@pytest.mark.parametrize("value", [None, 7, "text", [], [None], True])
def test_a_part_that_is_something_else_is_as_if_it_were_not_there(value: Any) -> None:
    meta = {"name": value, "labels": value, "annotations": {"a": value}, "ownerReferences": value}
    found = normalize({"metadata": meta, "spec": value, "status": value})
    said = value if isinstance(value, str) else ""
    assert found["metadata"]["name"] == said
    assert found["metadata"]["labels"] == {}
    assert found["metadata"]["annotations"] == ({"a": said} if said else {})
    assert found["metadata"]["ownerReferences"] == []
    assert (found["spec"], found["status"]) == ({}, {})
    assert normalize({"metadata": value})["metadata"]["uid"] == ""


def test_a_list_drops_what_is_no_object() -> None:
    text = json.dumps({"items": [None, 7, {"metadata": 3}]}).encode()
    (item,) = responses.object_of(text, "/x")["items"]
    assert item["metadata"]["name"] == ""


@pytest.mark.parametrize(
    ("error", "said", "patient"),
    [
        (ConnectionRefusedError(111, "refused"), "nothing listens there", True),
        (TimeoutError(), "no answer in time", True),
        (ConnectionResetError(104, "reset by peer"), "reset by peer", True),
        (socket.gaierror(-2, "Name not known"), "the host name cannot be resolved", False),
        (ValueError("Bearer s3cret"), "no request can be sent to the cluster", False),
    ],
)
def test_why_nobody_answered(error: Exception, said: str, patient: bool) -> None:
    access = Access(Server("https://there"), Identity(), "", "context one", "one")
    fault, seconds = connection_faults.away(error, access)
    assert said in fault.message
    assert "the cluster of context one (https://there)" in fault.message
    assert "s3cret" not in fault.message
    assert (seconds > 60) is patient


# aiohttp before 3.11 has none of its own.
DNS_ERROR = getattr(aiohttp, "ClientConnectorDNSError", aiohttp.ClientConnectorError)
PROXY = "http://ada:s3cret@proxy:3128"


def by_proxy(code: int, reason: str) -> aiohttp.ClientHttpProxyError:
    """What the client library raises where a proxy answers so."""
    none = CIMultiDictProxy(CIMultiDict[str]())
    info = aiohttp.RequestInfo(URL(PROXY), "CONNECT", none, URL(PROXY))
    error = aiohttp.ClientHttpProxyError(info, (), status=code, message=reason)
    assert "s3cret" in str(error)
    return error


def unreached(kind: type[aiohttp.ClientConnectorError], error: OSError) -> Exception:
    return kind(ConnectionKey("there", 443, True, True, URL(PROXY), None, None), error)


REFUSED = ConnectionRefusedError(111, "Connect call failed ('10.0.0.1', 443)")
ON_THE_WAY = "the proxy"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (by_proxy(407, "Who?"), f"{ON_THE_WAY} requires a valid user and password (407)"),
        (by_proxy(403, "Forbidden"), f"{ON_THE_WAY} did not open the connection (403 Forbidden)"),
        (by_proxy(502, "by\n" + PROXY), f"{ON_THE_WAY} did not open the connection "
         "(502 by http://…@proxy:3128)"),
        (by_proxy(503, ""), f"{ON_THE_WAY} did not open the connection (503)"),
        (unreached(aiohttp.ClientProxyConnectionError, REFUSED),
         f"{ON_THE_WAY} cannot be reached: connection refused, nothing listens there"),
        (unreached(aiohttp.ClientConnectorError, REFUSED),
         "connection refused, nothing listens there"),
        (unreached(aiohttp.ClientConnectorError, OSError(113, "Connect call failed")),
         "No route to host"),
        (unreached(aiohttp.ClientConnectorError, OSError("Multiple exceptions: a, b")),
         "Multiple exceptions: a, b"),
        (unreached(DNS_ERROR, socket.gaierror(-3, "Try again")),
         "the host name cannot be resolved: Try again"),
        (unreached(aiohttp.ClientConnectorCertificateError,
                   ssl.SSLCertVerificationError(1, "[SSL] certificate verify failed")),
         "it is not trusted: its certificate is not valid"),
        (ssl.SSLEOFError(8, "EOF occurred"), "TLS failed: EOF occurred"),
        (FileNotFoundError(2, "No such file", "/run/token"),
         "No such file or directory: /run/token"),
        (aiohttp.ConnectionTimeoutError(f"to host {PROXY}"), "no answer in time"),
        (aiohttp.ServerDisconnectedError(), "Server disconnected"),
        (aiohttp.ClientError(f"closed by {PROXY}"), "closed by http://…@proxy:3128"),
        (aiohttp.NonHttpUrlClientError(PROXY), "http://…@proxy:3128"),
        # A slash in the password: what is masked in an address that is one does not do here.
        (aiohttp.InvalidURL("http://ada:s3/cret@proxy:3128"), "InvalidURL"),
        (ValueError("Bearer s3cret"), "ValueError"),
        (UnicodeEncodeError("latin-1", "s3cret€", 6, 7, "no such letter"), "UnicodeEncodeError"),
        (responses.InvalidResponse("/x did not return a list"), "/x did not return a list"),
        (json.JSONDecodeError("Expecting value", "s3cret", 0), "its answer is not JSON"),
        (ClusterFault(f"no way by {PROXY}.", "Hint."), "no way by http://…@proxy:3128."),
        (Refused("etcd is away", code=500), "etcd is away"),
        (RecursionError(), "RecursionError"),
    ],
)  # fmt: skip
def test_the_words_for_a_connection_that_failed(error: Exception, said: str) -> None:
    assert connection_faults.why(error) == said
    assert "cret" not in said


@pytest.mark.parametrize(
    ("code", "hint", "patient"),
    [
        (407, "Put both into the proxy-url of the kubeconfig", False),
        (403, "The proxy-url of the kubeconfig, or else HTTPS_PROXY, names the proxy", False),
        (502, "The proxy-url of the kubeconfig, or else HTTPS_PROXY, names the proxy", True),
    ],
)
def test_a_proxy_that_says_no(code: int, hint: str, patient: bool) -> None:
    access = Access(Server("https://ada:s3cret@there"), Identity(), "", "context one", "one")
    fault, seconds = connection_faults.away(by_proxy(code, "No"), access)
    assert "the cluster of context one (https://…@there) does not answer: the pro" in fault.message
    assert fault.hint.startswith(hint)
    assert "s3cret" not in fault.message + fault.hint
    assert (seconds > 60) is patient


@pytest.mark.parametrize(
    ("words", "refuses"),
    [
        ("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca (_ssl.c:2580)", True),
        ("[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] ssl/tls alert certificate expired", True),
        ("[SSL] ssl/tls alert bad certificate (_ssl.c:1006)", True),
        ("[SSL: TLSV1_ALERT_INTERNAL_ERROR] tlsv1 alert internal error", False),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", False),
    ],
)
def test_who_is_refused_in_the_handshake(words: str, refuses: bool) -> None:
    nobody = Access(Server("https://there"), Identity(), "", "context one", "one")
    somebody = replace(nobody, identity=Identity(certificate=b"PEM"))
    error = ssl.SSLError(1, words)
    read = OSError(1, words)  # as the client library has it when an answer is read
    read.__cause__ = error
    assert [connection_faults.is_certificate_rejected(one, somebody) for one in (error, read)] == [
        refuses,
        refuses,
    ]
    assert not connection_faults.is_certificate_rejected(error, nobody)
