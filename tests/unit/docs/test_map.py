"""The map of docs/map.md against the modules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ciao_kernel.commands.verb_table import VERBS

ROOT = Path(__file__).resolve().parents[3]
CODE = ROOT / "ciao_kernel"
TEXT = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")
_SECTION = re.compile(r"  (\w[\w/]*?)/? ")
"""The first line of a section: a package or a module of ciao_kernel, indented by two spaces."""
_ROOM = re.compile(r"    (\w+)(/?) ")
"""The first line about a part of that package: a package in it, or a module of its own."""


def sections() -> dict[str, set[str]]:
    """The words of the map by the package or the module that they describe."""
    found: dict[str, set[str]] = {}
    drawing = TEXT.split("```")[1]
    section, own = "", set[str]()
    for line in drawing.partition("\nciao_kernel/\n")[2].splitlines():
        if not line.startswith("  "):
            break  # the folders beside ciao_kernel
        if match := _SECTION.match(line):
            section, own = match[1], found.setdefault(match[1], set())
        elif match := _ROOM.match(line):
            own = found.setdefault(f"{section}/{match[1]}" if match[2] else section, set())
        own.update(re.findall(r"\w+", line))
    return found


def is_named(module: str, words: dict[str, set[str]]) -> bool:
    """Whether the section of a module's package names it, in the singular or the plural."""
    of_it = [one for one in words if f"{module}/".startswith(f"{one}/")]
    name = module.rpartition("/")[2]
    return bool(of_it) and bool({name, f"{name}s"} & words[max(of_it, key=len)])


def modules() -> list[str]:
    """All modules, and the packages by the files that say what they are; no verbs."""
    paths = [path.relative_to(CODE).with_suffix("") for path in sorted(CODE.rglob("*.py"))]
    names = [(one.parent if one.name == "__init__" else one).as_posix() for one in paths]
    verbs = {f"commands/{verb}" for verb in VERBS}  # the map says: one file each
    return [one for one in names if one not in {".", "__main__", "backends", *verbs}]


@pytest.mark.parametrize("module", modules())
def test_the_map_names_each_module_where_its_package_is(module: str) -> None:
    assert is_named(module, sections())


def test_a_module_that_nobody_names_is_found() -> None:
    words = sections()
    assert len(words) > 20
    assert not is_named("kube/coffee", words)
    assert not is_named("kube/kaniko", words)  # of another package
    assert is_named("backends/kubernetes/states/status", words)
    assert not is_named("backends/kubernetes/apis/status", words)  # of another room
    assert not is_named("coffee", words)
