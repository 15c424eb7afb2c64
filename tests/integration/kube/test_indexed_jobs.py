"""Cells as Indexed Jobs on a cluster of the loopback that has no training operator."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ciao_kernel.backends.kubernetes.backend import KubernetesBackend
from ciao_kernel.backends.kubernetes.manifests import indexed_start, shell_start
from ciao_kernel.errors import CiaoError, ClusterFault, JobFailed, NoSuchJob
from ciao_kernel.model import Job, Notice, Replica, State
from ciao_kernel.model.queries import Where
from ciao_kernel.session.session import Session
from tests.cluster.waiting import until
from tests.helpers.api_pods import Pod, Program
from tests.helpers.api_server import ApiServer
from tests.helpers.api_user import Here, run
from tests.helpers.jobs import Recorder

HEADER = "%framework=tensorflow\n%name=mine\n%ps=1\n%worker=2\n"
PS, ZERO, ONE = Replica("ps", 0), Replica("worker", 0), Replica("worker", 1)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts a cluster without the operator, whose pods run a program."""
    made: list[ApiServer] = []

    def start(program: Program, *, operator: bool = False) -> Here:
        server = ApiServer(tmp_path, program, operator=operator)
        server.__enter__()
        made.append(server)
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
        return Here(server, tmp_path)

    yield start
    for server in made:
        server.__exit__()


def role_of(pod: Pod) -> str:
    return ("ps", "worker-0", "worker-1")[pod.number]


def training(is_read: Callable[[str], bool]) -> Program:
    """Workers write a line and end; a PS runs until it is told to end.

    No other pod has a moment for its last lines when worker-0 ends, so each begins when the line of
    the one before is read: the PS, worker-1, worker-0.
    """
    before = {1: "worker-1", 2: "ps-0"}

    async def trains(pod: Pod) -> int:
        while pod.number and not is_read(before[pod.number]):
            await asyncio.sleep(0.01)
        pod.print(f"this is {role_of(pod)}")
        if pod.number == 0:
            await asyncio.sleep(600)
        return 0

    return trains


async def fails(pod: Pod) -> int:
    """The second worker fails; all others would run on."""
    pod.print("ready")
    if pod.number == 2:
        return 3
    await asyncio.sleep(600)
    return 0


async def endless(pod: Pod) -> int:
    pod.print("ready")
    await asyncio.sleep(600)
    return 0


@pytest.mark.stands_for("oldest")
def test_a_success_of_the_decider_ends_the_job_and_its_ps(
    cluster: Callable[..., Here], tmp_path: Path
) -> None:
    display = Recorder()
    here = cluster(training(lambda name: bool(display.data(name))))

    async def work(session: Session, backend: KubernetesBackend) -> list[tuple[Job, Any]]:
        assert await run(session, HEADER + "pass", display, tmp_path) is None
        return await backend.jobs()

    ((job, now),) = here.do(work)
    notices = [event.text for event in display.events if isinstance(event, Notice)]
    (told,) = [text for text in notices if "Indexed Job" in text]
    assert told.startswith("the job runs as an Indexed Job of Kubernetes: ")
    assert told.endswith(" does not support TFJob.")
    for replica in ("ps", "worker-0", "worker-1"):
        name = "ps-0" if replica == "ps" else replica
        assert display.data(name).decode() == f"this is {replica}\n"
    assert job.resource == "jobs"
    assert (job.name, now.state) == ("mine", State.SUCCEEDED)
    states = {one.replica: one.state for one in now.replicas}
    assert states == {PS: State.STOPPED, ZERO: State.SUCCEEDED, ONE: State.SUCCEEDED}


def test_a_failed_replica_fails_the_job_and_is_named(
    cluster: Callable[..., Here], tmp_path: Path
) -> None:
    here, display = cluster(fails), Recorder()

    async def work(session: Session, _: KubernetesBackend) -> CiaoError | None:
        return await run(session, HEADER + "pass", display, tmp_path)

    error = here.do(work)
    assert isinstance(error, JobFailed)
    assert "worker-1" in error.message
    assert "exit code 3" in error.message


def test_a_stopped_cell_leaves_nothing(cluster: Callable[..., Here], tmp_path: Path) -> None:
    here, display = cluster(endless), Recorder()

    async def work(session: Session, _: KubernetesBackend) -> None:
        cell = asyncio.ensure_future(run(session, HEADER + "pass", display, tmp_path))
        await display.until("ready", replica="worker-1")
        left = here.server.left()
        assert [one for one in left if not one.startswith(("configmaps", "pods"))] == [
            "jobs/mine",
            "services/mine",
        ]
        cell.cancel()
        await asyncio.gather(cell, return_exceptions=True)

    here.do(work)
    until(lambda: not here.server.left(), "everything to be gone", 60)


