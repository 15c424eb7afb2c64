"""What is asked for next, by what the pod's status says and how the last answer ended."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, cast

import aiohttp
import pytest

from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube import first_lines, instance_log, log_request, logs, replay, retry_limits
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.kube.log_denials import Denials
from ciao_kernel.kube.logs import ContainerLog, Gap

Query = Mapping[str, str]
CUT = b"(the connection breaks)"
QUIET = b"(nothing comes)"
HANGS = b"(the connection stays, and nothing comes)"
LATER = b"(nothing comes for a while)"


class Answer:
    def __init__(self, status: int, body: list[bytes]) -> None:
        self.status, self._body = status, body
        self.connection = None
        self.content = self

    async def readany(self) -> bytes:
        await asyncio.sleep(0)
        data = self._body.pop(0) if self._body else b""
        if data == LATER:
            await asyncio.sleep(4 * log_request._SILENCE)
            data = self._body.pop(0)
        if data == HANGS:
            await asyncio.Event().wait()
        if data == CUT:
            raise aiohttp.ClientPayloadError
        if data == QUIET:
            raise aiohttp.SocketTimeoutError
        return data

    async def text(self, encoding: str, errors: str) -> str:
        return b"".join(self._body).decode()


class Cluster:
    """One pod: its status, and what each request is answered with (and changes)."""

    def __init__(self, *answers: Callable[[], Any]) -> None:
        self.status: Object | None = None
        self.answers = list(answers)
        self.asked: list[str] = []
        self.queries: list[Query] = []
        self.access: object = None
        self.away = False
        self.denials: Denials | None = None
        self.refuses: list[Refused] = []
        """Answers to the next questions for the pod."""

    def pod(self) -> Object | None:
        return self.status

    async def changed(self, within: float) -> None:
        await asyncio.sleep(0.001)

    async def get(self, path: str, **query: str) -> Object:
        """Return the pods of the name."""
        assert path == "/api/v1/namespaces/n/pods"
        if self.refuses:
            raise self.refuses.pop()
        return {"items": [self.status] if self.status else []}

    @contextlib.asynccontextmanager
    async def request(
        self, method: str, path: str, query: Query, timeout: object
    ) -> AsyncIterator[Answer]:
        kinds = ("previous", "follow", "limitBytes", "tailLines")
        self.queries.append(query)
        self.asked.append("+".join(kind for kind in kinds if kind in query) or "all")
        found = self.answers.pop(0)() if len(self.answers) > 1 else self.answers[0]()
        if isinstance(found, Exception):
            raise found
        status, body = found if isinstance(found, tuple) else (200, found)
        yield Answer(status, list(body) if isinstance(body, list) else [body])

    def shows(self, state: str = "running", **pod: Any) -> None:
        """Set the status: `1b terminated after a` is instance b, started once before."""
        name, _, rest = state.partition(" ")
        kind, _, before = rest.partition(" after ")
        container: Object = {
            "name": "main",
            "restartCount": int(name[:-1]),
            "containerID": name[-1],
        }
        container["state"] = {kind: {"containerID": name[-1]}}
        if before:
            container["lastState"] = {"terminated": {"containerID": before}}
        self.status = {
            "metadata": {"name": "p", "uid": "1"},
            "spec": {"restartPolicy": "Always"},
            "status": {"phase": "Running", "containerStatuses": [container], **pod},
        }

    def then(self, state: str, body: Any, **pod: Any) -> Callable[[], Any]:
        """An answer, with which the status becomes another; "" means that the pod is gone."""

        def give() -> Any:
            if state:
                self.shows(state, **pod)
            else:
                self.status = None
            return body

        return give

    def read(self) -> tuple[str, list[str]]:
        """Return the lines as one word, and the gaps."""

        async def main() -> tuple[str, list[str]]:
            data, gaps = b"", []
            log = ContainerLog(
                cast(Client, self),
                "n",
                "p",
                "main",
                self,
                pause=0,
                away=lambda: self.away,
                denials=self.denials,
            )
            async for piece in log.read():
                if isinstance(piece, Gap):
                    gaps.append(piece.text)
                else:
                    data += piece.data
            return data.decode().replace("\n", " ").strip(), gaps

        return asyncio.run(asyncio.wait_for(main(), 20))


def lines(*names: str) -> bytes:
    """Lines `a1`: of instance a, in its second 1."""
    zero = ord("a")
    return b"".join(
        f"2024-01-01T00:{ord(n[0]) - zero:02d}:{int(n[1:]):02d}.000000000Z {n}\n".encode()
        for n in names
    )


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (instance_log, first_lines):
        monkeypatch.setattr(module, "_FIRST_WAIT", 0.001)
        monkeypatch.setattr(module, "_LONGEST_WAIT", 0.01)
    monkeypatch.setattr(logs, "_SOON", 0.01)
    monkeypatch.setattr(logs, "_LATE", 0.03)
    monkeypatch.setattr(retry_limits, "_PATIENCE", dict.fromkeys(retry_limits._PATIENCE, 0.1))
    return


def test_an_end_is_believed_when_the_status_says_so() -> None:
    here = Cluster()
    here.shows("0a running")
    here.answers = [
        lambda: lines("a1", "a2"),
        lambda: [lines("a1", "a2", "a3"), CUT],
        here.then("0a terminated", lines("a2", "a3", "a4"), phase="Succeeded"),
        lambda: lines("a3", "a4", "a5")[:-1],
    ]
    assert here.read() == ("a1 a2 a3 a4 a5", [])
    assert here.asked == ["follow", "follow", "follow", "all", "all"]


def test_an_answer_that_is_cut_in_order_is_not_the_whole_log() -> None:
    """A kubelet that ends breaks its answer off, and the API server ends its own in order."""
    whole = lines(*(f"a{number}" for number in range(1, 9)))
    here = Cluster(
        lambda: whole[:100],
        lambda: whole[:237],
        lambda: lines("a5", "a6", "a7", "a8"),
        lambda: lines("a7", "a8"),
    )
    here.shows("0a terminated", phase="Succeeded")
    assert here.read() == ("a1 a2 a3 a4 a5 a6 a7 a8", [])
    assert here.asked == ["all", "all", "all", "tailLines"]


def test_an_end_is_confirmed_by_the_last_lines_alone() -> None:
    """The lines of the last second, which may be very many, do not come again."""
    here = Cluster(lambda: lines("a1", "a2", "a2"), lambda: lines("a1", "a2", "a2"))
    here.shows("0a terminated", phase="Succeeded")
    assert here.read() == ("a1 a2 a2", [])
    assert here.asked == ["all", "tailLines"]
    assert here.queries[1]["tailLines"] == "3", "one more equal line would be seen"


@pytest.mark.parametrize(
    "last",
    [
        lines("a2", "a3"),
        lines("a2", "a2"),  # an equal line, in the same nanosecond
        lines("a1", "a2") + b"2024-01-01T00:00:02.5",
        lines("a1", "a2")[:-1],
        lines("a1"),
        lines("a2"),  # cut off behind the same line as the first answer
        [lines("a1", "a2"), CUT],
        (500, b"{}"),
        b"unable to retrieve the log",
        b"",  # the file was rotated
    ],
)
def test_other_last_lines_confirm_nothing(last: Any) -> None:
    here = Cluster()
    here.shows("0a terminated", phase="Succeeded")
    here.answers = [
        lambda: lines("a1", "a2"),
        lambda: last,
        lambda: lines("a1", "a2", "a4"),
        lambda: lines("a2", "a4"),
    ]
    assert here.read() == ("a1 a2 a4", [])
    assert here.asked == ["all", "tailLines", "all", "tailLines"]


def test_the_end_of_a_log_without_lines_is_asked_for_once_more() -> None:
    here = Cluster(lambda: b"", lambda: lines("a1"))
    here.shows("0a terminated", phase="Succeeded")
    assert here.read() == ("a1", [])


def test_a_followed_log_is_confirmed_by_one_request() -> None:
    here = Cluster()
    here.shows("0a running")
    here.answers = [
        here.then("0a terminated", lines("a1", "a2")[:-1], phase="Succeeded"),
        lambda: lines("a1", "a2")[:-1],
    ]
    assert here.read() == ("a1 a2", [])
    assert here.asked == ["follow", "all"]


def test_a_long_line_without_an_end_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is delivered in pieces, and answers come in others."""
    monkeypatch.setattr(replay, "LONGEST", 5_000)
    text = b"0123456789" * 2_340
    line = lines("a1")[:-3] + text

    def cut(size: int) -> list[bytes]:
        return [line[at : at + size] for at in range(0, len(line), size)]

    here = Cluster(*(functools.partial(cut, size) for size in (1_000, 7_000, 900, 3_000)))
    here.shows("0a terminated", phase="Succeeded")
    found, gaps = here.read()
    assert (found.replace(" ", ""), gaps) == (text.decode(), [])
    assert here.asked == ["all"] * 2


