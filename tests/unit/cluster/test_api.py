"""Asking a cluster's API in this process: words, addresses, errors, closed connections."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from http.client import HTTPMessage, RemoteDisconnected
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import server as module
from tests.cluster.api import Api, InProcess, api_of
from tests.cluster.errors import ClusterError
from tests.cluster.kinds import Asked, Kinds, asked, discovered
from tests.cluster.server import Access, Refused, Server, access

# ------------------------------------------------------------------------------------ words


def group(name: str, version: str, *resources: tuple[str, str, str]) -> dict[str, Any]:
    """A group as a server describes it; resources by kind, plural and short words."""
    described = [
        {
            "resource": plural,
            "responseKind": {"group": "", "version": "", "kind": kind},
            "scope": "Cluster" if kind == "Node" else "Namespaced",
            "singularResource": kind.lower(),
            "shortNames": short.split(),
        }
        for kind, plural, short in resources
    ]
    meta = {"name": name} if name else {}
    return {"metadata": meta, "versions": [{"version": version, "resources": described}]}


def discovery(*groups: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "APIGroupDiscoveryList", "items": list(groups)}


CORE = discovery(
    group(
        "", "v1",
        ("Event", "events", "ev"), ("Node", "nodes", "no"), ("Pod", "pods", "po"),
        ("ServiceAccount", "serviceaccounts", "sa"),
    )
)  # fmt: skip
OTHERS = discovery(
    group("events.k8s.io", "v1", ("Event", "events", "ev")),
    group("kubeflow.org", "v1", ("TFJob", "tfjobs", ""), ("Sa", "sas", "po")),
)


@pytest.fixture
def kinds() -> Kinds:
    return discovered(CORE, OTHERS)


@pytest.mark.parametrize(
    ("word", "path"),
    [
        ("pods", "/api/v1/namespaces/here/pods"),
        ("pod", "/api/v1/namespaces/here/pods"),
        ("Pod", "/api/v1/namespaces/here/pods"),
        ("po", "/api/v1/namespaces/here/pods"),
        ("serviceaccount", "/api/v1/namespaces/here/serviceaccounts"),
        ("tfjob", "/apis/kubeflow.org/v1/namespaces/here/tfjobs"),
        ("tfjobs.kubeflow.org", "/apis/kubeflow.org/v1/namespaces/here/tfjobs"),
        ("tfjobs.v1.kubeflow.org", "/apis/kubeflow.org/v1/namespaces/here/tfjobs"),
        ("node", "/api/v1/nodes"),
        ("events", "/api/v1/namespaces/here/events"),
        ("events.events.k8s.io", "/apis/events.k8s.io/v1/namespaces/here/events"),
        ("sa", "/apis/kubeflow.org/v1/namespaces/here/sas"),  # its own name, the other's short one
    ],
)
def test_a_word_means_the_kind_that_kubectl_means(kinds: Kinds, word: str, path: str) -> None:
    found = kinds.named(word)
    assert found
    assert found.path("here") == path


@pytest.mark.parametrize("word", ["", "mxjob", "pods.apps", "all"])
def test_an_unknown_word_is_no_kind(kinds: Kinds, word: str) -> None:
    assert kinds.named(word) is None


def test_an_address_has_names_and_parts_and_no_other_characters(kinds: Kinds) -> None:
    pod = kinds.named("pod")
    assert pod
    assert pod.path("here", "web", "log") == "/api/v1/namespaces/here/pods/web/log"
    assert pod.path("here", "../x?y") == "/api/v1/namespaces/here/pods/..%2Fx%3Fy"
    assert pod.path("") == "/api/v1/pods"


def test_a_manifest_has_the_kind_of_its_version(kinds: Kinds) -> None:
    found = kinds.of({"apiVersion": "kubeflow.org/v1", "kind": "TFJob"})
    assert found
    assert found.plural == "tfjobs"
    assert kinds.of({"apiVersion": "kubeflow.org/v2", "kind": "TFJob"}) is None
    assert kinds.of({}) is None


def test_a_server_that_tells_of_each_group_alone_is_an_error() -> None:
    with pytest.raises(ClusterError, match="all its kinds at once"):
        discovered(CORE, {"kind": "APIGroupList", "groups": []})


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (("pod/web",), Asked(("pod",), "web", {})),
        (("tfjobs,pods",), Asked(("tfjobs", "pods"), "", {})),
        (("pods", "-l", "a=b,c"), Asked(("pods",), "", {"labelSelector": "a=b,c"})),
        (("pods", "--selector=a=b"), Asked(("pods",), "", {"labelSelector": "a=b"})),
        (("pods", "--field-selector=x=y"), Asked(("pods",), "", {"fieldSelector": "x=y"})),
        # The rest is for kubectl.
        (("tfjobs", "--sort-by=.metadata.creationTimestamp"), None),
        (("pods", "-A"), None),
        (("pod", "web"), None),
        (("pod/a", "pod/b"), None),
        (("pod/web", "-l", "a=b"), None),
        (("pods", "-l"), None),
        ((), None),
    ],
)
def test_what_is_asked_is_read_as_kubectl_does(what: tuple[str, ...], expected: object) -> None:
    assert asked(what) == expected


# ------------------------------------------------------------------------------ kubeconfigs


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def kubeconfig(user: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    known = {"server": "https://10.0.0.1:6443", "certificate-authority-data": encoded("CA")}
    return {
        "clusters": [{"name": "other", "cluster": {}}, {"name": "c", "cluster": known | cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def test_a_certificate_and_a_token_are_taken_from_the_kubeconfig() -> None:
    both = {"client-certificate-data": encoded("CRT"), "client-key-data": encoded("KEY")}
    found = access(json.dumps(kubeconfig(both)))
    assert found == Access("https://10.0.0.1:6443", "CA", certificate="CRT\nKEY")
    found = access(json.dumps(kubeconfig({"token": "t"})))
    assert found == Access("https://10.0.0.1:6443", "CA", token="t")
    assert "'t'" not in repr(found)


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: Config\n",
        "[]",
        "{}",
        json.dumps(kubeconfig({"exec": {"command": "sign-in"}})),
        json.dumps(kubeconfig({"token": "t", "as": "somebody"})),
        json.dumps(kubeconfig({"tokenFile": "/token"})),
        json.dumps(kubeconfig({"token": "t"}, **{"proxy-url": "http://proxy"})),
        json.dumps(kubeconfig({"token": "t"}, server="http://10.0.0.1")),
        json.dumps({**kubeconfig({"token": "t"}), "current-context": "y"}),
    ],
)
def test_any_other_kubeconfig_is_left_to_kubectl(text: str, tmp_path: Path) -> None:
    assert access(text) is None
    file = tmp_path / "kubeconfig"
    assert type(api_of(file, str)) is Api  # it is not there
    file.write_text(text)
    assert type(api_of(file, str)) is Api


def test_what_is_left_to_kubectl_gets_the_same_arguments_as_ever() -> None:
    asked_for: list[tuple[str, ...]] = []

    def kubectl(*arguments: str, text: str | None = None) -> str:
        asked_for.append(arguments)
        return '{"items": []}'

    api = Api(kubectl)
    assert api.get("here", "pods", "-l", "a=b") == {"items": []}
    api.create("", {"kind": "Namespace"})
    api.delete("here", "pod/web", now=True)
    assert asked_for == [
        ("-n", "here", "get", "pods", "-l", "a=b", "-o", "json"),
        ("create", "-f", "-", "-o", "json"),
        ("-n", "here", "delete", "pod/web", "--wait=false", "--ignore-not-found",
         "--grace-period=0", "--force"),
    ]  # fmt: skip


# ------------------------------------------------------------------------------ the server

LOST = RemoteDisconnected("Remote end closed connection without response")


class Answer:
    def __init__(self, status: int = 200, content: object = None, **headers: str) -> None:
        self.status, self.headers = status, HTTPMessage()
        self._content = content if isinstance(content, bytes) else json.dumps(content).encode()
        for name, value in headers.items():
            self.headers[name.replace("_", "-")] = value

    def read(self) -> bytes:
        return self._content


class Connection:
    """Answers what its peer was told to; an error is raised in an answer's place."""

    made: list[Connection]
    script: list[Answer | Exception]
    asked: list[tuple[str, str]]

    def __init__(self, host: str, port: int, **_: Any) -> None:
        self.host, self.port = host, port
        self.sock, self.peer = socket.socketpair()
        Connection.made.append(self)

    def connect(self) -> None:
        pass

    def request(self, method: str, target: str, body: bytes | None, headers: object) -> None:
        Connection.asked.append((method, target))

    def getresponse(self) -> Answer:
        answer = Connection.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.sock.close()
        self.peer.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    Connection.made, Connection.script, Connection.asked = [], [], []
    monkeypatch.setattr(module, "HTTPSConnection", Connection)
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: None)
    yield Server(Access("https://10.0.0.1:6443/k8s", "CA", token="t"))
    for connection in Connection.made:
        connection.close()


