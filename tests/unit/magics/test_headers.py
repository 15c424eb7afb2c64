"""Which lines are directives, where their parts stand, and what is delivered."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from ciao_kernel.errors import DirectiveError, SourceError, SpecError, UsageError
from ciao_kernel.magics import body, header, parse, spec_reader
from ciao_kernel.magics.header import Style
from ciao_kernel.magics.render import render
from ciao_kernel.magics.scanned_cell import ScannedCell, scan_job
from ciao_kernel.model import Gpu, Replica, ReplicaGroup, Resources
from ciao_kernel.session.plugin_registry import Registry

TABLE = Registry(third_party={}).table
HEAD = "%framework=tensorflow\n"


def tokens(text: str, style: Style = Style.CELL) -> list[tuple[int, str, str | None]]:
    found = header.scan(text, TABLE, style).tokens
    return [(token.line.number, token.name, token.value) for token in found]


def code(text: str, style: Style = Style.CELL) -> str:
    return parse.parse(text, TABLE, style=style, default_framework="tensorflow").code


# ------------------------------------------------------------------------------ what counts


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%worker=2", [(1, "worker", "2")]),
        ("%worker 2", [(1, "worker", "2")]),
        ("%worker = 2  ", [(1, "worker", "2")]),
        ("%worker=12;", [(1, "worker", "12")]),
        ("%worker=12 ;", [(1, "worker", "12")]),
        (r"%args=a\;", [(1, "args", r"a\;")]),
        ("%worker=", [(1, "worker", "")]),
        ("%worker", [(1, "worker", None)]),
        ("%detach", [(1, "detach", None)]),
        ("  %worker=2", [(1, "worker", "2")]),
        ("\t%worker=2", [(1, "worker", "2")]),
        ("\f%worker=2", [(1, "worker", "2")]),
        ("%worker=2  # two are enough", [(1, "worker", "2")]),
        ("%worker=2;%cpu=1", [(1, "worker", "2"), (1, "cpu", "1")]),
        ("%worker=2 ; %cpu=1;\t%gpu=1", [(1, "worker", "2"), (1, "cpu", "1"), (1, "gpu", "1")]),
        ("%args='a;%b' c", [(1, "args", "'a;%b' c")]),
        ('%args="a;%b" c', [(1, "args", '"a;%b" c')]),
        (r"%args=a\;%b", [(1, "args", r"a\;%b")]),
        ("%args=a;b", [(1, "args", "a;b")]),
        ("%args='a #b' c # d", [(1, "args", "'a #b' c")]),
        (r"""%args="a\";%b" c""", [(1, "args", r""""a\";%b" c""")]),
        ('%args="" "a;%b"', [(1, "args", '"" "a;%b"')]),
        ("%args='' 'a;%b'", [(1, "args", "'' 'a;%b'")]),
        ('%args="open;%worker=2', [(1, "args", '"open'), (1, "worker", "2")]),
        ("%worker=2\t# two", [(1, "worker", "2")]),
        ("%envvar=COLOR=#fff", [(1, "envvar", "COLOR=#fff")]),
        ("%args='open;%worker=2", [(1, "args", "'open"), (1, "worker", "2")]),
        ("%wroker=2", [(1, "wroker", "2")]),
        ("%worker=2;%", [(1, "worker", "2"), (1, "", None)]),
        ("%Clean-Policy=all", [(1, "Clean-Policy", "all")]),
        ("%matplotlib inline", []),
        ("%cd data", []),
        ("%", []),
        ("% worker=2", []),
        ("!ls", []),
        ("x = 5 %worker", []),
    ],
)
def test_one_line(line: str, expected: list[tuple[int, str, str | None]]) -> None:
    assert tokens(line) == expected
    assert bool(scan_job(line, TABLE)) == bool(expected)


def test_header_ends_at_the_first_other_line() -> None:
    text = "\n# a comment\n%framework=pytorch\n   \n%worker=2\nx = 1\n%ps=1\n"
    head = header.scan(text, TABLE)
    assert [token.name for token in head.tokens] == ["framework", "worker"]
    assert head.body is not None
    assert (head.body.number, head.body.text) == (6, "x = 1")
    assert head.last is not None
    assert head.last.number == 5


def test_columns_of_a_directive() -> None:
    (first, second) = header.scan("  %worker = 2 ;  %cpu=500m # note", TABLE).tokens
    assert (first.column, first.name_column, first.name_end) == (2, 3, 9)
    assert (first.value_column, first.end) == (12, 13)
    assert (second.column, second.value_column, second.end) == (17, 22, 26)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(end: str) -> None:
    text = end.join(["%framework=pytorch", "%worker=2", "", "x = 1", "y = 2"])
    assert tokens(text) == [(1, "framework", "pytorch"), (2, "worker", "2")]
    assert code(text) == end.join(["#%framework=pytorch", "#%worker=2", "", "x = 1", "y = 2"])
    assert code(text + end) == code(text) + end


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\x85", "\x0b", "\x1c", "\x1e", "\f"])
def test_what_python_takes_for_no_line_end_is_none(odd: str) -> None:
    text = HEAD + f"x = 'a{odd}%worker=7'\n"
    assert code(text) == "#" + text
    assert [line.number for line in header.lines(f"a{odd}b\nc")] == [1, 2]
    # … and in the value of a directive it stays where it is.
    assert tokens(f"%args='a{odd}b'\nx") == [(1, "args", f"'a{odd}b'")]


def test_blanks_of_web_pages_do_not_spoil_a_header() -> None:
    text = "\ufeff%framework=tensorflow\n\xa0%worker=2\xa0\nx = 1\n"
    parsed = parse.parse(text, TABLE)
    assert parsed.spec.count("worker") == 2
    assert parsed.code == "\ufeff#%framework=tensorflow\n#\xa0%worker=2\xa0\nx = 1\n"
    compile(parsed.code.encode(), "cell", "exec")
    joined = parse.parse("%framework=tensorflow;\xa0%worker=2;\xa0%cpu=1\nx = 1\n", TABLE).spec
    assert (joined.count("worker"), joined.asks("worker").cpu) == (2, "1")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  %worker=2", "  #%worker=2"),
        ("\t\f%worker=2", "\t\f#%worker=2"),
        (" \xa0%worker=2", "# \xa0%worker=2"),
        # Python removes such a mark only at the start of a file.
        ("\ufeff%worker=2", "#\ufeff%worker=2"),
    ],
)
def test_an_indented_directive_becomes_a_comment_that_python_reads(
    line: str, expected: str
) -> None:
    assert code(f"{HEAD}{line}\nx = 1") == f"#{HEAD}{expected}\nx = 1"


@pytest.mark.parametrize(
    ("text", "expected"), [("", [""]), ("a", ["a"]), ("a\n", ["a"]), ("\n\n", ["", ""])]
)
def test_behind_the_last_line_end_is_no_line(text: str, expected: list[str]) -> None:
    assert [line.text for line in header.lines(text)] == expected


def test_unicode_outside_the_header_is_untouched() -> None:
    text = HEAD + "# naïve 你好 🚀\nπ = 'ö\u0301%worker=2'\n"
    assert code(text) == "#" + text


# --------------------------------------------------------------------------- cells and magics


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%%ciao\n%worker=2\nx = 1\n", "#%%ciao\n#%worker=2\nx = 1\n"),
        ("%%ciao  \r\n%worker=2\r\nx", "#%%ciao  \r\n#%worker=2\r\nx"),
        ("\n \n%%ciao\n%worker=2\nx = 1", "\n \n#%%ciao\n#%worker=2\nx = 1"),
        ("%%ciao\nx = 1\n", "#%%ciao\nx = 1\n"),
        ("\ufeff%%ciao\n%worker=2\nx = 1\n", "\ufeff#%%ciao\n#%worker=2\nx = 1\n"),
        ("\t\n\f\r\n\r%%ciao\t\nx = 1\n", "\t\n\f\r\n\r#%%ciao\t\nx = 1\n"),
        ("%%ciao\rx = 1\r", "#%%ciao\rx = 1\r"),
    ],
)
def test_cell_magic(text: str, expected: str) -> None:
    assert scan_job(text, TABLE)
    assert code(text) == expected


def test_a_cell_magic_below_a_comment_is_an_error_of_the_header() -> None:
    """IPython would say that there is no magic of that name."""
    text = "%%ciao\n%framework=tensorflow\nimport os\n"
    (misplaced,) = header.scan("# train\n" + text, TABLE).foreign
    assert (misplaced.number, misplaced.text) == (2, "%%ciao")
    assert scan_job("# train\n" + text, TABLE)
    assert not scan_job("  " + text, TABLE)  # IPython removes the blanks, and knows it then
    assert scan_job("# train\n%%ciao\nimport os\n", TABLE)
    assert scan_job("# all jobs\n%%ciao jobs\nx", TABLE)
    assert not scan_job("# train\n%%time\n%%ciao\nx", TABLE)  # it runs the text below as a cell
    assert not scan_job("# train\n%%ciaone\nx", TABLE)


@pytest.mark.parametrize("magic", ["%%bash", "%%writefile train.py", "%%html", "%%", "%%ciaone"])
def test_a_cell_of_another_magic_is_that_magics_alone(magic: str) -> None:
    text = f"{magic}\n%framework=tensorflow\n%worker=2\nimport os\n%ps=1\n"
    assert not scan_job(text, TABLE)
    assert not scan_job("\n" + text, TABLE)


@pytest.mark.parametrize(
    "text",
    [
        "x = 1",
        "",
        "\n",
        "# %worker=2",
        "#%worker=2\nx = 1",
        "!ls\n%matplotlib inline\nx = 1",
        "%ciao jobs",
        "%time x = 5",
        "%timeit worker=2",
        "x = '''\n%worker=2\n'''",
        'f"""{x:\n%worker=2}"""',
        "x = (5\n%worker==2)",
        "x = 5 \\\n%worker==2",
        "x = {'a': 1,\n%framework=tensorflow\n",
        "'unclosed\n%worker=2\n",
        "x = \\\n%worker=2\n",
        "x = 1\n%worker 2\n",
        "x = 1\n%wroker=2\n",
        "x = 1\n%wroker=2\ns = '''\n%worker=2\n'''\n",
        "x = 1\n%worker 2;%foo=1\ns = '''\n%ps=1\n'''\n",
        "!echo 'a\nx = '''\n%worker=2\n'''",
    ],
)
def test_plain_cells(text: str) -> None:
    assert not scan_job(text, TABLE)


@pytest.mark.parametrize(
    "text",
    [
        "%worker=2",
        "x = 1\n%worker=2",
        "x = 1\r%worker=2;%cpu=1",
        "x = 1\n%Worker = 2",
        "x = 1\n%worker\t=2",
        "%%ciao",
        '!echo "it\'s"\nx = 1\n%worker=2',
        "def f():\n    return '''\n%ps=1\n'''\n%worker = 2\nf()",
        "if x:\n    y = 1\n%worker=2\n",
        "x = 1\n%wroker=2\n%worker=2\n",
    ],
)
def test_job_cells(text: str) -> None:
    assert scan_job(text, TABLE)


# ------------------------------------------------------------------------- never eaten, never moved


@pytest.mark.parametrize(
    "program",
    [
        's = """\n%worker=2\n"""\n',
        "s = '''\n%worker=2\n%ps=1'''\n",
        's = rb"""\n%worker=2"""\n',
        's = f"""\n{1}\n%worker={2}\n"""\n',
        's = f"""{"a":\n%worker=2}"""\n',
        "x = 7\nworker = 2\ny = (x\n%worker)\nz = [x\n%worker==1]\n",
        "x = 7\nworker = 2\ny = x \\\n%worker\nz = x \\\n%worker==2\n",
        "s = 'a\\\n%worker=2'\n",
        "d = {\n'a': '''\n%worker=2;%cpu=1\n''',\n}\n",
        "# %worker=2\nx = 1  # %worker=2\n#%worker=2\n",
    ],
)
def test_the_programs_own_percent_signs(program: str) -> None:
    if 'f"""{"a":' not in program:
        compile(program, "program", "exec")
    assert not scan_job(program, TABLE)
    text = "%framework=tensorflow\n\nimport os\n" + program
    assert parse.parse(text, TABLE, check_syntax=False).code == "#" + text
    assert parse.parse(text, TABLE, check_syntax=False).spec.groups == ()


def test_directives_below_beside_strings_that_look_alike() -> None:
    text = 's = """\n%worker=9\n"""\n%framework=tensorflow\n%worker=2\nt = f(\n"""\n%ps=1"""\n)\n'
    parsed = parse.parse(text, TABLE)
    assert parsed.spec.groups == (ReplicaGroup("worker", 2),)
    assert parsed.code == text.replace("\n%framework", "\n#%framework").replace(
        "\n%worker=2", "\n#%worker=2"
    )


# ----------------------------------------------------------------------------------- files


def test_file_style() -> None:
    text = (
        "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n#%% a cell of an editor\n"
        "#%framework=pytorch\n#%worker=2;%cpu=1  # two\n#%detach\n\nimport os\n#%worker=3\n"
    )
    parsed = parse.parse(text, TABLE, style=Style.FILE)
    assert parsed.code == text
    assert parsed.spec.groups == (ReplicaGroup("worker", 2, Resources(cpu="1")),)
    assert parsed.spec.detach
    assert [token.line.number for token in parsed.tokens] == [4, 5, 5, 6]
    assert scan_job(text, TABLE, Style.FILE)
    assert not scan_job(text, TABLE)


def test_file_as_formatters_and_notebook_tools_write_it() -> None:
    text = (
        "# %%\n# %matplotlib inline\n# %cpu of the host\n# %framework=pytorch\n"
        "# %worker=2\n# %dryrun\nimport os\n"
    )
    parsed = parse.parse(text, TABLE, style=Style.FILE)
    assert parsed.spec.count("worker") == 2
    assert parsed.spec.dryrun
    assert parsed.code == text


def test_comments_in_a_file_are_not_directives() -> None:
    assert tokens("#see a;%worker=2\n# see a;%worker=2\n", Style.FILE) == []
    assert tokens("# 5 %worker=2\n#worker=2\n##%worker=2\n#% of\n#%done\nx", Style.FILE) == []
    assert not scan_job("x = 1\n#%worker=2\n", TABLE, Style.FILE)


def test_behind_a_blank_only_what_can_be_nothing_else_counts_in_a_file() -> None:
    assert tokens("#%worker 2\n#%worker\n", Style.FILE) == [(1, "worker", "2"), (2, "worker", None)]
    assert tokens("# %detach\n#\t%worker=2\n", Style.FILE) == [
        (1, "detach", None),
        (2, "worker", "2"),
    ]
    prose = "# %worker 2\n# %worker\n# %detach from it\n# %unknown=2\n# %unknown\n"
    assert tokens(prose, Style.FILE) == []


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("# %workers=3", "unknown directive %workers.", "Did you mean %worker?"),
        ("# %replicas=3", "unknown directive %replicas.", "Did you mean %worker?"),
        ("# % worker=3", "a directive has no name.", "Did you mean %worker?"),
        ("#% worker=3", "a directive has no name.", "Did you mean %worker?"),
        ("#%%worker=3", "a directive has no name.", "Did you mean %worker?"),
        ("#%%Worker = 3", "a directive has no name.", "Did you mean %worker?"),
        ("#%%worker\t= 3", "a directive has no name.", "Did you mean %worker?"),
        ("#%\tWorker\t= 3", "a directive has no name.", "Did you mean %worker?"),
        ("#%\xa0worker=3", "a directive has no name.", "Did you mean %worker?"),
        ("# %worker: 3", "a colon follows %worker.", "Write = instead"),
        ("# % image = a/b", "a directive has no name.", "Did you mean %image?"),
        ("# %image: a/b", "a colon follows %image.", "Write = instead"),
        ("# %worker:3", "a colon follows %worker.", "Write = instead"),
        ("# %cp=3", "unknown directive %cp.", "Did you mean %cpu?"),
        ("# %worker=1;%xyzzy=3", "unknown directive %xyzzy.", "`%ciao magics` lists"),
        ("#%worker=1;%xyzzy=3", "unknown directive %xyzzy.", "`%ciao magics` lists"),
    ],
)
@pytest.mark.parametrize("place", ["above", "below"])
def test_a_slip_beside_a_directive_of_a_file_is_no_comment(
    line: str, message: str, hint: str, place: str
) -> None:
    lines = [line, "# %framework=pytorch"]
    text = "\n".join([*(lines if place == "above" else lines[::-1]), "import os\n"])
    with pytest.raises(DirectiveError) as caught:
        parse.parse(text, TABLE, style=Style.FILE)
    assert (caught.value.line, caught.value.message) == (1 if place == "above" else 2, message)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("# %date = 3", "%date"),
        ("# %username=me", "%username"),
        ("#%loss=0.3 is good", ""),
        ("# %loss=0.3 is good", "%loss"),
        ("# % gpu = 80 percent", "%gpu"),
        ("# %gpu: 80 is what we saw", "%gpu"),
    ],
)
def test_prose_that_looks_like_a_directive_of_a_file_stays_a_comment_and_is_told(
    line: str, name: str
) -> None:
    text = f"# %framework=pytorch\n{line}\n# %s = a name\n# %gpu of each\nimport os\n"
    if not name:  # a mark without a blank is meant
        with pytest.raises(DirectiveError, match="unknown directive %loss"):
            parse.parse(text, TABLE, style=Style.FILE)
        return
    parsed = parse.parse(text, TABLE, style=Style.FILE)
    assert [token.name for token in parsed.tokens] == ["framework"]
    (note,) = parsed.notes
    assert note.startswith(f"line 2 is a comment, no directive ({name}): ")
    told = (
        "a directive is written as %worker=2;%gpu=1 behind #."
        if name == "%gpu"
        else "`%ciao magics`"
    )
    assert told in note


