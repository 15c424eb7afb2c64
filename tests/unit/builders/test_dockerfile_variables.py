"""Variables of Dockerfiles: their values as Docker finds them, as far as the text tells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciao_kernel.builders import dockerfile
from ciao_kernel.builders.dockerfile_variables import expanded, unknown
from ciao_kernel.errors import SourceError
from tests.helpers.growth import is_linear

KNOWN = {"A": "1", "E": "", "N": None}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a$A.b${A}c", "a1.b1c"),
        ("$E|${E:-d}|${E-d}|${E:+d}|${E+d}", "|d|||d"),
        ("${X-a}${X:-b}${X+c}${X:+d}", "ab"),
        ("${A-a}${A:-b}${A+c}${A:+d}", "11cd"),
        ("$N|${N-d}|${N:-d}|${N+d}", "|d|d|"),
        ("${X:-${Y:-${A}}}.${A:+<$A>}", "1.<1>"),
        ("${X:-a${A}b}c", "a1bc"),
        ("${X:-{}", "{"),
        ("${A?gone}${A:?gone}", "11"),
        (r"\$A \\$A \${A}", r"\$A \\1 \${A}"),
        ("$ ${} ${", "$ ${} ${"),
    ],
)
def test_values_are_filled_in(text: str, result: str) -> None:
    assert expanded(text, KNOWN) == result
    assert not unknown(result.replace(r"\$A", ""))


@pytest.mark.parametrize(
    "text",
    ["$X", "${X}", "${X?gone}", "${E:?gone}", "${A#1}", "${A%1}", "${A/1/2}", "${A", "${A:-b"],
)
def test_what_is_unknown_stays(text: str) -> None:
    assert expanded(text, KNOWN) == text
    assert unknown(text)


@pytest.mark.parametrize("part", ["${X:-", "${A", "}", "$A", "\\$", "${X:-}", "${A:+", "${A:-${"])
def test_the_time_grows_with_the_text_only(part: str) -> None:
    assert is_linear(lambda size: expanded(part * size, KNOWN), 40_000)


@given(st.text("$A{}:-+?X\\ b", max_size=40))
def test_any_text_is_read(text: str) -> None:
    once = expanded(text, {"A": "v", "b": "w"})
    assert expanded(once, {}) is not None


# ------------------------------------------------------------------------ in Dockerfiles


def test_a_stage_inherits_variables_of_its_stage_but_no_arguments() -> None:
    text = (
        "FROM a AS One\nARG B=b\nENV S=src\nENV T=$S/$B\nFROM one AS two\nENV S=new\n"
        "COPY $S $T ${B:-none} /x/\nFROM two\nCOPY $S /x/\nFROM b\n"
    )
    assert [path for _, path in dockerfile.sources(text)] == ["new", "src/b", "none", "new"]
    with pytest.raises(SourceError, match=r"line 12: the path \$S is unknown"):
        dockerfile.sources(f"{text}\nCOPY $S /x/\n", "D")


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ('FROM "python:3.13"\n', "python:3.13"),
        ("ARG B='python:3.13'\nFROM \"$B\" AS x\n", "python:3.13"),
        ("ARG V=3.13\nFROM python:${W:-${V}}\n", "python:3.13"),
        ("ARG V=3.13\nARG W=${V}-slim X=python\nFROM $X:$W\n", "python:3.13-slim"),
        ("ARG END\nFROM python:3.13${END}\n", "python:3.13"),
        ("ARG END\nFROM python${END:+-}${END}:3\n", "python:3"),
    ],
)
def test_an_image_by_arguments(text: str, image: str) -> None:
    dockerfile.check(text, "D")
    assert list(dockerfile.bases(text).values()) == [image]


def test_a_stage_by_an_argument_is_no_image() -> None:
    text = "ARG LAST=build\nFROM a AS build\nUSER 5\nFROM $LAST\n"
    assert dockerfile.bases(text) == {2: "a"}
    assert dockerfile.user(text) == ("5", 0)


@pytest.mark.parametrize(
    "text",
    ["FROM $V\n", "FROM a\nFROM python:${V}\n", "ARG V\nFROM $V\n", "FROM a\nARG V=1\nFROM $V"],
)
def test_an_image_without_a_value_is_refused_before_the_build(text: str) -> None:
    with pytest.raises(
        SourceError, match=r"D, line \d: the image is unknown, because V has no"
    ) as e:
        dockerfile.check(text, "D")
    assert "ARG V=value" in e.value.hint


def test_variables_of_the_builder_are_left_to_it() -> None:
    text = "FROM python-${TARGETARCH}\n"
    dockerfile.check(text, "D")
    assert not dockerfile.bases(text)
    assert dockerfile.bases(text, "arm64") == {1: "python-arm64"}
    text = "ARG TARGETARCH\nARG TARGETOS=none\nFROM a-$TARGETARCH-$TARGETOS\n"
    assert dockerfile.bases(text, "arm64") == {3: "a-arm64-none"}
