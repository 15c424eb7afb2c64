"""``%lines``: a cell keeps both ends of a long log, and nothing else loses a line."""

from __future__ import annotations

import re
from typing import Any

from tests.helpers.colors import uncolored
from tests.helpers.kernels import Kernel

HEADER = "%framework=tensorflow\n%worker=1\n%name=long\n"
BODY = "for n in range(1000): print('step', n, 'loss', 1.5)\n"


def numbers(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"^\[worker-0\] step (\d+)", uncolored(text), re.M)]


def test_a_long_log_keeps_its_ends_and_every_line_stays_at_hand(shared: Kernel) -> None:
    done = shared.run(HEADER + "%plot=loss\n" + BODY)
    assert done.status == "ok"
    assert numbers(done.text) == [*range(200), *range(800, 1000)]
    (log,) = shared.place.job_folders()[0].glob("logs/worker-0.log")
    assert (
        "… 600 lines of worker-0 are left out here: `%ciao logs long --replica worker-0` shows "
        f"them; all are in {log} …\n[worker-0] step 800 "
    ) in uncolored(done.text)
    assert log.read_bytes().count(b"\n") == 1000
    counted = shared.run("print(len(_job.metrics['loss']['worker-0']))")
    assert counted.text == "1000\n", counted.of("error")
    for command in ("logs long --replica worker-0", "logs -f long", "attach long --lines all"):
        assert numbers(shared.run(f"%ciao {command}").text) == [*range(1000)], command
    attached = shared.run("%ciao attach long --lines 3")
    assert numbers(attached.text) == [0, 1, 2, 997, 998, 999]
    wrong = shared.run("%ciao attach long --lines few")
    assert wrong.error == "UsageError"


def test_the_header_says_how_many_lines_also_to_attach(shared: Kernel) -> None:
    done = shared.run(HEADER + "%lines=2\n" + BODY)
    assert numbers(done.text) == [0, 1, 998, 999]
    assert numbers(shared.run("%ciao attach").text) == [0, 1, 998, 999]


def test_a_job_whose_logs_are_removed_is_shown_whole(shared: Kernel) -> None:
    done = shared.run(HEADER + "%cleanPolicy=all\n" + BODY)
    assert numbers(done.text) == [*range(1000)]
    assert "left out" not in done.text


def test_lines_left_out_of_a_job_whose_logs_are_removed_are_said_to_be_lost(shared: Kernel) -> None:
    done = shared.run(HEADER + "%lines=2\n%cleanPolicy=all\n" + BODY)
    assert numbers(done.text) == [0, 1, 998, 999]
    assert "996 lines of worker-0 are left out here, and %cleanPolicy=all removes" in done.text
    assert "%ciao logs" not in done.text


def test_the_newest_lines_are_seen_while_the_job_runs(shared: Kernel) -> None:
    body = (
        "import os, time\nfor n in range(1000): print('step', n)\nprint('newest', flush=True)\n"
        "while not os.path.exists('go-on'): time.sleep(.02)\nraise ValueError('the end')\n"
    )
    request = shared.execute(HEADER + "%lines=20\n" + body)

    def live() -> bool:
        updates = request.of("update_display_data")
        return any(
            "[worker-0] newest" in one["data"].get("text/html", "")
            and "<table>" not in one["data"]["text/html"]
            for one in updates
        )

    shared.wait(live, "the newest line")
    assert "newest" not in request.text
    (shared.place.job_folders()[0] / "work" / "go-on").touch()
    done = shared.finish(request)
    assert done.error == "JobFailed"
    assert numbers(done.text)[:20] == [*range(20)]
    assert "[worker-0] newest\n" in uncolored(done.text)


def test_a_cell_names_the_replicas_that_its_success_has_stopped(start_kernel: Any) -> None:
    kernel = start_kernel(env={"CIAO_LINGER": "1"})
    body = (
        "import os, time\nprint('ready', flush=True)\n"
        "if os.environ['CIAO_REPLICA'] == 'worker-1': time.sleep(600)\n"
    )
    done = kernel.run("%framework=tensorflow\n%worker=2\n" + body)
    assert done.status == "ok"
    assert uncolored(done.text).splitlines()[-1] == (
        "Succeeded with worker-0; worker-1 was still at work and was stopped (the setting linger "
        "gives others more time)."
    )