def test_a_role_in_a_file_needs_no_equals_sign_and_prose_stays_prose() -> None:
    text = (
        "# %% imports\n# %framework=pytorch\n# %worker 3\n# %memory 1Gi\n# %memory of each\n"
        "# %detach from it\n# %s = a name\n# %unknown\n# %% title = x\n# %config A.b = 'c'\n"
        "# %args of it\n# %workers of them\n# %p = the power\n"
        "import os\n"
    )
    spec = parse.parse(text, TABLE, style=Style.FILE).spec
    assert (spec.count("worker"), spec.resources.memory, spec.detach) == (3, "1Gi", False)
    assert spec.args == ()


def notes(text: str) -> tuple[str, ...]:
    return parse.parse(text, TABLE, style=Style.FILE, default_framework="pytorch").notes


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_directive_below_the_header_of_a_file_is_told(end: str) -> None:
    header = ["#%framework=pytorch", "import os", "# %worker=3", "# %%", "#%gpu = 1", "#%gpu=1", ""]
    (note,) = notes(end.join(header))
    assert note.startswith("line 3 is a comment, no directive (%worker, %gpu): the header ends at")
    (note,) = notes(end.join(['"""Trains."""', "", "#%worker=3", "import os", ""]))
    assert note.startswith("line 3 is a comment, no directive (%worker):")


