"""Files that come back from pods by %output: by exec from the container that keeps them, or by the
log of one that writes them."""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path

import pytest

from ciao_kernel.delivery import replica_files
from ciao_kernel.delivery.output import results
from ciao_kernel.errors import BackendError, ClusterFault, JobFailed
from ciao_kernel.session import copying, fetching
from ciao_kernel.session.session import Session
from tests.cluster.cluster import Cluster
from tests.cluster.faults import policies
from tests.cluster.faults.proxy import Proxy
from tests.cluster.namespace import Namespace
from tests.e2e.jobs.conftest import EXEC, JOBS, ROLE, TRAIN, Team, let_go, made, rules
from tests.helpers.bucket import Bucket, bucket
from tests.helpers.jobs import Ended, Recorder, wait

TF = "%framework=tensorflow\n%ps=1\n%worker=2\n"
WRITES = """
import hashlib, os, pathlib
me = os.environ["CIAO_REPLICA"]
pathlib.Path("model").mkdir()
if me == "worker-0":
    pathlib.Path("model/net.pt").write_bytes(os.urandom(3_000_000))
    print(hashlib.sha256(pathlib.Path("model/net.pt").read_bytes()).hexdigest())
pathlib.Path("log.csv").write_text(me)
pathlib.Path("same.txt").write_text("the same")
os.symlink("/etc/passwd", "model/passwd")
metrics = {"loss": 0.25}
import json, socket, time
host, port = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][1].split(":")
if me == "worker-1":
    socket.create_server(("", int(port))).accept()
while me == "worker-0":
    try:
        socket.create_connection((host, int(port)), 5)
        break
    except OSError:
        time.sleep(0.2)
"""
"""worker-0, whose end is the job's, waits until worker-1 has written its files."""
FAILS = """
import os, pathlib, socket, time
pathlib.Path(os.environ["CIAO_OUTPUT"], os.environ["RANK"]).write_text("x" * 1000)
if os.environ["WORLD_SIZE"] == "2":
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    while os.environ["RANK"] == "1":
        try:
            socket.create_connection(place, 5)
            time.sleep(600)
        except OSError:
            time.sleep(0.2)
    socket.create_server(("", place[1])).accept()
raise ValueError("boom")
"""
"""The master fails when the worker, if there is one, has written its file."""
LARGE = """
import hashlib, os
data = os.urandom(40_000_000)
open("large.bin", "wb").write(data)
print(hashlib.sha256(data).hexdigest())
"""
WAITS = """
import os, time
open("output/part", "w").write("1")
os.replace("output/part", "output/step")
while not os.path.exists("go"):
    time.sleep(0.2)
open("output/step", "w").write("2")
"""
BOTH = "%framework=tensorflow\n%worker=2\n%successPolicy=allWorkers\n"
"""Else worker-1 is ended with worker-0, perhaps before it has written anything."""
DETAILS = """
import hashlib, os, pathlib
me = os.environ["CIAO_REPLICA"]
pathlib.Path("model").mkdir()
if me == "worker-0":
    pathlib.Path("model/net.pt").write_bytes(os.urandom(2_000_000))
    print(hashlib.sha256(pathlib.Path("model/net.pt").read_bytes()).hexdigest(), flush=True)
pathlib.Path("model/log.csv").write_text(me)
pathlib.Path("model/closed").write_text("x")
"""
SLEEPS = """
import os, time
open("output/part", "w").write("a part")
print("sleeps", flush=True)
time.sleep(600)
"""


