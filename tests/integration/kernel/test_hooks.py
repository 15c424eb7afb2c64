"""Job cells and commands are treated as IPython treats any cell: hooks, variables, history."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.kernels import JOB, Kernel, Place

WATCH = """
seen = []
def before(info): seen.append(("before", info.raw_cell.strip().splitlines()[-1]))
def after(result): seen.append(("after", result.success, result.execution_count))
def each(): seen.append("each")
for event, hook in (("pre_run_cell", before), ("post_run_cell", after), ("pre_execute", each)):
    get_ipython().events.register(event, hook)
"""


@pytest.fixture
def ours(kernel_of_module: Kernel) -> Kernel:
    return kernel_of_module


@pytest.fixture
def fresh(place: Place) -> Iterator[Kernel]:
    kernel = Kernel(place)
    yield kernel
    kernel.shutdown(now=True)


@pytest.mark.stands_for("oldest")
def test_a_variable_in_a_command_is_replaced_in_both_kernels(ours: Kernel, lasting: Kernel) -> None:
    said = []
    for kernel in (ours, lasting):
        kernel.run("class J: name = 'no-such-job'\nj = 'other-job'")
        requests = [
            kernel.run(f"%ciao describe {word}")
            for word in ("{J.name}", "$j", "{j} -o json", "{unknown}", "{j", "$unknown")
        ]
        said.append([(request.error, str(request.of("error"))) for request in requests])
    first, second = said
    assert "no-such-job" in first[0][1]
    assert "other-job" in first[1][1]
    assert "other-job" in first[2][1]
    assert "{unknown}" in first[3][1]
    assert [error for error, _ in first] == [error for error, _ in second]
    for (_, text), word in zip(second, ("no-such-job", "other-job", "other-job"), strict=False):
        assert word in text


@pytest.mark.stands_for("oldest")
def test_hooks_are_called_around_jobs_and_commands(fresh: Kernel) -> None:
    assert fresh.run(WATCH).status == "ok"
    fresh.run("seen.clear()")
    assert fresh.run(JOB + "print('one')").status == "ok"
    assert fresh.run(JOB + "1 / 0").status == "error"
    assert fresh.run("%ciao jobs").status == "ok"
    assert fresh.run("%ciao describe no-such-job").status == "error"
    text = fresh.run("print(*seen[1:-2], sep='\\n')").text.splitlines()
    assert [line for line in text if line != "each"] == [
        "('before', \"print('one')\")", "('after', True, 3)",
        "('before', '1 / 0')", "('after', False, 4)",
        "('before', '%ciao jobs')", "('after', True, 5)",
        "('before', '%ciao describe no-such-job')", "('after', False, 6)",
    ]  # fmt: skip
    assert text.count("each") == 4


def test_a_hook_that_fails_harms_no_job(fresh: Kernel) -> None:
    fresh.run("get_ipython().events.register('pre_run_cell', lambda info: 1 / 0)")
    request = fresh.run(JOB + "print('all the same')")
    assert request.status == "ok"
    assert "all the same" in request.text


@pytest.mark.stands_for("oldest")
def test_a_stop_during_a_hook_stops_the_cell_and_a_hook_sees_a_cell_as_over(fresh: Kernel) -> None:
    fresh.run(
        "import time\nip, counts = get_ipython(), []\n"
        "def before(info):\n"
        "    if 'went on' in info.raw_cell:\n"
        "        open('begun', 'w').close()\n"
        "        time.sleep(600)\n"
        "    if 'still here' in info.raw_cell:\n"
        "        raise SystemExit(3)\n"
        "def after(result):\n"
        "    counts.append((ip.execution_count, result.execution_count))\n"
        "    assert ip.last_execution_result is result\n"
        "ip.events.register('pre_run_cell', before)\n"
        "ip.events.register('post_run_cell', after)"
    )
    before = len(fresh.place.job_folders())
    request = fresh.execute(JOB + "print('went on')")
    fresh.wait((fresh.place.work / "begun").exists, "the hook to begin")
    fresh.interrupt()
    fresh.finish(request)
    assert [error["ename"] for error in request.of("error")] == ["KeyboardInterrupt"]
    assert len(fresh.place.job_folders()) == before
    assert fresh.run(JOB + "print('still here')").status == "ok"
    counts = fresh.run("print(counts)").text
    assert "(2, None), (3, 2)" in counts, counts


def test_the_command_for_a_replica_is_not_changed(ours: Kernel) -> None:
    ours.run("x = 'changed'")
    request = ours.run("%ciao exec no-such-job -- echo {x} $x 'a{2}'")
    assert "no-such-job" in str(request.of("error"))
    assert "changed" not in str(request.of("error"))


def test_a_command_without_history_is_answered_and_not_stored(fresh: Kernel) -> None:
    fresh.run("1")
    request = fresh.run("%ciao jobs", store_history=False)
    assert request.status == "ok"
    assert "There are no jobs" in request.text
    assert request.reply is not None
    assert request.reply["content"]["execution_count"] == 1
    assert "%ciao jobs" not in fresh.run("print(In)").text
