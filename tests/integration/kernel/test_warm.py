"""Warm replicas in a real kernel: edited cells, `_job`, and the end of the kernel."""

from __future__ import annotations

import re
from typing import Any

from tests.helpers.kernels import Place

HEADER = "%framework=python\n%worker=2\n%warm\n%name=warm\n"


def test_an_edited_cell_runs_in_the_replicas_of_the_kernel(kernel: Any, place: Place) -> None:
    zygotes = []
    for number in (1, 2):
        cell = kernel.run(f"{HEADER}import os\nprint('zygote', os.getppid(), 'edit {number}')")
        assert cell.status == "ok"
        assert "\x1e" not in cell.text
        assert cell.text.count(f"edit {number}") == 2
        zygotes.append(sorted(re.findall(r"zygote (\d+)", cell.text)))
        shown = kernel.run("print(_job.run, _job.name, _job.state, _job.logs('worker-1'))").text
        assert shown.startswith(f"{number} warm Succeeded zygote")
        assert f"edit {number}" in shown
        assert "logs: " in cell.tables[-1]
        assert kernel.run("print(_job.replicas[1].log[-12:])").text == "worker-1.log\n"
    assert zygotes[0] == zygotes[1]
    wrote = kernel.run(
        f"{HEADER}%output=model/\nimport os\nos.makedirs('model', exist_ok=True)\n"
        "open('model/net', 'w').close()"
    )
    assert "files of %output: model/net" in wrote.text
    assert kernel.run("print((_job.folder / 'model/net').exists())").text == "True\n"
    listed = kernel.run("%ciao warm").text
    assert re.search(r"^warm +2 +0 .* 3 .* idle, ends in ", listed, re.MULTILINE)
    idle = str(kernel.run("%ciao stacks").of("error"))
    assert "no job runs." in idle
    assert "The replicas of warm wait for their next run." in idle
    waits = "import threading\nprint('waits', flush=True)\nthreading.Event().wait()"
    kernel.run(f"%framework=python\n%worker=1\n%name=other\n%detach\n{waits}")
    kernel.run("while not _job.logs('worker-0'): pass")
    assert "where the replicas of other stand" in kernel.run("%ciao stacks").text
    kernel.run("%ciao delete other")
    failed = kernel.run(f"{HEADER}1 / 0")
    assert "ZeroDivisionError" in str(failed.of("error"))
    again = kernel.run("_job.wait()")  # the run is over, and its replicas wait
    assert again.error == "JobFailed"
    assert "ZeroDivisionError" in str(again.of("error"))
    assert kernel.run("print(_job.wait(check=False), _job.state)").text == "Failed Failed\n"
    kernel.run(f"{HEADER}print('well')")
    assert kernel.run("print(_job.wait(), _job.state)").text == "Succeeded Succeeded\n"
    kernel.shutdown()
    place.wait_empty()
