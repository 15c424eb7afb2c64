"""However a job ends, the cell says how, and nothing is left behind that should not be."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ciao_kernel.errors import ClusterFault, JobFailed, JobStopped, UsageError
from ciao_kernel.jupyter.shutdown import Lifetime
from ciao_kernel.model import State, Status
from tests.cluster.faults import policies
from tests.cluster.faults.users import Rule
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import Team, before_request, rules
from tests.helpers.jobs import Ended, Recorder, wait

HEAD = "%framework=tensorflow\n%worker=2\n"
WAIT = "import time\nprint('here', flush=True)\ntime.sleep(300)\n"


async def _wait_for(display: Recorder, replica: str, text: bytes) -> None:
    await wait(lambda: text in display.data(replica))


def test_a_replica_that_raises_fails_the_cell_with_its_traceback(team: Team) -> None:
    ended = team.run(
        HEAD + "import os, time\nif os.environ['CIAO_REPLICA'] == 'worker-1':\n"
        "    raise ValueError('no luck')\ntime.sleep(300)\n"
    )
    assert isinstance(ended.error, JobFailed)
    assert ended.error.message == "worker-1 ended with exit code 1: ValueError: no luck"
    assert "  Cell, line 5, in <module>" in ended.error.traceback
    assert ended.display.state("worker-1") is State.FAILED


def test_a_replica_that_is_killed_for_its_memory_is_said_to_be(team: Team) -> None:
    cell = "%framework=tensorflow\n%worker=1;%memory=32Mi\nprint(len(bytearray(500_000_000)))\n"
    # The kernel's word may come to the runtime after the container's end: then nobody says why.
    for _try in range(3):
        ended = team.run(cell)
        assert isinstance(ended.error, JobFailed)
        (one,) = ended.display.status.replicas
        assert one.exit_code == -9
        assert "%memory=32Mi" in ended.error.hint
        if one.reason:
            break
    assert one.reason == "OOMKilled"
    assert "used too much memory (OOMKilled)" in ended.error.message


@pytest.mark.second("operators", only="requested")
@pytest.mark.second("operators", only="created")
@pytest.mark.parametrize("moment", ["requested", "created", "running"])
def test_an_interrupt_leaves_nothing(
    team: Team, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    requested = before_request(monkeypatch, r"^POST .*/configmaps$")

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        if moment == "created":
            await wait(lambda: display.begun)
        elif moment == "running":
            await _wait_for(display, "worker-0", b"here")
        else:
            await wait(lambda: requested.is_set() or work.done())
        assert not work.done()
        work.cancel()

    with pytest.raises(asyncio.CancelledError):
        team.run(HEAD + WAIT, during=during)
    until(lambda: not team.left(), "everything to be gone", 60)


def test_a_job_that_someone_deletes_ends_its_cell(team: Team) -> None:
    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await _wait_for(display, "worker-1", b"here")
        assert display.job
        argv = ("delete", f"tfjob/{display.job.name}", "--wait=false")
        await asyncio.to_thread(team.namespace.kubectl, *argv)

    ended = team.run(HEAD + WAIT, during=during)
    assert isinstance(ended.error, JobStopped)
    assert "deleted" in ended.error.message


@pytest.mark.second("operators")
def test_a_deadline_fails_the_job(team: Team) -> None:
    ended = team.run(HEAD + "%deadline=4s\n" + WAIT)
    assert isinstance(ended.error, JobFailed)
    assert "deadline" in ended.error.message.lower()


def test_an_image_that_does_not_exist_fails_the_cell_with_the_nodes_words(team: Team) -> None:
    image = team.namespace.cluster.image("tools").rpartition("/")[0] + "/no-such:1"
    ended = team.run(HEAD + f"%image={image}\nprint()\n", hopeless_wait=3.0)
    assert isinstance(ended.error, JobFailed)
    assert "cannot start" in ended.error.message
    assert "no-such" in ended.error.message
    assert ended.error.hint.startswith("Correct %image, or make the image available")
    until(lambda: not team.left(), "the job to be deleted", 90)


@pytest.mark.second("faults")
def test_why_a_replica_waits_is_said(team: Team) -> None:
    seen: list[str] = []

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        def said() -> bool:
            if any(isinstance(event, Status) for event in display.events):
                seen.append(display.status.replicas[0].reason)
            return "unschedulable" in "".join(seen[-1:])

        await wait(said)
        work.cancel()

    with pytest.raises(asyncio.CancelledError):
        team.run("%framework=tensorflow\n%worker=1;%gpu=8\nprint()\n", during=during)
    assert "Insufficient nvidia.com/gpu" in seen[-1]


@pytest.mark.second("operators")
def test_clean_policy_all_removes_everything(team: Team) -> None:
    ended = team.run(HEAD + "%cleanPolicy=all\nprint(1)\n")
    assert ended.error is None, ended.error
    until(lambda: not team.left(), "everything to be gone", 60)


def test_the_end_of_the_job_ends_a_parameter_server(team: Team) -> None:
    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        for replica in ("ps-0", "worker-0"):  # the last words of a PS are not waited for
            await _wait_for(display, replica, b"here")
        await touch(team, display, "worker-0", "end")

    ended = team.run(
        "%framework=tensorflow\n%ps=1\n%worker=1\nimport os, time\nprint('here', flush=True)\n"
        "if 'ps' in os.environ['CIAO_REPLICA']: time.sleep(300)\n"
        "while not os.path.exists('end'): time.sleep(0.1)\n",
        during=during,
    )
    assert ended.error is None, ended.error
    assert ended.display.data("ps-0") == b"here\n"

    def pods() -> Any:
        return [p["metadata"]["name"] for p in team.namespace.get("pods")["items"]]

    until(lambda: len(pods()) == 1, "the PS to be gone", 90)
    assert pods()[0].endswith("worker-0")
    ((_, status),) = team.jobs()
    assert status.over  # though the PS has no pod that would say so
    assert [one.state for one in status.replicas] == [State.STOPPED, State.SUCCEEDED]


PATIENT = {"stop_grace": 60.0}
"""A cell reads on for `linger` and this after a job's end; a busy operator stops pods late."""
MEET, GO_ON = "/tmp/meet", "/tmp/go-on"
UNTIL_TOLD = f"while not os.path.exists({GO_ON!r}): time.sleep(0.1)"
"""Instead of so many seconds, as last words of a straggler: until the test lets it say them."""
# The others wait until the straggler runs: else it never would. Where it is held, they wait until
# the test lets it meet them.
STRAGGLER = """
import json, os, signal, socket, time
def end(*_):
    {waits}
    print('at last', flush=True)
    os._exit({code})
role, _, index = '{late}'.rpartition('-')
host, port = json.loads(os.environ['TF_CONFIG'])['cluster'][role][int(index)].split(':')
if os.environ['CIAO_REPLICA'] == '{late}':
    signal.signal(signal.SIGTERM, end)
    print('here', flush=True)
    while {held} and not os.path.exists({meet!r}): time.sleep(0.1)
    with socket.create_server(('', int(port))):
        time.sleep(300)
while True:
    try:
        socket.create_connection((host, port), 5).close()
        break
    except OSError:
        time.sleep(0.2)
"""