@pytest.mark.parametrize("last", [(400, b"{}"), (404, b"{}"), (200, b"unable to retrieve it")])
def test_an_ended_log_that_is_removed_before_it_is_confirmed_was_read_whole(
    last: tuple[int, bytes],
) -> None:
    here = Cluster()
    here.shows("0a terminated", phase="Succeeded")
    here.answers = [lambda: lines("a1", "a2")[:-1], lambda: last, here.then("", last)]
    assert here.read() == ("a1 a2", [])


def test_a_401_of_the_node_alone_ends_with_a_gap_and_renews_once() -> None:
    """The API server passes on what a node says whose own certificate has expired."""
    here = Cluster(lambda: (401, b"the server has asked for the client to provide credentials"))
    here.shows("0a terminated", phase="Succeeded")
    renewed: list[object] = []

    async def renew(shown: object) -> None:
        renewed.append(shown)

    here.renew = renew  # type: ignore[attr-defined]
    here.access = "the one that was sent"
    text, gaps = here.read()
    assert text == ""
    assert "the cluster does not return the log" in gaps[0]
    assert "the server has asked for the client to provide credentials" in gaps[0]
    assert renewed == ["the one that was sent"]


def test_a_401_of_the_server_is_waited_for_while_the_watch_is_still_connected() -> None:
    """The user signs in again before the watch is cut, which does not notice that its token ended.

    The log is given up in the time that a node's own 401 has.
    """
    here = Cluster()
    here.shows("0a terminated", phase="Succeeded")
    refused = Refused("the cluster does not accept these credentials", code=401)
    here.refuses = [refused, refused]
    signed_out = (401, b"Unauthorized")
    here.answers = [lambda: lines("a1", "a2") if not here.refuses else signed_out]

    async def renew(shown: object) -> None:
        pass

    here.renew = renew  # type: ignore[attr-defined]
    assert here.read() == ("a1 a2", [])


