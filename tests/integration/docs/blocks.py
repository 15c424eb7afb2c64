"""The code blocks of the documentation, and what a comment above each says of it.

::

    <!-- block: file train.py -->           it is that file, for the blocks below it
    <!-- block: output -->                  what the block before it writes; … stands for any text
    <!-- block: fails DirectiveError -->    it ends with that error (of sh: with that exit code)
    <!-- block: cluster: REASON -->         tests/e2e/docs runs it on a cluster; here it is read
    <!-- block: dry run: REASON -->         the same, but the cluster is only asked to take it
    <!-- block: by tests/FILE.py -->        that test runs it, which it reads from the page
    <!-- block: not run: REASON -->         it is only looked at

Without a comment a block is run: here, or by tests/e2e/docs if it is for a cluster by what it is
(:func:`for_cluster`).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.colors import uncolored

ROOT = Path(__file__).resolve().parents[3]
PAGES = (
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "builders" / "README.md",
    *sorted((ROOT / "deploy").glob("*/README.md")),
)
LANGUAGES = frozenset({"python", "sh", "yaml", "toml", "ini", "json", "dockerfile", "text"})
COMMANDS = frozenset({"ciao", "docker", "kubectl", "make", "pip", "python"})
"""Programs with which an indented block of commands begins."""
_ELSEWHERE = re.compile(r"kubectl |docker |python -m tests\.cluster |make cluster(?!-down)")
_FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,})(?P<language>.*)$")
_TAG = re.compile(r"\[[a-z]+-\d+\]")
_ITEM = re.compile(r"\s*(?:[-*]|\d\.) ")
_COMMENT = re.compile(r"^<!-- block: (?P<mark>.*) -->$")
_MARK = re.compile(r"(?P<kind>file|fails|by) (?P<word>\S+)|(?P<output>output)"
                   r"|(?P<left>cluster|dry run|not run): (?P<reason>.{8,})")  # fmt: skip


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: str
    line: int
    language: str
    text: str
    kind: str = "run"
    """``run``, ``file``, ``fails``, ``output``, ``cluster``, ``dry run``, ``by`` or ``not run``."""
    word: str = ""
    """The file's name, how it fails, or the test that runs it."""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


class Unclear(AssertionError):
    """A block that nobody could run: its language or its comment is not known."""


def for_cluster(block: Block) -> bool:
    """Whether tests/e2e/docs runs a block, or some of its lines."""
    if block.kind in ("cluster", "dry run"):
        return True
    if block.kind != "run":
        return False
    if block.language == "yaml":
        return re.search(r"^(apiVersion|resources):", block.text, re.MULTILINE) is not None
    return block.language == "sh" and any(map(line_for_cluster, command_lines(block.text)))


def line_for_cluster(line: str) -> bool:
    """Whether a command needs a cluster by what it is."""
    return _ELSEWHERE.match(line) is not None


def command_lines(text: str) -> list[str]:
    """The commands of a block, each in one line."""
    joined = text.replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip() and line[0] != "#"]


def read(page: Path) -> list[Block]:
    """The blocks of a page; raises Unclear."""
    name = page.relative_to(ROOT).as_posix()
    return list(_blocks(page.read_text(encoding="utf-8").splitlines(), name))


def _blocks(lines: list[str], page: str) -> Iterator[Block]:
    mark, number, indent = "", 0, 4
    while number < len(lines):
        line, start = lines[number], number + 1
        number += 1
        if comment := _COMMENT.match(line):
            mark = comment["mark"]
            continue
        if fence := _FENCE.match(line.strip()):
            end = _find(lines, number, lambda one: one.strip() == fence["fence"])
            if end == len(lines):
                raise Unclear(f"{page}:{start}: the block does not end")
            yield _block(page, start, fence["language"].strip(), lines[number:end], mark)
            number, mark = end + 1, ""
        elif line.startswith(" " * indent) and not (number > 1 and lines[number - 2].strip()):
            end = _find(lines, number, lambda one: bool(one.strip()) and not one.startswith("    "))
            body = textwrap.dedent("\n".join(lines[number - 1 : end])).strip().split("\n")
            yield _block(page, start, _language(body), body, mark)
            number, mark = end, ""
        elif line.strip():
            if mark:
                raise Unclear(f"{page}:{start}: no block stands below its comment")
            # What stands four blanks deep in a list belongs to its text.
            listed = _ITEM.match(line) or (indent > 4 and line.startswith("  "))
            indent = 7 if listed else 4


def _find(lines: list[str], start: int, found: Callable[[str], bool]) -> int:
    """The first line from a place on that is looked for; the end if there is none."""
    return next((n for n in range(start, len(lines)) if found(lines[n])), len(lines))


def _language(body: list[str]) -> str:
    """What an indented block, which names no language, is written in."""
    first = body[0].split(" ")[0]
    if first.startswith("%"):
        return "python"
    if first in COMMANDS:
        return "sh"
    return "json" if first.startswith('"') else "yaml"


def _block(page: str, line: int, language: str, body: list[str], mark: str) -> Block:
    if language not in LANGUAGES:
        raise Unclear(f"{page}:{line}: the language {language!r} is not known")
    found = _MARK.fullmatch(mark) if mark else None
    if mark and found is None:
        raise Unclear(f"{page}:{line}: the comment {mark!r} is not known")
    kind = (found["kind"] or found["output"] or found["left"]) if found else "run"
    if language == "text" and kind not in ("output", "not run", "file"):
        raise Unclear(f"{page}:{line}: text is output, a file, or says why it is neither")
    word = (found["word"] or "") if found else ""
    return Block(page, line, language, "\n".join(body) + "\n", kind, word)


def shown(wanted: str, output: str) -> bool:
    """Whether an output has the lines of a block, with anything for each ``…``.

    In order, but for the lines of two replicas: nobody knows which of them comes first.
    """
    found = [" ".join(uncolored(line).split()) for line in output.splitlines()]
    replicas: dict[str, list[str]] = {}
    for line in wanted.splitlines():
        words = " ".join(line.split())
        if words not in ("", "…"):
            tag = _TAG.search(words)
            replicas.setdefault(tag[0] if tag else "", []).append(words)
    return all(_in_order(lines, found) for lines in replicas.values())


def _in_order(wanted: list[str], found: list[str]) -> bool:
    lines = iter(found)
    for words in wanted:
        pattern = re.compile(".*".join(re.escape(part.strip()) for part in words.split("…")))
        if not any(pattern.fullmatch(one) for one in lines):
            return False
    return True