def straggler(late: str, waits: str = "time.sleep(1)", *, code: int, held: bool = False) -> str:
    """Return the program in which a replica has last words, and takes its time for them."""
    return STRAGGLER.format(late=late, waits=waits, code=code, held=held, meet=MEET)


async def touch(team: Team, display: Recorder, replica: str, file: str) -> None:
    """Make a file in the pod of a replica."""
    assert display.job
    await asyncio.to_thread(team.namespace.touch, f"{display.job.name}-{replica}", file)


@pytest.mark.second("faults", only="Stopped")
@pytest.mark.parametrize(("code", "state"), [(0, State.SUCCEEDED), (1, State.STOPPED)])
def test_a_worker_that_the_operator_stops_is_read_to_its_last_line(
    team: Team, code: int, state: State
) -> None:
    """It has a second after worker-0's end, then SIGTERM; it writes a second after that."""
    ended = team.run(HEAD + straggler("worker-1", code=code), **PATIENT)
    assert ended.error is None, ended.error
    assert ended.display.data("worker-1") == b"here\nat last\n"
    assert ended.display.state("worker-1") is state


@pytest.mark.second("faults")
def test_a_worker_is_read_to_its_last_line_though_the_job_has_failed(team: Team) -> None:
    """As one that writes a checkpoint when it is asked to end."""
    program = straggler("worker-1", code=1)
    ended = team.run(HEAD + program + "raise ValueError('a bad batch')\n", **PATIENT)
    assert isinstance(ended.error, JobFailed)
    assert ended.error.message == "worker-0 ended with exit code 1: ValueError: a bad batch"
    assert ended.display.data("worker-1") == b"here\nat last\n"
    assert ended.display.state("worker-0") is State.FAILED
    assert ended.display.state("worker-1") is State.STOPPED