def test_the_end_of_an_ended_containers_log_is_not_waited_for() -> None:
    """The kubelet looks each second whether it may end an answer that follows."""
    here = Cluster()
    here.shows("0a running")
    here.answers = [
        here.then("0a terminated", [lines("a1"), HANGS], phase="Succeeded"),
        lambda: lines("a1", "a2", "a3"),
        lambda: lines("a2", "a3"),
    ]
    assert here.read() == ("a1 a2 a3", [])
    assert here.asked == ["follow", "all", "tailLines"]


def test_a_log_that_still_comes_is_not_cut() -> None:
    here = Cluster()
    here.shows("0a running")
    here.answers = [
        here.then("0a terminated", [lines("a1"), *map(lines, ("a2", "a3"))], phase="Succeeded"),
        lambda: lines("a3"),
    ]
    assert here.read() == ("a1 a2 a3", [])


@pytest.mark.parametrize("why", ["its pod is being deleted", "it may start again"])
def test_who_follows_a_log_to_its_end(why: str) -> None:
    """Another request may find no log any more."""
    here = Cluster()
    here.shows("0a running")

    def end() -> list[bytes]:
        deleted = why == "its pod is being deleted"
        here.shows("0a terminated", **({"phase": "Failed"} if deleted else {}))
        assert here.status is not None
        if deleted:
            here.status["metadata"]["deletionTimestamp"] = "2026-11-21T11:00:00Z"
        return [lines("a1"), LATER, lines("a2")]

    here.answers = [end, here.then("", (404, b"{}"))]
    assert here.read() == ("a1 a2", [])