@pytest.fixture
def team(namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    """A user who may also run commands in pods."""
    return made(namespace, tmp_path, monkeypatch, [*rules(), *rules(JOBS), *rules(EXEC)])


def folder_of(ended: Ended) -> Path:
    assert ended.display.job is not None
    return Path(ended.display.job.files)


def test_a_value_that_a_message_cannot_hold_comes_by_exec_and_is_no_file(team: Team) -> None:
    ended = team.run(
        "%framework=tensorflow\n%worker=2\n%output=numbers\nnumbers = list(range(200_000))\n"
    )
    assert ended.error is None, ended.error
    replica, values = results.of_job(ended.job, ended.display.status)
    assert str(replica) == "worker-0"
    assert values["numbers"] == list(range(200_000))
    assert not (folder_of(ended) / replica_files.VALUES).exists()


WEIGHTS = """
import numpy as np
weights = {"kernel": np.arange(10_000, dtype="float32").reshape(100, 100).T, "bias": np.zeros(3)}
loss = 0.5
raise SystemExit(0)
"""


@pytest.mark.second("operators")
@pytest.mark.usefixtures("with_mpi")  # its image has numpy
@pytest.mark.parametrize("api", ["v1", "job"])
@pytest.mark.parametrize("more", [(EXEC,), ()], ids=["exec", "log"])
def test_weights_of_a_model_come_back_as_arrays(
    namespace: Namespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    api: str,
    more: tuple[Path, ...],
) -> None:
    """With the right to enter pods, and without it; a PS is in the template of an Indexed Job."""
    roles = (ROLE, JOBS, *more)
    team = made(namespace, tmp_path, monkeypatch, [one for role in roles for one in rules(role)])
    ended = team.run(
        f"%framework=tensorflow\n%api={api}\n%ps=1\n%worker=1\n%output=weights loss\n{WEIGHTS}",
        images={"tensorflow": namespace.cluster.image("mpi")},
    )
    assert ended.error is None, ended.error
    replica, values = results.of_job(ended.job, ended.display.status)
    assert str(replica) == "worker-0", ended.display.notices
    assert values["loss"] == 0.5
    weights = values["weights"]
    assert set(weights) == {"kernel", "bias"}
    assert weights["kernel"].tolist() == [
        [float(100 * x + y) for x in range(100)] for y in range(100)
    ]
    assert weights["bias"].shape == (3,)
    assert "exec" not in ended.display.notices


@pytest.mark.second("operators")
def test_a_large_value_of_a_job_in_the_background_comes_in_time_or_the_cell_says_that_it_did_not(
    team: Team,
) -> None:
    header = "%framework=tensorflow\n%worker=1\n%detach\n%output=numbers,loss\n"
    cell = f"{header}numbers, loss = list(range(5000)), 0.5\n"

    async def work(session: Session) -> tuple[str, str, dict[str, object]]:
        display, last = Recorder(), Recorder()
        await session.run(cell, display, team.folder)
        if session.settings.fetch_wait < 60:  # nobody comes before the pod has ended
            ((job, status),) = await session.jobs()
            while not status.state.over:
                await asyncio.sleep(1)
                ((job, status),) = await session.jobs()
        ((job, _),) = await session.jobs()
        await session.attach(job.name, last)
        values = dict(results.of_job(job, last.status)[1])
        await session.backend("kubernetes").delete(job)
        return display.notices, last.notices, values

    first, _, came = team._ask(work)
    assert "begins within 60 s after it (the setting fetchWait); later they are lost." in first
    assert came == {"numbers": list(range(5000)), "loss": 0.5}
    _, last, came = team._ask(work, fetch_wait=1.0)
    assert came == {"loss": 0.5}
    assert "its file did not come back: it was not fetched in time." in last


@pytest.mark.stands_for("operators")
def test_files_of_all_replicas_come_back_before_the_pods_end(team: Team) -> None:
    ended = team.run(
        f"{TF}%output=model/ log.csv, ./same.txt metrics\n%output=absent.bin\n{WRITES}"
    )
    assert ended.error is None
    folder = folder_of(ended)
    digest = ended.display.data("worker-0").decode().split()[0]
    assert hashlib.sha256((folder / "model/net.pt").read_bytes()).hexdigest() == digest
    assert (folder / "worker-0/log.csv").read_text() == "worker-0"
    assert (folder / "worker-1/log.csv").read_text() == "worker-1"
    assert (folder / "same.txt").read_text() == "the same"
    assert not (folder / "model/passwd").exists()
    assert "model/net.pt (3.0 MB, worker-0)" in ended.display.notices
    assert "no file matches absent.bin" in ended.display.notices
    assert "brought back from worker-0: metrics" in ended.display.notices


@pytest.mark.second("operators")
@pytest.mark.parametrize("api", ["v1", "job"])
def test_files_come_back_from_a_job_that_fails(team: Team, api: str) -> None:
    header = f"%framework=pytorch\n%runner=python\n%api={api}\n%master=1\n%worker=1\n%output\n"
    ended = team.run(header + FAILS)
    assert isinstance(ended.error, JobFailed)
    assert "ValueError: boom" in str(ended.error)
    for rank in ("0", "1"):
        assert (folder_of(ended) / "output" / rank).read_text() == "x" * 1000
    assert "brought back by exec: output/" in ended.display.notices


@pytest.mark.second("operators")
def test_files_come_back_from_a_trainjob(
    trainer: None, namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = made(namespace, tmp_path, monkeypatch, [*rules(TRAIN), *rules(EXEC)])
    ended = team.run(f"{TF}%api=trainer\n%output=model/ log.csv\n{WRITES}")
    assert ended.error is None, ended.error
    assert (folder_of(ended) / "model/net.pt").stat().st_size == 3_000_000
    assert (folder_of(ended) / "worker-0/log.csv").read_text() == "worker-0"
    assert (folder_of(ended) / "worker-1/log.csv").read_text() == "worker-1"


@pytest.mark.second("operators")
def test_files_come_back_from_a_restricted_namespace(team: Team) -> None:
    team.namespace.label(policies.pod_security("restricted"))
    ended = team.run(
        "%framework=tensorflow\n%worker=1\n%output\nopen('output/a', 'w').write('a')\n",
        images={"tensorflow": team.namespace.cluster.image("s2i-python")},
    )
    assert ended.error is None, ended.error
    assert (folder_of(ended) / "output/a").read_text() == "a"


@pytest.mark.second("faults")
def test_a_transfer_that_is_cut_goes_on(team: Team, proxy: Proxy) -> None:
    async def cut(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await display.until("\n", patience=120)
        for _ in range(3):
            enough = proxy.traffic.received + 8_000_000
            await wait(lambda enough=enough: proxy.traffic.received > enough or work.done(), 120)
            await asyncio.to_thread(proxy.reset)
            await asyncio.to_thread(proxy.pass_on)

    ended = team.run(f"%framework=tensorflow\n%worker=1\n%output=large.bin\n{LARGE}", during=cut)
    assert ended.error is None
    found = hashlib.sha256((folder_of(ended) / "large.bin").read_bytes()).hexdigest()
    assert found == ended.display.data("worker-0").decode().strip()
    assert proxy.traffic.received > 40_000_000
    assert not list(folder_of(ended).rglob("*.part"))


@pytest.mark.second("operators")
def test_a_stopped_job_brings_nothing_and_its_pods_end_at_once(team: Team) -> None:
    ended_after = 0.0

    async def stop(display: Recorder, work: asyncio.Task[Ended]) -> None:
        nonlocal ended_after
        await display.until("sleeps", patience=120)
        began = time.monotonic()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        ended_after = time.monotonic() - began

    cell = f"%framework=tensorflow\n%worker=1\n%output\n{SLEEPS}"
    with pytest.raises(asyncio.CancelledError):
        team.run(cell, during=stop, fetch_wait=300.0)
    assert team.left() == []
    # Neither the program's sleep nor the time for a fetch was waited for.
    assert ended_after < 150
    files = [one for one in team.storage.rglob("*") if one.is_file()]
    assert files
    assert not [one for one in files if "output" in one.parts]


@pytest.mark.second("operators")
def test_files_are_fetched_and_copied_while_a_job_runs_and_attach_brings_the_last(
    team: Team,
) -> None:
    shown: list[str] = []

    async def work(session: Session) -> tuple[Path, list[str]]:
        display = Recorder()
        await session.run(f"{BOTH}%detach\n%output\n{WAITS}", display, team.folder)
        assert "`%ciao attach" in display.notices.partition("files of %output come back if")[2]
        ((job, _),) = await session.jobs()
        backend, job, _ = await session.find(job.name)
        for replica in job.replicas:
            while True:  # until its pod runs
                try:
                    await copying.take(
                        backend, job, replica, "output/step", team.folder, session.settings
                    )
                    break
                except BackendError as error:
                    shown.append(error.message)
                    await asyncio.sleep(1)
            assert (team.folder / "step").read_text() == "1"
        fetched = await fetching.fetch(
            backend, job, job.replicas[:1], ["output/"], session.settings, display.show
        )
        assert "output/step (1 byte, worker-0)" in fetched.lines[0]
        for replica in job.replicas:
            await let_go(team, backend, job, replica)
        last = Recorder()
        result = await session.attach(job.name, last)
        return result.folder, [last.notices]

    folder, notices = team._ask(work)
    assert (folder / "output/step").read_text() == "2"
    assert "brought back by exec: output/step (1 byte, worker-0, worker-1)" in notices[0]


@pytest.mark.second("operators")
def test_without_the_right_the_cell_names_it_before_anything_exists(
    namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = made(namespace, tmp_path, monkeypatch, rules(ROLE))
    ended = team.run(f"{TF}%output=by:exec\nprint('ran')\n")
    assert isinstance(ended.error, ClusterFault)
    assert "you may not fetch the files of %output" in ended.error.message
    assert "create pods/exec, get pods/exec" in ended.error.message
    assert team.left() == []


@pytest.fixture
def plain(namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    """A user who may not run commands in pods."""
    return made(namespace, tmp_path, monkeypatch, [*rules(ROLE), *rules(JOBS)])


def test_without_the_right_files_come_back_by_the_log(plain: Team) -> None:
    ended = plain.run(f"{BOTH}%output=model/ loss\n{DETAILS}loss = 0.5\n")
    assert ended.error is None, ended.error
    folder = folder_of(ended)
    digest = ended.display.data("worker-0").decode().strip()
    assert hashlib.sha256((folder / "model/net.pt").read_bytes()).hexdigest() == digest
    assert (folder / "worker-0/model/log.csv").read_text() == "worker-0"
    assert (folder / "worker-1/model/log.csv").read_text() == "worker-1"
    notices = ended.display.notices
    assert "come back by the log, as you may not create and get pods/exec here: at most" in notices
    assert "brought back by the log: model/closed (1 byte, worker-0, worker-1)" in notices
    assert "brought back from worker-0: loss" in notices
    # None of the lines is in the cell or in the saved log.
    assert ended.display.data("worker-0") == digest.encode() + b"\n"
    assert (folder / "worker-0.log").read_bytes() == digest.encode() + b"\n"


@pytest.mark.second("operators")
@pytest.mark.parametrize("api", ["v1", "job"])
def test_files_of_a_failed_program_come_by_the_log_and_its_error_is_its_own(
    plain: Team, api: str
) -> None:
    header = f"%framework=pytorch\n%runner=python\n%api={api}\n%master=1\n%output=by:log\n"
    ended = plain.run(header + FAILS)
    assert isinstance(ended.error, JobFailed)
    assert "ValueError: boom" in str(ended.error)
    assert "ciao-output" not in str(ended.error)
    assert (folder_of(ended) / "output/0").read_text() == "x" * 1000


@pytest.mark.second("operators")
def test_files_of_a_job_in_the_background_come_by_the_log_after_its_end(plain: Team) -> None:
    async def work(session: Session) -> tuple[Path, str, str]:
        display, last = Recorder(), Recorder()
        await session.run(
            f"%framework=tensorflow\n%worker=1\n%detach\n%output=model/\n{DETAILS}",
            display,
            plain.folder,
        )
        ((job, status),) = await session.jobs()
        while not status.state.over:
            await asyncio.sleep(1)
            ((job, status),) = await session.jobs()
        backend, job, _ = await session.find(job.name)
        fetched = await fetching.fetch(
            backend, job, job.replicas, ["model/"], session.settings, display.show
        )
        assert fetched.lines[0].startswith("brought back by the log: model/closed")
        result = await session.attach(job.name, last)
        return result.folder, display.notices, last.notices

    folder, first, last = plain._ask(work)
    assert "files of %output come back if `%ciao attach" in first
    assert "follows the job while its pods exist." in first
    assert "brought back by the log: model/closed" in last
    assert (folder / "model/net.pt").stat().st_size == 2_000_000


@pytest.mark.second("operators")
def test_files_that_are_too_large_for_the_log_are_said(plain: Team) -> None:
    ended = plain.run(f"%framework=tensorflow\n%worker=1\n%output=large.bin\n{LARGE}")
    assert ended.error is None
    assert "its files have 40.0 MB, and the log carries at most 4.2 MB." in ended.display.notices
    assert not (folder_of(ended) / "large.bin").exists()


@pytest.mark.second("operators")
@pytest.mark.parametrize("api", ["v1", "job"])
def test_files_come_back_through_a_bucket(
    local_cluster: Cluster, plain: Team, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    with bucket(local_cluster.at.host_address) as address:
        ended = plain.run(
            f"{BOTH}%api={api}\n%output=model/\n{DETAILS}",
            output_store=f"{address}/{plain.namespace.name}",
        )
    assert ended.error is None, ended.error
    folder = folder_of(ended)
    digest = ended.display.data("worker-0").decode().strip()
    assert hashlib.sha256((folder / "model/net.pt").read_bytes()).hexdigest() == digest
    assert (folder / "worker-1/model/log.csv").read_text() == "worker-1"
    assert "brought back by the bucket: model/closed" in ended.display.notices
    assert "hush" not in "".join(map(str, (ended.display.notices, *Bucket.objects)))
