"""Cells in subshells, beside a job cell of the main shell: each has its own output and end."""

from __future__ import annotations

import pytest

from tests.helpers.kernels import JOB, SILENT, Kernel, Place, Request
from tests.helpers.subshells import add_subshell, execute

WAITING = (
    JOB + "%name={0}\nimport os, time\n"
    "for i in range(50): print('{0}', i)\n"
    "print('ready', flush=True)\n"
    "while not os.path.exists('go-on'): time.sleep(.02)\n"
    "print('{0} has ended')\n"
)


@pytest.fixture
def subshells(kernel: Kernel) -> list[str]:
    return [add_subshell(kernel) for _ in range(2)]


def let_go(place: Place, name: str) -> None:
    (place.storage / "jobs" / name / "work" / "go-on").touch()


def lines_of(request: Request, name: str) -> int:
    """The number of its job's lines; each line that is not one fails."""
    lines = request.text.splitlines()
    assert [line for line in lines if name not in line and "ready" not in line] == []
    return len(lines)


@pytest.mark.stands_for("oldest")
def test_two_jobs_a_command_and_a_plain_cell_at_once(
    kernel: Kernel, place: Place, subshells: list[str]
) -> None:
    """IPython wrote its error about two cells of one number into the output of one of them."""
    first, second = subshells
    main = kernel.execute(WAITING.format("own"))
    other = execute(kernel, WAITING.format("other"), first)
    kernel.wait_running(main, place)
    kernel.wait_running(other, place)
    plain = kernel.finish(execute(kernel, "print('plain')\n6 * 7", second))
    assert plain.text == "plain\n"
    assert plain.of("execute_result")[0]["data"] == {"text/plain": "42"}
    listed = kernel.finish(execute(kernel, "%ciao jobs", second))
    assert listed.text.count("Running") == 2
    ask = "import ciao_kernel as c\nprint(c.job('own').state, c.job('other').state)"
    assert kernel.finish(execute(kernel, ask, second)).text == "Running Running\n"
    kernel.wait(lambda: main.states == ["busy"] * 4, "the kernel to be shown as busy again")
    let_go(place, "other")
    kernel.finish(other)
    assert main.reply is None
    let_go(place, "own")
    kernel.finish(main)
    for request, name in ((main, "own"), (other, "other")):
        assert request.status == "ok"
        assert lines_of(request, name) == 2 * 52
        assert request.states[-1] == "idle"
        assert request.tables[-1].startswith(f"{name}: Succeeded")
    assert kernel.strangers == []
    counts = [one.reply["content"]["execution_count"] for one in (main, other, listed) if one.reply]
    assert len(set(counts)) == 3
    asked = f"print([In[n].splitlines()[-1] for n in {counts}], _job.name)"
    ends = ["print('own has ended')", "print('other has ended')", "%ciao jobs"]
    assert kernel.run(asked).text == f"{ends} own\n"


def test_stop_ends_each_job_cell_and_leaves_what_is_only_followed(
    kernel: Kernel, place: Place, subshells: list[str]
) -> None:
    kernel.run(SILENT.replace(JOB, JOB + "%name=kept\n%detach\n"))
    waits = execute(kernel, "print('waits', flush=True)\n_job.wait()", subshells[0])
    kernel.wait_text(waits, "waits")
    attached = execute(kernel, "%ciao attach kept", subshells[1])
    main = kernel.execute(SILENT)
    kernel.wait_running(attached, place)
    kernel.wait_running(main, place)
    kernel.interrupt()
    for request in (attached, main):
        kernel.finish(request)
        assert request.error == "KeyboardInterrupt"
    assert "kept keeps running" in attached.text
    kernel.wait_text(main, "is stopped")
    assert place.judged()["kept"] == "Running"
    assert waits.reply is None, "a plain cell of a subshell is out of an interrupt's reach"
    kernel.run("import ciao_kernel as ciao; ciao.job('kept').stop()")
    assert kernel.finish(waits).error == "JobStopped"
    place.wait_empty()


HELD = """
import asyncio, os
from ciao_kernel.jupyter import shutdown
from ciao_kernel.session import session
async def deaf(self, *args, **options):
    open('begun', 'w').close()
    while not os.path.exists('go-on'):
        try:
            await asyncio.sleep(.02)
        except asyncio.CancelledError:
            open('cancelled', 'w').close()
session.Session.run, shutdown.MAX_SHUTDOWN_DELAY = deaf, 3600.0
"""


def test_a_deletion_that_waits_for_its_cell_holds_up_no_other_request(
    kernel: Kernel, place: Place, subshells: list[str]
) -> None:
    assert kernel.run(HELD).status == "ok"
    cell = execute(kernel, SILENT, subshells[0])
    kernel.wait((place.work / "begun").exists, "the cell to begin")
    deletion = kernel.send("delete_subshell_request", {"subshell_id": subshells[0]}, control=True)
    kernel.wait((place.work / "cancelled").exists, "the cancellation of the cell")
    idle = kernel.ask("delete_subshell_request", {"subshell_id": subshells[1]}, control=True)
    assert idle["status"] == "ok"
    listed = kernel.ask("list_subshell_request", {}, control=True)
    assert listed["subshell_id"] == [subshells[0]]
    assert deletion.reply is None
    assert cell.reply is None
    (place.work / "go-on").touch()
    kernel.wait(lambda: deletion.reply is not None, "the end of the deletion")
    assert deletion.reply is not None
    assert deletion.reply["content"]["status"] == "ok"
    assert kernel.ask("list_subshell_request", {}, control=True)["subshell_id"] == []


def test_a_shutdown_ends_the_jobs_of_all_shells(kernel: Kernel, place: Place) -> None:
    other = execute(kernel, SILENT, add_subshell(kernel))
    main = kernel.execute(SILENT)
    kernel.wait_running(other, place)
    kernel.wait_running(main, place)
    kernel.shutdown()
    place.wait_empty()
    assert sorted(place.judged().values()) == ["Stopped", "Stopped"]
