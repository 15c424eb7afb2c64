"""A password in a directive that is misspelt in any way is in no error."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator

import pytest

from ciao_kernel.errors import CiaoError, DirectiveError, SourceError, describe
from ciao_kernel.magics import header, parse
from ciao_kernel.magics.diagnostics import program_line
from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.header import Style
from ciao_kernel.redaction import conceal
from ciao_kernel.session.plugin_registry import Registry

TABLE = Registry(third_party={}).table
HEADER = "%framework=tensorflow\n%worker=1\n"
VALUES = (
    "WANDB_KEY=hunter2",
    "A=1 API_TOKEN=hunter2",
    "MY_KEY='a b hunter2 c' x",
    'MY_KEY="hunter2',
    "MY_KEY='x;%hunter2",
    "https://me:hunter2@example.com/simple x",
    "--password hunter2 '",
    "db_password=hunter2 \u202e",
)
BEFORE = ("%", "% ", "%\xa0", "\xa0%", "%%", "%-", "%.", "$", "\uff05", " \t%", "%worker=x %", "?")
BETWEEN = ("=", " = ", " ", ":", "==")


def slips(name: str) -> Iterator[str]:
    yield from (name, name.upper(), f"{name}s", name[:-1], name[1:], f"{name[0]}{name}", f"x{name}")
    yield from (f"{name[1]}{name[0]}{name[2:]}", name.replace("e", ""), f"{name}_", f"my-{name}")


def said(error: CiaoError) -> str:
    """Everything that a front end or a log may show of an error.

    Without the lines of our own code in its traceback: those take most of the time to find.
    """
    parts = [error.message, error.hint, *describe(error), str(error), repr(error), str(vars(error))]
    return "\n".join((*parts, *traceback.format_exception(error, limit=0)))


def leaks(text: str, style: Style = Style.CELL) -> str:
    try:
        parse.parse(text, TABLE, style=style)
    except CiaoError as error:
        found = said(error)
        return found if "hunter2" in found else ""
    return ""


@pytest.mark.parametrize("directive", TABLE.entries, ids=lambda one: one.name)
def test_a_password_is_in_no_error(directive: Directive, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for before in BEFORE:
        for between in BETWEEN:
            line = f"{before}{directive.name}{between}{VALUES[0]}"
            assert not leaks(f"{HEADER}{line}\nx = 1\n"), line
    for value in VALUES:
        for name in slips(directive.name):
            assert not leaks(f"{HEADER}%{name}={value}\nx = 1\n"), name
            assert not leaks(f"{HEADER}%worker=2;%{name}={value};%cpu=x\nx = 1\n"), name
            assert not leaks(f"{HEADER}x = 1\n%{name}={value}\n"), name
            assert not leaks(f"{HEADER}\xa0%{name} {VALUES[0]}\nx = 1\n"), name
            assert not leaks(f"#%framework=tensorflow\n#%{name}={value}\nx =\n", Style.FILE), name
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    "name",
    ["environment", "environ", "env", "ENVVARS", "token", "arguments", "secrets", "password"],
)
@pytest.mark.parametrize("value", ["hunter2", "TOKEN=hunter2", "--token hunter2"])
def test_nor_in_one_of_a_name_that_does_not_exist(name: str, value: str) -> None:
    for before in BEFORE[:-1]:
        text = f"{HEADER}{before}{name}={value}\nx = 1\n"
        if before not in ("$", "\uff05") or name == "ENVVARS":
            assert not leaks(text), text


@pytest.mark.parametrize("name", ["envsecret", "pushSecret", "pipSecret", "imagePullSecret"])
def test_nor_where_the_name_of_a_secret_belongs(name: str) -> None:
    for value in ("Hunter2/x", "sk-Hunter2_x", "Hunter2 '"):
        for line in (f"%{name}={value}", f"%worker=2;%{name}={value};%cpu=x", f"%{name}=a;%ps=x"):
            with pytest.raises(CiaoError) as caught:
                parse.parse(f"{HEADER}{line}\nx = 1\n", TABLE)
            assert "Hunter2" not in said(caught.value)
            assert f"%{name}=…" in describe(caught.value)[0]


def test_what_is_harmless_is_still_shown() -> None:
    for line in ("%wroker=two", "%cpus=2", "%xyzzy=17", "%matplotlib inline", "%framewrk=tf"):
        with pytest.raises(CiaoError) as caught:
            parse.parse(f"{HEADER}{line}\nx = 1\n", TABLE)
        assert line in describe(caught.value)[0]
    with pytest.raises(CiaoError) as caught:
        parse.parse(f"{HEADER}tokenizer = make(tokens=5\n", TABLE)
    assert "tokenizer = make(tokens=5" in describe(caught.value)[0]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        # Several values, also those that overlap, and one behind a quote that is never closed.
        (
            "%envvar=A=hunter2;%pushSecret=hunter2;%cpu=x",
            "%envvar=…;%pushSecret=…;%cpu=x",
        ),
        ("%args=A_KEY=hunter2;%envvar=B=hunter2;%cpu=x", "%args=A_KEY=…;%envvar=…;%cpu=x"),
        ("%args=--token %envvar=A=1 hunter2;%cpu=x", "%args=--token …;%cpu=x"),
        ("%args=it's;%envvar=A=hunter2;%cpu=x", "%args=it's;%envvar=…;%cpu=x"),
        ("%envvar=A=hunter2;%cpu=x;%args=it's", "%envvar=…;%cpu=x;%args=it's"),
        # Of a directive that does not exist only what is harmless is shown.
        ("%xyzzy=hunter2", "%xyzzy=…"),
        *((f"%xyzzy={word}",) * 2 for word in ("17", "true", "False", "yes", "no", "17;%cpu=1")),
        ("%wroker=two", "%wroker=two"),
        ("%wroker=a=hunter2", "%wroker=…"),
        ("%pyhton=hunter2", "%pyhton=…"),
        ("$envvars=hunter2", "$envvars=…"),
        # Without = it may be a magic of IPython, or a slip.
        ("%matplotlib inline", "%matplotlib inline"),
        *((f"%{slip} hunter2", f"%{slip} …") for slip in ("arg", "argumens", "envs", "environs")),
        *((f"%{slip} hunter2", f"%{slip} …") for slip in ("enviroment", "secrt", "tokn")),
    ],
)
def test_what_is_shown_of_a_line(line: str, shown: str) -> None:
    with pytest.raises((DirectiveError, SourceError)) as caught:
        parse.parse(f"{HEADER}{line}\nx = 1\n", TABLE)
    assert caught.value.text == shown


@pytest.mark.parametrize("sign", [*"#'\"@([{*~+.)]}:,=-"])
def test_a_line_of_python_is_shown_as_it_is(sign: str) -> None:
    (line,) = header.lines(f"{sign}f(tokens=5 +")
    assert program_line(line, TABLE, 0).text == line.text


def test_a_line_that_is_not_python_is_not() -> None:
    for blank in ("", "  "):
        with pytest.raises(SourceError) as caught:
            parse.parse(f"{HEADER}if 1:\n{blank}$x token=hunter2\n", TABLE)
        assert caught.value.text == f"{blank}$x token=…"


def test_the_end_of_a_line_that_nobody_has_written_by_hand_is_hidden() -> None:
    assert not leaks(f"{HEADER}%cpu=z{';%cpu=1' * 60};%envsecret=hunter2\nx = 1\n")
    with pytest.raises(DirectiveError) as caught:
        parse.parse(f"{HEADER}%cpu=z{';%cpu=1' * 300};%envsecret=hunter2\nx = 1\n", TABLE)
    assert caught.value.text == f"%cpu=z{';%cpu=1' * 199};…"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A_KEY=hunter2 --lr=0.1", "A_KEY=… --lr=0.1"),
        ("A_KEY='hunter2 x' y", "A_KEY=… y"),
        ("--hub-token=hunter2", "--hub-token=…"),
        ("api_key=hunter2 apikey hunter2", "api_key=… apikey …"),
        ("passwd=a;pwd=b;secret=c;credential=d", "passwd=…;pwd=…;secret=…;credential=…"),
        ("Authorization: hunter2", "Authorization: …"),
        ("db_token-2='hunter2 x' y", "db_token-2=… y"),
        ("A_1=hunter2;AB==1", "A_1=…;AB==1"),
        ("--hub-token hunter2 --lr 1", "--hub-token … --lr 1"),
        ('{"password": "hunter2"}', '{"password": …'),
        ("https://me:hunter2@a.b/x", "https://…@a.b/x"),
        ("--tokenizer=bert disk=ssd A=b", "--tokenizer=bert disk=ssd A=b"),
        ("", ""),
    ],
)
def test_what_is_concealed(text: str, shown: str) -> None:
    assert conceal(text) == shown


def test_a_long_line_is_inspected_once() -> None:
    for part in ("%x=", "%aa ", "%envvar=;", "A=", "%envvars=A='", "AA=", "token ", "//a@", "%"):
        assert not leaks(f"{HEADER}%worker={part * (100_000 // len(part))}\nx = 1\n")