def test_in_a_kernel_the_cell_ends_with_the_replica_that_failed(team: Team) -> None:
    """The other has a second, then SIGTERM, and writes after the cell's end."""

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await _wait_for(display, "worker-1", b"here")
        await touch(team, display, "worker-1", MEET)
        await asyncio.wait({work})
        await touch(team, display, "worker-1", GO_ON)

    program = straggler("worker-1", UNTIL_TOLD, code=1, held=True)
    text = HEAD + program + "print('going', flush=True)\nraise ValueError('a bad batch')\n"
    ended = team.run(text, during=during, lifetime=Lifetime(), **PATIENT)
    assert isinstance(ended.error, JobFailed)
    assert ended.error.message == "worker-0 ended with exit code 1: ValueError: a bad batch"
    assert b"at last" not in ended.shown["worker-1"]
    assert ended.shown["worker-0"] == ended.display.data("worker-0")
    assert ended.shown["worker-0"].startswith(b"going\nTraceback (most recent call last):\n  File")
    assert ended.shown["worker-0"].endswith(b"ValueError: a bad batch\n")
    assert ended.display.data("worker-1") == b"here\nat last\n"
    assert ended.display.status.settled
    assert not ended.display.status.foreseen
    assert ended.display.state("worker-1") is State.STOPPED
    assert "succeeded" not in ended.display.notices


@pytest.mark.second("faults", only="ExitCode")
@pytest.mark.second("faults", only="pytorch")
@pytest.mark.parametrize("framework", ["tensorflow", "pytorch"])
@pytest.mark.parametrize("policy", ["Never", "ExitCode"])
def test_a_failure_that_is_foreseen_is_the_operators_too(
    team: Team, framework: str, policy: str
) -> None:
    head = f"%framework={framework}\n%worker=2\n%restartPolicy={policy}\n%runner=python\n"
    if framework == "tensorflow":
        head = head.replace("%runner=python\n", "")
    ended = team.run(
        head + "import os, time\nif os.environ['CIAO_REPLICA'] == 'worker-1':\n    os._exit(3)\n"
        "time.sleep(300)\n",
        lifetime=Lifetime(),
    )
    assert isinstance(ended.error, JobFailed)
    assert ended.error.message == "worker-1 ended with exit code 3."
    assert ended.display.status.settled
    ((_, status),) = team.jobs()
    assert status.state is State.FAILED


def _held(display: Recorder, team: Team, *finalizers: str) -> None:
    """Let finalizers keep the job, or none."""
    assert display.job
    change = {"metadata": {"finalizers": list(finalizers)}}
    argv = ("patch", f"tfjob/{display.job.name}", "--type=merge", "-p", json.dumps(change))
    team.namespace.kubectl(*argv)