@pytest.fixture
def api(server: Server) -> InProcess:
    Connection.script = [Answer(content=CORE), Answer(content=OTHERS)]
    server.kinds()
    Connection.asked = []
    return InProcess(str, server)


def status(reason: str, message: str) -> dict[str, str]:
    return {"kind": "Status", "reason": reason, "message": message}


def test_connections_stay_open(server: Server) -> None:
    Connection.script = [Answer(content=1), Answer(content=2)]
    assert [server.ask("GET", "/x"), server.ask("GET", "/x", {"a": "b=c"})] == [b"1", b"2"]
    assert len(Connection.made) == 1
    assert Connection.asked == [("GET", "/k8s/x"), ("GET", "/k8s/x?a=b%3Dc")]


def test_a_connection_that_the_server_closed_is_not_asked(server: Server) -> None:
    Connection.script = [Answer(content=1), Answer(content=2)]
    server.ask("GET", "/x")
    Connection.made[0].peer.close()
    server.ask("POST", "/x", body={}, repeatable=False)
    assert len(Connection.made) == 2


@pytest.mark.parametrize("lost", [LOST, ConnectionResetError(), BrokenPipeError()])
def test_a_request_on_a_connection_that_closes_meanwhile_is_sent_again(
    server: Server, lost: Exception
) -> None:
    Connection.script = [Answer(content=1), lost, Answer(content=2)]
    server.ask("GET", "/x")
    assert server.ask("GET", "/x") == b"2"
    assert len(Connection.made) == 2