def test_a_pod_that_is_gone_after_an_end_in_order_was_read_whole() -> None:
    here = Cluster()
    here.shows("0a running")
    here.answers = [here.then("", lines("a1", "a2")[:-1])]
    assert here.read() == ("a1 a2", [])


@pytest.mark.parametrize("last", [(400, b"{}"), (404, b"{}"), (200, b"unable to retrieve it")])
def test_a_container_that_was_removed_before_its_pod_was_read_whole(
    last: tuple[int, bytes],
) -> None:
    here = Cluster()
    here.shows("0a running")
    here.answers = [
        here.then("0a terminated", lines("a1", "a2")[:-1]),
        lambda: last,
        here.then("", last),
    ]
    assert here.read() == ("a1 a2", [])
    assert here.asked == ["follow", "all", "all"]


@pytest.mark.parametrize("state", ["terminated", "waiting", "gone"])
def test_a_pod_that_is_over_and_has_forgotten_its_container_ends_its_log(state: str) -> None:
    """A node that started again does not find the container: its status has no ID any more."""
    here = Cluster()
    here.shows("0a running")

    def forgotten() -> Any:
        here.shows("0a terminated", phase="Failed")
        assert here.status is not None
        unknown = {"exitCode": 137, "reason": "ContainerStatusUnknown"}
        own: Object = {"name": "main", "state": {"terminated": unknown}}
        if state == "waiting":
            own = {"name": "main", "state": {"waiting": {}}, "lastState": own["state"]}
        here.status["status"]["containerStatuses"] = [] if state == "gone" else [own]
        return [lines("a1"), CUT]

    here.answers = [forgotten, lambda: (400, b'{"message": "container main is terminated"}')]
    text, (gap,) = here.read()
    assert text == "a1"
    assert gap == (
        "Lines after 00:00:01 UTC may be lost: the cluster does not return the log "
        "(container main is terminated)."
    )


def test_an_end_in_order_counts_for_nothing_if_the_node_is_away_then() -> None:
    here = Cluster()
    here.shows("0a running")
    here.answers = [
        lambda: lines("a1"),
        here.then("", (500, b"dial tcp: connection refused")),
    ]
    text, gaps = here.read()
    assert (text, len(gaps)) == ("a1", 1)


def test_a_pod_that_is_gone_after_a_cut_may_have_said_more() -> None:
    here = Cluster()
    here.shows("0a running")
    here.answers = [here.then("", [lines("a1"), CUT])]
    text, (gap,) = here.read()
    assert text == "a1"
    assert "after 00:00:01 UTC may be lost: the pod p was deleted" in gap


def test_another_pod_of_the_same_name_is_not_read() -> None:
    here = Cluster()
    here.shows("0a running")

    def replaced() -> bytes:
        here.shows("0b running")
        assert here.status is not None
        here.status["metadata"]["uid"] = "2"
        return lines("a1")

    here.answers = [replaced]
    assert here.read() == ("a1", [])
    assert here.asked == ["follow"]


def test_the_rest_of_an_instance_is_asked_for_after_the_next_one_began() -> None:
    here = Cluster()
    here.shows("0a running")
    here.answers = [
        here.then("1b running after a", [lines("a1"), CUT]),
        lambda: lines("b1"),
        *[lambda: lines("a1", "a2")] * 2,
        here.then("1b terminated after a", lines("b1"), phase="Failed"),
        lambda: lines("b1"),
    ]
    assert here.read() == ("a1 a2 b1", [])
    assert here.asked == ["follow", "limitBytes", "previous", "previous+tailLines", "follow", "all"]


def test_a_container_that_started_before_is_read_from_what_is_kept() -> None:
    here = Cluster(*[lambda: lines("b1")] * 2, lambda: lines("c1"))
    here.shows("2c terminated after b", phase="Failed")
    text, (gap,) = here.read()
    assert text == "b1 c1"
    assert "1 start of p is not kept" in gap
    assert here.asked == ["previous", "previous+tailLines", "all", "tailLines"]


