"""What the kernel and the IPython extension ask about a cell."""

from __future__ import annotations

import asyncio
import functools
import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.errors import UsageError
from ciao_kernel.jupyter import cells, messages, typing_help
from ciao_kernel.model import Job, State, Status
from ciao_kernel.session.left_running import LeftRunning
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
        ("%worker?", ["magics", "worker"]),
        (" ?%clean-policy\n", ["magics", "clean-policy"]),
        ("%worker??", ["magics", "worker"]),
        ("%time?", None),
        ("?%no_such_directive", None),
        ("%worker?\nx", None),
        ("%framework=tensorflow\n%worker?", None),
    ],
)
def test_a_cell_that_is_one_command(code: str, words: list[str] | None) -> None:
    arguments = cells.command(code)
    assert (None if arguments is None else cells.split(arguments)) == words


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("%ciao at|", ("%ciao attach", "")),
        ("x = 1\n  %ciao des|cribe night", ("x = 1\n  %ciao describe", " night")),
        ("%ciao x|", None),
        ("%ciao attach |", None),
        ("%ciao attach n|", None),
        ("x = 7 %ciao at|", None),
    ],
)
def test_tab_completes_a_verb(
    marked: str,
    expected: tuple[str, str] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # without the jobs of this user
    cursor, code = marked.index("|"), marked.replace("|", "")
    found = typing_help.complete(code, cursor, {})
    if expected is None:
        assert found is None or not found.matches
        return
    assert found is not None
    (match,) = found.matches
    assert (code[: found.start] + match, code[found.end :]) == expected


def test_tab_offers_all_verbs() -> None:
    found = typing_help.complete("%ciao ", 6, {})
    assert found is not None
    assert {"run", "jobs", "attach"} <= set(found.matches)


@pytest.mark.parametrize(
    ("start", "blank", "size"),
    [("%ciao", " ", 800), ("%ciao jobs", " ", 32_000), ("%ciao", "\n", 32_000)],
)
def test_the_work_grows_as_the_cell_does(start: str, blank: str, size: int) -> None:
    assert is_linear(lambda size: cells.command(start + blank * size + "x\nx"), size)
    assert is_linear(lambda size: cells.command(start + blank * size + "\nx"), size)


def test_the_work_for_a_question_grows_as_the_cell_does() -> None:
    assert is_linear(lambda size: cells.command("%" + "w" * size + "?" + " " * size + "x"), 32_000)


@pytest.mark.parametrize(
    ("words", "later"),
    [
        ([], 1),
        (["config"], 1),
        (["no-such-verb"], 1),
        (["jobs"], 0),  # they are in the list
        (["describe", "other"], 0),  # they were told of beside the command
    ],
)
def test_jobs_of_earlier_kernels_are_reported_beside_commands_that_ask_backends(
    words: list[str], later: int
) -> None:
    class Known:
        last = None
        started: frozenset[str] = frozenset()

        async def jobs(self, _: object) -> list[tuple[Job, Status]]:
            job = Job("mine", "kubernetes", "tensorflow", (), 0.0, owner="ada@laptop kernel x")
            return [(job, Status(State.RUNNING, ()))]

        def owns(self, _: Job) -> bool:
            return True

    class Shown(list[Any]):
        show = list.append

    left, session = LeftRunning("ada@laptop kernel 17"), Known()
    beside, afterwards = Shown(), Shown()

    async def main() -> None:
        async with cells.reported_beside(words, left, session, beside):  # type: ignore[arg-type]
            await asyncio.sleep(0.01)
        async with left.reported(session, afterwards):  # type: ignore[arg-type]
            await asyncio.sleep(0.01)

    asyncio.run(main())
    assert len(beside) == (words[:1] == ["describe"])
    assert len(afterwards) == later


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "in_terminal", "in_notebook"),
    [
        ({}, True, True),
        ({"NO_COLOR": "1"}, False, True),
        ({"TERM": "dumb"}, False, True),
        ({"CIAO_COLOR": "never"}, False, False),
        ({"CIAO_COLOR": "always", "NO_COLOR": "1"}, True, True),
        # A wrong setting is the error to show.
        ({"CIAO_COLOR": "sometimes"}, True, True),
        ({"CIAO_COLOR": "sometimes", "NO_COLOR": "1"}, False, True),
        ({"CIAO_LINES": "many", "CIAO_COLOR": "never"}, False, False),
    ],
)
def test_errors_have_the_colours_that_the_user_wants(
    variables: dict[str, str],
    in_terminal: bool,
    in_notebook: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"NO_COLOR": "", "TERM": "xterm", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", Terminal())
    unused = functools.cache(lambda: SimpleNamespace(settings=Settings()))
    monkeypatch.setattr(cells, "_session", unused)  # that of another test may exist
    error = UsageError("the word is wrong.", "Write another one.")
    cells.hide_frames(error)
    assert ("\x1b" in "".join(error.__dict__["_render_traceback_"]())) == in_terminal
    shown = messages.ciao_error(error, color=cells.colors_errors())
    assert ("\x1b" in "".join(shown["traceback"])) == in_notebook
    assert "Write another one." in shown["traceback"]
    assert not unused.cache_info().currsize  # an error opens no session


def test_a_setting_of_this_kernel_decides_on_the_colours_of_its_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = functools.cache(lambda: SimpleNamespace(settings=Settings(color="never")))
    opened()
    monkeypatch.setattr(cells, "_session", opened)
    assert not cells.colors_errors()
