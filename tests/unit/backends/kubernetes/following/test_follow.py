"""A job's end where the watch of its pods is behind: no line is lost, and no state is wrong."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from ciao_kernel.backends.kubernetes.apis import job_metadata, operator_v1
from ciao_kernel.backends.kubernetes.following import (
    current_status,
    end_waits,
    job_watches,
    replica_tracker,
)
from ciao_kernel.backends.kubernetes.following import follow as module
from ciao_kernel.backends.kubernetes.following.follow import follow
from ciao_kernel.backends.kubernetes.output import output_state
from ciao_kernel.backends.kubernetes.states import sidecars
from ciao_kernel.config import Settings
from ciao_kernel.delivery import replica_files
from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube import retry_limits
from ciao_kernel.kube.access import Access
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.kube.identity import Identity
from ciao_kernel.kube.server import Server
from ciao_kernel.kube.server_clock import ServerClock
from ciao_kernel.model import Event, Job, Notice, Output, Replica, ReplicaStatus, State, Status

ZERO, ONE = Replica("worker", 0), Replica("worker", 1)
JOB = Job("mine", "kubernetes", "tensorflow", (ZERO,), 0.0, "team", uid="j")
PATH = "/apis/kubeflow.org/v1/namespaces/team/tfjobs/mine"
LISTS, WATCH, LOG = "list pods", "watch pods", "log"
LAST_WORDS = 0.1
CUT = aiohttp.ServerDisconnectedError()


class Answer:
    """One answer, that ends where its queue holds None, and breaks where it holds an error."""

    def __init__(self, status: int = 200, *body: bytes | Exception | None) -> None:
        self.status, self.content, self.connection = status, self, None
        self._queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        for piece in body:
            self.put(piece)

    def put(self, piece: bytes | Exception | None) -> None:
        self._queue.put_nowait(piece)

    async def readany(self) -> bytes:
        piece = await self._queue.get()
        if isinstance(piece, Exception):
            raise piece
        return piece or b""

    async def iter_any(self) -> AsyncIterator[bytes]:
        while piece := await self.readany():
            yield piece

    async def text(self, encoding: str, errors: str) -> str:
        return (await self.readany()).decode()


class Server:
    """An API server with one job. What is done to its pods, their watch may not tell."""

    access = Access(Server("http://here"), Identity(), "team", "test", "test")
    clock = ServerClock()

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.faults: dict[str, Callable[[], Exception | int | None]] = {}
        """Why requests of a kind fail: an error, or a refusal's code."""
        self.pods: dict[str, Object] = {}
        self.lines: dict[str, list[bytes]] = {}
        notes = job_metadata.notes(JOB, "run", ZERO, ["ps"])
        meta = {"name": "mine", "uid": "j", "annotations": notes}
        workers = {"Worker": {"replicas": 2, "restartPolicy": "Never"}}
        spec = {"tfReplicaSpecs": workers}
        self.job: Object = {"metadata": meta, "spec": spec, "status": {}}
        self._watches: dict[str, list[Answer]] = {"watch jobs": [], WATCH: []}
        self._streams: list[Answer] = []
        self.files = Answer()
        """The log of the sidecar for ``%output``."""
        self.files_asked: Callable[[], object] = lambda: None
        self.events: list[Event] = []
        """What the last :meth:`follow` yielded."""

    async def get(self, path: str, **query: str) -> Object:
        return {"items": []}

    @contextlib.asynccontextmanager
    async def request(
        self, method: str, path: str, query: Mapping[str, str], timeout: object
    ) -> AsyncIterator[Answer]:
        what = "pods" if "/pods" in path else "jobs"
        kind = f"{'watch' if 'watch' in query else 'list'} {what}"
        kind = LOG if path.endswith("/log") else kind
        self.asked.append(kind)
        await asyncio.sleep(0)
        fault = self.faults.get(kind, lambda: None)()
        if isinstance(fault, Exception):
            raise fault
        if fault:
            yield Answer(fault, b'{"message": "not now"}', None)
        elif query.get("container") == output_state.LOG_NAME:
            self.files_asked()
            yield self.files
        elif kind == LOG:
            yield self._log(path.split("/")[-2], "follow" in query)
        elif kind.startswith("watch"):
            answer = Answer()
            self._watches[kind].append(answer)
            if what == "jobs":
                self._send(kind, self.job)
            yield answer
        else:
            items = list(self.pods.values()) if what == "pods" else [self.job]
            found = {"items": items, "metadata": {"resourceVersion": "1"}}
            yield Answer(200, json.dumps(found).encode(), None)

    def _log(self, pod: str, follow: bool) -> Answer:
        answer = Answer(200, b"".join(self.lines[pod]))
        now = [one for one in self.pods.values() if one["metadata"]["name"] == pod]
        if follow and now and now[0]["status"]["phase"] == "Running":
            self._streams.append(answer)
        else:
            answer.put(None)
        return answer

    def has(self, index: int, state: str = "running", uid: str = "", role: str = "worker") -> None:
        """Make or change a pod; its watch says nothing. ``ended 3``: with exit code 3.

        Args:
            index: Of the replica.
            state: ``waiting`` (for its image), ``running``, ``leaving`` or ``ended``.
            uid: Of the pod.
            role: Of the replica.
        """
        uid = uid or f"p{index}"
        name, (word, _, code) = f"mine-worker-{index}", state.partition(" ")
        phase, how = "Running", cast(Object, {"running": {}})
        if word == "ended":
            phase = "Failed" if code else "Succeeded"
            how = {"terminated": {"exitCode": int(code or 0), "containerID": f"c-{uid}"}}
        elif word == "waiting":
            phase, how = "Pending", {"waiting": {"reason": "ImagePullBackOff"}}
        container = {"name": "c", "containerID": f"c-{uid}", "restartCount": 0, "state": how}
        self.lines.setdefault(name, [])
        self.pods[uid] = {
            "metadata": {
                "name": name,
                "uid": uid,
                "labels": {
                    operator_v1.ROLE_LABEL: role,
                    operator_v1.INDEX_LABEL: str(index),
                },
                "creationTimestamp": "2026-11-21T10:00:00Z",
                "ownerReferences": [{"uid": "j"}],
            },
            "spec": {"nodeName": "n", "restartPolicy": "Never", "containers": [{"name": "c"}]},
            "status": {"phase": phase, "containerStatuses": [container]},
        }
        if word == "leaving":
            self.pods[uid]["metadata"]["deletionTimestamp"] = "2026-11-21T11:00:00Z"

    def writes(self, index: int, *words: str) -> None:
        log = self.lines[f"mine-worker-{index}"]
        for word in words:
            log.append(f"2026-11-21T10:00:{len(log):02d}.000000000Z {word}\n".encode())

    def tells(self, uid: str) -> None:
        """Let the watch tell how a pod is."""
        self._send(WATCH, self.pods[uid])

    def breaks(self, *kinds: str) -> None:
        """Cut the connections of these kinds."""
        cut = [one for kind in kinds for one in self._watches.get(kind, ())]
        for answer in cut + (self._streams if LOG in kinds else []):
            answer.put(CUT)

    def ends(self, how: str, **more: str) -> None:
        """Let the operator say that the job is over."""
        condition = {"type": how, "status": "True", **more}
        self.job = {**self.job, "status": {"conditions": [condition]}}
        self._send("watch jobs", self.job)

    def changes(self, **meta: Any) -> None:
        """Change fields of the job's metadata."""
        self.job = {**self.job, "metadata": {**self.job["metadata"], **meta}}
        self._send("watch jobs", self.job)

    def notices(self) -> str:
        """What was said beside the lines."""
        return " ".join(event.text for event in self.events if isinstance(event, Notice))

    def before_decision(self) -> str:
        """What was written before the cell could end."""
        texts = []
        for event in self.events:
            if isinstance(event, Output):
                texts.append(event.data.decode().strip())
            elif isinstance(event, Status) and event.decided:
                return " ".join(texts)
        raise AssertionError("no failure was decided before the last status")

    def _send(self, kind: str, item: Object) -> None:
        event = json.dumps({"type": "MODIFIED", "object": item}).encode() + b"\n"
        for answer in self._watches[kind]:
            answer.put(event)

    def follow(
        self,
        folder: Path,
        *then: tuple[str, Callable[[], object]],
        header: str = "",
        **settings: Any,
    ) -> tuple[str, Status]:
        """Return what was written, and the last status.

        Args:
            folder: Of the logs.
            then: What happens next, once this word was written; "" at the first status.
            header: Of the cell.
            settings: Other than the built-in ones.
        """
        left = list(then)
        events = self.events = []

        async def main() -> list[Event]:
            api = cast(Client, self)
            said = b""
            job = replace(JOB, header=header)
            async with asyncio.timeout(20):
                async for event in follow(api, job, PATH, folder, Settings(**settings)):
                    events.append(event)
                    said += event.data if isinstance(event, Output) else b""
                    while left and left[0][0].encode() in said:
                        left.pop(0)[1]()
            return events

        events = asyncio.run(main())
        written = b"".join(event.data for event in events if isinstance(event, Output))
        last = events[-1]
        assert isinstance(last, Status)
        assert last.settled
        assert not left
        return written.decode().replace("\n", " ").strip(), last

    def lists(self) -> int:
        return self.asked.count(LISTS)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_waits, "_LAST_WORDS", LAST_WORDS)
    monkeypatch.setattr(module, "_TICK", 0.05)
    monkeypatch.setattr(job_watches, "_PAUSE", 0.05)
    monkeypatch.setattr(current_status, "_TOGETHER", 0.05)
    monkeypatch.setattr(sidecars, "PATIENCE", 0.05)


