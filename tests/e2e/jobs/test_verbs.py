"""The verbs on jobs of a cluster, by the user whom deploy/rbac describes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from ciao_kernel import commands
from ciao_kernel.errors import (
    BackendError,
    CiaoError,
    ClusterFault,
    CommandFailed,
    NoSuchJob,
    Refused,
    UsageError,
)
from ciao_kernel.model import Owner
from ciao_kernel.session.owner import current_user
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from tests.cluster.errors import ClusterError
from tests.cluster.faults import policies
from tests.cluster.faults.users import Rule
from tests.cluster.namespace import Namespace
from tests.cluster.rights import account, wait_until_may
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import EXEC, ROLE, Team, rules
from tests.helpers.jobs import Recorder
from tests.integration.cli.command import CIAO, Terminal

TWO = "%framework=tensorflow\n%worker=2\n%name=two\n%detach\n"
TALK = (
    "import os, time\n"
    "print('first of', os.environ['CIAO_REPLICA'], flush=True)\n"
    "print('second', flush=True)\n"
    "time.sleep(300)\n"
)


def ciao(
    team: Team,
    *words: str,
    during: Callable[[Recorder, asyncio.Task[Any]], Awaitable[Any]] | None = None,
    **settings: Any,
) -> str:
    """Run a command as a cell does, and return all that it writes and shows."""
    written: list[str] = []

    async def main() -> None:
        display = Recorder()
        session = Session(
            Registry({}), Owner(current_user(), os.getpid()), team.settings(**settings)
        )
        caller = commands.Caller(session, display, written.append, team.folder)
        work = asyncio.ensure_future(commands.execute(words, caller))
        try:
            if during:
                await during(display, work)
            await work
        finally:
            await session.close()
            written.append(display.notices)
            names = [str(one) for one in display.job.replicas] if display.job else []
            written.extend(f"[{name}] {display.data(name).decode()}" for name in names)

    asyncio.run(main())
    return "".join(written)


def refused(team: Team, *words: str, **settings: Any) -> CiaoError:
    with pytest.raises(CiaoError) as caught:
        ciao(team, *words, **settings)
    return caught.value


def start(team: Team, cell: str, **settings: Any) -> str:
    """Start a detached job; return what the cell says."""
    ended = team.run(cell, **settings)
    assert ended.error is None, ended.error
    return ended.display.notices


def wait_for(team: Team, *lines: str, job: str = "two", **settings: Any) -> None:
    def there() -> bool:
        log = ciao(team, "logs", job, **settings)
        return all(line in log for line in lines)

    until(there, f"{lines} in the log", 120)


@pytest.fixture
def other(team: Team) -> Iterator[Namespace]:
    """A second namespace, where the user has the same rights."""
    made = Namespace(team.namespace.cluster, "test_other")
    made.create()
    who = f"{team.namespace.name}:{team.user.name}"
    for role in (ROLE, EXEC):
        made.create_objects(document := yaml.safe_load(role.read_text()))
        name = document["metadata"]["name"]
        made.kubectl("create", "rolebinding", name, f"--role={name}", f"--serviceaccount={who}")
    own = [("create", "tfjobs.kubeflow.org"), ("get", "pods/log"), ("create", "pods/exec")]
    wait_until_may(made.cluster, account(*who.split(":")), own, made.name)
    yield made
    made.delete()


def test_what_is_told_of_a_running_job(team: Team) -> None:
    start(team, TWO + TALK.replace("print('second'", "time.sleep(3)\nprint('second'"))
    wait_for(team, "[worker-0] second", "[worker-1] second")
    team.namespace.wait_for_job("tfjob/two", "Running")  # the operator may see it later than we

    # Lines, and their times.
    assert ciao(team, "logs", "two", "--replica", "worker-1") == (
        "[worker-1] first of worker-1\n[worker-1] second\n"
    )
    stamped = ciao(team, "logs", "two", "--timestamps", "--replica", "worker-0").splitlines()
    times = []
    for line, text in zip(stamped, ("first of worker-0", "second"), strict=True):
        prefix, stamp, said = line.split(" ", 2)
        assert (prefix, said) == ("[worker-0]", text)
        times.append(datetime.fromisoformat(stamp[:26] + "+00:00"))
    assert times[0] < times[1]
    assert ciao(team, "logs", "two", "--tail", "1") == "[worker-0] second\n[worker-1] second\n"
    between = (times[1].timestamp() + times[0].timestamp()) / 2
    moment = datetime.fromtimestamp(between).astimezone().isoformat()
    assert ciao(team, "logs", "two", "--since", moment, "--replica", "worker-0") == (
        "[worker-0] second\n"
    )
    assert "first of worker-0" in ciao(team, "logs", "two", "--since", "1h")
    never = refused(team, "logs", "two", "--previous")
    assert "was not restarted in its pod" in never.message

    # Followed from a moment on; an interrupt leaves the job.
    async def leave(display: Recorder, work: asyncio.Task[Any]) -> None:
        await display.until("second")
        work.cancel()

    with pytest.raises(asyncio.CancelledError):
        ciao(team, "attach", "two", "--since", moment, during=leave)
    shown: list[str] = []

    async def look(display: Recorder, work: asyncio.Task[Any]) -> None:
        await display.until("second")
        shown.append(display.data("worker-0").decode())
        work.cancel()

    with pytest.raises(asyncio.CancelledError):
        ciao(team, "attach", "two", "--since", moment, during=look)
    assert shown == ["second\n"]

    # What is known of it.
    text = ciao(team, "describe", "two")
    job = team.namespace.get("tfjob/two")
    image = team.images["tensorflow"]
    for part in (
        "Running", team.namespace.name, job["metadata"]["uid"], image, "two-worker-1", "ciao-node",
        "TFJobRunning", "Scheduled", "SuccessfulCreatePod",
    ):  # fmt: skip
        assert part in text
    record = json.loads(ciao(team, "describe", "two", "-o", "json"))
    assert record["namespace"] == team.namespace.name
    assert record["pods"] == {"worker-0": "two-worker-0", "worker-1": "two-worker-1"}
    assert [one["type"] for one in record["conditions"]] == ["Created", "Running"]
    assert {"pod/two-worker-0", "tfjob/two"} <= {one["about"] for one in record["events"]}
    (role,) = record["roles"]
    assert (role["role"], role["replicas"], role["image"]) == ("worker", 2, image)
    item = yaml.safe_load(ciao(team, "describe", "two", "-o", "yaml"))
    assert "managedFields" not in item["metadata"]
    assert item["spec"] == job["spec"]

    # Lists.
    (record,) = json.loads(ciao(team, "jobs", "-o", "json"))
    assert (record["name"], record["state"]) == ("two", "Running")
    assert "NAMESPACE" not in ciao(team, "jobs")
    assert "There are no jobs." in ciao(team, "jobs", "--mine")  # a test's own owner has made it
    error = refused(team, "jobs", "-A")
    assert isinstance(error, ClusterFault)
    assert "list tfjobs, pytorchjobs" in error.message
    assert "--namespace" in error.hint

    # And gone.
    gone = ciao(team, "delete", "two")
    assert gone == (
        f"two (Running) was deleted from the namespace {team.namespace.name}, "
        "with its local logs.\n"
    )
    assert isinstance(refused(team, "describe", "two"), NoSuchJob)


def test_commands_run_in_replicas(team: Team, tmp_path: Path) -> None:
    team.user.allow(*rules(), *rules(EXEC))
    start(team, TWO + TALK)
    wait_for(team, "[worker-0] first", "[worker-1] first")
    for number in (0, 1):  # a node serves a log before the API says that its pod runs
        team.namespace.wait_for_pod(f"two-worker-{number}", "Running")
    said = ciao(team, "exec", "two/worker-1", "--", "sh", "-c", "echo $CIAO_REPLICA; pwd; ls")
    assert said.splitlines() == ["worker-1", "/ciao", "ciao_cell.py"]
    error = refused(team, "exec", "two/worker-0", "--", "sh", "-c", "echo so far; exit 42")
    assert isinstance(error, CommandFailed)
    assert error.code == 42
    assert (
        "no-such-program" in refused(team, "exec", "two/worker-0", "--", "no-such-program").message
    )
    for words in (["two"], ["two/ps-0"], ["two/worker"]):
        error = refused(team, "exec", *words, "--", "true")
        assert isinstance(error, UsageError)
        assert "two/worker-0, two/worker-1" in error.hint
    assert "terminal" in refused(team, "exec", "-i", "two/worker-0", "--", "cat").message

    async def stop(_: Recorder, work: asyncio.Task[Any]) -> None:
        runs = ("exec", "two-worker-0", "--", "test", "-e", "/tmp/runs")

        def begun() -> bool:
            with contextlib.suppress(ClusterError):
                team.namespace.kubectl(*runs)
                return True
            return False

        await asyncio.to_thread(until, begun, "the command to run", 60)
        assert not work.done()
        work.cancel()

    script = "touch /tmp/runs; exec sleep 200"
    with pytest.raises(asyncio.CancelledError):
        ciao(team, "exec", "two/worker-0", "--", "sh", "-c", script, during=stop)

    # From a shell: bytes as they are, both ways, and the command's exit code.
    env = {
        **os.environ, "CIAO_NAMESPACE": team.namespace.name, "CIAO_STORAGE": str(team.storage),
        "TERM": "xterm-256color",
    }  # fmt: skip
    data = bytes(range(256)) * 4000
    done = subprocess.run(
        [CIAO, "exec", "-i", "two/worker-1", "--", "sh", "-c", "cat; echo odd >&2; exit 9"],
        input=data, capture_output=True, env=env, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (9, b"odd\n")
    assert done.stdout == data

    # Five seconds without an answer to a ping count as dead here: less may be a busy machine.
    quick = "from ciao_kernel import cli; from ciao_kernel.kube import exec as one; "
    quick += "one._PING, one._UNANSWERED = 0.25, 20; cli.main()"
    for typed, script in ((b"", "sleep 8"), (bytes(2 << 20), "sleep 8; wc -c")):
        done = subprocess.run(
            [sys.executable, "-c", quick, "exec", "-i", "two/worker-1", "--", "sh", "-c", script],
            input=typed, capture_output=True, env=env, check=False, timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.split() == ([str(len(typed)).encode()] if typed else [])

    terminal = Terminal(
        [CIAO, "exec", "-i", "-t", "two/worker-0", "--", "sh"], tmp_path, env, 90, 25
    )
    # The container's runtime starts the command first and sets the size then.
    terminal.press("until stty size | grep -v '^0 '; do sleep 0.1; done\r")
    until(lambda: "25 90" in terminal.raw, "the size of the window", 60)
    # A shell's child that is not a program yet may lose a signal.
    terminal.press("sh -c 'echo be\\gun; exec sleep 200'\r")
    until(lambda: "begun" in terminal.raw, "the program", 60)
    terminal.press("\x03")  # the command's, not ours
    terminal.press("exit 7\r")
    assert terminal.wait() == 7

    team.user.allow(*rules())
    error = refused(team, "exec", "two/worker-0", "--", "true")
    assert isinstance(error, Refused)
    assert "create pods/exec" in error.message
    assert "deploy/rbac/exec-role.yaml" in error.hint
    team.namespace.cluster.api.delete(team.namespace.name, "tfjob/two")


@pytest.mark.second("faults")
def test_the_log_before_a_restart(team: Team) -> None:
    start(
        team,
        "%framework=tensorflow\n%worker=2\n%name=two\n%restartPolicy=OnFailure\n%detach\n"
        "import os, time\nfrom pathlib import Path\n"
        "mark = Path('/dev/shm/again')\n"
        "if os.environ['CIAO_REPLICA'] == 'worker-1' and not mark.exists():\n"
        "    mark.touch()\n    print('it breaks', flush=True)\n    raise SystemExit(3)\n"
        "print('it runs', flush=True)\ntime.sleep(300)\n",
    )
    wait_for(team, "[worker-0] it runs", "[worker-1] it runs")

    def restarts() -> list[int]:
        record = json.loads(ciao(team, "describe", "two", "-o", "json"))
        return [one["restarts"] for one in record["replicas"]]

    # The node serves a log before the API counts the start.
    until(lambda: restarts() == [0, 1], "the restart to be counted", 60)
    assert ciao(team, "logs", "two", "--previous") == "[worker-1] it breaks\n"
    error = refused(team, "logs", "two", "--previous", "--replica", "worker-0")
    assert isinstance(error, BackendError)
    assert "worker-0" in error.message
    error = refused(team, "logs", "-f", "two", "--previous")
    assert isinstance(error, UsageError)


@pytest.mark.second("faults")
def test_a_job_elsewhere_is_found_by_what_the_cell_said(team: Team, other: Namespace) -> None:
    said = start(team, f"{TWO}%namespace={other.name}\n{TALK}")
    command = f"`%ciao attach two --namespace {other.name}`"
    assert command in said
    wait_for(team, "first of worker-0")  # without words: this machine knows where it went
    other.wait_for_pod("two-worker-0", "Running")  # the API says it after the node serves its log
    heads, row = ciao(team, "jobs").splitlines()
    assert heads.split()[:2] == ["NAMESPACE", "NAME"]
    assert row.split()[:2] == [other.name, "two"]
    assert other.name in ciao(team, "describe", "two")

    # Nothing is known on another machine: then the words are needed, and are enough.
    elsewhere = {"storage": team.folder / "elsewhere"}
    assert isinstance(refused(team, "describe", "two", **elsewhere), NoSuchJob)
    assert "There are no jobs." in ciao(team, "jobs", **elsewhere)
    words = command.strip("`").split()[3:]
    assert "first of worker-0" in ciao(team, "logs", "two", *words, **elsewhere)
    assert "two" in ciao(team, "jobs", "-n", other.name, **elsewhere)
    for verb in (["describe"], ["exec"]):
        tail = ["--", "true"] if verb == ["exec"] else []
        name = "two/worker-0" if tail else "two"
        ciao(team, *verb, name, *words, *tail, **elsewhere)

    # One of the same name here: the user has to say which.
    start(team, TWO + TALK)
    assert {line.split()[0] for line in ciao(team, "jobs").splitlines()[1:]} == {
        other.name, team.namespace.name,
    }  # fmt: skip
    assert team.namespace.name in ciao(team, "describe", "two")
    error = refused(team, "describe", "two", namespace="default")
    assert isinstance(error, UsageError)
    for namespace in (other.name, team.namespace.name):
        assert f"`two --namespace {namespace}`" in error.hint
    ciao(team, "delete", "two", "--namespace", other.name)
    assert not other.get("tfjobs")["items"]
    assert team.namespace.get("tfjob/two")


@pytest.mark.second("faults")
def test_rights_that_are_missing_are_named(team: Team) -> None:
    start(team, TWO + TALK)
    wait_for(team, "[worker-0] first")
    team.user.allow(*[rule for rule in rules() if "events" not in rule.resources])

    described = ciao(team, "describe", "two")
    assert "events cannot be shown" in described
    assert "you may not list events" in described
    team.user.allow(Rule(["pods"], ["list"]))
    error = refused(team, "jobs")
    assert "list tfjobs, pytorchjobs" in error.message
    error = refused(team, "jobs", "-n", team.namespace.name)
    assert "list tfjobs, pytorchjobs" in error.message
    error = refused(team, "describe", "two")
    assert "forbidden" in error.message
    assert "Role" in error.hint


def test_a_dry_run_asks_the_server(team: Team) -> None:
    cell = "%framework=tensorflow\n%name=tried\n%worker=2;%memory=64Mi\n"
    shown = team.run(cell + "%dryrun=server\nprint()\n")
    assert shown.error is None, shown.error
    items = list(yaml.safe_load_all(shown.display.notices))
    assert [item["kind"] for item in items] == ["ConfigMap", "TFJob"]
    assert shown.display.notices.rstrip().endswith("would accept it.")
    assert team.left() == []
    policies.put_quota(team.namespace, "small", pods="1")
    tried, ran = (team.run(cell + line + "print()\n").error for line in ("%dryrun=server\n", ""))
    assert isinstance(tried, UsageError)
    assert ran is not None
    assert tried.message == ran.message
    assert "small" in tried.message
    assert team.run(cell + "%dryrun\nprint()\n").error is None
    assert team.left() == []
    local = team.run(cell + "%backend=local\n%dryrun=server\nprint()\n").error
    assert isinstance(local, UsageError)
    assert "no server for a dry run" in local.message


@pytest.mark.second("faults")
def test_tab_gives_a_cluster_up_that_does_not_answer(team: Team) -> None:
    """Its answer is empty and silent, and comes while the server is still being asked."""
    import socket

    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        content = json.loads(Path(os.environ["KUBECONFIG"]).read_text())
        content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{deaf.getsockname()[1]}"
        file = team.folder / "kubeconfig"
        file.write_text(json.dumps(content))
        env = {**os.environ, "KUBECONFIG": str(file), "CIAO_STORAGE": str(team.storage)}
        code = (
            "import argparse; from ciao_kernel.commands import completion as c\n"
            "print(c.jobs('', argparse.Namespace()), flush=True)\n"
            "import os; input(); os._exit(0)\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            assert process.stdout
            assert process.stdout.readline() == "[]\n"
            asking, _ = deaf.accept()
            with asking:
                assert asking.recv(1 << 16)  # the beginning of TLS, which nobody answers
                asking.setblocking(False)
                with pytest.raises(BlockingIOError):  # it would be the end, had it been given up
                    asking.recv(1)
                assert process.communicate("\n", timeout=60) == ("", "")