def test_the_verbs_find_an_indexed_job(cluster: Callable[..., Here], tmp_path: Path) -> None:
    here, display = cluster(endless, operator=True), Recorder()

    async def work(session: Session, backend: KubernetesBackend) -> None:
        cell = "%api=job\n%detach\n" + HEADER + "pass"
        assert await run(session, cell, display, tmp_path) is None
        job, _ = await backend.find("mine")
        while b"ready" not in await backend.log(job, ONE):
            await asyncio.sleep(0.02)
        assert [one.name for one, _ in await backend.jobs(Where(namespace="team"))] == ["mine"]
        details = await backend.details(job)
        assert dict(details.facts)["backoff limit"] == "0"
        roles = [(group.role, group.replicas) for group in details.groups]
        assert roles == [("ps", 1), ("worker", 2)]
        assert details.pods[ONE] == "mine-2-abcde"
        followed = Recorder()
        attached = asyncio.ensure_future(session.attach(job.name, followed))
        await followed.until("ready", replica="ps-0")
        attached.cancel()
        await asyncio.gather(attached, return_exceptions=True)
        await backend.delete(job)
        assert await backend.jobs() == []

    here.do(work)
    assert here.server.left() == []
    assert "the job runs as an Indexed Job of Kubernetes: %api=job asks for it." in display.notices


def test_the_api_is_named_once_in_a_notebook(cluster: Callable[..., Here], tmp_path: Path) -> None:
    async def trains(pod: Pod) -> int:
        pod.print("trains")
        return 0

    first, second, other = Recorder(), Recorder(), Recorder()
    here = cluster(trains)

    async def work(session: Session, _: KubernetesBackend) -> None:
        head = "%framework=python\n%worker=1\n"
        assert await run(session, head + "pass", first, tmp_path) is None
        assert await run(session, head + "pass", second, tmp_path) is None
        assert await run(session, head + "%api=job\npass", other, tmp_path) is None

    here.do(work)
    assert "the job runs as an Indexed Job of Kubernetes: the training operator" in first.notices
    assert "Indexed Job" not in second.notices
    assert second.data("worker-0") == b"trains\n"
    assert "the job runs as an Indexed Job of Kubernetes: %api=job asks" in other.notices


def test_the_operators_kind_stays_the_choice_where_it_is_served(
    cluster: Callable[..., Here], tmp_path: Path
) -> None:
    here, display = cluster(endless, operator=True), Recorder()

    async def work(session: Session, backend: KubernetesBackend) -> Job:
        assert await run(session, "%detach\n" + HEADER + "pass", display, tmp_path) is None
        return (await backend.find("mine"))[0]

    assert here.do(work).resource == "tfjobs"
    assert "Indexed" not in display.notices
    assert not [one for one in here.server.left() if one.startswith("services")]


@pytest.mark.parametrize(
    ("api", "forbidden"),
    [("v1", {"jobs", "services"}), ("job", {"tfjobs", "pytorchjobs"})],
)
def test_who_may_not_use_the_other_api_is_served(
    cluster: Callable[..., Here], tmp_path: Path, api: str, forbidden: set[str]
) -> None:
    here = cluster(endless, operator=True)
    here.server.forbidden = frozenset(forbidden)

    async def work(session: Session, backend: KubernetesBackend) -> None:
        cell = f"%api={api}\n%detach\n{HEADER}pass"
        assert await run(session, cell, Recorder(), tmp_path) is None
        assert [one.name for one, _ in await backend.jobs()] == ["mine"]
        with pytest.raises(NoSuchJob):
            await backend.find("other")
        job, _ = await backend.find("mine")
        await backend.details(job)
        await backend.delete(job)
        assert await backend.jobs() == []

    here.do(work)
    assert here.server.left() == []


def test_jobs_of_all_namespaces_are_listed_as_far_as_the_user_may(
    cluster: Callable[..., Here], tmp_path: Path
) -> None:
    here = cluster(endless, operator=True)
    everywhere = Where(everywhere=True)

    async def work(session: Session, backend: KubernetesBackend) -> list[list[str]]:
        for api in ("job", "v1"):
            cell = f"%api={api}\n%detach\n{HEADER.replace('mine', api)}pass"
            assert await run(session, cell, Recorder(), tmp_path) is None
        found = []
        for forbidden in ((), ("jobs",), ("tfjobs", "pytorchjobs")):
            here.server.forbidden = frozenset(forbidden)
            found.append(sorted(job.name for job, _ in await backend.jobs(everywhere)))
        here.server.forbidden = frozenset(("jobs", "tfjobs", "pytorchjobs"))
        with pytest.raises(ClusterFault, match=r"list tfjobs, pytorchjobs of kubeflow\.org in"):
            await backend.jobs(everywhere)
        return found

    assert here.do(work) == [["job", "v1"], ["v1"], ["job"]]