@pytest.fixture
def server() -> Server:
    """A job that runs, whose worker has written ``first``."""
    made = Server()
    made.has(0)
    made.writes(0, "first")
    return made


def replica(status: Status) -> ReplicaStatus:
    return status.replicas[0]


@pytest.mark.parametrize("behind", ["away", "silent"])
@pytest.mark.parametrize(("how", "code"), [("Succeeded", ""), ("Failed", "3")])
def test_a_watch_of_pods_that_is_behind(
    server: Server, tmp_path: Path, behind: str, how: str, code: str
) -> None:
    def end() -> None:
        # The log's reader waits for its next try for as long as nobody knows of the end.
        server.faults[LOG] = lambda: CUT if server.lists() < 2 else None
        if behind == "away":
            server.faults[WATCH] = lambda: CUT
        server.breaks(LOG, *([WATCH] if behind == "away" else []))
        server.has(0, f"ended {code}".strip())
        server.writes(0, "last")
        server.ends(how)

    written, status = server.follow(tmp_path, ("first", end))
    assert written == "first last"
    assert (str(status.state), str(replica(status).state)) == (how, how)
    assert replica(status).exit_code == int(code or 0)
    assert server.lists() == 2


def test_a_pod_of_which_nobody_heard(tmp_path: Path) -> None:
    server = Server()

    def end() -> None:
        server.has(0, "ended")
        server.writes(0, "all")
        server.ends("Succeeded")

    written, status = server.follow(tmp_path, ("", end))
    assert (written, replica(status).state) == ("all", State.SUCCEEDED)


