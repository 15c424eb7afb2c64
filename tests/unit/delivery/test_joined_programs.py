"""The programs that are made of parts: as one text each has all names, and none twice."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterator

import pytest

from ciao_kernel.delivery import replica_program
from ciao_kernel.delivery.inspection import program_texts
from ciao_kernel.delivery.output import keeper_program
from ciao_kernel.delivery.warm import agent_program, zygote_program

PROGRAMS = {
    "replica_files": replica_program.text(),
    "output_keeper": keeper_program.text(),
    "agent": agent_program.text(),
    "zygote": zygote_program.text(),
    **{name: program_texts.text(name) for name in program_texts.PROGRAMS},
}


def own_names(tree: ast.Module) -> Iterator[str]:
    """The names that the text itself defines for all of its parts."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            for one in node.targets:
                yield from (part.id for part in ast.walk(one) if isinstance(part, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def bound_names(tree: ast.Module) -> Iterator[str]:
    """All names that are bound anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_has_all_names_and_none_twice(program: str) -> None:
    tree = ast.parse(PROGRAMS[program], feature_version=(3, 8))
    assert "from ciao_kernel" not in PROGRAMS[program].replace("    from ciao_kernel", "")
    assert [name for name, count in Counter(own_names(tree)).items() if count > 1] == []
    known = {*bound_names(tree), *vars(builtins), "__builtins__", "__file__", "__name__"}
    used = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}
    assert used - known == set()
