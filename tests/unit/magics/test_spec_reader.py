"""What the directives of a header say together, and what is offered for those that are wrong."""

from __future__ import annotations

import pytest

from ciao_kernel.errors import DirectiveError, SourceError, SpecError, UsageError
from ciao_kernel.magics import parse, spec_reader
from ciao_kernel.magics.directive import Scope
from ciao_kernel.magics.header import Style
from ciao_kernel.model import Checkpoint
from ciao_kernel.session.plugin_registry import Registry

TABLE = Registry(third_party={}).table
TF = "%framework=tensorflow\n"


def fail(text: str, style: Style = Style.CELL) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse.parse(text, TABLE, style=style)
    return caught.value


def options(**values: str) -> UsageError:
    """The error of options of a command line."""
    tokens = parse.option_tokens({name: [value] for name, value in values.items()})
    with pytest.raises(UsageError) as caught:
        spec_reader.read(tokens, TABLE, "tensorflow")
    return caught.value


# ------------------------------------------------------------------------------- twice, nothing


def test_what_is_for_the_job_is_given_once_also_behind_a_role() -> None:
    error = fail(f"{TF}%worker=1;%python=a\n%python=b\nx")
    assert error.message == "%python is given twice: a in line 2, b here."


def test_values_that_differ_are_not_shown_where_they_may_be_secret() -> None:
    error = fail(f"{TF}%pushSecret=hunter2\n%pushSecret=b\nx")
    assert error.message == "%pushSecret is given twice, with different values."


def test_a_flag_may_have_an_equals_sign_and_nothing_behind_it() -> None:
    assert parse.parse(f"{TF}%detach=\nx", TABLE).spec.detach


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("args", "words, quoted as in a shell"),
        ("python", "the path or the name of a Python interpreter"),
        ("command", "a program and its arguments, quoted as in a shell"),
        ("envvar", "KEY=value, quoted as in a shell (several separated by spaces)"),
    ],
)
def test_a_directive_without_a_value_says_which_it_takes(name: str, expected: str) -> None:
    assert fail(f"{TF}%{name}=\nx").message == f"%{name} has no value: expected {expected}."


# -------------------------------------------------------------------------------------- hints


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("%xyzzy=2", "`%ciao magics` lists all directives."),
        ("%WROKER=2", "Did you mean %worker? `%ciao magics` lists all directives."),
        ("%CLEAN_POLCY=all", "Did you mean %cleanPolicy? `%ciao magics` lists all directives."),
        ("%runner=TORCHRUM", "Did you mean %runner=torchrun?"),
        ("%worker=2 %ps=1", "Write ;% between two directives: %worker=2;%ps=…"),
        ("%envvar=hunter2 %ps=1", "Write ;% between two directives: %envvar=…;%ps=…"),
        ("%time x = !ls", "Leave it out: the table shows how long a job takes."),
        ("%ciao ", "Write %%ciao, or delete the line."),
    ],
)
def test_the_hint_of_a_wrong_line(line: str, hint: str) -> None:
    assert fail(f"{TF}{line}\nx").hint == hint


@pytest.mark.parametrize(
    "between",
    [
        "\t%",
        "\xa0%",
        " %",
        " % ",
        " %\t",
        " %\xa0",
        ";",
        ";\t",
        ";\xa0",
        "; ",
        ", %",
        ",% ",
        ",%\t",
        ",%\xa0",
    ],
)
@pytest.mark.parametrize("name", ["ps", "Ps"])
def test_two_directives_that_are_joined(between: str, name: str) -> None:
    error = fail(f"{TF}%worker=2{between}{name}=1\nx")
    assert error.hint == "Write ;% between two directives: %worker=2;%ps=…"