def test_a_request_on_a_new_connection_and_one_that_is_slow_are_not_sent_again(
    server: Server,
) -> None:
    scripts: list[list[Answer | Exception]] = [[LOST], [Answer(), TimeoutError("timed out")]]
    for script in scripts:
        Connection.script = list(script)
        for _ in script[1:]:
            server.ask("GET", "/x")
        with pytest.raises(ClusterError, match="does not answer"):
            server.ask("GET", "/x")
        assert Connection.script == []


def test_what_may_not_be_repeated_is_not(api: InProcess) -> None:
    Connection.script = [LOST]
    meta = {"generateName": "web-"}
    with pytest.raises(ClusterError, match="does not answer"):
        api.create("here", {"apiVersion": "v1", "kind": "Pod", "metadata": meta})
    assert len(Connection.asked) == 1


def test_what_was_created_before_the_answer_was_lost_is_created(api: InProcess) -> None:
    made = {"metadata": {"name": "web", "uid": "1"}}
    exists = Answer(409, status("AlreadyExists", 'pods "web" already exists'))
    Connection.script = [LOST, exists, Answer(content=made)]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}
    assert api.create("here", pod) == made

    Connection.script = [exists]
    with pytest.raises(ClusterError, match=r"\(AlreadyExists\)"):
        api.create("here", pod)


