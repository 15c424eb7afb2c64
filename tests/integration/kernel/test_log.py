"""``%ciao log`` and ``--debug`` in a real kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.kernels import JOB, ROOT, Kernel, Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.kill_all()


def test_the_log_of_a_kernel(place: Place) -> None:
    kernel = Kernel(place)
    try:
        envvar = "%envvar=TOKEN=hunter2"
        assert kernel.run(f"{JOB}%name=first\n{envvar}\nprint('hunter3')\n").status == "ok"
        assert kernel.run(f"{JOB}%name=second\n1 / 0\n").status == "error"
        shown = kernel.run("%ciao log").text
        few = kernel.run("%ciao log --lines 1").text
        report = kernel.run("%ciao doctor --report").text
    finally:
        kernel.shutdown()
    lines = shown.splitlines()
    assert "first is submitted to local: tensorflow, 2 replicas" in shown
    assert any(line.endswith(": first: Succeeded") for line in lines)
    assert any(line.endswith(": second: Failed") for line in lines)
    assert few.splitlines() == lines[-1:]
    file = place.storage / "log" / "ciao.log"
    assert file.stat().st_mode & 0o777 == 0o600
    assert set(lines) <= set(file.read_text().splitlines())
    assert ": first: Succeeded" in report
    for text in (file.read_text(), shown, report):
        assert "hunter2" not in text
        assert "hunter3" not in text  # the program and its output have their own files


@pytest.mark.second("faults")
def test_a_debugged_kernel_writes_the_log_where_ipykernel_does(place: Place) -> None:
    spec = json.loads((ROOT / "kernelspec" / "kernel.json").read_text())
    heard = place.folder / "heard"
    command = ["/bin/sh", "-c", f'exec "$@" 2> {heard}', "sh"]
    ours = json.loads((place.kernels / "ciao" / "kernel.json").read_text())["argv"]
    place.add_spec("ciao-debug", {**spec, "argv": [*command, *ours, "--debug"]})
    kernel = Kernel(place, "ciao-debug")
    try:
        run = kernel.run(f"{JOB}%name=first\nprint('hello')\n")
    finally:
        kernel.shutdown()
    assert run.status == "ok"
    assert "is submitted to" not in run.text
    assert "first is submitted to local" in heard.read_text()


def test_a_password_in_a_misspelt_directive_is_in_no_output_and_no_log(place: Place) -> None:
    kernel = Kernel(place)
    lines = (
        "% envvar=TOKEN=hunter2",
        "%environment=TOKEN=hunter2",
        "\xa0%envvars TOKEN=hunter2",
        "%args=--password hunter2 '",
        "%files=API_KEY=hunter2",
        "%pushSecret=Hunter2/hunter2",
    )
    try:
        for line in lines:
            ran = kernel.run(f"{JOB}{line}\nprint(1)\n")
            assert ran.status == "error", line
            written = [ran.reply, *ran.of("stream", "error", "display_data")]
            assert "hunter2" not in repr(written), line
        shown = kernel.run("%ciao log").text + kernel.run("%ciao doctor --report").text
    finally:
        kernel.shutdown()
    assert "hunter2" not in shown + (place.storage / "log" / "ciao.log").read_text()
