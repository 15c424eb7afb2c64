"""Which pod's log is read: the replica's by its labels, whatever its name is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ciao_kernel.backends.kubernetes.apis import operator_v1, replica_list, trainer
from ciao_kernel.backends.kubernetes.apis.indexed_job import INDEX
from ciao_kernel.backends.kubernetes.existing import kept_log, logs
from ciao_kernel.errors import BackendError, ClusterFault, Refused
from ciao_kernel.kube.client import Client
from ciao_kernel.kube.server_clock import ServerClock
from ciao_kernel.model import Job, Replica
from ciao_kernel.model.queries import WHOLE_LOG, LogOptions

ZERO, ONE = Replica("worker", 0), Replica("worker", 1)
JOB = Job("mine", "kubernetes", "tensorflow", (ZERO, ONE), 0.0, "team", uid="j")


def pod(name: str, replica: Replica, *, owner: str = "j", job: str = "mine", at: str = "1") -> Any:
    labels = {
        operator_v1.JOB_LABEL: job,
        operator_v1.ROLE_LABEL: replica.role,
        operator_v1.INDEX_LABEL: str(replica.index),
    }
    if replica.role == "launcher":
        del labels[operator_v1.INDEX_LABEL]
    owners = [{"uid": owner}]
    meta = {"name": name, "labels": labels, "ownerReferences": owners, "creationTimestamp": at}
    return {"metadata": meta, "spec": {"containers": [{"name": "main"}]}}


STAMP = b"2026-11-24T23:00:00.123456789Z "


def stamped(data: bytes) -> bytes:
    return b"".join(STAMP + line for line in data.splitlines(keepends=True))


class Server:
    """Selects pods by their labels, and writes each one's name into its log."""

    def __init__(self, *pods: Any) -> None:
        self.pods = pods
        self.selected: list[int] = []
        self.clock = ServerClock()

    async def get(self, path: str, **query: str) -> Any:
        assert path == "/api/v1/namespaces/team/pods"
        wanted = dict(word.split("=") for word in query["labelSelector"].split(","))
        items = [one for one in self.pods if wanted.items() <= one["metadata"]["labels"].items()]
        self.selected.append(len(items))
        return {"items": items, "metadata": {}}

    async def text(self, path: str, **query: str) -> bytes:
        assert query["timestamps"] == "true"
        return STAMP + path.split("/")[-2].encode()

    async def pieces(self, path: str, **query: str) -> AsyncGenerator[bytes, None]:
        answer = await self.text(path, **query)
        for start in range(0, len(answer), 50):
            yield answer[start : start + 50]