def test_the_server_is_asked_again_when_it_says_so(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    Connection.script = [Answer(503, Retry_After="2"), Answer(429, Retry_After="1"), Answer()]
    assert server.ask("POST", "/x", body={}) == b"null"
    assert waited == [2, 1]


def test_a_server_that_always_says_later_has_said_no(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    Connection.script = [Answer(503, b"starting", Retry_After="1") for _ in range(20)]
    with pytest.raises(Refused, match="HTTP 503: starting"):
        server.ask("GET", "/x")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            Answer(404, status("NotFound", 'pods "web" not found')),
            'GET /k8s/x: Error from server (NotFound): pods "web" not found',
        ),
        (
            Answer(400, status("", 'admission webhook "a" denied the request')),
            'GET /k8s/x: Error from server: admission webhook "a" denied the request',
        ),
        (
            Answer(404, b"404 page not found\n"),
            "GET /k8s/x: Error from server: HTTP 404: 404 page not found",
        ),
        (Answer(502, b"[1]"), "GET /k8s/x: Error from server: HTTP 502: [1]"),
    ],
)
def test_errors_have_the_servers_words_as_kubectl_prints_them(
    server: Server, answer: Answer, words: str
) -> None:
    Connection.script = [answer]
    with pytest.raises(ClusterError) as refused:
        server.ask("GET", "/x")
    assert str(refused.value) == words


def test_lists_of_several_kinds_are_one_as_kubectl_shows_it(api: InProcess) -> None:
    pods = {"items": [{"metadata": {"name": "web", "managedFields": [1]}}]}
    jobs = {"items": [{"kind": "TFJob", "apiVersion": "kubeflow.org/v1", "metadata": {}}]}
    Connection.script = [Answer(content=pods), Answer(content=jobs)]
    assert api.get("here", "pods,tfjob", "-l", "a=b")["items"] == [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}},
        {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {}},
    ]
    assert Connection.asked == [
        ("GET", "/k8s/api/v1/namespaces/here/pods?labelSelector=a%3Db"),
        ("GET", "/k8s/apis/kubeflow.org/v1/namespaces/here/tfjobs?labelSelector=a%3Db"),
    ]


def test_a_kind_that_came_later_is_found_and_one_that_did_not_is_named(api: InProcess) -> None:
    later = discovery(group("kubeflow.org", "v1", ("MXJob", "mxjobs", "")))
    Connection.script = [Answer(content=CORE), Answer(content=later), Answer(content={"items": []})]
    assert api.get("here", "mxjobs")["items"] == []

    known = [Answer(content=CORE), Answer(content=OTHERS)]
    ask: list[Callable[[], object]] = [
        lambda: api.get("here", "nothing"),
        lambda: api.create("here", {"apiVersion": "v1", "kind": "Nothing"}),
    ]
    for one, words in zip(ask, ('resource type "nothing"', 'kind "Nothing"'), strict=True):
        Connection.script = list(known)
        with pytest.raises(ClusterError, match=words):
            one()


def test_what_is_deleted_already_is_deleted(api: InProcess) -> None:
    Connection.script = [Answer(404, status("NotFound", "gone"))]
    api.delete("here", "pod/web", now=True)
    ((method, target),) = Connection.asked
    assert (method, target.partition("?")[0]) == ("DELETE", "/k8s/api/v1/namespaces/here/pods/web")
    assert "gracePeriodSeconds=0" in target
    Connection.script = [Answer(403, status("Forbidden", "not yours"))]
    with pytest.raises(ClusterError, match="not yours"):
        api.delete("here", "pod/web")
