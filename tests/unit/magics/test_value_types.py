"""The kinds of value: what each reads, and that it reads what it writes."""

from __future__ import annotations

import re
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ciao_kernel.magics import numeric_types, value_types
from ciao_kernel.magics.directives import (
    cell_lines,
    cluster,
    event_folder,
    images,
    inputs,
    on_error,
    outputs,
    plots,
    surviving,
)
from ciao_kernel.magics.shell_words import quote, unfinished, words
from ciao_kernel.model import ALL_LINES, Gpu

WORD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (numeric_types.Count(), "007", 7),
        (numeric_types.Count(), "'2'", 2),
        (numeric_types.Count(), "1000", 1000),
        (numeric_types.Cpus(), ".5", ".5"),
        (numeric_types.Cpus(), "1.", "1."),
        (numeric_types.Cpus(), "100m", "100m"),
        (numeric_types.Memory(), "1.5Gi", "1.5Gi"),
        (numeric_types.Memory(), "1e9", "1e9"),
        (numeric_types.Memory(), "1E3", None),
        (numeric_types.Memory(), "1E", "1E"),
        (numeric_types.Memory(), "128974848", "128974848"),
        (numeric_types.Memory(), "129M", "129M"),
        (numeric_types.Memory(), "5n", None),
        (numeric_types.GpuCount(), "0", Gpu(0)),
        (numeric_types.GpuCount(), "nvidia.com/gpu:2", Gpu(2)),
        (numeric_types.GpuCount(), "nvidia.com/mig-1g.5gb:1", Gpu(1, "nvidia.com/mig-1g.5gb")),
        (numeric_types.GpuCount(), "", None),
        (numeric_types.GpuCount(), ":2", None),
        (numeric_types.Duration(), "90", 90),
        (numeric_types.Duration(), "1d2h3m4s", 93784),
        (numeric_types.Duration(), "15m", 900),
        (numeric_types.Duration(), "1.5h", None),
        (on_error.OnError(), "debug", 1800),
        (on_error.OnError(), "Debug:2h", 7200),
        (on_error.OnError(), "debug:7d", 604800),
        (on_error.OnError(), "debug:8d", None),
        (on_error.OnError(), "debug:", None),
        (on_error.OnError(), "fail:1m", None),
        (on_error.OnError(), "", None),
        (value_types.JobName(), "a", "a"),
        (value_types.JobName(), "a" * 45, "a" * 45),
        (value_types.JobName(), "a-", None),
        (value_types.Word(), "'~/my env/bin/python'", "~/my env/bin/python"),
        (value_types.Word(), "a b", None),
        (
            value_types.Pairs(),
            "A=1 B='x y' C= D==",
            (("A", "1"), ("B", "x y"), ("C", ""), ("D", "=")),
        ),
        (value_types.Pairs(), "A-B=1", None),
        (value_types.Flag(), "", True),
        (value_types.Flag(), "No", False),
    ],
)
def test_reading(kind: value_types.Kind, text: str, value: object) -> None:
    if value is None:
        with pytest.raises(ValueError, match=r"[a-z]"):
            kind.parse(text)
    else:
        assert kind.parse(text) == value
        assert kind.parse(kind.render(value)) == value


def test_a_stored_header_tells_how_long_an_error_is_kept() -> None:
    assert on_error.OnError().parse("fail") is None
    assert on_error.kept_for("%worker=1\n%onError=debug:60s") == 60
    assert on_error.kept_for("%worker=1\n%onError=fail") is None
    assert on_error.kept_for("%worker=1\n%onError=other") is None
    assert on_error.kept_for("%worker=1") is None