def test_other_comments_below_the_header_are_not_told() -> None:
    strings = 's = """\n#%worker=3\n"""\nx = [\n#%worker=3\n]\n'
    comments = "# %matplotlib inline\n# %foo=1\n  # %worker=2\n# a %worker=2\n# %% worker=2\n"
    assert notes(f"#%framework=pytorch\nimport os\n{strings}{comments}") == ()
    assert notes("#%framework=pytorch\n#%worker=2\nimport os\n") == ()


def test_cell_directives_in_a_file_say_how_it_is_done() -> None:
    with pytest.raises(SourceError) as caught:
        parse.parse("#%framework=pytorch\n%worker=2\nx = 1\n", TABLE, style=Style.FILE)
    assert caught.value.line == 2
    assert "#%worker=" in caught.value.hint
    with pytest.raises(SourceError, match="%worker is IPython syntax"):
        parse.parse("#%framework=pytorch\nx = 1\n%worker=2\n", TABLE, style=Style.FILE)
    assert not scan_job("%%ciao\nx = 1\n", TABLE, Style.FILE)
    assert not scan_job("%%ciao\n#%worker=2\nx = 1\n", TABLE, Style.FILE)


# ------------------------------------------------------------------------------- what it means


def test_resources_belong_to_the_role_in_front() -> None:
    spec = parse.parse(
        HEAD + "%cpu=1;%memory=2Gi\n%ps=1;%cpu=2;%worker=2;%gpu=amd.com/gpu:3\nx", TABLE
    ).spec
    assert spec.resources == Resources(cpu="1", memory="2Gi")
    assert spec.groups == (
        ReplicaGroup("ps", 1, Resources(cpu="2")),
        ReplicaGroup("worker", 2, Resources(gpu=Gpu(3, "amd.com/gpu"))),
    )
    assert spec.asks("ps") == Resources(cpu="2", memory="2Gi")
    assert spec.asks("worker") == Resources("1", "2Gi", Gpu(3, "amd.com/gpu"))
    assert spec.replicas() == (Replica("ps", 0), Replica("worker", 0), Replica("worker", 1))