def test_more_starts_than_are_kept_are_said() -> None:
    here = Cluster()
    here.shows("0a running")
    here.answers = [
        here.then("3d terminated after c", [lines("a1"), CUT], phase="Failed"),
        lambda: lines("d1"),
        *[lambda: lines("c1")] * 3,
        lambda: lines("d1"),
        lambda: lines("d1"),
    ]
    text, gaps = here.read()
    assert text == "a1 c1 d1"
    assert "after 00:00:01 UTC may be lost" in gaps[0]
    assert "1 start of p is not kept" in gaps[1]


def test_the_next_instances_log_came_before_its_status() -> None:
    here = Cluster()
    here.shows("0a running")
    here.answers = [
        here.then("1b running after a", lines("b1", "b2")),  # and a had said nothing so far
        lambda: lines("b1"),  # the first line, asked for when the status is there
        *[lambda: lines("a1", "a2")] * 2,
        here.then("1b terminated after a", lines("b1", "b2", "b3"), phase="Failed"),
        lambda: lines("b2", "b3"),
    ]
    assert here.read() == ("b1 b2 a1 a2 b3", [])
    assert here.asked == ["follow", "limitBytes", "previous", "previous+tailLines", "follow", "all"]


def test_the_next_instances_log_came_long_before_its_status() -> None:
    here = Cluster()
    here.shows("0a running")
    here.answers = [
        lambda: [lines("a1", "a2"), CUT],
        lambda: lines("b1", "b2"),  # does not continue
        lambda: lines("b1", "b2"),  # nor on a second look
        lambda: lines("a1"),  # but the log that the node has before this one does
        lambda: lines("b1"),
        here.then("1b running after a", lines("a1", "a2", "a3")),
        lambda: lines("b1"),
        lambda: lines("a2", "a3"),
        here.then("1b terminated after a", lines("b1", "b2", "b3"), phase="Failed"),
        lambda: lines("b1", "b2", "b3"),
    ]
    assert here.read() == ("a1 a2 a3 b1 b2 b3", [])
    assert here.asked[2:6] == ["all", "previous+limitBytes", "limitBytes", "previous"]


@pytest.mark.parametrize("end", ["the pod was deleted", "the cluster never showed it"])
def test_a_newer_instance_that_no_status_shows_is_a_gap(end: str) -> None:
    here = Cluster()
    here.shows("0a running")
    last: Callable[[], Any] = here.then("", lines("a1", "a2"))
    if "never" in end:
        last = here.then("0a running", lines("a1", "a2"), phase="Failed")
    here.answers = [
        lambda: [lines("a1"), CUT],
        lambda: lines("b1"),
        lambda: lines("b1"),
        lambda: lines("a1"),
        lambda: lines("b1"),
        last,
    ]
    assert here.read() == ("a1 a2", [f"Lines of a later start of p may be lost: {end}."])


def test_the_log_of_a_pod_in_place_of_an_ended_one_is_not_read_as_its_own() -> None:
    """The pod's watch is behind, and the log that would confirm the end is that of the new pod."""
    here = Cluster(lambda: lines("a1", "a2")[:-1], lambda: lines("b1"))
    here.shows("0a terminated", phase="Failed")
    assert here.read() == ("a1 a2", [])


@pytest.mark.parametrize("state", ["running", "terminated"])
def test_the_status_of_an_instance_never_came(state: str) -> None:
    """Two restarts at once: the status goes from the first instance to the third."""
    here = Cluster()
    here.shows(f"0a {state}")
    here.answers = [
        lambda: [lines("a1", "a2"), CUT],
        lambda: lines("b1", "b2"),  # does not continue
        lambda: lines("b1", "b2"),  # nor on a second look
        lambda: lines("a1"),
        lambda: lines("b1"),
        here.then("2c running after b", lines("a1", "a2", "a3")),
        lambda: lines("c1"),
        lambda: lines("b1"),
        *[lambda: lines("b1", "b2")] * 2,
        here.then("2c terminated after b", lines("c1"), phase="Failed"),
        lambda: lines("c1"),
    ]
    assert here.read() == ("a1 a2 a3 b1 b2 c1", [])