LONG = "a" * 61
LONGEST_NAME = "a" * 253


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (
            cluster.Name(),
            ("a", "a-b.c9", LONGEST_NAME),
            ("", "A", "a_b", "-a", "a-", "a.", LONGEST_NAME + "a", "a b", "a/b"),
        ),
        (cluster.Names(), ("a", "a b-c"), ("", "a B", "A b")),
        (
            cluster.ImageName(),
            (
                "python",
                "python:3.13-slim",
                "localhost:5000/a",
                "[::1]:5000/cells",
                "[2001:DB8::1]/team/cells:1",
                "Registry.example.com/team_a/b__c/d:V_1.x-2",
                f"a@sha256:{'0' * 64}",
                f"a:1@sha256:{'f' * 64}",
                "a:" + "t" * 128,
                "a" * 500,
            ),
            (
                "",
                "Python",
                "a/B",
                "a:",
                "a:-1",
                "a:" + "t" * 129,
                "a@sha256:12",
                f"a@sha256:{'g' * 64}",
                "a/",
                "a b",
                "a" * 501,
                "/a",
                "https://a.example/b",
            ),
        ),
        (
            cluster.KeyValues(),
            (
                "a=b",
                "a=",
                "A_b.c-9=B_c.d-9",
                "example.com/a=b c=d",
                f"a{LONG}z=a{LONG}z",
                f"{LONGEST_NAME}/a=b",
            ),
            (
                "",
                "a",
                "=b",
                "a=b c",
                "-a=b",
                "a-=b",
                "/a=b",
                "Example.com/a=b",
                f"{LONGEST_NAME}a/a=b",
                "a=-b",
                "a=b.",
                "a=b/c",
                "a='b c'",
                f"aa{LONG}z=b",
                f"a=aa{LONG}z",
                "a=b c='d e'",
            ),
        ),
        (cluster.KeyValues(labels=False), ("a='any text, however long'",), ("", "a", "a b=c")),
        (
            cluster.Tolerations(),
            (
                "gpu",
                "example.com/gpu",
                "gpu=",
                "gpu=yes",
                "gpu:NoExecute",
                "gpu=yes:NoSchedule spot:PreferNoSchedule",
                "key=value:NoSchedule",
                "value:NoExecute",
            ),
            ("", "gpu:", "gpu:Never", "-gpu", "=yes", "gpu=-yes", "gpu=a=b", "gpu spot:No"),
        ),
        (
            images.SystemPackages(),
            ("git", "libgomp1 g++", "git=1:2.39.5-0+deb12u1~rc.1", "libc6:amd64=2.36"),
            (
                "",
                "a",
                "Git",
                "-y",
                "git;reboot",
                "'git reboot'",
                "git $(reboot)",
                "git=",
                "git=1;reboot",
                "git:",
                "git=1$x",
            ),
        ),
        (
            images.Address(),
            ("https://pypi.example.com/simple", "http://a", "file:///srv/wheels"),
            ("", "pypi.example.com", "ftp://a", "https://", "https://jane:pw@a/b", "https://'a b'"),
        ),
        (inputs.Variables(), ("df", "df labels", "größe"), ("", ",", "1a", "df.a", "df a-b")),
        (
            plots.MetricNames(),
            ("loss", "loss 'val loss'", "val/loss@9", "n" * 64),
            ("", ",", "7", "loss,7", "n" * 65, "loss " + "n" * 65),
        ),
        (numeric_types.Count(), ("0", "1000"), ("1001", "-1")),
        (numeric_types.Count(1, 9), ("1", "9", "+9", "09"), ("0", "10", "", "1_0", "+", "0" * 10)),
        (
            numeric_types.Duration(),
            ("1", "1s", "1000000000", "11574d"),
            ("", "0s", "1000000001", "d"),
        ),
        (numeric_types.Duration(), ("0" * 15 + "9",), ("0" * 16 + "9", "1s1s", "1h1d", " ")),
        (
            numeric_types.Cpus(),
            ("0.001", "12m", "999999999999999"),
            ("0.0", "0m", "1k", "2n", "1e3", ".", "1e", "1 1", "9" * 16),
        ),
        (
            numeric_types.Memory(),
            ("1Mi", "1024Ki", "1.048576M", "1048576", "2e6", "0.002G", "1T", "1P", "1Pi", "1Ei"),
            (
                *("1023Ki", "1048575", "1048576m", "9" * 15 + "n", "9" * 15 + "u", "9k"),
                *("1048k", "1.048575M", "0.001G", "0.000001T", "0.000000001P"),
                *("0.999Mi", "0.0009Gi", "0.0000009Ti"),
            ),
        ),
        (
            numeric_types.GpuCount(),
            ("64", "a/b:0", "a.b/C:64"),
            ("65", "a/b:65", "a/b:", "a:1", "/b:1", "a/:1", "A/b:1", "a/b/c:1", "a/-b:1", "1:"),
        ),
        (value_types.JobName(), ("a-1",), ("", "-a", "A", "a_b", "a.b", "ä", "a" * 46)),
        (value_types.Words(), ("a", "a ''"), ("", " ")),
        (value_types.Word(), ("a",), ("", "''")),
        (value_types.Pairs(), ("_=", "A9=x"), ("", "A", "=x", "9A=", "A=1 B", "Ä=1")),
        (value_types.Flag(("server",)), ("true", "False"), ("maybe", "true false")),
        (value_types.Choice(lambda: ("a", "b")), ("A",), ("", "c", "a b")),
    ],
    ids=lambda one: type(one).__name__ if hasattr(one, "parse") else "",
)
def test_what_a_kind_takes_and_what_it_refuses(
    kind: value_types.Kind, good: tuple[str, ...], bad: tuple[str, ...]
) -> None:
    for text in good:
        value = kind.parse(text)
        assert kind.parse(kind.render(value)) == value
    for text in bad:
        with pytest.raises(ValueError, match=f"^{re.escape(kind.expected)}"):
            raise AssertionError(f"{text!r} is {kind.parse(text)!r}")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (cluster.Names(), "a b", ("a", "b")),
        (cluster.KeyValues(), "a=b c=", (("a", "b"), ("c", ""))),
        (cluster.KeyValues(labels=False), "a='b=c d'", (("a", "b=c d"),)),
        (cluster.Tolerations(), "a=b:NoExecute c", ("a=b:NoExecute", "c")),
        (images.SystemPackages(), "git 'curl'", ("git", "curl")),
        (inputs.Variables(), "df,labels more", ("df", "labels", "more")),
        (plots.MetricNames(), "loss, acc,,'val loss, f1'", ("loss", "acc", "val loss", "f1")),
        (numeric_types.Duration(), "1d", 86400),
        (cell_lines.LineCount(), "50", 50),
        (cell_lines.LineCount(), "ALL", ALL_LINES),
        (cell_lines.LineCount(), "100000", 100_000),
        (cell_lines.LineCount(), "+5", None),
        (numeric_types.Duration(), "1h1s", 3601),
        (value_types.Flag(), "yes", True),
        (value_types.Flag(), "1", True),
        (value_types.Flag(), " ", True),
        (value_types.Flag(), "TRUE", True),
        (value_types.Flag(), "0", False),
        (value_types.Flag(), "' '", None),
        (value_types.Flag(("server",), str), "Server", "server"),
        (value_types.Flag(("server",), str), "", "true"),
    ],
)
def test_reading_of_kinds_that_few_directives_have(
    kind: value_types.Kind, text: str, value: object
) -> None:
    test_reading(kind, text, value)