@pytest.mark.parametrize(
    "lines",
    [
        "%worker=2;%args=a;%image=b",
        "%args=a;%image=b\n%ps=1\n%worker=2",
        "%args=a;%image=b;%ps=1;%worker=2",
        "%ps=1;%worker=2;%args=a;%image=b",
    ],
)
def test_what_is_for_all_roles_is_behind_none_or_behind_all(lines: str) -> None:
    spec = parse.parse(f"{HEAD}{lines}\nx", TABLE).spec
    assert (spec.args, spec.cluster.image) == (("a",), "b")


def test_the_same_resource_for_two_roles_and_for_all_is_no_contradiction() -> None:
    text = HEAD + "%cpu=1\n%ps=1;%cpu=2\n%worker=2;%cpu=3\nx"
    spec = parse.parse(text, TABLE).spec
    assert [spec.asks(role).cpu for role in ("ps", "worker", "chief")] == ["2", "3", "1"]


def test_gpu_0_for_one_role() -> None:
    spec = parse.parse(HEAD + "%gpu=1\n%ps=1;%gpu=0\n%worker=1\nx", TABLE).spec
    assert spec.asks("ps").gpu == Gpu(0)
    assert spec.asks("worker").gpu == Gpu(1)


def test_repeating_a_value_is_allowed_and_lists_add_up() -> None:
    text = HEAD + "%worker=2\n%worker=+2\n%args=a 'b c'\n%args=d\n%envvar=A=1 B=\n%envvar=A=1\nx"
    spec = parse.parse(text, TABLE).spec
    assert spec.count("worker") == 2
    assert spec.args == ("a", "b c", "d")
    assert dict(spec.env) == {"A": "1", "B": ""}