def test_an_instance_that_was_read_as_another_is_not_read_again() -> None:
    """The node has started the third instance, when its log of the first is asked for."""
    here = Cluster()
    here.shows("0a terminated")
    rest = {
        "limitBytes": lines("c1"),
        "previous+limitBytes": lines("b1"),
        "previous": lines("b1", "b2"),
        "previous+tailLines": lines("b1", "b2"),
        "follow": lines("c1"),
        "all": lines("c1"),
    }

    def then() -> bytes:
        if here.asked[-1] == "follow":
            here.shows("2c terminated after b", phase="Failed")
        return rest[here.asked[-1]]

    here.answers = [here.then("2c running after b", lines("b1", "b2")), then]
    text, gaps = here.read()
    assert text == "b1 b2 c1"
    assert len(gaps) == 1, "a's lines"


def test_the_previous_log_is_of_a_newer_instance() -> None:
    """The status shows the second instance, but the node has a third."""
    here = Cluster()
    here.shows("0a running")
    asked = iter([lines("b1", "b2"), lines("b1", "b2")])

    def then() -> Any:
        what = here.asked[-1]
        if what == "previous" and (found := next(asked, None)):
            return found
        if what == "previous+limitBytes":
            here.shows("2c running after b")
        if what == "follow":
            here.shows("2c terminated after b", phase="Failed")
        return {
            "limitBytes": lines("b1"),
            "previous+limitBytes": lines("b1"),
            "previous": lines("b1", "b2"),
            "previous+tailLines": lines("b1", "b2"),
            "follow": lines("c1"),
            "all": lines("c1"),
        }[what]

    here.answers = [here.then("1b running after a", [lines("a1"), CUT]), then]
    text, gaps = here.read()
    assert text == "a1 b1 b2 c1"
    assert gaps == ["Lines after 00:00:01 UTC may be lost: p restarted more than once."]


def test_a_log_that_is_not_to_be_had() -> None:
    here = Cluster(lambda: b"unable to retrieve container logs for containerd://a")
    here.shows("0a terminated", phase="Failed")
    text, (gap,) = here.read()
    assert text == ""
    assert "unable to retrieve container logs" in gap


CONNECT = aiohttp.client_reqrep.ConnectionKey("here", 1, True, True, None, None, None)


@pytest.mark.parametrize("body", [QUIET, CUT])
def test_an_ended_log_that_does_not_come_is_given_up(body: bytes) -> None:
    here = Cluster()
    here.shows("0a running")
    here.answers = [
        here.then("0a terminated", [lines("a1"), CUT], phase="Succeeded"),
        lambda: (503, b"no route to host"),  # the API server's own words for it
        lambda: [lines("a1"), body],
    ]
    text, (gap,) = here.read()
    assert text == "a1"
    assert "after 00:00:01 UTC may be lost: the cluster does not return the log (no answer)" in gap


def test_an_ended_log_that_no_longer_begins_as_it_did_is_given_up_too() -> None:
    here = Cluster()
    here.shows("0a running")
    here.answers = [
        here.then("0a terminated", [lines("a1"), CUT], phase="Succeeded"),
        lambda: [QUIET],
    ]
    text, gaps = here.read()
    assert (text, len(gaps)) == ("a1", 1)


def test_two_kinds_of_silence_do_not_excuse_each_other() -> None:
    here = Cluster()
    here.shows("0a terminated", phase="Succeeded")
    kinds = itertools.cycle([[CUT], (503, b"no route to host"), [QUIET]])
    here.answers = [lambda: next(kinds)]
    assert len(here.read()[1]) == 1


@pytest.mark.parametrize(
    "fault",
    [
        aiohttp.ClientConnectorError(CONNECT, ConnectionRefusedError()),
        aiohttp.ConnectionTimeoutError(),
        ClusterFault("the certificates cannot be used: key values mismatch."),
    ],
    ids=["refused", "silent", "certificates"],
)
def test_an_ended_log_is_waited_for_while_the_server_is_not_reached(fault: Exception) -> None:
    here = Cluster()
    here.shows("0a terminated", phase="Succeeded")
    here.answers = [*[lambda: fault] * 40, lambda: lines("a1")]  # for more than the patience
    assert here.read() == ("a1", [])