def test_values_are_written_in_their_short_form() -> None:
    assert numeric_types.GpuCount().render(Gpu(2)) == "2"
    assert numeric_types.GpuCount().render(Gpu(2, "amd.com/gpu")) == "amd.com/gpu:2"
    assert numeric_types.Duration().render(90) == "90s"
    assert value_types.Flag().render(False) == "false"
    assert value_types.Words().render(("a", "b c")) == "a 'b c'"
    assert value_types.Pairs.mask((("A", "secret"), ("B", "x"))) == "A=… B=…"


def test_what_is_expected_names_the_choices_and_the_range() -> None:
    assert numeric_types.Count(1, 9).expected == "a whole number from 1 to 9"
    assert value_types.Flag(("server",)).expected == "nothing, true, false or server"


def test_a_memory_of_four_bytes_is_told_as_what_it_is() -> None:
    with pytest.raises(ValueError, match=r"such as 4Gi or 512Mi \(4 is less than a megabyte\)$"):
        numeric_types.Memory().parse("4")


def test_choices_match_in_any_case_and_come_out_as_named() -> None:
    kind = value_types.Choice(lambda: ("MyFramework", "other"))
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
        with pytest.raises(ValueError, match=r"a (closing quote|character after \\)"):
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


@pytest.mark.parametrize(
    "kind", [surviving.CheckpointPlace(), outputs.Outputs(), event_folder.EventFolder()]
)
@pytest.mark.parametrize("word", ["true", "False", "on", "off", "yes", "no"])
def test_a_word_that_switches_is_no_name(kind: value_types.Kind, word: str) -> None:
    with pytest.raises(ValueError, match="to switch it off, leave it out"):
        kind.parse(word)
    kind.parse(f"{word.lower()}/x")


def test_a_variable_of_such_a_name_comes_back_beside_others() -> None:
    assert outputs.Outputs().parse("on off") == ("on", "off")


@pytest.mark.parametrize(
    "kind", [value_types.Pairs(), cluster.KeyValues(), cluster.KeyValues(labels=False)]
)
@pytest.mark.parametrize("text", ["A=1, B=2", "A=1 B='2',  C=3", "A=,\tB=1"])
def test_a_comma_between_pairs_is_no_part_of_a_value(kind: value_types.Kind, text: str) -> None:
    with pytest.raises(ValueError, match="separated by spaces, without a comma"):
        kind.parse(text)


@pytest.mark.parametrize("kind", [value_types.Pairs(), cluster.KeyValues(labels=False)])
@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("A=1,2 B=3", "1,2"),
        ("A='1,' B=2", "1,"),
        ("A=1\\, B=2", "1,"),
        ("A=1,", "1,"),
        ("A='x, y' B=", "x, y"),
    ],
)
def test_a_comma_inside_a_value_stays(kind: value_types.Kind, text: str, first: str) -> None:
    found = kind.parse(text)
    assert found[0] == ("A", first)
    assert kind.parse(kind.render((*found, ("C", "1")))) == (*found, ("C", "1"))