def test_flags() -> None:
    assert parse.parse(HEAD + "%detach\nx", TABLE).spec.detach
    assert parse.parse(HEAD + "%detach=TRUE\nx", TABLE).spec.detach
    assert not parse.parse(HEAD + "%detach=no\nx", TABLE).spec.detach


def test_default_framework_only_where_none_is_named() -> None:
    assert parse.parse("%worker=1\nx", TABLE, default_framework="pytorch").spec.framework == (
        "pytorch"
    )
    text = "%framework=TensorFlow\nx"
    assert parse.parse(text, TABLE, default_framework="pytorch").spec.framework == "tensorflow"


def test_options_of_a_command_line() -> None:
    options = {
        "framework": ["tensorflow"],
        "worker": ["2;%cpu=2"],
        "memory": ["1Gi"],
        "clean-policy": ["all"],
        "args": ["--a 'b c'"],
        "detach": ["true"],
    }
    spec = spec_reader.read(parse.option_tokens(options), TABLE, None)
    assert spec.groups == (ReplicaGroup("worker", 2, Resources(cpu="2")),)
    assert spec.resources == Resources(memory="1Gi")
    assert spec.args == ("--a", "b c")
    assert spec.clean_policy == "all"
    assert spec.detach
    assert spec_reader.read((), TABLE, "pytorch").framework == "pytorch"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"worker": ["two"]}, "--worker cannot be 'two'"),
        ({"worker": ["2\n%ps=1"]}, "--worker cannot be"),
        (
            {"worker": ["2;%args=a"], "ps": ["1"]},
            "--args applies to all roles, not to --worker alone.",
        ),
        ({"worker": ["1", "2"]}, "--worker is given twice: 1, 2 here."),
        ({"clean-policy": ["al"]}, "--clean-policy cannot be 'al'"),
        ({"envvar": ["A=b\n'%x'=", "'A=\n'"]}, "--envvar takes KEY=value"),
    ],
)
def test_errors_of_options_name_the_option_and_no_line(
    options: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(DirectiveError) as caught:
        spec_reader.read(parse.option_tokens(options), TABLE, "tensorflow")
    assert message in caught.value.message
    assert caught.value.line == 0


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("worker", "two", "For example: --worker=1"),
        ("cpu", "x", "For example: --cpu=2"),
        ("nproc-per-node", "0", "For example: --nproc-per-node=2"),
        ("args", "'", 'For example: --args="--epochs 3 --lr 0.1"'),
        ("detach", "maybe", "For example: --detach"),
        ("clean-policy", "al", "Did you mean --clean-policy=all?"),
        ("worker", "1;%ps=x", "For example: --ps=1"),
    ],
)
def test_hints_for_options_are_options(name: str, value: str, hint: str) -> None:
    with pytest.raises(DirectiveError) as caught:
        spec_reader.read(parse.option_tokens({name: [value]}), TABLE, "tensorflow")
    assert caught.value.hint == hint


