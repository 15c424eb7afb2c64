"""`_job`, `ciao_kernel.job()` and `ciao_kernel.jobs()`: jobs from plain cells of a real kernel."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers.kernels import Kernel, Place

HEADER = "%framework=tensorflow\n%worker=2\n%name=numbers\n"
BODY = """\
import os, time
replica = os.environ["CIAO_REPLICA"]
for step in range(1, 1001):
    print(f"step {step} loss {1 / step} accuracy: {step / 1000}")
print("ready", flush=True)
while not os.path.exists("go-on"):
    time.sleep(0.02)
print("last words of", replica)
"""
DETACHED = HEADER + "%detach\n" + BODY


@pytest.fixture
def kernel(shared: Kernel) -> Kernel:
    """The same for all tests here."""
    return shared


@pytest.fixture
def place(shared: Kernel) -> Place:
    return shared.place


def let_go(place: Place) -> None:
    for folder in place.job_folders():
        (folder / "work" / "go-on").touch()


def test_a_detached_job_is_followed_from_python(kernel: Any, place: Place) -> None:
    assert kernel.run(DETACHED).status == "ok"
    assert kernel.run("print(_job.state, _job.name)").text.split() == ["Running", "numbers"]
    assert kernel.run("print(_job.header)").text.splitlines()[:2] == HEADER.splitlines()[:2]
    late = kernel.run("_job.wait(0.2)")
    assert late.error == "TimeoutError"
    let_go(place)
    assert kernel.run("print(_job.wait(), _job.wait())").text == "Succeeded Succeeded\n"
    shown = kernel.run("_job").of("execute_result")[0]["data"]
    assert shown["text/plain"].startswith("<job numbers: Succeeded, tensorflow, 2 replicas, ")
    assert "<table" in shown["text/html"]
    assert "worker-1" in shown["text/html"]
    asked = "[_job.duration, [str(one.state) for one in _job.replicas]]"
    helped = kernel.ask("inspect_request", {"code": "_job", "cursor_pos": 4, "detail_level": 0})
    text = helped["data"]["text/plain"]
    members = ("wait(timeout=None)", "stop()", 'logs("worker-0")', "metrics", "result")
    assert [one for one in members if f"\n    {one} " not in text] == []
    assert "_job.wait(timeout=600)" in text
    duration, states = json.loads(kernel.run(f"import json; print(json.dumps({asked}))").text)
    assert states == ["Succeeded", "Succeeded"]
    assert kernel.run("print(_job.duration)").text == f"{duration}\n"  # of the job, not until now


def test_logs_and_metrics_of_a_job_without_plot(kernel: Any, place: Place) -> None:
    kernel.run(DETACHED)
    both = "all('ready' in _job.logs(one) for one in ('worker-0', 'worker-1'))"
    kernel.run(f"import time\nwhile not {both}: time.sleep(0.02)")
    curve = "_job.metrics['loss']['worker-1']"
    assert (
        kernel.run(f"print(len({curve}), {curve}.last, {curve}.axis)").text == "1000 0.001 step\n"
    )
    assert (
        kernel.run(f"print({curve}.steps[:3], {curve}.values[1])").text == "(1.0, 2.0, 3.0) 0.5\n"
    )
    assert kernel.run("print(sorted(_job.metrics))").text == "['accuracy', 'loss']\n"
    assert kernel.run("print(_job.metrics.last['accuracy']['worker-0'])").text == "1.0\n"
    wrong = kernel.run("_job.metrics['lost']")
    assert wrong.error == "KeyError"
    assert "no 'lost' was found in the logs. Did you mean 'loss'?" in str(wrong.of("error"))
    let_go(place)
    kernel.run("_job.wait()")
    assert (
        kernel.run("print(_job.logs('worker-1', tail=1), end='')").text
        == "last words of worker-1\n"
    )
    both = kernel.run("print(_job.logs('worker', tail=1), end='')").text
    assert both == "[worker-0] last words of worker-0\n[worker-1] last words of worker-1\n"
    wrong = kernel.run("_job.logs('ps-0')")
    assert "numbers has no replica ps-0." in str(wrong.of("error"))


def test_a_failed_job_fails_the_cell_that_waits_for_it(kernel: Any, place: Place) -> None:
    kernel.run("%framework=tensorflow\n%name=bad\n%detach\nprint(undefined_name)")
    failed = kernel.run("_job.wait()")
    assert failed.error == "JobFailed"
    assert "undefined_name" in str(failed.of("error"))
    assert kernel.run("print(_job.wait(check=False), _job.state)").text == "Failed Failed\n"


def test_a_wait_can_be_interrupted_and_the_job_stopped(kernel: Any, place: Place) -> None:
    kernel.run(DETACHED)
    waiting = kernel.execute("print('waiting', flush=True)\n_job.wait()")
    kernel.wait_text(waiting, "waiting")
    kernel.interrupt()
    kernel.finish(waiting)
    assert waiting.error == "KeyboardInterrupt"
    assert kernel.run("print(_job.state)").text == "Running\n"
    assert kernel.run("print(_job.stop(), _job.state)").text == "Stopped Stopped\n"
    place.wait_empty()


def test_other_jobs_are_found_by_name(kernel: Any, place: Place) -> None:
    kernel.run("%framework=tensorflow\n%name=first\nprint('one')")
    kernel.run("%framework=tensorflow\n%name=second\nprint('two')")
    kernel.run("import ciao_kernel as ciao")
    assert kernel.run("print([job.name for job in ciao.jobs()])").text == "['first', 'second']\n"
    assert kernel.run("print(ciao.job('first').logs(), end='')").text == "[worker-0] one\n"
    listed = kernel.run("ciao.jobs()").of("execute_result")[0]["data"]["text/plain"]
    assert [line.split(":")[0] for line in listed.splitlines()] == ["<job first", "<job second"]
    wrong = kernel.run("ciao.job('frist')")
    assert wrong.error == "NoSuchJob"
    assert "Did you mean first?" in str(wrong.of("error"))


def test_a_deleted_job_is_not_mistaken_for_a_later_one(kernel: Any, place: Place) -> None:
    kernel.run(DETACHED)
    kernel.run("old = _job")
    kernel.run("%ciao delete numbers")
    kernel.run(DETACHED)
    asked = kernel.run("old.state")
    assert asked.error == "NoSuchJob"
    assert "a later job has its name" in str(asked.of("error"))
    for one in ("logs()", "progress", "result"):
        assert kernel.run(f"old.{one}").error == "NoSuchJob"
    assert kernel.run("print(_job.state)").text == "Running\n"
    assert (
        kernel.run("print(repr(old).split(',')[0])").text == "<job numbers: Running\n"
    )  # as known
    kernel.run("_job.stop()")


def test_the_end_of_a_job_is_known_after_its_deletion(kernel: Any, place: Place) -> None:
    removed = "%framework=python\n%worker=1\n%name=removed\n%cleanPolicy=all\n"
    assert kernel.run(f"{removed}print('one')").status == "ok"
    assert kernel.run("print(_job.wait(), _job.state)").text == "Succeeded Succeeded\n"
    assert kernel.run(f"{removed}print(undefined_name)").error == "JobFailed"
    assert kernel.run("print(_job.wait(check=False), _job.state)").text == "Failed Failed\n"
    failed = kernel.run("_job.wait()")
    assert failed.error == "JobFailed"
    assert "undefined_name" in str(failed.of("error"))


def test_the_header_of_a_cell_is_scanned_once(kernel: Any, place: Place) -> None:
    kernel.run(
        "from ciao_kernel.magics import header\n"
        "pieces, scanned = header.pieces, []\n"
        "header.pieces = lambda line, *style: scanned.append(line.text) or pieces(line, *style)\n"
    )
    assert not kernel.run("%dryrun\n" + HEADER + "print(1)").error
    assert kernel.run("header.pieces = pieces; print(scanned.count('%dryrun'))").text == "1\n"


def test_a_dry_run_is_kept_as_text(kernel: Any, place: Place) -> None:
    shown = kernel.run("%dryrun\n" + HEADER + "print(1)").text
    assert kernel.run("print(_job.dryrun)").text == shown
    assert "numbers" in kernel.run("_job").of("execute_result")[0]["data"]["text/plain"]
    kernel.run(HEADER + "print(1)")
    assert kernel.run("print(repr(_job.dryrun), _job.state)").text == "'' Succeeded\n"


def test_an_interrupted_cell_leaves_the_whole_status(kernel: Any, place: Place) -> None:
    running = kernel.execute(DETACHED.replace("%detach\n", "%lines=all\n"))
    kernel.wait_text(running, "ready")
    kernel.interrupt()
    kernel.finish(running)
    place.wait_empty()
    asked = "print(_job.state, [str(one.state) for one in _job.replicas], _job.dryrun == '')"
    assert kernel.run(asked).text == "Stopped ['Stopped', 'Stopped'] True\n"
    kernel.run("%dryrun\n" + HEADER + "print(1)")
    kernel.run("%ciao attach numbers")
    assert kernel.run("print(_job.name, type(_job).__name__)").text == "numbers JobHandle\n"


def test_one_job_behind_and_one_before_the_eyes(kernel: Any, place: Place) -> None:
    """`%detach` makes room for a second cell; the stop button is for the one that is followed."""
    kernel.run(DETACHED)
    second = kernel.execute(DETACHED.replace("%detach", "%lines=all").replace("numbers", "second"))
    kernel.wait_text(second, "ready")
    kernel.interrupt()
    kernel.finish(second)
    assert second.error == "KeyboardInterrupt"
    kernel.wait_text(second, "second is stopped")  # on a busy machine behind the end of the cell
    kernel.run("import ciao_kernel as ciao")
    states = "print(_job.name, _job.state, ciao.job('numbers').state)"
    assert kernel.run(states).text == "second Stopped Running\n"
    let_go(place)
    assert kernel.run("print(ciao.job('numbers').wait())").text == "Succeeded\n"


def test_a_job_whose_attach_was_interrupted_is_the_last_one(
    kernel: Any, start_kernel: Any, place: Place
) -> None:
    kernel.run(DETACHED.replace("%detach", "%detach\n%lines=all"))
    other = start_kernel()
    for follower in (kernel, other):
        attached = follower.execute("%ciao attach numbers")
        follower.wait_text(attached, "ready")
        follower.interrupt()
        follower.finish(attached)
        assert "numbers keeps running" in attached.text
        assert follower.run("print(_job.name, _job.state)").text == "numbers Running\n"
    let_go(place)
    assert other.run("print(_job.wait())").text == "Succeeded\n"