INSTALL = "Install packages in a plain cell above, which replicas on this machine use too; or "


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("! pip install x", INSTALL),
        ("!\tconda install x", INSTALL),
        ("%mamba install x", INSTALL),
        ("!pipx run x", "Move it to a plain cell."),
        ("%env\tA=1", "For variables of the replicas, write %envvar=NAME=VALUE."),
        ("%set_env A=1", "For variables of the replicas, write %envvar=NAME=VALUE."),
        ("%%Wroker\t= 2", "Did you mean %worker=…?"),
        ("%\tWroker=2", "Did you mean %worker=…?"),
        ("%Wroker 2", "Did you mean %worker=…?"),
    ],
)
def test_what_to_write_instead_of_a_magic(line: str, hint: str) -> None:
    assert fail(f"{TF}{line}\nx").hint.startswith(hint)


@pytest.mark.parametrize(
    ("line", "column", "word"),
    [
        ("x=!ls", 2, "!ls"),
        ("x =\t!ls", 4, "!ls"),
        ("if 1: x = %pwd", 10, "%pwd"),
        ("print?", 5, "?"),
        ("  os.path? ", 9, "?"),
        ("\tprint??\t", 6, "??"),
        ("\t!ls", 1, "!ls"),
        ("\f!ls", 1, "!ls"),
    ],
)
def test_syntax_of_ipython_within_a_line(line: str, column: int, word: str) -> None:
    error = fail(f"{TF}if 1:\n{line}\n" if line[0].isspace() else f"{TF}{line}\n")
    assert isinstance(error, SourceError)
    assert error.message == f"{word} is IPython syntax; a job runs plain Python."
    assert error.column == column


@pytest.mark.parametrize(
    "line", ["print('x = !ls'", 'print("x = !ls"', "print(  # x = !ls", "x? 1 : 2"]
)
def test_a_wrong_line_that_only_looks_like_ipythons_has_pythons_error(line: str) -> None:
    assert "IPython" not in fail(f"{TF}{line}\n").message


@pytest.mark.parametrize("line", ["!ls", "%ciao", "%ciao jobs"])
def test_a_line_for_ipython_in_a_file_has_no_directive_that_is_meant(line: str) -> None:
    error = fail(f"#%framework=pytorch\n{line}\nx", Style.FILE)
    assert error.hint == "Leave it out, or run it in a terminal before the job."


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (
            "!pip install x",
            "Install packages in a terminal, which replicas on this machine use too",
        ),
        ("%tensorboard --logdir x", "Write #%tensorboard=FOLDER for ciao's own, or leave it out."),
        ("%ls", "Leave it out, or run it in a terminal before the job."),
    ],
)
def test_a_file_has_no_other_cells(line: str, hint: str) -> None:
    error = fail(f"#%framework=pytorch\n{line}\nx", Style.FILE)
    assert error.hint.startswith(hint)
    assert "cell" not in error.hint


def test_a_magic_is_told_before_one_within_its_line() -> None:
    error = fail(f"{TF}x = 1\n%time y = !ls\n")
    assert isinstance(error, SourceError)
    assert (error.column, error.message) == (
        0, "%time is IPython syntax; a job runs plain Python."
    )  # fmt: skip


def test_of_a_long_magic_only_a_part_is_told() -> None:
    error = fail(f"{TF}%{'a' * 100} x\nx")
    assert error.message == f"%{'a' * 58}… is IPython syntax; a job runs plain Python."


def test_of_a_long_name_only_a_part_is_told() -> None:
    assert fail(f"{TF}%{'a' * 100}=1\nx").message == f"unknown directive %{'a' * 59}…."


# ------------------------------------------------------------------------------------ options


def test_what_is_for_all_roles_is_an_option_of_its_own() -> None:
    tokens = parse.option_tokens({"worker": ["2;%args=a"], "ps": ["1"]})
    with pytest.raises(DirectiveError) as caught:
        spec_reader.read(tokens, TABLE, "tensorflow")
    assert caught.value.hint == "Write it as an option of its own."
    error = fail(f"{TF}%worker=2;%args=a\n%ps=1\nx")
    assert error.hint == "Write it on a line of its own."


def test_an_option_without_a_value_is_not_one_with_an_empty_value() -> None:
    tokens = parse.option_tokens({"checkpoint": [parse.NO_VALUE]})
    assert spec_reader.read(tokens, TABLE, "tensorflow").checkpoint == Checkpoint()
    assert options(checkpoint="").message.startswith("--checkpoint has no value: expected ")