def test_what_options_lack_or_say_twice_is_in_no_line() -> None:
    with pytest.raises(UsageError) as lacking:
        spec_reader.read(parse.option_tokens({"worker": ["1"]}), TABLE, None)
    assert not isinstance(lacking.value, DirectiveError)
    assert lacking.value.message == "no framework is given."
    with pytest.raises(DirectiveError) as twice:
        spec_reader.read(parse.option_tokens({"envvar": ["A=1", "A=2"]}), TABLE, "pytorch")
    assert twice.value.message == "A is given two values."


def test_a_header_for_eyes_has_no_values_of_variables() -> None:
    text = "%framework=pytorch\n%cpu=1\n%worker=2;%cpu=2;%gpu=1\n%envvar=A=1 B=x\n%args='a b'\n"
    spec = parse.parse(text + "x", TABLE).spec
    assert render(spec, TABLE) == text
    assert render(spec, TABLE, secrets=False) == text.replace("A=1 B=x", "A=… B=…")
    assert render(spec, TABLE, Style.FILE) == "".join(f"#{line}\n" for line in text.splitlines())


def test_an_error_of_a_framework_or_backend_finds_its_line() -> None:
    text = HEAD + "%files=a,b\n%files=c\n%files='d e'\n%worker=2\nx"
    parsed = parse.parse(text, TABLE)

    def place(directive: str, word: str = "") -> tuple[str, str]:
        error = parsed.locate(SpecError("%files and %worker.", directive=directive, word=word))
        assert isinstance(error, DirectiveError)
        assert error.message == "%files and %worker."
        return error.text, error.text[error.column : error.column + error.width]

    assert place("worker") == ("%worker=2", "%worker=2")
    assert place("files") == ("%files='d e'", "%files='d e'"), "the last one wins"
    assert place("files", "c") == ("%files=c", "c")
    assert place("files", "b") == ("%files=a,b", "a,b")
    assert place("files", "d e") == ("%files='d e'", "'d e'")
    assert place("files", "nowhere") == ("%files='d e'", "%files='d e'")


