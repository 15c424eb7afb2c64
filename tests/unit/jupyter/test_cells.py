"""What the kernel and the IPython extension ask about a cell."""

from __future__ import annotations

import pytest

from ciao_kernel.jupyter import cells
from tests.helpers.growth import is_linear


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("%ciao", []),
        ("\n %ciao \t\r\n\n", []),
        ("%ciao jobs --all\n", ["jobs", "--all"]),
        ("%ciao \tlogs 'my job' \n ", ["logs", "my job"]),
        ("%ciao it's", ["it's"]),
        ("%ciao jobs\nx", None),
        ("%ciao  \nx", None),
        ("%ciaojobs", None),
        ("%%ciao jobs", None),
        ("x\n%ciao jobs", None),
    ],
)
def test_a_cell_that_is_one_command(code: str, words: list[str] | None) -> None:
    arguments = cells.command(code)
    assert (None if arguments is None else cells.split(arguments)) == words


@pytest.mark.parametrize(
    ("start", "blank", "size"),
    [("%ciao", " ", 800), ("%ciao jobs", " ", 32_000), ("%ciao", "\n", 32_000)],
)
def test_the_work_grows_as_the_cell_does(start: str, blank: str, size: int) -> None:
    assert is_linear(lambda size: cells.command(start + blank * size + "x\nx"), size)
    assert is_linear(lambda size: cells.command(start + blank * size + "\nx"), size)
