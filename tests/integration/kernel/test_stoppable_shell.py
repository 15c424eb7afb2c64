"""An interrupt stops a cell also if it comes while IPython handles the cell, before its code."""

from __future__ import annotations

import pytest

from tests.helpers.kernels import JOB, Kernel, Place, Request

PRESS = """
import signal

def press(*_):
    get_ipython().events.unregister(EVENT, press)
    signal.raise_signal(signal.SIGINT)

get_ipython().events.register(EVENT, press)
"""
"""As pressing the stop button at this moment of the next cell does."""

AWAITING = "import asyncio; await asyncio.sleep(600); print('ran')"

WITHOUT_LINE = """
code = compile("raise KeyboardInterrupt", "<code without lines>", "exec")
exec(code.replace(co_linetable=bytes([0xF8 | 7] * (len(code.co_code) // 16 + 1))))
"""
"""Each entry of the table says of eight instructions that they have no line: see
https://github.com/python/cpython/blob/3.11/Objects/locations.md"""


@pytest.fixture
def kernel(kernel_of_module: Kernel) -> Kernel:
    return kernel_of_module


def interrupted(request: Request) -> bool:
    enames = [error["ename"] for error in request.of("error")]
    return (request.status, enames) == ("error", ["KeyboardInterrupt"])


@pytest.mark.stands_for("oldest")
@pytest.mark.parametrize("event", ["pre_execute", "pre_run_cell"])
def test_before_the_cell(kernel: Kernel, place: Place, event: str) -> None:
    for cell in ("print('ran')", JOB + "print('ran')"):
        before = len(place.job_folders())
        assert kernel.run(PRESS.replace("EVENT", repr(event))).status == "ok"
        request = kernel.run(cell)
        assert interrupted(request)
        assert request.text == ""
        assert len(place.job_folders()) == before
        assert kernel.run(cell).status == "ok"


@pytest.mark.parametrize("event", ["pre_execute", "pre_run_cell"])
def test_before_a_cell_that_awaits(kernel: Kernel, event: str) -> None:
    kernel.run(PRESS.replace("EVENT", repr(event)))
    assert kernel.run(AWAITING).error == "CancelledError"  # as while it awaits
    raising = PRESS.replace("signal.raise_signal(signal.SIGINT)", "raise KeyboardInterrupt")
    kernel.run(raising.replace("EVENT", repr(event)))
    assert interrupted(kernel.run(AWAITING))
    assert kernel.run(AWAITING.replace("600", "0")).text == "ran\n"


def test_before_a_cell_of_a_thread(kernel: Kernel) -> None:
    raising = PRESS.replace("signal.raise_signal(signal.SIGINT)", "raise KeyboardInterrupt")
    request = kernel.run(
        raising.replace("EVENT", "'pre_run_cell'") + "import threading\n"
        "thread = threading.Thread(target=get_ipython().run_cell, args=['1'])\n"
        "thread.start(); thread.join()"
    )
    assert [error["ename"] for error in request.of("error")] == ["KeyboardInterrupt"]


def test_an_error_before_the_cell_is_shown_and_the_cell_runs(kernel: Kernel) -> None:
    kernel.run(
        "def broken():\n"
        "    get_ipython().events.unregister('pre_execute', broken)\n    1 / 0\n"
        "get_ipython().events.register('pre_execute', broken)"
    )
    request = kernel.run("print('ran')")
    assert request.status == "ok"
    assert [error["ename"] for error in request.of("error")] == ["ZeroDivisionError"]
    assert "Error in callback <function broken" in request.text
    assert "ran" in request.text


@pytest.mark.stands_for("oldest")
def test_at_an_instruction_without_a_line(kernel: Kernel) -> None:
    request = kernel.run(WITHOUT_LINE)
    assert interrupted(request)
    assert request.text == ""


def test_in_the_context_of_another_error(kernel: Kernel) -> None:
    code = "\n    ".join(["try:", *WITHOUT_LINE.strip().splitlines()])
    request = kernel.run(f"{code}\nfinally:\n    1 / 0")
    assert [error["ename"] for error in request.of("error")] == ["ZeroDivisionError"]
    assert "KeyboardInterrupt" in "\n".join(request.of("error")[0]["traceback"])
    assert request.text == ""


def test_an_error_that_cannot_be_changed_is_shown(kernel: Kernel) -> None:
    request = kernel.run(
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\n"
        "class Bad(Exception): code: int\nraise Bad(3)"
    )
    assert [error["ename"] for error in request.of("error")] == ["Bad"]


def test_the_class_of_the_shell_can_be_changed(kernel: Kernel) -> None:
    kernel.run(
        "shell = type(get_ipython()); usual = shell.showtraceback\n"
        "shell.showtraceback = lambda *_, **__: print('other words')"
    )
    request = kernel.run("1 / 0")
    assert "other words" in request.text
    assert not request.of("error")
    kernel.run("shell.showtraceback = usual")
    assert kernel.run("1 / 0").of("error")