def test_a_failed_pod_that_was_made_again(server: Server, tmp_path: Path) -> None:
    def fail() -> None:
        server.has(0, "ended 1")
        server.tells("p0")
        server.breaks(LOG)
        server.writes(0, "worse")

    def end() -> None:
        server.pods.clear()
        server.lines["mine-worker-0"] = []
        server.has(0, "ended", uid="again")
        server.writes(0, "better")
        server.ends("Succeeded")

    written, status = server.follow(tmp_path, ("first", fail), ("worse", end))
    assert (written, replica(status).state) == ("first worse better", State.SUCCEEDED)


def test_pods_that_are_gone_by_then(server: Server, tmp_path: Path) -> None:
    def end() -> None:
        server.pods.clear()
        server.faults[LOG] = lambda: 404
        server.breaks(LOG)
        server.ends("Failed", message="1 replica failed")

    # Nobody waits for their grace: they are asked for.
    written, status = server.follow(tmp_path, ("first", end), linger=0.0, stop_grace=1000.0)
    assert (written, replica(status).state) == ("first", State.STOPPED)
    # That somebody deleted a pod while it ran, as of a watched one, nobody can say.
    assert (replica(status).reason, status.message) == ("", "1 replica failed")
    assert server.lists() == 2


def test_a_replica_that_runs_on_is_asked_for_once_and_not_waited_for(
    server: Server, tmp_path: Path
) -> None:
    server.has(1)

    def end() -> None:
        server.has(0, "ended")
        server.tells("p0")
        server.ends("Succeeded")
        server.breaks(LOG)

    written, status = server.follow(tmp_path, ("first", end), linger=0.0, stop_grace=0.0)
    assert written == "first"
    assert [one.state for one in status.replicas] == [State.SUCCEEDED, State.STOPPED]
    assert server.lists() == 2