def test_an_error_about_an_option_names_options() -> None:
    parsed = parse.parse(HEAD + "%clean-policy=all\nx", TABLE)
    tokens = parsed.tokens + parse.option_tokens({"clean-policy": ["none"]})
    error = replace(parsed, tokens=tokens).locate(
        SpecError(
            "%cleanPolicy with %ttl, no %ciao.", "Drop %nprocPerNode.", directive="cleanPolicy"
        )
    )
    assert (error.message, error.hint) == (
        "--clean-policy with --ttl, no %ciao.",
        "Drop --nproc-per-node.",
    )


def test_another_interpreter_compiles_for_itself() -> None:
    assert parse.parse(HEAD + "print 'old'\n", TABLE, check_syntax=False)
    text = HEAD + "%python=python2\nprint 'old'\n"
    assert parse.parse(text, TABLE).spec.python == "python2"
    with pytest.raises(SourceError, match="IPython syntax"):
        parse.parse(text + "%matplotlib inline\n", TABLE)


# ----------------------------------------------------------------------------------- costs


def test_many_directives_below_code_cost_few_compilations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []
    real = body.syntax_error
    monkeypatch.setattr(body, "syntax_error", lambda code: calls.append(1) or real(code))
    text = "x = 1\n" + "%worker=1\n" * 10_000 + "%framework=tensorflow\n"
    assert scan_job(text, TABLE)
    assert parse.parse(text, TABLE).code.count("\n#%worker=1") == 10_000
    assert len(calls) <= 3