@pytest.fixture(params=["at once", "in pieces"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read each log in both ways."""
    if request.param == "in pieces":

        async def joined(*args: Any) -> bytes:
            return b"".join([piece async for piece in logs.stream(*args)])

        monkeypatch.setattr(f"{__name__}.READ", joined)


READ: Any = logs.read
"""Reads a log as the fixture says."""


def read(
    server: Server,
    replica: Replica,
    kept: Path,
    options: LogOptions = WHOLE_LOG,
    job: Job = JOB,
) -> str:
    client = cast(Client, server)
    return cast(bytes, asyncio.run(READ(client, job, replica, options, kept))).decode()


def test_a_pod_is_found_by_its_labels(tmp_path: Path) -> None:
    launcher = Replica("launcher", 0)
    server = Server(
        pod("mine-7f3a", ZERO),
        pod("odd", ONE),
        pod("mine-worker-0", ZERO, job="other"),
        pod("mine-worker-1", Replica("ps", 1)),
        pod("mine-launch", launcher),
    )
    found = [read(server, replica, tmp_path / "no") for replica in (ZERO, ONE, launcher)]
    assert found == ["mine-7f3a", "odd", "mine-launch"]


def train_pod(index: int, *, shared: bool) -> Any:
    """A worker of a TrainJob, with its own runtime or a shared one."""
    role = trainer.STEP if shared else "worker"
    number = {INDEX: str(index)}
    labels = {trainer.JOB_LABEL: "mine", trainer.ROLE_LABEL: role, **number}
    notes = {**number, **({replica_list.ANNOTATION: "worker=2"} if shared else {})}
    meta = {"name": f"mine-{role}-0-{index}", "labels": labels, "annotations": notes}
    return {"metadata": meta, "spec": {"containers": [{"name": "node"}]}}


@pytest.mark.parametrize(("shared", "selected"), [(False, [1]), (True, [0, 2])])
def test_of_a_train_job_the_pod_of_a_replica_alone_is_read(
    shared: bool, selected: list[int], tmp_path: Path
) -> None:
    server = Server(*(train_pod(index, shared=shared) for index in range(2)))
    job = replace(JOB, resource="trainjobs")
    role = "node" if shared else "worker"
    assert read(server, ONE, tmp_path / "no", job=job) == f"mine-{role}-0-1"
    assert server.selected == selected


def test_the_youngest_pod_of_this_job_counts(tmp_path: Path) -> None:
    pods = [
        pod("old", ZERO, at="2026-11-21T10:00:00Z"),
        pod("new", ZERO, at="2026-11-21T11:00:00Z"),
        pod("of-an-earlier-job", ZERO, owner="other", at="2026-11-21T12:00:00Z"),
    ]
    assert read(Server(*pods), ZERO, tmp_path / "no") == "new"
    assert read(Server(*reversed(pods)), ZERO, tmp_path / "no") == "new"


def test_a_replica_without_a_pod_has_its_saved_log(tmp_path: Path) -> None:
    kept = tmp_path / "worker-0.log"
    server = Server(pod("mine-worker-0", ZERO, owner="other"))
    assert not read(server, ZERO, kept)
    kept.write_text("saved")
    assert read(server, ZERO, kept) == "saved"
    with pytest.raises(BackendError, match="worker-0 of mine has no pod"):
        read(server, ZERO, kept, LogOptions(timestamps=True))


READY = b"\x1eciao:0123456789abcdef " + b'{"ev":"ready"}\n'
BEGIN = b"\x1eciao:0123456789abcdef " + b'{"ev":"begin","id":1}\n'


class NodeLog(Server):
    """A pod whose node has this of its log; the follower may save more meanwhile."""

    def __init__(self, data: bytes, kept: Path) -> None:
        super().__init__(pod("mine-worker-0", ZERO))
        self.data, self.kept = data, kept

    async def text(self, path: str, **query: str) -> bytes:
        with self.kept.open("ab") as file:
            file.write(b"newer\n")
        return stamped(self.data)


@pytest.mark.parametrize(
    ("data", "kept", "whole"),
    [
        (b"2\n3\n4\n", READY + BEGIN + b"1\n2\n3\n", READY + BEGIN + b"1\n2\n3\n4\n"),
        (b"2\n3\n", READY + BEGIN + b"1\n2\n3\n", READY + BEGIN + b"1\n2\n3\n"),
        (b"a\nb\n2\n", READY + b"a\na\n", READY + b"a\na\nb\n2\n"),
        (b"5\n6\n", READY + BEGIN + b"1\n", READY + BEGIN + b"1\n5\n6\n"),  # 2 to 4 are lost
        (b"", READY + BEGIN + b"1\n", READY + BEGIN + b"1\n"),
        (READY + BEGIN + b"2\n", READY + BEGIN + b"1\n", READY + BEGIN + b"2\n"),
    ],
)
def test_the_saved_log_completes_that_of_a_warm_replica(
    data: bytes, kept: bytes, whole: bytes, tmp_path: Path
) -> None:
    saved = tmp_path / "worker-0.log"

    def found(header: str, options: LogOptions = WHOLE_LOG) -> bytes:
        saved.write_bytes(kept)
        job = replace(JOB, header=header)
        return read(NodeLog(data, saved), ZERO, saved, options, job).encode()

    assert found("%warm=10m\n") == whole
    assert found("%warm=10m\n", LogOptions(timestamps=True)) == stamped(data)


def test_a_log_that_repeats_one_line_loses_nothing(tmp_path: Path) -> None:
    saved = tmp_path / "worker-0.log"
    saved.write_bytes(READY + b"a\n" * 50_000 + b"b\n")
    data = b"a\n" * 40_000
    job = replace(JOB, header="%warm=10m\n")
    whole = READY + b"a\n" * 50_000 + b"b\n" + data
    assert read(NodeLog(data, saved), ZERO, saved, job=job).encode() == whole


NEWER = b"".join(b"step %d\n" % number for number in range(10_000))


@pytest.mark.parametrize(
    ("before", "overlap", "newer"),
    [
        (b"run 1\n" + b"a\n" * 20_000, b"a\n" * 20_000 + b"done\n", NEWER),
        (b"a\n" * 20_000, b"a\n" * 20_000 + b"done\n" + b"a\n" * 2_000, b"a\n" * 20_000),
        (b"a\n" * 20_000, b"a\n" * 100, NEWER),
    ],
    ids=["a block", "two blocks", "the end of a block"],
)
def test_a_log_that_repeats_one_line_has_each_line_once(
    before: bytes, overlap: bytes, newer: bytes, tmp_path: Path
) -> None:
    """It was compared at 10,000 places, and then written behind the saved one as a whole."""
    saved, kept = tmp_path / "worker-0.log", READY + before + overlap
    saved.write_bytes(kept)
    assert kept_log.complete(overlap + newer, saved, len(kept)) == kept + newer


LOST = b"unable to retrieve container logs for containerd://e788ff6eb312b259"


class Answer(Server):
    """A pod whose log is answered by these bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(pod("mine-worker-0", ZERO))
        self.data = data

    async def text(self, path: str, **query: str) -> bytes:
        return self.data


def test_an_error_text_of_the_kubelet_is_no_line_of_the_log(tmp_path: Path) -> None:
    kept = tmp_path / "worker-0.log"
    with pytest.raises(Refused, match="unable to retrieve container logs"):
        read(Answer(LOST), ZERO, kept)
    kept.write_text("1\n2\n3\n")
    assert read(Answer(LOST), ZERO, kept) == "1\n2\n3\n"
    assert read(Answer(LOST), ZERO, kept, LogOptions(tail=1)) == "3\n"
    with pytest.raises(BackendError, match="does not keep the previous log of worker-0 any more"):
        read(Answer(LOST), ZERO, kept, LogOptions(previous=True))
    with pytest.raises(BackendError, match="without times"):
        read(Answer(LOST), ZERO, kept, LogOptions(timestamps=True))
    assert read(Answer(stamped(b"1\n2\n") + LOST), ZERO, kept) == "1\n2\n"


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Refused("no route to host.", code=500), "does not return its log (no route to host)."),
        (Refused("pods/log is forbidden", code=403), "(pods/log is forbidden)."),
        (ClusterFault("no answer."), "(no answer)."),
        (Refused("the container is waiting to start", code=400), ""),
        (Refused("there is no pod", code=404), ""),
    ],
)
def test_a_saved_log_that_may_be_old_is_told(fault: Exception, told: str, tmp_path: Path) -> None:
    class Faulty(Answer):
        async def text(self, path: str, **query: str) -> bytes:
            raise fault

    notices: list[str] = []
    kept = tmp_path / "worker-0.log"
    kept.write_text("1\n2\n")
    options = LogOptions(tail=1, tell=notices.append)
    assert read(Faulty(b""), ZERO, kept, options) == "2\n"
    assert len(notices) == (1 if told else 0)
    for notice in notices:
        assert notice.startswith("the lines of worker-0 are those saved on this machine until ")
        assert notice.endswith(told)


