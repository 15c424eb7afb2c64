"""The kinds of value: what each reads, and that it reads what it writes."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ciao_kernel.magics import kinds, quantities
from ciao_kernel.magics.words import quote, unfinished, words
from ciao_kernel.model import Gpu

WORD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (quantities.Count(), "007", 7),
        (quantities.Count(), "'2'", 2),
        (quantities.Count(), "1000", 1000),
        (quantities.Cpus(), ".5", ".5"),
        (quantities.Cpus(), "1.", "1."),
        (quantities.Cpus(), "100m", "100m"),
        (quantities.Memory(), "1.5Gi", "1.5Gi"),
        (quantities.Memory(), "1e9", "1e9"),
        (quantities.Memory(), "1E3", None),
        (quantities.Memory(), "1E", "1E"),
        (quantities.Memory(), "128974848", "128974848"),
        (quantities.Memory(), "129M", "129M"),
        (quantities.Memory(), "5n", None),
        (quantities.GpuCount(), "0", Gpu(0)),
        (quantities.GpuCount(), "nvidia.com/gpu:2", Gpu(2)),
        (quantities.GpuCount(), "nvidia.com/mig-1g.5gb:1", Gpu(1, "nvidia.com/mig-1g.5gb")),
        (quantities.GpuCount(), "", None),
        (quantities.GpuCount(), ":2", None),
        (quantities.Duration(), "90", 90),
        (quantities.Duration(), "1d2h3m4s", 93784),
        (quantities.Duration(), "15m", 900),
        (quantities.Duration(), "1.5h", None),
        (kinds.JobName(), "a", "a"),
        (kinds.JobName(), "a" * 45, "a" * 45),
        (kinds.JobName(), "a-", None),
        (kinds.Word(), "'~/my env/bin/python'", "~/my env/bin/python"),
        (kinds.Word(), "a b", None),
        (kinds.Pairs(), "A=1 B='x y' C= D==", (("A", "1"), ("B", "x y"), ("C", ""), ("D", "="))),
        (kinds.Pairs(), "A-B=1", None),
        (kinds.Flag(), "", True),
        (kinds.Flag(), "No", False),
    ],
)
def test_reading(kind: kinds.Kind, text: str, value: object) -> None:
    if value is None:
        with pytest.raises(ValueError, match=r"[a-z]"):
            kind.parse(text)
    else:
        assert kind.parse(text) == value
        assert kind.parse(kind.render(value)) == value


def test_choices_match_in_any_case_and_come_out_as_named() -> None:
    kind = kinds.Choice(lambda: ("MyFramework", "other"))
    assert kind.parse("myframework") == "MyFramework"
    assert kind.expected == "one of MyFramework, other"


@given(st.lists(WORD, min_size=1))
@settings(max_examples=100, derandomize=True, deadline=None)
def test_quoted_words_come_back(several: list[str]) -> None:
    for mark in ("'", '"', "\\"):
        text = " ".join(quote(word, mark) for word in several)
        assert words(text) == tuple(several)
        assert unfinished(text).typed == several[-1]


@given(st.text(alphabet="ab '\"\\#;%="))
@settings(max_examples=200, derandomize=True, deadline=None)
def test_words_are_a_shells_words(text: str) -> None:
    try:
        expected = tuple(shlex.split(text))
    except ValueError:
        with pytest.raises(ValueError, match=r"a (closing quote|character behind \\)"):
            words(text)
    else:
        assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (0, "", "")),
        ("a b", (2, "b", "")),
        ("a ", (2, "", "")),
        ("a 'b c", (2, "b c", "'")),
        ('a x"b c', (2, "xb c", '"')),
        ("a b\\ c", (2, "b c", "\\")),
        ("'a b'/c", (0, "a b/c", "'")),
        ("a '", (2, "", "'")),
        ("a \\", (2, "", "\\")),
    ],
)
def test_the_word_that_is_being_typed(text: str, expected: tuple[int, str, str]) -> None:
    found = unfinished(text)
    assert (found.start, found.typed, found.mark) == expected
