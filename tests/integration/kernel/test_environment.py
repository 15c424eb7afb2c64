"""Variables that every replica has."""

from __future__ import annotations

from typing import Any

import pytest

SEGFAULT = "%framework=tensorflow\nimport ctypes\ndef crash():\n    ctypes.string_at(0)\ncrash()\n"
SHOW = (
    "import os\n"
    "print([os.environ[one] for one in ('PYTHONFAULTHANDLER', 'TF_CPP_MIN_LOG_LEVEL')])\n"
)


@pytest.fixture(autouse=True)
def _no_values_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX sets this variable in the process that imports it, which other tests do."""
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)


def test_a_segmentation_fault_shows_the_cells_line(kernel: Any) -> None:
    done = kernel.run(SEGFAULT)
    assert done.error == "JobFailed"
    assert "SIGSEGV" in str(done.of("error"))
    assert "Fatal Python error: Segmentation fault" in done.text
    assert "line 4 in crash" in done.text


def test_the_users_own_value_counts(kernel: Any) -> None:
    assert "['1', '2']\n" in kernel.run("%framework=tensorflow\n" + SHOW).text
    cell = "%framework=tensorflow\n%envvar=TF_CPP_MIN_LOG_LEVEL=0 PYTHONFAULTHANDLER=\n" + SHOW
    assert "['', '0']\n" in kernel.run(cell).text
    kernel.run("%env TF_CPP_MIN_LOG_LEVEL=1")
    assert "['1', '1']\n" in kernel.run("%framework=tensorflow\n" + SHOW).text


def test_the_log_is_no_terminal_of_the_notebook(kernel: Any) -> None:
    """Programs that find ipykernel's variables write colours and bars as to a terminal."""
    names = ["TERM", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "PAGER", "GIT_PAGER"]
    show = f"import os\nprint([one for one in {names} if one in os.environ])\n"
    assert kernel.run(show).text == f"{names}\n"
    assert "[]\n" in kernel.run("%framework=tensorflow\n" + show).text
    cell = "%framework=tensorflow\n%envvar=FORCE_COLOR=1\n" + show
    assert "['FORCE_COLOR']\n" in kernel.run(cell).text
