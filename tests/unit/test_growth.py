"""Every pattern takes a time in proportion to the length of its input: an input may be hostile.

Each pattern gets texts that repeat a part of what it matches, as those do that make a pattern slow.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import pkgutil
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from re import _compiler, _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import ciao_kernel

Pattern = re.Pattern[Any]

_USES: dict[str, Callable[[Pattern, Any], object]] = {
    "search": lambda pattern, text: pattern.search(text),
    "match": lambda pattern, text: pattern.match(text),
    "fullmatch": lambda pattern, text: pattern.fullmatch(text),
    "split": lambda pattern, text: pattern.split(text),
    "sub": lambda pattern, text: pattern.sub(text[:0], text),
    "findall": lambda pattern, text: pattern.findall(text),
    "finditer": lambda pattern, text: deque(pattern.finditer(text), maxlen=0),
}
_TIMES = 2_000
"""How often a text repeats a part at first."""
_QUICK = 150e-9
"""Seconds for each character of such a text that no pattern needs that grows too fast."""
_MEASURABLE = 0.02
_FASTER = 10.0
"""Ratio of the times for a text and one four times as long: 4 if it is linear, 16 if quadratic."""
_LONG = 1 << 20
_PARTS = 24
_COMMON = ("a", "0", " ", "\n", "\t", "/", ":", "@", "-", ".", "\\", '"', "'", "://", "a ", "a.")
_INDIRECT = {"_TEXTS": "match", "_FORMATS": "match"}
"""Uses of patterns that have no name there."""
_CALLED = re.compile(rf"\bre\.({'|'.join(_USES)})\(")
"""What a module has that uses a pattern without a name. To read all trees takes seconds."""
_SAMPLES = "a0 -_:/@.\"'\\#%={[(<!\n\x1b\x00"


def _modules() -> Iterator[Any]:
    for found in pkgutil.walk_packages(ciao_kernel.__path__, "ciao_kernel."):
        if not found.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # the language of SoS needs SoS
                yield importlib.import_module(found.name)


def _held(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _patterns() -> dict[str, tuple[Pattern, str]]:
    """The patterns of all modules, each with the ways in which its module uses it."""
    found: dict[str, tuple[Pattern, str]] = {}
    for module in _modules():
        source = Path(module.__file__).read_text()
        for name, value in vars(module).items():
            patterns = [one for one in _held(value) if isinstance(one, re.Pattern)]
            if not patterns:
                continue
            # A pattern that another module has made is one of that module, too.
            uses = set(re.findall(rf"\b{name}\b(?:\[\w+\])?\.({'|'.join(_USES)})\b", source))
            for use in sorted(uses or {_INDIRECT.get(name, "search")}):
                for number, pattern in enumerate(patterns):
                    found[f"{module.__name__}.{name}[{number}].{use}"] = pattern, use
        for node in ast.walk(ast.parse(source)) if _CALLED.search(source) else ():
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="re"), attr=use),
                    args=[ast.Constant(value=str() | bytes() as text), *_],
                ) if use in _USES:
                    found[f"{module.__name__}, line {node.lineno}"] = re.compile(text), use
    return found


PATTERNS = _patterns()


def _example(parsed: Any) -> Iterator[str]:
    """The words and characters of a text that a pattern matches, but with all its alternatives."""
    word = ""
    for code, value in parsed:
        if str(code) == "LITERAL":
            word += chr(value)
            continue
        yield word
        word = ""
        match str(code):
            case "ANY" | "NOT_LITERAL" | "IN":
                one = _compiler.compile(_parser.SubPattern(parsed.state, [(code, value)]))
                yield next((char for char in _SAMPLES if one.match(char)), "")
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                yield from _example(value[2])
            case "SUBPATTERN":
                yield from _example(value[3])
            case "ATOMIC_GROUP":
                yield from _example(value)
            case "ASSERT" | "ASSERT_NOT":
                yield from _example(value[1])
            case "BRANCH":
                for one in value[1]:
                    yield from _example(one)
    yield word


def _hostile(pattern: Pattern) -> Iterator[tuple[str, str, str]]:
    """Beginnings, parts to repeat, and ends of texts."""
    raw = pattern.pattern
    source = raw.decode("latin-1") if isinstance(raw, bytes) else raw
    parsed = _parser.parse(source, pattern.flags & ~re.UNICODE)
    whole = [*filter(None, _example(parsed))][:_PARTS]
    parts = dict.fromkeys(_COMMON, "")
    for start in range(len(whole)):
        for end in (*range(start + 1, start + 4), len(whole)):
            parts.setdefault("".join(whole[start:end]), "".join(whole[:start]))
    for part, before in parts.items():
        for beginning in {"", before}:
            for end in ("", "\n!"):
                yield beginning, part, end


def _seconds(pattern: Pattern, use: str, text: str) -> float:
    """The processor's time for one use."""
    given = text.encode("latin-1") if isinstance(pattern.pattern, bytes) else text
    start = time.thread_time()
    _USES[use](pattern, given)
    return time.thread_time() - start


def _slow(pattern: Pattern, use: str) -> Iterator[tuple[str, str, str]]:
    """Texts for which a pattern grows too fast: beginning, repeated part, end."""
    for beginning, part, end in _hostile(pattern):

        def seconds(size: int, text: tuple[str, str, str] = (beginning, part, end)) -> float:
            return _seconds(pattern, use, text[0] + text[1] * size + text[2])

        size = _TIMES
        once = seconds(size)
        if once < _QUICK * size * len(part) or seconds(4 * size) < _FASTER / 2 * once:
            continue
        while (before := seconds(size)) < _MEASURABLE and size < _LONG:
            size *= 2
        limit = _FASTER * min(before, seconds(size))
        if all(seconds(4 * size) > limit for _ in range(3)):
            yield beginning, part, end


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_is_linear(name: str) -> None:
    assert not next(_slow(*PATTERNS[name]), None)


@pytest.mark.parametrize(
    "text",
    [
        r"(\S+\.whl) is",
        pytest.param(r"a:[^@]+@", marks=pytest.mark.second("docs")),
        pytest.param(r"\s+$", marks=pytest.mark.second("docs")),
    ],
)
def test_a_pattern_that_is_not_is_found(text: str) -> None:
    assert next(_slow(re.compile(text), "search"), None)
