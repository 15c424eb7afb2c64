"""Warm replicas on the cluster: edited cells in the same pods.

``CIAO_TEST_EDITS`` sets the number of edited cells of each kind of job.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.backend import KubernetesBackend
from ciao_kernel.delivery.output import results
from ciao_kernel.errors import BackendError, CiaoError, ClusterFault, JobFailed
from ciao_kernel.model import Owner, State
from ciao_kernel.session import fetching
from ciao_kernel.session.fetching import Fetched
from ciao_kernel.session.inspection import picture, profile, query
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from ciao_kernel.session.stopping import NoShutdown
from ciao_kernel.session.warm.pool import WarmPool
from tests.cluster.cluster import Cluster
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import EXEC, JOBS, RBAC, ROLE, TRAIN, Team, made, rules
from tests.helpers.bucket import bucket
from tests.helpers.jobs import Ended, Recorder, interrupted, wait

EDITS = int(os.environ.get("CIAO_TEST_EDITS", "3"))
WARM = RBAC / "warm-role.yaml"
HEAD = "%framework=tensorflow\n%ps=1\n%worker=2\n%warm\n"
PROGRAM = """
import json, os, socket, time
config = json.loads(os.environ["TF_CONFIG"])
task, cluster = config["task"], config["cluster"]
print("pod", os.environ["HOSTNAME"], "zygote", os.getppid(), "edit {0}")
for line in range(20):
    print("run {0} line", line)
if (task["type"], task["index"]) != ("worker", 0):
    server = socket.create_server(("", int(cluster[task["type"]][task["index"]].split(":")[1])))
    server.accept()
    if task["type"] == "ps":
        time.sleep(1000)
    raise SystemExit
for other in (*cluster["ps"], *cluster["worker"][1:]):  # they are stopped when worker-0 has ended
    host, port = other.split(":")
    while True:
        try:
            socket.create_connection((host, int(port)), 1)
            break
        except OSError:
            time.sleep(0.05)
"""


@pytest.fixture
def warm_team(namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    """A user who may also write to replicas."""
    return made(namespace, tmp_path, monkeypatch, [*rules(), *rules(WARM)])


def as_kernel(
    team: Team,
    body: Callable[[Session], Coroutine[Any, Any, None]],
    pool: WarmPool | None = None,
    **settings: Any,
) -> None:
    """Run cells as one kernel does: in one loop, with one pool."""

    async def main() -> None:
        registry = Registry({})
        owner = Owner("a test", os.getpid())
        kept = pool or WarmPool()
        session = Session(registry, owner, team.settings(**settings), NoShutdown(), kept)
        try:
            await body(session)
        finally:
            assert session.warm is not None
            await session.warm.close()
            await registry.close()

    asyncio.run(main())


async def ended(team: Team, session: Session, text: str) -> Ended:
    display = Recorder()
    try:
        return Ended(display, await session.run(text, display, team.folder))
    except CiaoError as error:
        return Ended(display, error=error)


def pods(team: Team) -> set[str]:
    return {item["metadata"]["name"] for item in team.namespace.get("pods")["items"]}


@pytest.mark.stands_for("operators")
def test_edited_cells_run_in_the_same_pods(warm_team: Team) -> None:
    team = warm_team

    async def body(session: Session) -> None:
        names = set[str]()
        for number in (1, 2, 3):
            one = await ended(team, session, HEAD + PROGRAM.format(number))
            assert one.error is None, one.error
            assert one.display.state("ps-0") is State.STOPPED
            for replica in ("ps-0", "worker-0", "worker-1"):
                first, *lines = one.display.data(replica).decode().splitlines()
                assert f"edit {number}" in first
                assert lines == [f"run {number} line {line}" for line in range(20)]
                names.update(re.findall(r"pod (\S+)", first))
        assert names == pods(team)
        assert len(names) == 3
        assert one.job.warm_run == 3
        failed = await ended(team, session, HEAD + "1 / 0")
        assert isinstance(failed.error, JobFailed)
        assert "  Cell, line 5, in <module>" in failed.error.traceback
        display = Recorder()
        sleeps = HEAD + "import time; print('up', flush=True); time.sleep(1000)"
        running = asyncio.ensure_future(session.run(sleeps, display, team.folder))
        for replica in ("ps-0", "worker-0", "worker-1"):
            await display.until("up", replica=replica)
        assert session.last is not None
        assert session.last.job.warm_run == 5
        await interrupted(running)
        well = await ended(team, session, HEAD + PROGRAM.format(6))
        assert well.error is None
        assert names == pods(team)

    as_kernel(team, body)

    # The end of the kernel has ended the replicas, and the job is over.
    def succeeded() -> bool:
        ((_, status),) = team.jobs()
        return status.state is State.SUCCEEDED

    until(succeeded, "the job to end with its kernel", 120)


KINDS = {
    "indexed": ("%framework=python\n%api=job\n", JOBS),
    "trainjob": ("%framework=python\n%api=trainer\n", TRAIN),
    "jaxjob": ("%framework=jax\n%api=v1\n", ROLE),
}
COUNTS = """
import os, socket, time
place = os.environ.get("MASTER_ADDR") or os.environ["COORDINATOR_ADDRESS"]
place = place, int(os.environ.get("MASTER_PORT") or os.environ["COORDINATOR_PORT"])
step = int(open("checkpoint/" + os.environ["CIAO_REPLICA"]).read()) if {0} > 1 else 0
print("edit {0} from", step)
for line in range(100):
    print("run {0} line", line)