def test_the_record_of_a_job_that_is_gone_is_removed(
    cluster: Callable[..., Here], tmp_path: Path
) -> None:
    here = cluster(endless)

    async def work(session: Session, backend: KubernetesBackend) -> tuple[int, int]:
        cell = f"%namespace=other\n%detach\n{HEADER}pass"
        assert await run(session, cell, Recorder(), tmp_path) is None
        job, _ = await backend.find("mine")
        known = len(list(tmp_path.rglob("place.json")))
        await backend.delete(job)
        assert await backend.jobs() == []
        return known, len(list(tmp_path.rglob("place.json")))

    assert here.do(work) == (1, 0)


@pytest.mark.parametrize("operator", [False, True])
def test_a_cluster_without_any_jobs_has_none(
    cluster: Callable[..., Here], *, operator: bool
) -> None:
    here = cluster(endless, operator=operator)

    async def work(_: Session, backend: KubernetesBackend) -> list[Any]:
        return await backend.jobs()

    assert here.do(work) == []


@pytest.mark.parametrize("operator", [False, True])
def test_forbidden_jobs_are_no_error(
    cluster: Callable[..., Here], tmp_path: Path, *, operator: bool
) -> None:
    """Without the operator there may be no job at all, and so no right to list any."""
    here = cluster(endless, operator=operator)

    async def work(session: Session, backend: KubernetesBackend) -> list[list[str]]:
        for api in ("job", "v1")[: 1 + operator]:
            cell = f"%api={api}\n%detach\n{HEADER.replace('mine', api)}pass"
            assert await run(session, cell, Recorder(), tmp_path) is None
        found = []
        for forbidden in ((), ("jobs",)):
            here.server.forbidden = frozenset(forbidden)
            found.append(sorted(job.name for job, _ in await backend.jobs()))
        return found

    assert here.do(work) == ([["job", "v1"], ["v1"]] if operator else [["job"], []])


@pytest.mark.parametrize("mode", ["true", "server"])
def test_a_dry_run_shows_the_objects_and_why_they_are_these(
    cluster: Callable[..., Here], tmp_path: Path, mode: str
) -> None:
    here = cluster(endless)

    async def work(session: Session, _: KubernetesBackend) -> str:
        assert await run(session, f"%dryrun={mode}\n{HEADER}pass", Recorder(), tmp_path) is None
        assert session.preview is not None
        return session.preview.text

    text = here.do(work)
    assert text.startswith("# The job runs as an Indexed Job of Kubernetes: ")
    items = [item for item in yaml.safe_load_all(text) if item]
    assert [item["kind"] for item in items] == ["ConfigMap", "ConfigMap", "Service", "Job"]
    assert here.server.left() == []


def test_a_name_is_taken_by_a_job_of_either_api(
    cluster: Callable[..., Here], tmp_path: Path
) -> None:
    here = cluster(endless, operator=True)

    async def work(session: Session, backend: KubernetesBackend) -> list[str]:
        for api in ("job", "v1", "job"):
            cell = f"%api={api}\n%detach\n{HEADER}pass"
            assert await run(session, cell, Recorder(), tmp_path) is None
        return sorted(one.name for one, _ in await backend.jobs())

    assert here.do(work) == ["mine", "mine-2", "mine-3"]


def test_who_asks_for_the_operator_is_told_of_its_absence(
    cluster: Callable[..., Here], tmp_path: Path
) -> None:
    here = cluster(endless)

    async def work(session: Session, _: KubernetesBackend) -> CiaoError | None:
        return await run(session, "%api=v1\n" + HEADER + "pass", Recorder(), tmp_path)

    error = here.do(work)
    assert isinstance(error, ClusterFault)
    assert error.message.endswith(
        "does not support TFJob: the Kubeflow training operator is not installed there."
    )
    assert "%api=job" in error.hint
    assert here.server.left() == []


def start(folder: Path, index: int, told: dict[str, Any], *command: str) -> str:
    """Run the program that stands before a replica's own; return what the latter writes."""
    file = folder / "replicas.json"
    file.write_text(json.dumps(told))
    code = indexed_start.START.replace("/ciao-replicas/replicas.json", str(file))
    env = {**os.environ, "JOB_COMPLETION_INDEX": str(index), "RANK": "of the image"}
    argv = [sys.executable, "-I", "-S", "-c", code, *command]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout


def test_a_replica_gets_the_variables_of_its_index(tmp_path: Path) -> None:
    told = {
        "first": "localhost",
        "patience": 600,
        "commands": {},
        "replicas": [{"RANK": "0"}, {"RANK": "1 $(x) '\n"}],
    }
    program = [sys.executable, "-c", "import os, sys; print([os.environ['RANK'], *sys.argv[1:]])"]
    assert start(tmp_path, 0, told, *program, "a b") == "['0', 'a b']\n"
    assert start(tmp_path, 1, told, *program) == '["1 $(x) \'\\n"]\n'


