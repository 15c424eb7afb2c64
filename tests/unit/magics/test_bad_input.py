"""Each wrong input: its line, where the caret stands, and what the user is offered."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace

import pytest

from ciao_kernel.errors import DirectiveError, SourceError, UsageError, describe
from ciao_kernel.magics import body, parse, spec_reader, synonyms
from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.newer_syntax import may_be_newer
from ciao_kernel.session.plugin_registry import Registry

TABLE = Registry(third_party={}).table
TF = "%framework=tensorflow\n"
PT = "%framework=pytorch\n"
OLD = f"Python 3.{sys.version_info.minor}, on which ciao runs, cannot compile the code. "


def fail(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse.parse(text, TABLE)
    return caught.value


@pytest.mark.parametrize(
    ("line", "marked", "message", "hint"),
    [
        # Unknown names.
        ("%wroker=2", "%wroker", "unknown directive %wroker.", "Did you mean %worker?"),
        ("%retry=3", "%retry", "unknown directive %retry.", "Did you mean %retries?"),
        ("%workers=2", "%workers", "unknown directive %workers.", "Did you mean %worker?"),
        ("%worker=2;%cpus=1", "%cpus", "unknown directive %cpus.", "Did you mean %cpu?"),
        ("%xyzzy=2", "%xyzzy", "unknown directive %xyzzy.", "`%ciao magics` lists"),
        ("%x=2", "%x", "unknown directive %x.", "`%ciao magics` lists"),
        ("%layer2=2", "%layer2", "unknown directive %layer2.", "`%ciao magics` lists"),
        ("%tensorflow=2", "%tensorflow", "unknown directive", "`%ciao magics` lists"),
        # What other tools call so.
        ("%replicas=3", "%replicas", "unknown directive", "Did you mean %worker?"),
        ("%nodes=2", "%nodes", "unknown directive", "Did you mean %worker?"),
        ("%pvc=data:/d", "%pvc", "unknown directive", "Did you mean %volume?"),
        ("%timeout=1h", "%timeout", "unknown directive", "Did you mean %deadline?"),
        ("%active-deadline-seconds=9", "%active-deadline-seconds", "unknown", "%deadline?"),
        ("%ram=1Gi", "%ram", "unknown directive", "Did you mean %memory?"),
        ("%pip=1", "%pip", "unknown directive", "Did you mean %packages?"),
        ("%data=1", "%data", "unknown directive", "Did you mean %files or %input?"),
        ("%metrics=1", "%metrics", "unknown directive", "Did you mean %plot?"),
        ("%results=a.csv", "%results", "unknown directive", "Did you mean %output?"),
        ("%worker=2;%", "%", "a directive has no name.", "`%ciao magics` lists"),
        # No value, or not one of its kind.
        ("%worker: 2", "%worker: 2", "a colon follows %worker.", "the colon: %worker=…"),
        ("%ps=1;%args:--x 3", "%args:--x 3", "a colon follows %args.", "%args=…"),
        ("%worker=2;% cpu=1", "%", "a directive has no name.", "Did you mean %cpu?"),
        ("%worker=", "%worker=", "%worker has no value: expected a whole number", "%worker=1"),
        ("%worker", "%worker", "%worker has no value: expected a whole number", "%worker=1"),
        ("  %ps =  # none", "%ps =", "%ps has no value", "%ps=1"),
        ("%files=", "%files=", "%files has no value: expected paths", "%files=data"),
        (
            "%worker=two",
            "two",
            "%worker cannot be 'two': expected a whole number from 0 to 1000",
            "=1",
        ),
        ("%worker=2.5", "2.5", "%worker cannot be '2.5'", "%worker=1"),
        ("%worker=++2", "++2", "%worker cannot be '++2': expected a whole number", "%worker=1"),
        ("%worker=-1", "-1", "%worker cannot be '-1'", "%worker=1"),
        ("%worker=1001", "1001", "expected a whole number from 0 to 1000", "%worker=1"),
        ("%worker=" + "9" * 5000, "9" * 5000, "99…'", "%worker=1"),
        ("%worker=٣", "٣", "%worker cannot be '٣'", "%worker=1"),
        ("%worker=1 2", "1 2", "%worker cannot be '1 2': expected a whole number", "%worker=1"),
        ("%worker='2", "'2", "expected a closing quote", "%worker=1"),
        ("%worker=2\\", "2\\", "expected a character after \\", "%worker=1"),
        ("%worker=2;cpu=1", "2;cpu=1", "%worker cannot be", "%worker=2;%cpu=…"),
        ("%worker=2 %ps=1", "2 %ps=1", "%worker cannot be", "%worker=2;%ps=…"),
        ("%worker=2, ps=1", "2, ps=1", "%worker cannot be", "%worker=2;%ps=…"),
        ("%nprocPerNode=0", "0", "a whole number from 1 to 128", "%nprocPerNode=2"),
        ("%gpu=all", "all", "a number from 0 to 64", "%gpu=1"),
        (
            "%lines=many",
            "many",
            "%lines cannot be 'many': expected a whole number from 1 to 100000, or all.",
            "%lines=all",
        ),
        ("%lines=0", "0", "expected a whole number from 1 to 100000, or all.", "%lines=all"),
        ("%lines=٣", "٣", "expected a whole number from 1 to 100000, or all.", "%lines=all"),
        ("%lines=100001", "100001", "expected a whole number from 1 to", "%lines=all"),
        ("%gpu=65", "65", "a number from 0 to 64", "%gpu=1"),
        ("%gpu=amd:1", "amd:1", "a resource and a number", "%gpu=1"),
        ("%detach=maybe", "maybe", "nothing, true or false", "%detach"),
        ("%deadline=soon", "soon", "a time such as 90s", "2h30m"),
        ("%deadline=0", "0", "a time such as 90s", "2h30m"),
        ("%deadline=2m1h", "2m1h", "a time such as 90s", "2h30m"),
        ("%deadline=999999999999d", "999999999999d", "a time such as", "2h30m"),
        ("%name=My_Job", "My_Job", "lower-case letters", "%name=mnist"),
        ("%name=" + "a" * 46, "a" * 46, "at most 45", "%name=mnist"),
        ("%name=1st", "1st", "starts with a letter", "%name=mnist"),
        ("%python=''", "''", "the path or the name of a Python interpreter", "%python="),
        # Quantities.
        ("%cpu=2 cores", "2 cores", "such as 2, 0.5 or 500m", "%cpu=2"),
        ("%cpu=0", "0", "such as 2, 0.5 or 500m", "%cpu=2"),
        ("%cpu=4Gi", "4Gi", "such as 2, 0.5 or 500m", "%cpu=2"),
        ("%memory=4GB", "4GB", "such as 4Gi or 512Mi", "%memory=4Gi"),
        ("%memory=4gi", "4gi", "such as 4Gi or 512Mi", "%memory=4Gi"),
        ("%memory=4", "4", "(4 is less than a megabyte)", "%memory=4Gi"),
        ("%memory=512m", "512m", "(512m is less than a megabyte)", "%memory=4Gi"),
        ("%memory=-1Gi", "-1Gi", "such as 4Gi or 512Mi", "%memory=4Gi"),
        # Choices offer the nearest.
        ("%runner=torchrum", "torchrum", "one of auto, python, torchrun", "=torchrun?"),
        ("%cleanPolicy=test", "test", "one of running, all, none", "%cleanPolicy=all"),
        ("%clean-policy=runing", "runing", "%clean-policy cannot be", "=running?"),
        ("%api=TFJob", "TFJob", "one of auto, v1, trainer, job", "=v1?"),
        ("%api=TrainJob", "TrainJob", "one of auto, v1, trainer, job", "=trainer?"),
        ("%api=jop", "jop", "one of auto, v1, trainer, job", "=job?"),
        ("%runner=TorchRum", "TorchRum", "one of auto, python, torchrun", "=torchrun?"),
        ("%envvar=", "%envvar=", "%envvar has no value: expected KEY=value", "%envvar="),
        ("%backend=lokal", "lokal", "one of auto, local", "%backend=local?"),
        ("%builder=floder", "floder", "one of auto, folder", "%builder=folder?"),
        # Things that do not go together.
        ("%cpu=1;%worker=2", "%cpu=1", "%cpu must follow the role", "to all roles"),
    ],
)
def test_a_wrong_directive(line: str, marked: str, message: str, hint: str) -> None:
    error = fail(TF + "# a comment\n" + line + "\nx = 1\n")
    assert isinstance(error, DirectiveError)
    assert error.line == 3
    assert error.text[error.column : error.column + error.width] == marked
    assert error.text == line
    assert message in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "line", "marked", "message", "hint"),
    [
        ("%framework=tensorfow\nx", 1, "tensorfow", "one of tensorflow, pytorch", "=tensorflow?"),
        (
            "%framework=mxnet\nx",
            1,
            "mxnet",
            "%framework cannot be 'mxnet'",
            "%framework=tensorflow",
        ),
        ("%framework=mxnet\nx", 1, "mxnet", "one of tensorflow, pytorch", "see docs/extending.md."),
        ("%framework=\nx", 1, "%framework=", "%framework has no value", "tensorflow"),
        ("\n%worker=2\nx", 2, "%worker=2", "the header has no %framework.", "%framework=NAME"),
        (PT + "%ps=1\nx", 2, "%ps=1", "pytorch has no role ps.", "master, worker"),
        (PT + "%chief=1;%cpu=1\nx", 2, "%chief=1", "pytorch has no role chief.", "master"),
        ("%ps=1\n" + PT + "x", 1, "%ps=1", "pytorch has no role ps.", "master, worker"),
        (TF + "%ps=1\n%worker=1\n%ps=2\nx", 4, "%ps=2", "twice: 1 in line 2, 2 here", "Keep one"),
        (TF + "%ps=1;%args=p\n%worker=2\nx", 2, "%args=p", "to all roles, not to %ps", "its own."),
        (TF + "%ps=1\n%worker=1;%cpu=1;%image=a/b\nx", 3, "%image=a/b", "not to %worker", "line"),
        (TF + "%ps=1;%envvar=A=1;%worker=2\nx", 2, "%envvar=…", "not to %ps alone.", "a line of"),
        (TF + PT + "x", 2, "%framework=pytorch", "twice: tensorflow in line 1", "Keep one"),
        (TF + "%ps=1;%cpu=1;%cpu=2\nx", 2, "%cpu=2", "twice: 1 in line 2", "Keep one"),
        (TF + "%cpu=1\n%cpu=2\nx", 3, "%cpu=2", "twice: 1 in line 2, 2 here", "Keep one"),
        (TF + "%detach\n%detach=no\nx", 3, "%detach=no", "twice, with different", "Keep one"),
        (TF + "%detach=no\n%detach\nx", 3, "%detach", "twice, with different", "Keep one"),
        (TF + "%envvar=A=1\n%envvar=A=2\nx", 3, "…", "first in line 2", "Keep one"),
        ("x = 1\n" + TF + "%wroker=2\n", 3, "%wroker", "unknown directive", "%worker?"),
        ("x = 1\n" + TF + "%worker=z\n", 3, "z", "%worker cannot be 'z'", "%worker=1"),
        ("x = 1\r" + TF + "\r\n%worker=z", 4, "z", "%worker cannot be 'z'", "%worker=1"),
    ],
)
def test_a_wrong_header(text: str, line: int, marked: str, message: str, hint: str) -> None:
    error = fail(text)
    assert isinstance(error, DirectiveError)
    assert error.line == line
    assert error.text[error.column : error.column + error.width] == marked
    assert message in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "line", "column", "message", "hint"),
    [
        # No code.
        (TF, 1, 0, "directives but no code", "training code"),
        (TF + "\n# later\n", 3, 0, "directives but no code", "training code"),
        (TF + "%ps=1\r\n\r\n", 3, 0, "directives but no code", "training code"),
        # IPython's lines, in the header and in the body.
        (TF + "!pip install x\nx", 2, 0, "!pip is IPython syntax", "Install packages"),
        (TF + "%pip install x\nx", 2, 0, "%pip is IPython syntax", "Install packages"),
        (TF + "!uv pip install x\nx", 2, 0, "!uv is IPython syntax", "the job: %packages=…"),
        (TF + "%%worker=2\nx", 2, 0, "%%worker is IPython syntax", "Did you mean %worker=…?"),
        (TF + "%%wroker = 2\nx", 2, 0, "%%wroker is IPython", "Did you mean %worker=…?"),
        ("%ciao\n" + TF + "x", 1, 0, "%ciao is IPython syntax", "Write %%ciao, or delete the"),
        ("%ciao jobs\n" + TF + "x", 1, 0, "%ciao is IPython syntax", "a plain cell"),
        (TF + "%env A=1\nx", 2, 0, "%env is IPython syntax", "write %envvar=NAME=VALUE."),
        (TF + "%env\nx", 2, 0, "%env is IPython syntax", "a plain cell"),
        (TF + "%matplotlib inline\nx", 2, 0, "%matplotlib is IPython syntax", "Let it save"),
        (TF + "  %cd data\nx", 2, 2, "%cd is IPython syntax", "a plain cell"),
        (TF + "%wroker 2\nx", 2, 0, "%wroker is IPython syntax", "Did you mean %worker=…?"),
        (TF + "%wram\nx", 2, 0, "%wram is IPython syntax", "Did you mean %warm?"),
        (TF + "% worker=2\nx", 2, 0, "the name of a directive is missing", "%worker=…?"),
        (TF + "%\nx", 2, 0, "the name of a directive is missing", "`%ciao magics`"),
        ("%%time\n" + TF + "x", 1, 0, "%%time is IPython syntax", "Leave it out"),
        ("%%capture\n" + TF + "x", 1, 0, "%%capture is IPython syntax", "a plain cell"),
        ("%%debug\n" + TF + "x", 1, 0, "%%debug is IPython syntax", "a plain cell"),
        ("%%prun\n" + TF + "x", 1, 0, "%%prun is IPython syntax", "a plain cell"),
        ("%%timeit\n" + TF + "x", 1, 0, "%%timeit is IPython syntax", "Leave it out"),
        (TF + "%%bash\nls", 2, 0, "%%bash is IPython syntax", "a plain cell"),
        ("%%ciao\n%%bash\nls", 2, 0, "%%bash is IPython syntax", "a plain cell"),
        ("%%ciao run\n" + TF + "x", 1, 0, "must be alone on its line", "%worker=2"),
        ("%%ciao jobs", 1, 0, "must be alone on its line", "one %, as in %ciao jobs. For a job,"),
        ("%%ciao worker=2\n", 1, 0, "must be alone on its line", "write directives on separate"),
        ("# train\n%%ciao\n" + TF + "x", 2, 0, "%%ciao must be at the very start", "to the top"),
        ("# train\n%%ciao\nx", 2, 0, "%%ciao must be at the very start", "to the top"),
        ("# train\n%%ciao jobs\nx", 2, 0, "must be alone on its line", "%worker=2"),
        ("x = 1\n%%ciao\n" + TF + "x", 2, 0, "%%ciao must be at the very start", "to the top"),
        (TF + "%%ciao\nx", 2, 0, "%%ciao must be at the very start", "to the top"),
        (TF + "x = 1\nif x:\n    !ls -l\ny", 4, 4, "!ls is IPython syntax", "a plain cell"),
        (TF + "x = 1\n%time f()\n", 3, 0, "%time is IPython syntax", "Leave it out"),
        (TF + "x = 1\n    %worker=2\n", 3, 4, "%worker is IPython syntax", "first column"),
        (TF + "x = 1\n%worker 2\n", 3, 0, "%worker is IPython syntax", "first column"),
        (TF + "x = 1\n!echo 'a\n", 3, 0, "!echo is IPython syntax", "a plain cell"),
        (TF + "x = 1\n?print\n", 3, 0, "?print is IPython syntax", "a plain cell"),
        (TF + "x = 1\nprint??\n", 3, 5, "?? is IPython syntax", "a plain cell"),
        (TF + "x = !ls\n", 2, 4, "!ls is IPython syntax", "a plain cell"),
        (TF + "x = %pwd\n", 2, 4, "%pwd is IPython syntax", "a plain cell"),
        # Wrong Python.
        (TF + "x = (1,\ny = 2\n", 2, 4, "", ""),
        (TF + "def f(:\n    pass\n", 2, 6, "", OLD),
        (TF + "x = 1\n  y = 2\n", 3, None, "indent", ""),
        (TF + "x = 'a\n!ls\n", 2, 4, "unterminated string", ""),
        (TF + "return 5\n", 2, None, "outside function", "into a function, or leave it out."),
        (TF + "for x in y:\n    yield x\n", 3, None, "outside function", "into a function"),
        (TF + "yield from x\n", 2, None, "outside function", "into a function"),
        (TF + "import os\nawait os\n", 3, None, "outside function", "asyncio.run(main())"),
        (TF + "x\nasync with x: pass\n", 3, None, "outside async", "asyncio.run(main())"),
        (TF + "[x async for x in y]\n", 2, None, "asynchronous", "asyncio.run(main())"),
        (TF + "def f():\n    await x\n", 3, None, "outside async", "asyncio.run(main())"),
        (TF + "x = 1\x01\n", 2, None, "non-printable character", ""),
        # What no file can hold.
        (TF + "x = '\0'", 2, 5, "a null byte", "Delete it"),
        ("%\0", 1, 1, "a null byte", "Delete it"),
        (TF.replace("\n", "\r") + "\rab\0", 3, 2, "a null byte", "Delete it"),
        (TF + "x = '\ud800'", 2, 5, "half a character (U+D800)", "Delete it"),
        (TF + "#" * body.MAX_BYTES, 0, 0, "1,048,598 bytes; 1,048,576 is", "%files"),
        (TF + "#" + "é" * (body.MAX_BYTES // 2), 0, 0, "1,048,576 is the limit", "%files"),
        # Encodings.
        ("# coding: latin-1\n" + TF + "x", 1, 0, "encoding latin-1", "Delete this line"),
        (TF + "#-*- coding=klingon\nx", 2, 0, "encoding klingon", "Delete this line"),
        (TF + "%args=--encoding=cp1252\nx", 2, 0, "Python would read this line", "third line"),
    ],
)
def test_a_wrong_body(text: str, line: int, column: int | None, message: str, hint: str) -> None:
    error = fail(text)
    assert isinstance(error, SourceError)
    assert error.line == line
    assert column is None or error.column == column
    assert message in error.message
    assert error.message.endswith((".", "?", "!"))
    assert hint in error.hint
    assert "\n".join(describe(error)).encode()  # Whatever was in the text, this can be sent.


@pytest.mark.parametrize(
    "text",
    [
        "# coding: utf-8\n" + TF + "x",
        TF + "# vim: set fileencoding=utf8 :\nx",
        "# coding: utf-8-sig\n" + TF + "x",
        TF + "%args=--encoding=UTF-8\nx",
        TF + "x = 1\n# coding: latin-1",
        TF + "\n%args=--encoding=cp1252\nx",
        "\ufeff# coding: utf-8\n" + TF + "x",
        TF + "#" * (body.MAX_BYTES - len(TF) - 2) + "\nx",
    ],
)
def test_what_only_looks_wrong(text: str) -> None:
    assert parse.parse(text, TABLE).spec.framework == "tensorflow"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("pullSecret", "imagePullSecret"),
        ("env", "envvar"),
        ("environment", "envvar"),
        ("secret", "envsecret"),
        ("cluster", "context"),
        ("ttlSecondsAfterFinished", "ttl"),
        ("mounts", "volume"),
        ("restart", "restartPolicy"),
        ("minimum", "min"),
        ("names", "name"),
        ("envs", "envvar"),
        ("ins", "inspect"),
        ("cores", "cpu"),
        ("envFrom", "envsecret"),
        ("cmd", "command"),
        ("accelerator", "gpu"),
        ("annotate", "annotations"),
        ("seed", None),
    ],
)
def test_the_directive_that_is_meant(name: str, meant: str | None) -> None:
    assert TABLE.nearest(name) == meant


def test_other_tools_names_are_no_directives_and_mean_some() -> None:
    assert {name for names in synonyms._OF.values() for name in names} <= {
        entry.name for entry in TABLE.entries
    }
    assert not list(filter(TABLE.find, synonyms._OF))


def test_python_s_error_comes_before_a_magic_further_down() -> None:
    assert "unmatched" in fail(TF + "x = )\n!ls\n").message


def test_a_newer_python_of_the_replicas_is_offered_and_not_refused() -> None:
    text = "%framework=python\nx = = 1\n"
    assert (
        fail(text).hint
        == f"{OLD}If the replicas have a newer one that can, name it: %python=python3…."
    )
    assert parse.parse(f"%python=python3.99\n{text}", TABLE).code.endswith("x = = 1\n")


def test_no_framework_in_a_cell_without_directives() -> None:
    error = fail("%%ciao\nx = 1\n")
    assert not isinstance(error, DirectiveError)
    assert "tensorflow, pytorch" in error.hint


def test_how_a_wide_line_is_shown() -> None:
    shown = describe(fail(TF + "%args=字e\u0301;%worker=字x"))[:2]
    assert shown == ["line 2: %args=字e\u0301;%worker=字x", " " * 26 + "^^^"]


def test_of_a_long_line_only_a_part_is_shown() -> None:
    for text, marked in (
        (TF + "%args=" + "a" * 2000 + ";%ps=no;%args=" + "b" * 2000, "no"),
        (TF + "%worker=" + "9" * 3000, "9" * 492),
        (TF + "x = '" + "a" * 3000 + "' )" + "b" * 3000, ")"),
    ):
        line, carets = describe(fail(text))[:2]
        assert len(line) <= len("line 2: ") + 502
        assert line[carets.index("^") : len(carets)] == marked


def test_how_an_error_is_shown() -> None:
    assert describe(fail(TF + "%ps=1\n\t%worker=2;%cpu=two\nx")) == [
        "line 3:  %worker=2;%cpu=two",
        "                        ^^^",
        "DirectiveError: %cpu cannot be 'two': "
        "expected processors in Kubernetes' notation, such as 2, 0.5 or 500m.",
        "For example: %worker=2;%cpu=2",
    ]


def unknown(follow: str, *options: str, groups: str = "%ps=1;%worker=2\n") -> DirectiveError | None:
    """What is wrong with a ``%follow`` of the header, or of the command line."""
    parsed = parse.parse(f"{TF}{groups}%follow={follow}\nx", TABLE)
    tokens = parsed.tokens + parse.option_tokens({"follow": list(options)} if options else {})
    spec = replace(parsed.spec, follow=options or parsed.spec.follow)
    try:
        spec_reader.check_follow(spec, tokens, TABLE)
    except DirectiveError as error:
        return error
    return None


def test_followed_roles_and_replicas_are_the_jobs() -> None:
    assert unknown("ps worker worker-0 worker-1 ps-0") is None
    for name, near in (("worker-2", "worker-0"), ("wroker", "worker"), ("chief", "")):
        error = unknown(f"ps {name}")
        assert error is not None
        assert error.message == f"this job has no role or replica {name!r}."
        assert error.text[error.column :] == f"ps {name}"
        hint = "It has ps (ps-0) and worker (worker-0 to worker-1)."
        assert error.hint.endswith(hint)
        assert error.hint.startswith("Did you mean " if near else hint)


def test_the_line_that_follows_what_is_not_there_is_shown() -> None:
    error = unknown("ps\n%follow=chief\n%follow=worker")
    assert error is not None
    assert (error.line, error.text) == (4, "%follow=chief")


@pytest.mark.parametrize(
    "name", ["time", "timeit", "env", "pip", "conda", "run", "load", "save", "cd", "ls"]
)
def test_ipythons_own_magics_are_no_slips_of_directives(name: str) -> None:
    error = fail(TF + f"%{name} x\nx")
    assert error.message == f"%{name} is IPython syntax; a job runs plain Python."
    assert "Did you mean" not in error.hint


def test_a_long_value_is_cut_in_the_message() -> None:
    assert f"cannot be '{'9' * 59}…'" in fail(TF + "%worker=" + "9" * 61 + "\nx").message
    assert f"cannot be '{'9' * 60}'" in fail(TF + "%worker=" + "9" * 60 + "\nx").message


def test_an_option_that_follows_what_is_not_there_is_to_blame_itself() -> None:
    error = unknown("worker-9", "worker-9")
    assert error is not None
    assert error.line == 0
    assert (unknown("worker-9") or error).line == 3


@pytest.mark.parametrize("name", ["nodeSelector", "labels", "annotations"])
def test_a_key_with_two_values(name: str) -> None:
    for lines in (f"%{name}=team=a team=b", f"%{name}=team=a\n%{name}=x=y team=b"):
        error = fail(f"{PT}{lines}\nx = 1\n")
        assert isinstance(error, DirectiveError)
        line = lines.count("\n") + 2
        first = ", first in line 2" if line == 3 else ""
        assert (error.line, error.message) == (line, f"team is given two values{first}.")
        assert error.hint == "Keep one of them."
    same = f"{PT}%{name}=team=a\n%{name}=team=a x=y\n%envvar=team=b\nx = 1\n"
    assert parse.parse(same, TABLE).spec.env == (("team", "b"),)


@pytest.mark.parametrize(
    ("lines", "shown", "marked", "message"),
    [
        ("%envvar=HUNTER", "%envvar=…", "…", "%envvar takes KEY=value, quoted as in a shell"),
        ("%envvar=1A=HUNTER", "%envvar=…", "…", "%envvar takes KEY=value"),
        ("%envvar=T=HUNTER x", "%envvar=…", "…", "%envvar takes KEY=value"),
        ("%envvar=T=HUNTER\n%envvar=T=HUNTER2", "%envvar=…", "…", "T is given two values"),
        ("%envvar=A=1 A=2  # why", "%envvar=…  # why", "…", "A is given two values."),
        ("%envvar=T='HUN;%TER", "%envvar=…", "…", "cannot be read: expected a closing quote."),
        ("%envvar=T=HUNTER;%cpu=x", "%envvar=…;%cpu=x", "x", "%cpu cannot be 'x'"),
        ("%cpu=x;%envvar=T=HUNTER", "%cpu=x;%envvar=…", "x", "%cpu cannot be 'x'"),
        ("%envvar=T=HUNTER %ps=1", "%envvar=…", "…", "%envvar takes KEY=value"),
        ("%env-vra=T=HUNTER", "%env-vra=…", "%env-vra", "unknown directive"),
        ("%worker=2 %envvar=HUNTER", "%worker=2 %envvar=…", "2 %envvar=…", "be '2 %envvar=…'"),
        ("%env T=HUNTER", "%env …", "%", "%env is IPython syntax"),
        ("%xyzzy=1;%envvar=T=HUNTER", "%xyzzy=1;%envvar=…", "%xyzzy", "unknown directive"),
        ("%envvar=;%envvar=T=HUNTER", "%envvar=;%envvar=…", "%envvar=", "%envvar has no value"),
    ],
)
def test_a_variables_value_is_in_no_error(
    lines: str, shown: str, marked: str, message: str
) -> None:
    error = fail(TF + lines + "\nx")
    assert isinstance(error, DirectiveError | SourceError)
    assert error.text == shown
    assert error.text[error.column : error.column + error.width] == marked
    assert message in error.message
    assert "HUN" not in "".join(describe(error))


@pytest.mark.parametrize("below", ["", "\nx", "\n\n\0"])
def test_nor_in_an_error_of_the_body(below: str) -> None:
    text = "%envvar=T='HUNTER' U=HUNTER\0" + below if "\0" in below else "%envvar=T=HUNTER\n"
    assert "HUNTER" not in "".join(describe(fail(TF + text)))


def test_very_deep_code_is_an_error_and_no_crash() -> None:
    assert isinstance(fail(TF + "(" * 5000 + ")" * 5000), SourceError)
    assert isinstance(fail(TF + "x = " + "-" * 300_000 + "1"), SourceError)


@pytest.mark.parametrize("directive", TABLE.entries, ids=lambda one: one.name)
@pytest.mark.parametrize("unit", ["a", "1", "a.", "a/", "a-", "a=", "a,", "a:", "1.", "1m", "a "])
def test_the_slip_at_the_end_of_a_long_value_is_found_at_once(
    directive: Directive, unit: str
) -> None:
    """A pattern that tries all ways to read what stands before it would never end."""
    for end in ("", "!", "A:", "@", "/:", "\x00"):
        with contextlib.suppress(ValueError):
            directive.kind.parse(unit * (400 // len(unit)) + end)


@pytest.mark.parametrize(
    "taints",
    ["key=gpu operator=Exists effect=NoSchedule", "gpu NoSchedule", "Effect=NoExecute", "key:x"],
)
def test_a_toleration_in_the_notation_of_yaml_is_refused(taints: str) -> None:
    error = fail(f"{TF}%toleration={taints}\npass")
    assert "gpu=yes:NoSchedule" in error.message


@pytest.mark.parametrize(
    "lines",
    ["%ps=0\n%worker=2;%args=--x 3", "%worker=2;%args=--x 3;%ps=0", "%worker=2;%args=--x 3"],
)
def test_a_role_without_replicas_is_no_other_role(lines: str) -> None:
    assert parse.parse(f"{TF}{lines}\npass", TABLE).spec.args == ("--x", "3")
    error = fail(f"{TF}%ps=0;%args=--x 3\n%worker=2\npass")
    assert "not to %ps alone" in error.message


def test_tolerated_taints() -> None:
    spec = parse.parse(f"{TF}%toleration=gpu=yes:NoSchedule spot:NoExecute a/key\npass", TABLE).spec
    assert spec.cluster.tolerations == ("gpu=yes:NoSchedule", "spot:NoExecute", "a/key")


@pytest.mark.parametrize(
    "image",
    [
        "TensorFlow/tensorflow:2.21",
        "Team/a.b:1",
        "registry.example.com/machinelearning/Training:1",
        "ghcr.io/my-organisation/tensorflow-gpu:2.21@sha256:abc",
        "registry.example.com/team/tensorflow/2.21:",
        "registry.example.com//",
        ":5000/",
    ],
)
def test_a_wrong_image(image: str) -> None:
    error = fail(f"{TF}%image={image}\npass")
    assert f"%image cannot be '{image}': expected an image such as" in error.message


@pytest.mark.parametrize("host", ["registry.example.com", "localhost", "localhost:5000", "cells:1"])
def test_a_registry_without_a_repository(host: str) -> None:
    """Such a name is one of Docker Hub: docker.io/library/registry.example.com."""
    error = fail(f"{TF}%registry={host}\npass")
    assert error.message.endswith(
        f"%registry cannot be '{host}': expected HOST/PATH, a path after the host: "
        "registry.example.com/team/cells."
    )


@pytest.mark.parametrize(
    "repository", ["host:5000/cells:prod", "ada/cells:1", f"host/cells@sha256:{'0' * 64}"]
)
def test_a_repository_with_a_tag(repository: str) -> None:
    """Tags of images are digests of their contents: the tag would not be used."""
    error = fail(f"{TF}%registry={repository}\npass")
    assert error.message.endswith(
        "expected a repository without a tag or a digest: registry.example.com/team/cells."
    )


@pytest.mark.parametrize("repository", ["cells", "ada/cells", "localhost/cells", "host:5000/cells"])
def test_a_repository_of_a_registry(repository: str) -> None:
    spec = parse.parse(f"{TF}%registry={repository}\npass", TABLE).spec
    assert spec.build.registry == repository


@pytest.mark.parametrize(
    "image",
    [
        "a",
        "a:1",
        "host:5000/a/b_c/d-e.f:V1",
        "HOST.x/a@sha256:" + "0" * 64,
        "a__b//c",
        "team/a:1",
        "localhost/a",
    ],
)
def test_an_image(image: str) -> None:
    assert parse.parse(f"{TF}%image={image}\npass", TABLE).spec.cluster.image == image


@pytest.mark.parametrize(
    "code",
    [
        "for step in range(3)\n    pass",
        "print(f'loss {loss}'",
        "x = 'abc",
        "print(f'loss)",
        "print('loss' loss)",
        "print(1))",
        "x = [1)",
        "  x = 1",
        "if x:\n        y\n    z",
        "for x in y:\nz",
        "f(x) = 1",
        "print 'x'",
        "if x = 3: pass",
        "print(“x”)",
        "x = 08",
    ],
)
def test_a_mistake_of_every_python_is_not_about_versions(code: str) -> None:
    assert fail(f"%framework=python\n{code}\n").hint == ""


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("invalid syntax", "type X = int"),
        ("expected '('", "def f[T](x): pass"),
        ("multiple exception types must be parenthesized", "except A, B:"),
        ("f-string: unmatched '['", "print(f'{d['x']}')"),
        ("f-string expression part cannot include a backslash", "f'{x\\n}'"),
        ("unterminated string literal (detected at line 1)", "x = f'{d["),
        ("invalid syntax. Perhaps you forgot a comma?", "print('a', t'b {c}')"),
    ],
)
def test_the_words_of_an_old_python_for_newer_syntax_offer_a_newer_one(
    message: str, line: str
) -> None:
    assert may_be_newer(message, line)