def test_an_ended_log_is_waited_for_while_the_watch_says_that_the_server_is_away() -> None:
    here = Cluster()
    here.shows("0a terminated", phase="Succeeded")
    here.away = True
    here.answers = [*[lambda: [CUT]] * 20, *[lambda: (503, b"{}")] * 20, lambda: lines("a1")]
    assert here.read() == ("a1", [])


def test_a_running_container_may_have_nothing_to_say() -> None:
    here = Cluster()
    here.shows("0a running")
    here.answers = [
        *[lambda: [QUIET]] * 300,
        *[lambda: [CUT]] * 40,
        here.then("0a terminated", [CUT], phase="Succeeded"),
        lambda: lines("a1"),
    ]
    assert here.read() == ("a1", [])


@pytest.mark.parametrize("answer", [[CUT], [QUIET], (503, b"no route to host")])
def test_the_first_line_of_a_new_instance_is_not_waited_for_for_ever(answer: Any) -> None:
    here = Cluster()
    here.shows("0a running")
    first = here.then("1b running after a", [lines("a1"), CUT])
    rest = iter([*[lines("a1", "a2")] * 2, *[lines("b1")] * 2])

    def then() -> Any:
        if here.asked[-1] == "limitBytes":
            return answer
        if here.asked[-1] == "follow":
            here.shows("1b terminated after a", phase="Failed")
            return [CUT]
        return next(rest)

    here.answers = [first, then]
    assert here.read() == ("a1 a2 b1", [])


@pytest.mark.parametrize("code", [400, 404, 503])
def test_a_refusal_that_passes(code: int) -> None:
    here = Cluster()
    here.shows("0a running")
    here.answers = [
        lambda: (code, b"{}"),
        here.then("0a terminated", lines("a1"), phase="Succeeded"),
        lambda: (code, b"{}"),
        lambda: lines("a1"),
    ]
    assert here.read() == ("a1", [])


def test_who_may_not_read_logs_is_told() -> None:
    words = json.dumps({"message": "pods/log is forbidden", "reason": "Forbidden"}).encode()
    here = Cluster(lambda: (403, words))
    here.shows("0a running")
    with pytest.raises(Refused, match="pods/log is forbidden"):
        here.read()


FORBIDDEN = (403, b'{"message": "pods/log is forbidden"}')


def outlasting(*answers: Callable[[], Any]) -> tuple[Cluster, list[str]]:
    """Return a running container, which is followed without the right, and what is told."""
    told: list[str] = []

    async def tell(text: str) -> None:
        told.append(text)

    here = Cluster(*answers)
    here.shows("0a running")
    here.denials = Denials(tell)
    return here, told


@pytest.mark.parametrize("first", [lines("a1"), b""])
def test_a_right_that_comes_back_costs_no_line(first: bytes) -> None:
    """As of a RoleBinding that somebody deletes and applies again; also if no line came before."""
    here, told = outlasting()
    denied = [lambda: FORBIDDEN] * 100  # for several times the patience
    here.answers = [
        lambda: first,
        *denied,
        lambda: lines("a1", "a2"),
        *denied,
        here.then("0a terminated", lines("a1", "a2", "a3"), phase="Succeeded"),
        lambda: lines("a1", "a2", "a3"),
    ]
    assert here.read() == ("a1 a2 a3", [])
    assert len(told) == 2, "once for each time"
    assert "(pods/log is forbidden)" in told[0]


def test_a_right_that_was_never_there_is_not_waited_for() -> None:
    here, told = outlasting(lambda: FORBIDDEN)
    with pytest.raises(Refused, match="pods/log is forbidden"):
        here.read()
    assert not told


def test_a_missing_right_is_not_waited_for_when_the_container_has_ended() -> None:
    here, told = outlasting()
    here.answers = [
        lambda: lines("a1"),
        *[lambda: FORBIDDEN] * 100,
        here.then("0a terminated", FORBIDDEN, phase="Succeeded"),
        lambda: FORBIDDEN,
    ]
    with pytest.raises(Refused, match="pods/log is forbidden"):
        here.read()
    assert len(told) == 1