def test_a_replica_starts_although_the_first_one_has_ended(tmp_path: Path) -> None:
    told = {"first": "mnist-0.invalid", "patience": 0.5, "commands": {}}
    told["replicas"] = [{"RANK": "0"}]
    program = [sys.executable, "-c", "import os; print(os.environ['RANK'])"]
    assert start(tmp_path, 0, told, *program) == "0\n"


def test_a_shell_takes_the_variables_of_its_index(tmp_path: Path) -> None:
    values = {"RANK": "1 $(x) `y` \\ \"' \n\u00e9", "WORLD_SIZE": "2"}
    for name, text in shell_start.files([{"RANK": "0", "WORLD_SIZE": "2"}, values]).items():
        (tmp_path / name).write_text(text)
    show = "import os, sys; print([os.environ['RANK'], os.environ['WORLD_SIZE'], *sys.argv[1:]])"
    argv = [*shell_start.start(str(tmp_path)), sys.executable, "-c", show, "a b", "$x"]

    def start(index: int) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, shell_start.INDEX: str(index), "RANK": "of the image"}
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)

    assert start(0).stdout == f"{['0', '2', 'a b', '$x']}\n"
    assert start(1).stdout == f"{[values['RANK'], '2', 'a b', '$x']}\n"
    missing = start(2)
    assert missing.returncode
    assert missing.stdout == ""


@pytest.mark.parametrize(
    ("known_after", "patience", "seconds", "lookups"),
    [(0, 60, 0, 1), (2, 60, 0, 3), (99, 5, 0, 5), (99, 6, 3, 2), (None, 60, 0, 0)],
)
def test_a_program_in_any_language_waits_for_the_name_of_the_first_replica(
    tmp_path: Path, known_after: int | None, patience: int, seconds: int, lookups: int
) -> None:
    """A resolver that knows the name after some lookups, for None an image without getent.

    A lookup takes some seconds by `date`; for 0 the image has no `date`.
    """
    tools, asked = tmp_path / "bin", tmp_path / "asked"
    tools.mkdir()
    asked.touch()
    (tools / "sleep").write_text("#!/bin/sh\n")
    if known_after is not None:
        (tools / "getent").write_text(
            f'#!/bin/sh\n[ "$({shutil.which("wc")} -l <"{asked}")" -ge {known_after} ]; found=$?\n'
            f'echo "$*" >>"{asked}"\nexit $found\n'
        )
    if seconds:
        clock = tmp_path / "clock"
        clock.write_text("0")
        (tools / "date").write_text(
            f'#!/bin/sh\nread -r now <"{clock}"; now=$((now + {seconds}))\n'
            f'echo "$now" | {shutil.which("tee")} "{clock}"\n'
        )
    for one in tools.iterdir():
        one.chmod(0o755)
    env = {"PATH": str(tools), shell_start.INDEX: "0"}
    for name, text in shell_start.files([{"RANK": "0"}], "mine-0.mine", patience).items():
        (tmp_path / name).write_text(text)
    show = "import os; print(os.environ['RANK'], [one for one in os.environ if 'ciao' in one])"

    def output(before: tuple[str, ...]) -> str:
        argv = [str(shutil.which("sh")), *before[1:], sys.executable, "-c", show]
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout

    assert output(shell_start.start(str(tmp_path))) == "0 []\n"
    assert asked.read_text() == "hosts mine-0.mine\n" * lookups
    assert output(shell_start.command(str(tmp_path))) == "0 []\n"
    assert asked.read_text() == "hosts mine-0.mine\n" * lookups, "a command beside it need not wait"


CUSTOM = "%framework=custom\n%name=mine\n%worker=2\n%command=prog {cell}\n"


def test_a_program_in_any_language_needs_only_an_image(
    cluster: Callable[..., Here], tmp_path: Path
) -> None:
    here = cluster(endless, operator=True)

    async def work(session: Session, _: KubernetesBackend) -> tuple[str, CiaoError | None]:
        text = CUSTOM + "%dryrun=server\n%image=team/lua:5\nlayer {\n"
        assert await run(session, text, Recorder(), tmp_path) is None
        assert session.preview is not None
        shown = session.preview.text
        return shown, await run(session, CUSTOM + "layer {\n", Recorder(), tmp_path)

    text, error = here.do(work)
    items = [item for item in yaml.safe_load_all(text) if item]
    assert [item["kind"] for item in items] == ["ConfigMap", "ConfigMap", "Service", "Job"]
    assert "python" not in json.dumps(items[-1]["spec"])
    assert isinstance(error, CiaoError)
    assert "needs an image that has its program" in error.message
    assert here.server.left() == []