class Straggler:
    """A replica that runs on, once another has ended the job."""

    def __init__(self, server: Server, role: str = "worker") -> None:
        self.server, self.role = server, role
        server.has(1, role=role)

    def end_job(self, how: str = "Succeeded", state: str = "leaving", when: str = "") -> None:
        self.server.has(0, "ended" if how == "Succeeded" else "ended 1")
        self.server.tells("p0")
        self._is(state)
        self.server.ends(how, lastTransitionTime=when)
        self.server.breaks(LOG)

    def ends_soon(self) -> None:
        asyncio.get_running_loop().call_later(4 * LAST_WORDS, self._end)

    def _end(self) -> None:
        self.server.writes(1, "late")
        self._is("ended")

    def _is(self, state: str) -> None:
        self.server.has(1, state, role=self.role)
        self.server.tells("p1")


@pytest.mark.parametrize("how", ["Succeeded", "Failed"])
@pytest.mark.parametrize("state", ["leaving", "running"])
def test_a_worker_that_ends_a_moment_after_its_job(
    server: Server, tmp_path: Path, state: str, how: str
) -> None:
    """An operator with many pods to delete may not have come to this one yet."""
    late = Straggler(server)

    def end() -> None:
        late.end_job(how, state)
        late.ends_soon()

    written, status = server.follow(tmp_path, ("first", end), linger=0.0, stop_grace=10.0)
    assert written == "first late"
    assert [str(one.state) for one in status.replicas] == [how, "Succeeded"]


@pytest.mark.parametrize("how", ["Succeeded", "Failed"])
@pytest.mark.parametrize("why", ["a PS", "stays", "hangs", "over long ago"])
def test_who_is_not_waited_for_after_a_jobs_end(
    server: Server, tmp_path: Path, why: str, how: str
) -> None:
    late = Straggler(server, "ps" if why == "a PS" else "worker")
    if why == "stays":
        server.job["spec"]["runPolicy"] = {"cleanPodPolicy": "None"}
    when = "2026-01-01T00:00:00Z" if why == "over long ago" else ""
    grace = 0.0 if why == "hangs" else 1000.0
    written, status = server.follow(
        tmp_path,
        ("first", lambda: late.end_job(how, when=when)),
        linger=grace,
        stop_grace=grace,
    )
    assert (written, str(status.state)) == ("first", how)
    assert status.replicas[1].state is State.STOPPED


def test_a_log_that_was_not_read_to_its_end_replaces_none(server: Server, tmp_path: Path) -> None:
    late = Straggler(server, "ps")
    server.job["spec"]["runPolicy"] = {"cleanPodPolicy": "None"}
    server.writes(1, "some")
    whole = tmp_path / "ps-1.log"
    whole.write_text("some\nand much more\n")
    (tmp_path / "worker-0.log").write_text("first, but of another pod\n")
    server.follow(tmp_path, ("first", lambda: late.end_job(state="running")))
    assert whole.read_text() == "some\nand much more\n"
    assert (tmp_path / "worker-0.log").read_text() == "first\n"


def test_lines_that_the_node_has_dropped_come_from_the_saved_log(
    server: Server, tmp_path: Path
) -> None:
    """A node keeps the newest lines of a log, and those of one earlier run of the container."""
    saved = tmp_path / "worker-0.log"
    saved.write_text("zero\nfirst\nsecond\n")

    def end() -> None:
        server.has(0, "ended")
        server.ends("Succeeded")

    server.writes(0, "second", "third")
    written, _ = server.follow(tmp_path, ("third", end))
    assert written == "zero first second third"
    assert saved.read_text() == "zero\nfirst\nsecond\nthird\n"
    assert [path.name for path in tmp_path.glob("*.log")] == ["worker-0.log"]
    outputs = [event for event in server.events if isinstance(event, Output)]
    assert sum(event.lines for event in outputs) == 4
    written, _ = server.follow(tmp_path)
    assert written == "zero first second third"


def test_the_logs_of_a_replicas_pods_come_one_after_the_other(tmp_path: Path) -> None:
    """As of an Indexed Job, whose failed pods stay; the first request for a log fails."""
    server = Server()
    for uid, state in (("old", "ended 1"), ("new", "ended")):
        server.lines["mine-worker-0"] = []
        server.has(0, state, uid=uid)
        server.writes(0, f"{uid}-1", f"{uid}-2")
        server.lines[f"mine-{uid}"] = server.lines["mine-worker-0"]
        server.pods[uid]["metadata"]["name"] = f"mine-{uid}"
    server.pods["new"]["metadata"]["creationTimestamp"] = "2026-11-21T10:05:00Z"
    server.pods = dict(reversed(server.pods.items()))
    faults = iter([503])
    server.faults[LOG] = lambda: next(faults, None)
    server.ends("Succeeded")
    assert server.follow(tmp_path)[0] == "old-1 old-2 new-1 new-2"
    assert (tmp_path / "worker-0.log").read_text() == "old-1\nold-2\nnew-1\nnew-2\n"


