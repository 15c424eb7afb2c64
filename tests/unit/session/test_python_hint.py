"""A replica whose Python is too old for ciao's modules: the remedy names the version."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status
from ciao_kernel.session.failure.evidence import Failure
from ciao_kernel.session.failure.explanation import explain
from ciao_kernel.session.failure.python_hint import python_hint

WORKER = Replica("worker", 0)
JOB = Job("mine", "fake", "python", (WORKER,), 1.0, "/work", "/work/ciao_cell.py")
POD = replace(JOB, kind_of_place="namespace", place="team")
WALRUS = "    if suffix := known.get(name):\n               ^\nSyntaxError: invalid syntax"
MATCH = "    match value:\n              ^\nSyntaxError: invalid syntax"
FUTURE = (
    "    from __future__ import annotations\n"
    "    ^\nSyntaxError: future feature annotations is not defined"
)


def said(file: str, error: str) -> str:
    """The traceback of a program with a SyntaxError, or of one that imports such a file."""
    if file == "<string>":
        return f'  File "{file}", line 7\n{error}'
    return (
        "Traceback (most recent call last):\n"
        '  File "/work/ciao_cell.py", line 1, in <module>\n    import ciao_input\n'
        f'  File "{file}", line 7\n{error}'
    )


@pytest.mark.parametrize(
    ("file", "error", "version"),
    [
        ("/work/.ciao/ciao_debugger.py", WALRUS, "3.8"),
        ("/work/.ciao/ciao_debugger.py", MATCH, "3.8"),
        ("/work/.ciao/sitecustomize.py", "SyntaxError: invalid syntax", "3.8"),
        ("/work/ciao_input.py", WALRUS, "3.8"),
        ("/work/ciao_input.py", FUTURE, "3.8"),
        ("<string>", WALRUS, "3.8"),
        ("<string>", FUTURE, "3.8"),
        ("/work/ciao_cell.py", FUTURE, "3.8"),  # no newer Python lacks it
        ("/work/ciao_warm_agent.py", WALRUS, "3.9"),
        ("/work/ciao_input.py", MATCH, ""),  # a function of the notebook
        ("/work/ciao_cell.py", MATCH, ""),
        ("/work/ciao_queue.py", WALRUS, ""),  # the user's queue.py
        ("/work/helper.py", WALRUS, ""),
        ("/work/.ciao/ciao_debugger.py", "    x\nValueError: x", ""),
    ],
)
def test_a_syntax_error_tells_the_version(file: str, error: str, version: str) -> None:
    lines = said(file, error).split("\n")
    hint = python_hint(lines, lines[-1], JOB)
    assert (f"Python is older than {version}, which" in hint) == bool(version)
    assert bool(hint) == bool(version)
    assert ("%python" in hint, "%image" in python_hint(lines, lines[-1], POD)) == (
        bool(version),
    ) * 2


def test_a_log_without_a_syntax_error_tells_nothing() -> None:
    assert python_hint([], "", JOB) == ""
    assert python_hint(['  File "/work/.ciao/ciao_debugger.py", line 1', "x"], "x", JOB) == ""


def remedy(log: str) -> str:
    """The remedy for a job with a log."""
    status = Status(State.FAILED, (ReplicaStatus(WORKER, State.FAILED, 0.0, 1),), "")
    return explain(Failure(POD, status, {WORKER: log.encode()}, Path("/nowhere"))).hint


TRACEBACK = "Traceback (most recent call last):\n"
CELL = TRACEBACK + '  File "/work/ciao_cell.py", line 1, in <module>\n    run()\n'
EVAL = '  File "<string>", line 1\n    n := 3\n      ^^\nSyntaxError: invalid syntax\n'
AGENT = f'  File "/work/.ciao/ciao_debugger.py", line 7\n{WALRUS}\n'
OTHER = "During handling of the above exception, another exception occurred:"


@pytest.mark.parametrize(
    "log",
    [
        CELL + EVAL,
        CELL.replace("ciao_cell", "helper") + EVAL,
        EVAL.replace("invalid syntax", "invalid syntax. Perhaps you forgot a comma?"),
        f"{CELL}{AGENT}\n{OTHER}\n\n{CELL}ValueError: x\n",
        f"{CELL}ValueError: x\nSyntaxError: invalid syntax\n",
        f"{EVAL}tried another way\n",
        # The cell's own := is no sign of it, but that of the file with the error.
        f'{CELL.replace("run()", "run(n := 1)")}  File "/work/ciao_input.py", line 7\n{MATCH}\n',
    ],
)
def test_a_syntax_error_of_the_program_is_no_old_python(log: str) -> None:
    assert "older" not in remedy(log)


@pytest.mark.parametrize(
    "log",
    [
        f"step 1\n{AGENT}",
        f"step 1\n{EVAL}",
        f'{TRACEBACK}  File "<string>", line 1, in <module>\n{EVAL}',
        "".join(f"[1] {line}\n" for line in EVAL.splitlines()),
    ],
)
def test_a_program_of_ciao_tells_of_an_old_python(log: str) -> None:
    assert "older than 3.8" in remedy(log)


def test_the_error_of_a_job_has_the_remedy() -> None:
    hint = remedy(said("/work/.ciao/ciao_debugger.py", WALRUS))
    assert hint.startswith("The image's Python is older than 3.8")
