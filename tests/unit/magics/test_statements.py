"""Which lines start a statement: the same as Python's own tokenizer says."""

from __future__ import annotations

import argparse
import inspect
import io
import string
import textwrap
import tokenize
import typing
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ciao_kernel.magics import header
from ciao_kernel.magics.statements import starts


def ours(text: str) -> set[int]:
    """Numbers of the lines with code on which a statement starts."""
    places = set(starts(text))
    return {
        line.number
        for line in header.lines(text)
        if line.start in places and line.text.strip() and line.text.strip()[0] not in "#"
    }


def pythons(text: str) -> set[int]:
    found, fresh = set(), True
    silent = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            fresh = True
        elif token.type not in silent:
            if fresh:
                found.add(token.start[0])
            fresh = False
    return found


@pytest.mark.parametrize("module", [argparse, inspect, string, textwrap, tokenize, typing])
def test_the_standard_library(module: ModuleType) -> None:
    text = inspect.getsource(module)
    assert ours(text) == pythons(text)


PIECES = [
    "x = 1\n",
    "y = (7\n%\n2)\n",
    "'a%b'\n",
    '"""\n%worker=2\n"""\n',
    "'''a'b\"\n\\'''\n'''\n",
    "r'a'\n",
    "f'{x}'\n",
    "f'{x!r:>{y}}'\n",
    "f'{{}}'\n",
    "f'''{x}\n{{\n'''\n",
    'rf"\\d{x}"\n',
    "if'{':\n    pass\n",
    "x = 'a\\\nb'\n",
    "x = 1 + \\\n    2\n",
    "# it's a comment (\n",
    "d = {'a': [1,\n2], 'b': (3)}\n",
    "def f(a,\n      b):\n    return a\n",
    "\n",
    "   \n",
    "lambda: f'{(lambda x: 1)}'\n",
    "f'{d[\"a\"]:}'\n",
    "b'\\''\n",
]


@given(st.lists(st.sampled_from(PIECES), max_size=12))
@settings(max_examples=100, derandomize=True, deadline=None)
def test_programs_of_pieces(pieces: list[str]) -> None:
    text = "x = y = 1\nd = {'a': 1}\n" + "".join(pieces)
    compile(text, "program", "exec")
    assert ours(text) == pythons(text)


@given(st.lists(st.sampled_from([*"'\"{}()[]:\\\nfr#%! a", '"""', "'''", "f'", 'f"""'])))
@settings(max_examples=200, derandomize=True, deadline=None)
def test_any_text_is_read_to_an_end(pieces: list[str]) -> None:
    text = "".join(pieces)
    found = list(starts(text))
    assert found == sorted(set(found))
    assert all(place == 0 or text[place - 1] in "\r\n" for place in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("!echo 'a\nx\n", {1, 2}),
        ("%%time it's\nx = (\n%y\n)\nz", {1, 2, 5}),
        ("x = 'open\ny\n", {1}),
        ("x = '''open\ny\n", {1}),
        ("x = (\ny\n", {1}),
        (")\nx\n", {1, 2}),
        ("a\rb\r\nc", {1, 2, 3}),
        # Python 3.12's f-strings, whatever Python reads this.
        ('f"{d["a"]}"\n%x\n', {1, 2}),
        ('f"{f"{f"{1}"}"}"\n%x\n', {1, 2}),
        ('f"{x:{w}.{p}}{y}"\n%x\n', {1, 2}),
        ('f"""{\n%x\n}\n%y\n"""\n%z\n', {1, 6}),
        ('f"""{\n\'"""\'\n}\n%y\n"""\n%z\n', {1, 6}),
        ("f'{x:\"}'\n%x\n", {1, 2}),
        ("f'{(x:=1)}{y!r}'\n%x\n", {1, 2}),
        ("f'{x:{w:{p}}}'\n%x\n", {1, 2}),
        ("f'''{day:%m\n%a}'''\n%x\n", {1, 3}),
        ('f"""{day:%m\n%a}"""\n%x\n', {1, 3}),
        # A format ends in its line, and before its string.
        ("f'{x:\n%y\n}'\n%z\n", {1}),
        ('f"{x:\n%y\n}"\n%z\n', {1}),
        ("f'{x:'\n%y\n", {1}),
        ("f'\\N{DASH}'\n%x\n", {1, 2}),
        ("f'}'\n%x\n", {1, 2}),
    ],
)
def test_hard_cases(text: str, expected: set[int]) -> None:
    assert ours(text) == expected