def test_times_are_shown_if_they_are_asked_for(tmp_path: Path) -> None:
    data = stamped(b"1\n\n2026 is a year\nend")
    timed = LogOptions(timestamps=True)
    assert read(Answer(data), ZERO, tmp_path / "no") == "1\n\n2026 is a year\nend"
    assert read(Answer(data), ZERO, tmp_path / "no", timed).encode() == data
    assert read(Answer(b""), ZERO, tmp_path / "no") == ""


@pytest.mark.parametrize(
    ("data", "saved", "whole"),
    [
        ("3\n4\n5\n", "1\n2\n3\n4\n", "1\n2\n3\n4\n5\n"),  # rotated, or started again
        ("3\n", "1\n2\n3\n4\n", "1\n2\n3\n"),
        ("1\n2\n3\n", "1\n2\n", "1\n2\n3\n"),
        ("5\n", "1\n2\n", "5\n"),  # another log
        ("a\n", "1\na\n2\na\n", "a\n"),  # its place is not sure
        ("", "1\n", ""),
    ],
)
def test_the_saved_log_has_the_lines_that_the_node_has_dropped(
    data: str, saved: str, whole: str, tmp_path: Path
) -> None:
    kept = tmp_path / "worker-0.log"
    kept.write_text(saved)
    server = Answer(stamped(data.encode()))
    assert read(server, ZERO, kept) == whole
    assert read(server, ZERO, kept, LogOptions(followed=True)) == whole
    for number in (1, 2, 3, 9):
        lines = whole.splitlines(keepends=True)[-number:]
        assert read(server, ZERO, kept, LogOptions(tail=number)) == "".join(lines)
    for part in (LogOptions(previous=True), LogOptions(since=1.0)):
        assert read(server, ZERO, kept, part) == data


