"""The kinds of value: what each reads, and that it reads what it writes."""

from __future__ import annotations

import re
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ciao_kernel.magics import cluster, images, inputs, kinds, plots, quantities
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
        (quantities.Count(1, 9), ("1", "9", "+9", "09"), ("0", "10", "", "1_0", "+", "0" * 10)),
        (quantities.Duration(), ("1", "1s", "1000000000", "11574d"), ("", "0s", "1000000001", "d")),
        (quantities.Duration(), ("0" * 15 + "9",), ("0" * 16 + "9", "1s1s", "1h1d", " ")),
        (
            quantities.Cpus(),
            ("0.001", "12m", "999999999999999"),
            ("0.0", "0m", "1k", "2n", "1e3", ".", "1e", "1 1", "9" * 16),
        ),
        (
            quantities.Memory(),
            ("1Mi", "1024Ki", "1.048576M", "1048576", "2e6", "0.002G", "1T", "1P", "1Pi", "1Ei"),
            ("1023Ki", "1048575", "1048576m", "9" * 15 + "n", "9" * 15 + "u", "9k"),
        ),
        (
            quantities.GpuCount(),
            ("64", "a/b:0", "a.b/C:64"),
            ("65", "a/b:65", "a/b:", "a:1", "/b:1", "a/:1", "A/b:1", "a/b/c:1", "a/-b:1", "1:"),
        ),
        (kinds.JobName(), ("a-1",), ("", "-a", "A", "a_b", "a.b", "ä", "a" * 46)),
        (kinds.Words(), ("a", "a ''"), ("", " ")),
        (kinds.Word(), ("a",), ("", "''")),
        (kinds.Pairs(), ("_=", "A9=x"), ("", "A", "=x", "9A=", "A=1 B", "Ä=1")),
        (kinds.Flag(("server",)), ("true", "False"), ("maybe", "true false")),
        (kinds.Choice(lambda: ("a", "b")), ("A",), ("", "c", "a b")),
    ],
    ids=lambda one: type(one).__name__ if hasattr(one, "parse") else "",
)
def test_what_a_kind_takes_and_what_it_refuses(
    kind: kinds.Kind, good: tuple[str, ...], bad: tuple[str, ...]
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
        (quantities.Duration(), "1d", 86400),
        (quantities.Duration(), "1h1s", 3601),
        (kinds.Flag(), "yes", True),
        (kinds.Flag(), "1", True),
        (kinds.Flag(), "TRUE", True),
        (kinds.Flag(), "0", False),
        (kinds.Flag(), "' '", None),
        (kinds.Flag(("server",), str), "Server", "server"),
        (kinds.Flag(("server",), str), "", "true"),
    ],
)
def test_reading_of_kinds_that_few_directives_have(
    kind: kinds.Kind, text: str, value: object
) -> None:
    test_reading(kind, text, value)


def test_values_are_written_in_their_short_form() -> None:
    assert quantities.GpuCount().render(Gpu(2)) == "2"
    assert quantities.GpuCount().render(Gpu(2, "amd.com/gpu")) == "amd.com/gpu:2"
    assert quantities.Duration().render(90) == "90s"
    assert kinds.Flag().render(False) == "false"
    assert kinds.Words().render(("a", "b c")) == "a 'b c'"
    assert kinds.Pairs.masked((("A", "secret"), ("B", "x"))) == "A=… B=…"


def test_what_is_expected_names_the_choices_and_the_range() -> None:
    assert quantities.Count(1, 9).expected == "a whole number from 1 to 9"
    assert kinds.Flag(("server",)).expected == "nothing, true, false or server"


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