class Pods(Server):
    """Several pods of one replica, each with its log; the first requests for some logs fail."""

    def __init__(self, *pods: tuple[str, str, tuple[str, ...]], failing: str = "") -> None:
        super().__init__()
        for number, (uid, state, lines) in enumerate(pods):
            self.lines["mine-worker-0"] = []
            self.has(0, state, uid=uid)
            self.writes(0, *lines)
            self.lines[f"mine-{uid}"] = self.lines["mine-worker-0"]
            meta = self.pods[uid]["metadata"]
            meta |= {"name": f"mine-{uid}", "creationTimestamp": f"2026-11-21T10:0{number}:00Z"}
        self.failing, self.left = f"mine-{failing}", 3

    def _log(self, pod: str, follow: bool) -> Answer:
        if pod == self.failing and self.left:
            self.left -= 1
            return Answer(200, CUT)
        return super()._log(pod, follow)


def test_lines_of_a_pod_that_is_still_read_are_not_taken_from_the_saved_log(
    tmp_path: Path,
) -> None:
    """It is being deleted, its successor runs, and the successor's node answers first."""
    (tmp_path / "worker-0.log").write_text("a1\na2\nb1\n")
    pods = ("a", "leaving", ("a1", "a2")), ("b", "running", ("b1", "b2"))
    server = Pods(*pods, failing="a")

    def end() -> None:
        server.pods.pop("a")
        server.pods["b"]["status"]["phase"] = "Succeeded"
        state = {"terminated": {"exitCode": 0, "containerID": "c-b"}}
        server.pods["b"]["status"]["containerStatuses"][0]["state"] = state
        server.ends("Succeeded")
        server.breaks(WATCH, LOG)

    written, _ = server.follow(tmp_path, ("a2", end))
    assert sorted(written.split()) == ["a1", "a2", "b1", "b2"]


def test_of_several_logs_only_the_one_that_stalls_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_tracker, "_STALLED", 0.05)
    names = [f"{uid}{number}" for uid in "bc" for number in range(5)]
    pods = (
        ("a", "ended 1", ("a0",)),
        ("b", "ended 1", tuple(names[:5])),
        ("c", "ended", tuple(names[5:])),
    )
    server = Pods(*pods, failing="a")
    server.left = 10**9

    def heals() -> None:
        server.left = 0

    server.ends("Succeeded")
    written, _ = server.follow(tmp_path, ("c4", heals))
    assert [word for word in written.split() if word != "a0"] == names


def test_a_log_that_begins_with_a_line_of_another_one_is_another_one(
    server: Server, tmp_path: Path
) -> None:
    """As of a retry that begins at a checkpoint."""
    (tmp_path / "worker-0.log").write_text("zero\nfirst\nb\nc\n")
    server.writes(0, "x", "y")
    server.has(0, "ended")
    server.ends("Succeeded")
    assert server.follow(tmp_path)[0] == "first x y"
    assert (tmp_path / "worker-0.log").read_text() == "first\nx\ny\n"
    assert (tmp_path / "worker-0.earlier.log").read_text() == "zero\nfirst\nb\nc\n"


def test_a_log_that_breaks_off_replaces_no_longer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_limits, "_PATIENCE", dict.fromkeys(retry_limits._PATIENCE, 0.0))
    text = "a1\na2\na3\na4\n"
    (tmp_path / "worker-0.log").write_text(text)

    class Breaks(Pods):
        def _log(self, pod: str, follow: bool) -> Answer:
            self.faults[LOG] = lambda: 400
            return Answer(200, b"".join(self.lines[pod]), CUT)

    server = Breaks(("a", "ended", ("a1", "a2")))
    server.ends("Succeeded")
    assert server.follow(tmp_path)[0] == "a1 a2"
    assert (tmp_path / "worker-0.log").read_text() == text
    assert "does not return the log" in server.notices()