def test_a_plain_cell_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "syntax_error", lambda _: pytest.fail("compiled"))
    monkeypatch.setattr(body, "starts", lambda _: pytest.fail("read"))
    text = "\n".join(f"x{i} = '%s of %worker=2' % {i}  # %ps=1" for i in range(50))
    assert not scan_job(text, TABLE)
    assert not scan_job("%matplotlib inline\n!ls\n%cd ..\n" + text, TABLE)


MEGABYTES = [
    HEAD + "%args=" + "a" * 900_000 + "\nx",
    HEAD + "%args=" + "; " * 400_000 + "\nx",
    HEAD + "%follow=worker\n" * 20_000 + "x",
    "%\n" * 60_000,
    "x\n%worker=1\n" + '"\n' * 300_000,
]
MORE_MEGABYTES = [
    HEAD + "%args=" + "'" * 900_001 + "\nx",
    HEAD + "%args=" + '"\\' * 400_000 + "\nx",
    HEAD + "%worker=1" + ";%worker=1" * 20_000 + "\nx",
    HEAD + "%envvar=A=1\n" * 20_000 + "x",
    HEAD + "(" * 900_000,
    HEAD + "-" * 900_000 + "1",
    "\r" * 100_000,
    "x\n%worker=1\n" + 'f"' + "{x:" * 200_000,
]


@pytest.mark.parametrize(
    "text",
    [
        *MEGABYTES,
        *(pytest.param(text, marks=pytest.mark.second("docs")) for text in MORE_MEGABYTES),
    ],
    ids=lambda text: ascii(text[-12:]),
)
def test_a_megabyte_of_anything_takes_a_second_or_two(text: str) -> None:
    # Quadratic work would take minutes.
    assert isinstance(scan_job(text, TABLE), ScannedCell | None)
    with contextlib.suppress(UsageError):
        parse.parse(text, TABLE)