@pytest.mark.second("faults")
def test_a_finalizer_that_keeps_a_deleted_job_keeps_no_cell(team: Team) -> None:
    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await _wait_for(display, "worker-1", b"here")
        await asyncio.to_thread(_held, display, team, "example.com/hold")
        assert display.job
        argv = ("delete", f"tfjob/{display.job.name}", "--wait=false")
        await asyncio.to_thread(team.namespace.kubectl, *argv)

    ended = team.run(HEAD + WAIT, during=during)
    try:
        assert isinstance(ended.error, JobStopped)
        assert "deleted" in ended.error.message
        assert "the finalizer example.com/hold keeps its object" in ended.display.notices
        ((_, status),) = team.jobs()
        assert status.state is State.STOPPED
        assert {one.state for one in status.replicas} == {State.STOPPED}
        facts = dict(team.details().facts)
        assert facts["deleted"] == "yes, but kept by the finalizer example.com/hold"
    finally:
        _held(ended.display, team)
    until(lambda: not team.left(), "everything to be gone", 60)


@pytest.mark.second("faults")
def test_a_stop_that_a_finalizer_holds_up_says_so(team: Team) -> None:
    display: Recorder | None = None

    async def during(shown: Recorder, work: asyncio.Task[Ended]) -> None:
        nonlocal display
        display = shown
        await _wait_for(shown, "worker-1", b"here")
        await asyncio.to_thread(_held, shown, team, "example.com/hold")
        work.cancel()

    with pytest.raises(asyncio.CancelledError):
        team.run(HEAD + WAIT, during=during)
    assert display
    try:
        assert "kept by the finalizer example.com/hold" in display.notices
    finally:
        _held(display, team)
    until(lambda: not team.left(), "everything to be gone", 60)


@pytest.mark.second("faults")
def test_a_parameter_server_that_does_not_end_is_not_waited_for(team: Team) -> None:
    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await _wait_for(display, "ps-0", b"here")
        await touch(team, display, "ps-0", MEET)

    program = straggler("ps-0", UNTIL_TOLD, code=0, held=True)  # which nobody does
    head = "%framework=tensorflow\n%ps=1\n%worker=1\n"
    ended = team.run(head + program, during=during, **PATIENT)
    assert ended.error is None, ended.error
    assert ended.display.data("ps-0") == b"here\n"
    assert ended.display.job
    assert team.namespace.find(f"pod/{ended.display.job.name}-ps-0")


def test_missing_rights_are_listed_before_anything_exists(team: Team) -> None:
    some = [rule for rule in rules() if "configmaps" not in rule.resources]
    team.user.allow(*some, Rule(["configmaps"], ["get"]))
    ended = team.run(HEAD + "print()\n")
    assert isinstance(ended.error, ClusterFault)
    assert "missing rights: create configmaps." in ended.error.message
    assert "kubectl apply -f -" in ended.error.hint
    assert "resources: [configmaps]" in ended.error.hint
    assert team.left() == []


@pytest.mark.second("faults")
def test_a_namespace_that_is_not_there_is_an_error(team: Team) -> None:
    ended = team.run(HEAD + "%namespace=no-such-place\nprint()\n")
    assert isinstance(ended.error, ClusterFault)
    assert "no-such-place" in ended.error.message


@pytest.mark.second("operators")
def test_a_quota_that_is_used_up_is_said_before_anything_exists(team: Team) -> None:
    policies.put_quota(team.namespace, **{"requests.memory": "64Mi"})
    team.user.allow(*rules(), Rule(["pods"], ["create"]))
    ended = team.run("%framework=tensorflow\n%worker=1;%memory=1Gi\nprint()\n")
    assert isinstance(ended.error, UsageError)
    assert "has no room for this job: requests.memory" in str(ended.error)
    assert team.left() == []