if os.environ["CIAO_REPLICA"] == "worker-0":
    server = socket.create_server(("", place[1]))
    server.accept()[0].sendall(b"run {0}")
else:
    while True:
        try:
            connection = socket.create_connection(place, 1)
            break
        except OSError:
            time.sleep(0.05)
    connection.settimeout(None)  # that of the connection would stay
    assert connection.recv(100) == b"run {0}"
with open(os.environ["CIAO_CHECKPOINT"] + "/" + os.environ["CIAO_REPLICA"], "w") as file:
    file.write("{0}0")
"""


@pytest.mark.second("operators")
@pytest.mark.timeout(180 + 15 * EDITS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_job_runs_edited_cells_which_go_on_from_a_checkpoint(
    kind: str,
    namespace: Namespace,
    claim: str,
    figure: Callable[[str], None],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if kind == "trainjob":
        request.getfixturevalue("trainer")
    header, role = KINDS[kind]
    team = made(namespace, tmp_path, monkeypatch, [*rules(role), *rules(WARM)])
    team.images |= dict.fromkeys(("python", "jax"), namespace.cluster.image("tools"))
    head = f"{header}%worker=2\n%warm\n%name=kept\n%checkpoint={claim}\n%output=step\n"

    async def body(session: Session) -> None:
        took = []
        for number in range(1, EDITS + 1):
            begun = time.monotonic()
            one = await ended(team, session, head + COUNTS.format(number))
            took.append(time.monotonic() - begun)
            assert one.error is None, one.error
            assert one.job.warm_run == number
            _, values = results.of_job(one.job, one.display.status)
            assert dict(values) == {"step": 10 * (number - 1)}
            before = "0" if number == 1 else f"{number - 1}0"
            lines = [f"edit {number} from {before}"]
            lines += [f"run {number} line {line}" for line in range(100)]
            for replica in ("worker-0", "worker-1"):
                assert one.display.data(replica).decode().splitlines() == lines
        again = sorted(took[1:])
        figure(
            f"{kind}: {EDITS} edited cells, {202 * EDITS} lines, each once; first cell "
            f"{took[0]:.1f} s, later ones {again[len(again) // 2]:.2f} s, at most {again[-1]:.2f} s"
        )
        failed = await ended(team, session, head + "1 / 0")
        assert isinstance(failed.error, JobFailed)
        assert "  Cell, line 8, in <module>" in failed.error.traceback
        well = await ended(team, session, head + "print('well')")
        assert well.error is None, well.error
        assert len(pods(team)) == 2

    as_kernel(team, body)

    def succeeded() -> bool:
        ((_, status),) = team.jobs()
        return status.state is State.SUCCEEDED

    until(succeeded, "the job to end with its kernel", 120)


WRITES = """
import os, pathlib
me = os.environ["CIAO_REPLICA"]
pathlib.Path("model").mkdir()
pathlib.Path("model/net").write_text("run {0}" * 10_000)
pathlib.Path("log.csv").write_text(me)
pathlib.Path(os.environ["CIAO_OUTPUT"], "only-{0}").write_text("x")
print("wrote", me)
"""


@pytest.mark.second("operators")
@pytest.mark.parametrize(
    ("api", "way"), [("v1", "exec"), ("job", "exec"), ("v1", "log"), ("v1", "s3")]
)
def test_the_files_of_each_run_come_back_and_the_pods_stay(
    local_cluster: Cluster,
    namespace: Namespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    api: str,
    way: str,
) -> None:
    more = rules(EXEC) if way == "exec" else []
    team = made(namespace, tmp_path, monkeypatch, [*rules(), *rules(JOBS), *rules(WARM), *more])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    head = "%framework=tensorflow\n%worker=2\n%successPolicy=allWorkers\n%warm\n"
    head += f"%api={api}\n%output\n%output=model/ log.csv\n"
    names = {"exec": "exec", "log": "the log", "s3": "the bucket"}

    async def body(session: Session) -> None:
        kept = set[str]()
        for number in (1, 2, 3):
            one = await ended(team, session, head + WRITES.format(number))
            assert one.error is None, one.error
            kept |= pods(team)
            folder = Path(one.job.results)
            assert folder.name == f"run-{number}"
            assert (folder / "model/net").read_text() == f"run {number}" * 10_000
            assert [path.name for path in (folder / "output").iterdir()] == [f"only-{number}"]
            for replica in ("worker-0", "worker-1"):
                assert (folder / replica / "log.csv").read_text() == replica
                assert one.display.data(replica) == f"wrote {replica}\n".encode()
            notices = one.display.notices
            assert f"brought back by {names[way]}: model/net (50.0 kB, worker-0, " in notices
        failed = await ended(team, session, head + WRITES.format(4) + "1 / 0")
        assert isinstance(failed.error, JobFailed)
        assert "ZeroDivisionError" in str(failed.error)
        assert (Path(failed.job.results) / "model/net").exists()
        assert kept == pods(team)
        assert len(kept) == 2
        backend, job, _ = await session.find(failed.job.name)
        assert job.warm_run == 0

        def fetched(number: int | None = None) -> Coroutine[Any, Any, Fetched]:
            some, ignore = job.replicas, lambda _: None
            return fetching.fetch(backend, job, some, ["model/"], session.settings, ignore, number)

        work = fetched()
        if way != "s3":  # as in a terminal, from the folder of the newest run, or out of the log
            (Path(failed.job.results) / "model/net").unlink()
            assert (await work).lines[0].endswith(f"to {failed.job.results}")
            assert (Path(failed.job.results) / "model/net").exists()
            earlier = Path(failed.job.files) / "run-3"
            (earlier / "model/net").unlink()
            await fetched(3)
            assert (earlier / "model/net").read_text() == "run 3" * 10_000
        else:
            with pytest.raises(BackendError):
                await work
        if way == "exec":
            with pytest.raises(BackendError, match=r"no files of run 2 of .* any more"):
                await fetched(2)
        if way == "log":  # as another kernel, which has nothing of it here
            shutil.rmtree(failed.job.files)
            display = Recorder()
            attached = asyncio.ensure_future(session.attach(job.name, display))
            said = [f"the files of run 3 of worker-{index}, to " for index in (0, 1)]
            # Who failed has ended the other one, perhaps before it could write anything.
            said.append(f"the files of run 4 of {failed.display.status.decided_by}, to ")
            await wait(lambda: attached.done() or all(one in display.notices for one in said))
            assert not attached.done(), attached.exception()
            await interrupted(attached)
            for number in (1, 2, 3, 4):
                text = (Path(failed.job.files) / f"run-{number}/model/net").read_text()
                assert text == f"run {number}" * 10_000

    with bucket(local_cluster.at.host_address) as address:
        settings = {"output_store": f"{address}/{namespace.name}"} if way == "s3" else {}
        as_kernel(team, body, **settings)


@pytest.mark.second("faults")
def test_a_run_that_is_killed_for_its_memory_says_so_and_the_replicas_stay(warm_team: Team) -> None:
    team = warm_team
    head = "%framework=tensorflow\n%memory=96Mi\n%worker=2\n%successPolicy=allWorkers\n%warm\n"
    fills = "import os, time\nif os.environ['CIAO_REPLICA'] == 'worker-1':\n"
    fills += "    x = bytearray(500_000_000)\ntime.sleep(1000)\n"
    where = "import os\nprint('agent', os.environ['HOSTNAME'], os.getppid())\n"

    async def body(session: Session) -> None:
        before = await ended(team, session, head + where)
        assert before.error is None, before.error
        names = pods(team)
        failed = await ended(team, session, head + fills)
        assert isinstance(failed.error, JobFailed)
        if pods(team) != names:
            pytest.skip("this node kills whole containers for their memory (cgroup v2)")
        assert failed.error.message.startswith("worker-1 ")
        assert "memory" in failed.error.message
        assert "The limit of worker-1 is %memory=96Mi" in failed.error.hint
        assert failed.display.state("worker-0") is State.STOPPED
        after = await ended(team, session, head + where)
        assert after.error is None, after.error
        assert after.job.warm_run == 3
        for one in ("worker-0", "worker-1"):
            assert after.display.data(one) == before.display.data(one), "the same zygotes"

    as_kernel(team, body)


@pytest.mark.second("operators")
def test_without_the_right_nothing_is_created(team: Team) -> None:
    async def body(session: Session) -> None:
        refused = await ended(team, session, HEAD + "print(1)")
        assert isinstance(refused.error, ClusterFault)
        assert "you may not keep replicas warm" in refused.error.message
        assert "get pods/attach, create pods/attach" in refused.error.message
        assert "pods/attach" in refused.error.hint

    as_kernel(team, body)
    assert team.left() == []


@pytest.mark.second("operators")
def test_the_program_of_a_run_is_seen_below_the_agent(warm_team: Team) -> None:
    team = warm_team
    team.user.allow(*rules(), *rules(WARM), *rules(EXEC))
    head = "%framework=pytorch\n%warm\n%runner=python\n"

    async def body(session: Session) -> None:
        await ended(team, session, head + "print('first run')")
        display = Recorder()
        program = "import time\nprint('up', flush=True)\ntime.sleep(1000)"
        running = asyncio.ensure_future(session.run(head + program, display, team.folder))
        await display.until("up", replica="master-0")
        backend = KubernetesBackend(team.settings())
        assert display.job
        found, _ = await backend.find(display.job.name)
        for job in (found, display.job):  # as a terminal finds it, and as the cell knows it
            seen, limit = "", time.monotonic() + 120
            while not re.search(r"\n  master-0  line 6  +time\.sleep\(1000\)", seen):
                assert time.monotonic() < limit, seen  # it may still print
                seen = picture.text(job, await query.ask(backend, job))
            samples = await query.sample(backend, job, job.replicas, 1.0)
            (call,) = profile.of(job, samples, 1.0).tree.calls
            assert call.name == "line 6"
        await backend.close()
        await interrupted(running)

    as_kernel(team, body)


@pytest.mark.second("faults")
@pytest.mark.parametrize("when", ["in a run", "between runs"])
def test_a_deleted_pod_ends_the_replicas_and_the_next_run_starts_new_ones(
    warm_team: Team, when: str
) -> None:
    team = warm_team
    head = "%framework=pytorch\n%worker=1\n%warm\n%runner=python\n"

    def delete() -> None:
        (name,) = (pod for pod in pods(team) if "worker-0" in pod)
        team.namespace.kubectl("delete", "pod", name, "--wait=false")

    async def body(session: Session) -> None:
        first = await ended(team, session, head + "print('well')")
        assert first.error is None, first.error
        assert session.warm is not None
        pool = session.warm
        if when == "in a run":
            display = Recorder()
            program = head + "import time\nprint('up', flush=True)\ntime.sleep(1000)"
            work = asyncio.ensure_future(session.run(program, display, team.folder))
            await display.until("up")
            await asyncio.to_thread(delete)
            with pytest.raises(CiaoError):
                await work
        else:
            await asyncio.to_thread(delete)
        await wait(lambda: pool.parked is None)
        again = await ended(team, session, head + "print('well')")
        assert again.error is None, again.error
        assert again.display.data("master-0") == b"well\n"
        assert again.job.name != first.job.name
        assert again.job.warm_run == 1

    as_kernel(team, body)


@pytest.mark.second("faults")
def test_a_run_whose_kernel_is_killed_goes_on_and_is_found(warm_team: Team) -> None:
    team = warm_team
    head = "%framework=tensorflow\n%worker=2\n%warm\n%name=kept\n"
    program = (
        "import time\nfor line in range(200):\n    print('line', line)\n    time.sleep(0.05)\n"
    )

    async def kernel() -> None:
        registry = Registry({})
        session = Session(
            registry, Owner("a test", os.getpid()), team.settings(), NoShutdown(), WarmPool()
        )
        await ended(team, session, head + "print('first run')")
        display = Recorder()
        running = asyncio.ensure_future(session.run(head + program, display, team.folder))
        for one in ("worker-0", "worker-1"):
            await display.until("line 20", replica=one)
        running.add_done_callback(lambda task: task.cancelled() or task.exception())
        os._exit(0)  # no end of anything: the process is gone

    child = os.fork()
    if child == 0:
        try:
            asyncio.run(kernel())
        finally:
            os._exit(1)  # else an error would go on as a second pytest
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0

    async def body(session: Session) -> None:
        display = Recorder()
        attached = asyncio.ensure_future(session.attach("kept", display))
        for replica in ("worker-0", "worker-1"):
            await display.until("line 199\n", replica=replica)
        await interrupted(attached)
        for replica in ("worker-0", "worker-1"):
            first, *lines = display.data(replica).decode().splitlines()
            if first != "first run":  # worker-1 may be stopped before, by the end of worker-0
                assert replica == "worker-1"
                lines = [first, *lines]
            assert lines == [f"line {number}" for number in range(200)]
        _, job, _ = await session.find("kept")
        await session.backend("kubernetes").delete(job)

    as_kernel(team, body)
