"""Programs in any language: what becomes of the cell's text and of the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.delivery.input import imports
from ciao_kernel.errors import SourceError, SpecError, UsageError
from ciao_kernel.frameworks.custom import Custom
from ciao_kernel.frameworks.python import Python
from ciao_kernel.magics import parse, render
from ciao_kernel.magics.header import Style
from ciao_kernel.magics.help import completeness
from ciao_kernel.magics.overrides import check_command
from ciao_kernel.magics.parse import Parsed
from ciao_kernel.magics.scanned_cell import scan
from ciao_kernel.model import Address, Artifact, Owner, Replica, Source, SourceFile
from ciao_kernel.plugins import AnyLanguage, OperatorKind
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session

REGISTRY = Registry(third_party={})
ARTIFACT = Artifact(Source(SourceFile("ciao_cell", b"x")), "", "/job")
HEADER = "%framework=custom\n%command=prog {cell}\n"


def parsed(text: str, **options: Any) -> Parsed:
    return parse.parse(text, REGISTRY.table, **options)


def command(line: str) -> tuple[str, ...]:
    spec = Custom().complete(parsed(f"%framework=custom\n{line}\nx").spec)
    return Custom().command(spec, ARTIFACT)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("%command=prog --data {cell}", ("prog", "--data", "/job/ciao_cell")),
        ("%command='prog --data {cell}'", ("prog", "--data", "/job/ciao_cell")),
        ("%command=prog 'a b' --in={cell}", ("prog", "a b", "--in=/job/ciao_cell")),
        ("%command=prog", ("prog",)),
        ("%command=prog $HOME '*' ;%args=--lr 2", ("prog", "$HOME", "*", "--lr", "2")),
        ("%command=\"'my prog'\"", ("my prog",)),
        ("%command='$x'", ("$x",)),
    ],
)
def test_the_command_is_split_as_in_a_shell_and_no_shell_runs_it(
    line: str, words: tuple[str, ...]
) -> None:
    assert command(line) == words
    spec = parsed(f"%framework=custom\n{line}\nx").spec
    again = parsed(render.render(spec, REGISTRY.table) + "\nx").spec
    assert again.command == spec.command


def test_each_replica_has_the_variables_of_plain_python() -> None:
    spec = Custom().complete(parsed(HEADER + "%worker=3\nx").spec)
    addresses = {one: Address("127.0.0.1", 20000 + one.index) for one in spec.replicas()}
    last = Replica("worker", 2)
    found = Custom().environment(spec, last, addresses)
    assert found == Python().environment(spec, last, addresses)
    assert (found["RANK"], found["WORLD_SIZE"]) == ("2", "3")
    assert Custom().decider(spec) is None


def test_it_has_no_kind_of_the_operator() -> None:
    assert isinstance(Custom(), AnyLanguage)
    assert not isinstance(Custom(), OperatorKind)
    assert {"custom"} == REGISTRY.table.names.any_language


def test_a_header_without_workers_means_one() -> None:
    assert Custom().complete(parsed(HEADER + "x").spec).replicas() == (Replica("worker", 0),)


@pytest.mark.parametrize(
    ("lines", "directive", "message"),
    [
        ("%framework=custom", "framework", "needs the command"),
        ("%framework=custom\n%command={cell} x", "command", "has no program"),
        (HEADER + "%worker=0", "worker", "nothing would run"),
        (HEADER + "%runner=torchrun", "runner", "this is a custom job"),
        (HEADER + "%runner=python", "runner", "is for programs in Python"),
        (HEADER + "%nprocPerNode=2", "nprocPerNode", "are for torchrun"),
        (HEADER + "%python=python3", "python", "is for programs in Python"),
        (HEADER + "%input=lr", "input", "is for programs in Python"),
        (HEADER + "%packages=numpy", "packages", "is for programs in Python"),
        (HEADER + "%requirements=a.txt", "requirements", "is for programs in Python"),
        (HEADER + "%condaEnv=a.yml", "condaEnv", "is for programs in Python"),
        (HEADER + "%s2iBuilder=a/b", "s2iBuilder", "is for programs in Python"),
        (HEADER + "%successPolicy=worker0", "successPolicy", "all its workers do"),
    ],
)
def test_jobs_that_cannot_be(lines: str, directive: str, message: str) -> None:
    found = parsed(lines + "\nx")
    with pytest.raises(SpecError) as caught:
        Custom().complete(found.spec)
    located = found.locate(caught.value)
    assert located.line  # type: ignore[attr-defined]
    assert located.text.startswith(f"%{directive}=")  # type: ignore[attr-defined]
    assert message in located.message
    assert located.hint


def test_another_framework_has_no_command() -> None:
    session = Session(REGISTRY, Owner("ada"), Settings())
    with pytest.raises(UsageError) as caught:
        session.parse("%framework=pytorch\n%command=prog {cell}\nx = 1")
    assert caught.value.line == 2  # type: ignore[attr-defined]
    assert "pytorch runs the program itself" in caught.value.message
    assert "%framework=custom" in caught.value.hint
    check_command(Custom().complete(parsed(HEADER + "x").spec), Custom())


@pytest.mark.parametrize(
    "text",
    [
        "layer { name: 'a' }\n",
        "#include <stdio.h>\nint main() { return 0; }\n",
        "% a comment of TeX\n!x\n%%MatrixMarket matrix\n",
        "import os\n%worker=9\n!ls\n",
        "(defun f (x)\r\n  x)\r\n",
        "# -*- coding: latin-1 -*-\nx\n",
    ],
)
def test_the_text_below_the_header_arrives_as_it_is(text: str) -> None:
    found = parsed(f"# mine\n%framework=custom\n%command=prog {{cell}}\n{text}")
    assert found.code == "\n\n\n" + text
    assert found.spec.groups == ()


def test_a_line_for_ipython_within_the_header_is_refused() -> None:
    with pytest.raises(SourceError) as caught:
        parsed("%framework=custom\n!ls\n%command=prog\nx")
    assert caught.value.line == 2


def test_a_file_is_delivered_as_it_is() -> None:
    text = "#%framework=custom\n#%command=prog {cell}\nprint 'x'\n"
    assert parsed(text, style=Style.FILE).code == text


def test_a_framework_of_the_settings_counts_too() -> None:
    found = parsed("%command=prog\n(x\n", default_framework="custom")
    assert found.code == "\n(x\n"


def test_a_cell_without_text_is_refused() -> None:
    with pytest.raises(SourceError) as caught:
        parsed(HEADER + " \n")
    assert "no text" in caught.value.message


def test_the_variable_cell_of_a_notebook_is_not_meant() -> None:
    names = {"cell": 1, "lr": 2}
    found = parsed("%framework=custom\n%command=prog {cell} {lr}\nx", variables=names)
    assert found.spec.command == ("prog", "{cell}", "2")
    assert parsed(HEADER + "x", variables={}).notes == ()


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (HEADER, "incomplete"),
        (HEADER + "layer {", "incomplete"),
        (HEADER + "layer {\n", "complete"),
        ("%framework=custom\n%command\nx", "invalid"),
    ],
)
def test_an_empty_line_ends_the_text_in_a_console(text: str, status: str) -> None:
    answer = completeness.answer(scan(text, REGISTRY.table), REGISTRY.table)
    assert answer == {"status": status, "indent": ""}


def test_no_module_is_taken_along(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("x = 1")
    code = "import helper\n"
    assert [one.path for one in imports.gather(code, tmp_path).all()] == [
        "ciao_cell.py",
        "helper.py",
    ]
    found = imports.gather(code, tmp_path, entry=imports.TEXT, python=False)
    assert [one.path for one in found.all()] == ["ciao_cell"]
    assert not found.imports