def test_an_option_with_another_word_than_its_directive() -> None:
    for name in ("outputValues", "output-values", "OUTPUT_VALUES"):
        entry = TABLE.find(name)
        assert entry is not None
        assert entry.name == "output"
    assert TABLE.find("") is None


# ---------------------------------------------------------------------------------- the table


def test_a_framework_that_is_not_known_may_have_any_role() -> None:
    roles = {entry.field for entry in TABLE.entries if entry.scope is Scope.ROLE}
    assert {"worker", "ps", "chief", "master"} <= roles
    assert set(TABLE.roles("of-tomorrow")) == roles


def test_a_role_that_a_framework_has_only_to_refuse_it_is_not_offered() -> None:
    assert "master" in TABLE.roles("paddle")
    assert "master" not in TABLE.offered_roles("paddle")
    assert "pytorch" in TABLE.frameworks("master")
    assert "paddle" not in TABLE.frameworks("master")


# ------------------------------------------------------------------------------ what is followed


def unfollowed(lines: str) -> DirectiveError:
    parsed = parse.parse(f"{TF}{lines}\nx", TABLE)
    with pytest.raises(DirectiveError) as caught:
        spec_reader.check_follow(parsed.spec, parsed.tokens, TABLE)
    return caught.value


def test_the_directive_that_follows_what_is_not_there_is_to_blame() -> None:
    error = unfollowed("%worker=1\n%args=chief\n%Follow=chief")
    assert (error.line, error.text) == (4, "%Follow=chief")
    assert error.hint == "It has worker (worker-0)."


# ------------------------------------------------------------------------------- notes of files


def test_comments_are_told_in_files_of_python_alone() -> None:
    prose = " %speed = 3\n"
    assert parse.parse(f"{TF}#{prose}x = 1\n#%worker=3\n", TABLE).notes == ()
    custom = f"#%framework=custom\n#%command=cat {{cell}}\n#{prose}x\n#%worker=3\n"
    assert parse.parse(custom, TABLE, style=Style.FILE).notes == ()
    python = custom.replace("custom", "python").replace("#%command=cat {cell}\n", "")
    assert len(parse.parse(python, TABLE, style=Style.FILE).notes) == 2


# --------------------------------------------------------------------------- any language


def test_the_framework_for_any_language_is_found_in_any_spelling() -> None:
    text = "%FRAMEWORK='Custom'\n%command=cat {cell}\n%no python (\n"
    assert parse.parse(text, TABLE).code == "\n\n%no python (\n"


def test_without_directives_the_text_is_delivered_as_it_is() -> None:
    text = "first\n%second\n"
    assert parse.parse(text, TABLE, default_framework="custom").code == text


def test_a_cell_without_text_is_shown_by_the_last_line_of_its_header() -> None:
    error = fail("%framework=custom\n%command=cat {cell}\n\n")
    assert isinstance(error, SourceError)
    assert (error.line, error.text) == (3, "")
    error = fail("%framework=custom\n%command=cat {cell}")
    assert isinstance(error, SourceError)
    assert (error.line, error.text) == (2, "%command=cat {cell}")
    assert error.hint == "Put the text for the program of %command below them, in the same cell."


@pytest.mark.parametrize(
    "text", ["#%framework=python\n", "#%framework=custom\n#%command=cat {cell}\n"]
)
def test_a_file_without_a_program_is_called_a_file(text: str) -> None:
    error = fail(text, style=Style.FILE)
    assert error.message.startswith("the file has directives but no ")
    assert error.hint.endswith(" below them, in the same file.")


# -------------------------------------------------------------------------- a framework's errors


def test_an_error_of_a_framework_finds_the_word_in_a_list() -> None:
    parsed = parse.parse(f"{TF}%files=aa,bb\n%files=c\nx", TABLE)
    error = parsed.locate(SpecError("bb is no file.", directive="files", word="bb"))
    assert isinstance(error, DirectiveError)
    assert (error.line, error.text) == (2, "%files=aa,bb")
