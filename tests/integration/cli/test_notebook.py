"""``%ciao VERB`` in a notebook writes what ``ciao VERB`` writes in a terminal."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.integration.cli.command import CIAO, QUICK, User, still

# The way of one `%ciao …` line through the kernel, without the kernel around it.
NOTEBOOK = """
import asyncio, sys
from ciao_kernel.jupyter import cells
from ciao_kernel.display.errors import uncolored
from ciao_kernel.errors import CiaoError
words = cells.split(sys.argv[1])
try:
    asyncio.run(cells.run_command(words, cells.session(), None, sys.stdout.write))
except CiaoError as error:
    print("\\n".join(uncolored(error)))
"""


def notebook(ciao: User, line: str) -> str:
    python = [sys.executable, "-c", NOTEBOOK, line]
    done = subprocess.run(python, cwd=ciao.folder, env=ciao.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def terminal(ciao: User, line: str) -> str:
    done = ciao.shell(f"{CIAO} {line}")
    return done.out + done.err


def same(text: str) -> str:
    """Without what may differ: how the command is typed, this Python's name, the room on disk."""
    text = re.sub(r"bin/python[0-9.]*", "bin/python", text.replace("%ciao", "ciao"))
    return still(text)


@pytest.mark.parametrize(
    "line",
    [
        "describe mnist",
        "logs mnist --tail 1",
        "logs mnst",
        "logs mnist --replica ps",
        "config -o json",
        "config",
        "config colr=x",
        "doctor",
        "magics",
        "magics worker",
        "delete",
        "dele",
        "jobs --runing",
        "jobs --help",
        "run --help",
    ],
)
def test_the_words_are_the_same(ciao: User, line: str) -> None:
    if "mn" in line:
        ciao.detach("mnist", QUICK)
        ciao.settle("mnist")
        ciao.nothing_left()  # while the supervisor is there, it is told of
    text = terminal(ciao, line)
    assert text
    assert same(notebook(ciao, line)) == same(text)


def test_a_setting_of_a_notebook_is_the_kernels_alone(ciao: User) -> None:
    assert "set for this kernel" in notebook(ciao, "config color=never")
    assert not ciao.config.exists()
    assert f"saved in {ciao.config}" in notebook(ciao, "config color=never --save")
    assert ciao.config.read_text() == 'color = "never"\n'