class Cutting(Server):
    """A pod that has ended, whose node cuts its first answers after so many bytes."""

    def __init__(self, data: bytes, *cuts: int | Exception) -> None:
        ended = pod("mine-worker-0", ZERO)
        ended["status"] = {"phase": "Succeeded"}
        super().__init__(ended)
        self.data, self.cuts, self.asked = data, list(cuts), 0

    async def text(self, path: str, **query: str) -> bytes:
        self.asked += 1
        lines = self.data.splitlines(keepends=True)
        since = query.get("sinceTime", "")[:19].encode()
        answer = [line for line in lines if line[:19] >= since]
        if "tailLines" in query:
            answer = answer[-int(query["tailLines"]) :]
        cut = self.cuts.pop(0) if self.cuts else len(self.data)
        if isinstance(cut, Exception):
            raise cut
        return b"".join(answer)[:cut]


@pytest.mark.parametrize("end", [b"\n", b""])
def test_an_answer_that_is_cut_is_not_the_whole_log(end: bytes, tmp_path: Path) -> None:
    lines = [b"2026-11-24T23:00:%02d.123456789Z %d" % (n, n) for n in range(9)]
    data = b"\n".join(lines) + end
    texts = "".join(f"{n}\n" for n in range(9)).removesuffix("\n") + end.decode()
    for cuts in ((), (100,), (100, 102), (33 * 8 + 5,)):
        assert read(Cutting(data, *cuts), ZERO, tmp_path / "no") == texts
    timed, tail = LogOptions(timestamps=True), LogOptions(tail=3)
    assert read(Cutting(data, 100), ZERO, tmp_path / "no", timed).encode() == data
    assert read(Cutting(data, 40), ZERO, tmp_path / "no", tail) == texts[-6 - len(end) + 1 :]
    server = Cutting(data)
    assert read(server, ZERO, tmp_path / "no") == texts
    assert server.asked == 2
    gone = Cutting(data, 1_000, Refused("there is no pod", code=404))
    assert read(gone, ZERO, tmp_path / "no") == texts