@pytest.mark.parametrize("lines", ["zero\nfirst\n", ""])
def test_a_log_that_the_node_has_no_more_is_shown_from_the_saved_one(
    server: Server, tmp_path: Path, lines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the node has removed the container of a pod that is still there."""
    monkeypatch.setattr(retry_limits, "_PATIENCE", dict.fromkeys(retry_limits._PATIENCE, 0.0))
    (tmp_path / "worker-0.log").write_text(lines)
    server.faults[LOG] = lambda: 400
    server.has(0, "ended")
    server.ends("Succeeded")
    assert server.follow(tmp_path)[0] == lines.replace("\n", " ").strip()
    assert "the cluster does not return the log" in server.notices()


def test_saved_lines_are_shown_of_a_pod_that_has_forgotten_its_container(
    server: Server, tmp_path: Path
) -> None:
    """As after a restart of its node; nothing tells that there has been a log."""
    (tmp_path / "worker-0.log").write_text("zero\nfirst\n")
    server.has(0, "ended 137")
    server.pods["p0"]["status"]["containerStatuses"] = []
    server.ends("Failed")
    assert server.follow(tmp_path)[0] == "zero first"
    assert (tmp_path / "worker-0.log").read_text() == "zero\nfirst\n"


def test_saved_lines_are_not_shown_of_a_replica_that_has_written_nothing(
    server: Server, tmp_path: Path
) -> None:
    """They are of an earlier try, which was followed here."""
    (tmp_path / "worker-0.log").write_text("of try 1\n")
    server.has(0, "ended 0")
    server.lines["mine-worker-0"].clear()
    server.ends("Succeeded")
    assert server.follow(tmp_path)[0] == ""


def test_lines_of_another_log_are_not_shown(server: Server, tmp_path: Path) -> None:
    (tmp_path / "worker-0.log").write_text("zero\nother\n")
    server.has(0, "ended")
    server.ends("Succeeded")
    assert server.follow(tmp_path)[0] == "first"


def test_a_job_that_seemed_hopeless_and_runs_by_now(tmp_path: Path) -> None:
    server = Server()
    server.has(0, "waiting")

    def start() -> None:
        server.has(0)
        server.writes(0, "first")

    def end() -> None:
        server.has(0, "ended")
        server.writes(0, "last")
        server.ends("Succeeded")
        server.breaks(LOG)

    written, status = server.follow(tmp_path, ("", start), ("first", end), hopeless_wait=0.05)
    assert (written, status.state) == ("first last", State.SUCCEEDED)
    assert server.lists() == 3


def test_what_is_known_to_have_succeeded_is_not_asked_for_again(
    server: Server, tmp_path: Path
) -> None:
    def end() -> None:
        server.has(0, "ended")
        server.writes(0, "last")
        server.breaks(LOG)
        server.tells("p0")
        server.ends("Succeeded")

    assert server.follow(tmp_path, ("first", end))[0] == "first last"
    assert server.lists() == 1


def test_a_server_that_refuses_for_a_moment(server: Server, tmp_path: Path) -> None:
    def end() -> None:
        server.faults[LISTS] = lambda: 403 if server.lists() < 4 else None
        server.has(0, "ended")
        server.writes(0, "last")
        server.breaks(LOG)
        server.ends("Succeeded")

    written, status = server.follow(tmp_path, ("first", end))
    assert (written, replica(status).state) == ("first last", State.SUCCEEDED)


def test_a_right_to_read_logs_that_comes_back(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a RoleBinding that somebody deletes and applies again while the job runs."""
    monkeypatch.setattr(retry_limits, "_PATIENCE", dict.fromkeys(retry_limits._PATIENCE, 0.0))
    denied = 0

    def deny() -> int | None:
        nonlocal denied
        denied += 1
        if denied < 4:
            return 403
        if denied == 4:
            server.has(0, "ended")
            server.tells("p0")
            server.writes(0, "last")
            server.ends("Succeeded")
        return None

    def lose() -> None:
        server.faults[LOG] = deny
        server.breaks(LOG)

    written, status = server.follow(tmp_path, ("first", lose))
    assert (written, replica(status).state) == ("first last", State.SUCCEEDED)
    assert server.notices().count("not now") == 1
    assert (tmp_path / "worker-0.log").read_text() == "first\nlast\n"


def test_a_server_that_refuses_for_good(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_watches, "_DENIED", 0.1)

    def end() -> None:
        server.faults[LISTS] = lambda: 403
        server.ends("Succeeded")

    with pytest.raises(Refused, match="not now"):
        server.follow(tmp_path, ("first", end))
    assert server.lists() > 2


def test_a_server_that_stays_away(server: Server, tmp_path: Path) -> None:
    def end() -> None:
        server.faults = dict.fromkeys((LISTS, WATCH, LOG), lambda: CUT)
        server.breaks(WATCH, LOG)
        server.ends("Succeeded")

    with pytest.raises(ClusterFault, match="has not answered for"):
        server.follow(tmp_path, ("first", end), follow_patience=0.5)


def test_a_failure_is_decided_before_the_operator_says_so(server: Server, tmp_path: Path) -> None:
    """The cell may end with all lines of the replicas that have ended; the rest comes behind."""
    server.has(1)
    server.writes(1, "beside")
    steps: list[str] = []

    def fail() -> None:
        server.has(0, "ended 3")
        server.writes(0, "why")
        server.breaks(LOG)
        server.tells("p0")
        asyncio.get_running_loop().create_task(operator())

    async def operator() -> None:
        """It comes after the decision, and stops the other replica."""
        while not any(isinstance(one, Status) and one.decided for one in server.events):
            await asyncio.sleep(0.01)
        steps.append("decided")
        server.ends("Failed")
        server.has(1, "leaving")
        server.tells("p1")
        await asyncio.sleep(4 * LAST_WORDS)
        server.writes(1, "late")
        server.has(1, "ended")
        server.breaks(LOG)
        server.tells("p1")

    written, status = server.follow(tmp_path, ("beside", fail), stop_grace=10.0)
    assert sorted(written.split()) == ["beside", "first", "late", "why"]
    assert sorted(server.before_decision().split()) == ["beside", "first", "why"]
    assert steps == ["decided"]
    first = next(one for one in server.events if isinstance(one, Status) and one.decided)
    assert (first.state, first.foreseen, first.settled) == (State.FAILED, True, False)
    assert first.decided_by == ZERO
    assert (status.state, status.foreseen) == (State.FAILED, False)
    assert [one.state for one in status.replicas] == [State.FAILED, State.SUCCEEDED]


def test_a_failure_is_not_settled_before_the_operator_says_so(
    server: Server, tmp_path: Path
) -> None:
    """It alone stops the other replicas, however late."""

    def fail() -> None:
        server.has(0, "ended 3")
        server.tells("p0")
        server.breaks(LOG)
        asyncio.get_running_loop().call_later(8 * LAST_WORDS, lambda: server.ends("Failed"))

    server.follow(tmp_path, ("first", fail), linger=0.0, stop_grace=0.0)
    foreseen = [one.foreseen for one in server.events if isinstance(one, Status) and one.decided]
    assert foreseen[0] is True
    assert foreseen[-1] is False


@pytest.mark.parametrize("policy", ["OnFailure", "Always", "ExitCode"])
def test_a_replica_that_is_started_again_decides_nothing(
    server: Server, tmp_path: Path, policy: str
) -> None:
    server.job["spec"]["tfReplicaSpecs"]["Worker"]["restartPolicy"] = policy

    def fail() -> None:
        server.has(0, "ended 137")
        server.tells("p0")
        server.breaks(LOG)
        asyncio.get_running_loop().call_later(4 * LAST_WORDS, again)

    def again() -> None:
        server.pods.clear()
        server.has(0, "ended", uid="again")
        server.ends("Succeeded")

    _, status = server.follow(tmp_path, ("first", fail))
    assert status.state is State.SUCCEEDED
    assert not any(isinstance(one, Status) and one.decided for one in server.events)


def test_a_failure_behind_the_deciders_success_is_left_to_the_operator(
    server: Server, tmp_path: Path
) -> None:
    server.has(1)

    def end() -> None:
        server.has(0, "ended")
        server.has(1, "ended 3")
        server.tells("p1")
        server.tells("p0")
        server.breaks(LOG)
        asyncio.get_running_loop().call_later(4 * LAST_WORDS, lambda: server.ends("Succeeded"))

    _, status = server.follow(tmp_path, ("first", end))
    assert status.state is State.SUCCEEDED
    states = [one.state for one in server.events if isinstance(one, Status) and one.decided]
    assert states == []


def test_a_deleted_job_that_a_finalizer_keeps_ends_and_says_who_keeps_it(
    server: Server, tmp_path: Path
) -> None:
    """Its pods run on: nobody tells them to end."""
    deleted = {"deletionTimestamp": "2026-11-21T11:00:00Z", "finalizers": ["example.com/hold"]}
    written, status = server.follow(
        tmp_path, ("first", lambda: server.changes(**deleted)), linger=0.0, stop_grace=0.0
    )
    assert (written, status.state, status.message) == ("first", State.STOPPED, "deleted")
    assert server.notices().count("the finalizer example.com/hold keeps its object") == 1
    states = [one for event in server.events if isinstance(event, Status) for one in event.replicas]
    assert State.PENDING not in {one.state for one in states}


def sends_files(server: Server) -> None:
    """Let the program have ended, and its sidecar write files into its log."""
    server.has(0, "ended")
    about = {"name": output_state.LOG_NAME, "containerID": "c-files", "restartCount": 0}
    status = {"phase": "Running", "initContainerStatuses": [{**about, "state": {"running": {}}}]}
    server.pods["p0"]["status"] |= status
    server.tells("p0")
    server.breaks(LOG)


def lines_of_files(path: str, data: bytes) -> list[bytes]:
    """The log of a sidecar with one file."""
    told = {"path": path, "size": len(data), "offset": 0, "runs": False}
    listing = {"files": 1, "bytes": len(data), "missing": [], "left_out": []}
    messages = [
        (replica_files.LIST, json.dumps(listing).encode()),
        (replica_files.FILE, json.dumps(told).encode()),
        (replica_files.DATA, data),
        (replica_files.END, hashlib.sha256(data).hexdigest().encode()),
        (replica_files.DONE, b""),
    ]
    stream = b"".join(replica_files.HEADER.pack(kind, len(one)) + one for kind, one in messages)
    end = f"{len(stream)} {hashlib.sha256(stream).hexdigest()}".encode()
    texts = (replica_files.LOG_LINE + base64.b64encode(stream), replica_files.LOG_END + end)
    stamp = b"2026-11-21T10:01:0%d.000000000Z %s\n"
    return [stamp % (number, text) for number, text in enumerate(texts)]


def test_files_that_are_coming_when_the_job_is_deleted_come(server: Server, tmp_path: Path) -> None:
    def delete() -> None:
        server.changes(deletionTimestamp="2026-11-21T11:00:00Z", finalizers=["a/b"])
        # A follower that does not wait ends earlier.
        for piece in (*lines_of_files("model/net", b"weights"), None):
            asyncio.get_running_loop().call_later(0.5, server.files.put, piece)

    server.files_asked = delete
    _, status = server.follow(
        tmp_path,
        ("first", lambda: sends_files(server)),
        header="%output=model/ by:log\n",
        linger=0.0,
        stop_grace=0.0,
    )
    assert status.settled
    assert (tmp_path / "model/net").read_bytes() == b"weights"
    assert "did not come back" not in server.notices()


def test_files_that_do_not_come_in_time_after_the_deletion_are_said(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_state, "LONGEST", 0)
    deleted = {"deletionTimestamp": "2026-11-21T11:00:00Z", "finalizers": ["a/b"]}
    server.files_asked = lambda: server.changes(**deleted)
    server.follow(
        tmp_path,
        ("first", lambda: sends_files(server)),
        header="%output=model/ by:log\n",
        linger=0.0,
        stop_grace=0.0,
    )
    lost = "the files of worker-0 did not come back: the job was deleted while they came."
    assert server.notices().count(lost) == 1


def test_a_job_that_is_kept_at_the_first_look_waits_for_nothing(tmp_path: Path) -> None:
    server = Server()
    server.job["metadata"] |= {"deletionTimestamp": "2026-11-21T11:00:00Z", "finalizers": ["a/b"]}
    _, status = server.follow(tmp_path, linger=0.0, stop_grace=0.0)
    shown = [event for event in server.events if isinstance(event, Status)]
    assert {event.state for event in shown} == {State.STOPPED}
    assert {one.state for event in shown for one in event.replicas} == {State.STOPPED}
    assert status.settled


@pytest.mark.parametrize(("code", "end"), [("", State.SUCCEEDED), (" 3", State.FAILED)])
def test_a_container_that_keeps_the_pod_alive_keeps_no_cell(
    server: Server, tmp_path: Path, code: str, end: State
) -> None:
    def finish() -> None:
        server.has(0, f"ended{code}")
        server.writes(0, "last")
        proxy = {"name": "istio-proxy", "state": {"running": {}}}
        server.pods["p0"]["status"]["phase"] = "Running"
        server.pods["p0"]["status"]["containerStatuses"].append(proxy)
        server.tells("p0")
        server.breaks(LOG)

    written, status = server.follow(tmp_path, ("first", finish))
    assert (written, status.state, status.decided_by) == ("first last", end, ZERO)
    assert server.notices().count("its container istio-proxy does not end") == 1
