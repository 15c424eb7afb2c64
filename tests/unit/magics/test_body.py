"""The program below a header: which errors it has, where they are shown, and what is no error."""

from __future__ import annotations

import warnings

import pytest

from ciao_kernel.errors import SourceError, UsageError
from ciao_kernel.magics import parse
from ciao_kernel.magics.header import Style
from ciao_kernel.magics.scanned_cell import scan_job
from ciao_kernel.session.plugin_registry import Registry

TABLE = Registry(third_party={}).table
TF = "%framework=tensorflow\n"


def fail(text: str) -> SourceError:
    with pytest.raises(UsageError) as caught:
        parse.parse(text, TABLE)
    assert isinstance(caught.value, SourceError)
    return caught.value


def notes(text: str) -> tuple[str, ...]:
    return parse.parse(f"#%framework=pytorch\n{text}import os\n", TABLE, style=Style.FILE).notes


# ------------------------------------------------------------------------- the text as a whole


@pytest.mark.parametrize("code", [0, 0xD800, 0xDFFF])
@pytest.mark.parametrize("before", ["", "x = 'é\ufffc"])
def test_what_no_file_can_hold_is_replaced_in_the_line_that_is_shown(
    code: int, before: str
) -> None:
    odd = chr(code)
    error = fail(f"{before}{odd}\ue000'\n{TF}")
    assert (error.line, error.column) == (1, len(before))
    assert error.text == f"{before}\ufffd\ue000'"
    error = fail(f"x = 1\n{odd}\n{TF}")
    assert (error.line, error.column, error.text) == (2, 0, "\ufffd")


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff# coding: latin-1\n" + TF + "x",
        "\ufeff# a comment\n# coding: latin-1\n" + TF + "x",
        "\n# coding: latin-1\n" + TF + "x",
        " # coding: latin-1\n" + TF + "x",
        "\t\f#coding:\tlatin-1\n" + TF + "x",
    ],
)
def test_a_wrong_encoding_is_found_where_python_reads_it(text: str) -> None:
    error = fail(text)
    assert error.message == "the text declares the encoding latin-1; ciao delivers UTF-8."


def test_a_directive_that_python_would_take_for_an_encoding() -> None:
    error = fail(f"{TF}%args=--encoding=cp1252\nx")
    assert error.message == "Python would read this line as the encoding of the file, cp1252."


def test_below_code_the_second_line_declares_no_encoding() -> None:
    text = f"x = 1\n# coding: latin-1\n{TF}"
    assert parse.parse(text, TABLE).code == text.replace("%", "#%")


# ------------------------------------------------------------------------ directives below code


def test_directives_above_and_below_code_count_once() -> None:
    text = f"{TF}%args=a\nx = 1\n%args=b\n"
    assert parse.parse(text, TABLE).spec.args == ("a", "b")


def test_a_magic_beside_directives_below_code_is_none() -> None:
    error = fail(f"{TF}x = 1\n%matplotlib inline\n%worker=2\n")
    assert error.message == "%matplotlib is IPython syntax; a job runs plain Python."
    assert error.line == 3


def test_behind_a_statement_there_is_no_directive() -> None:
    error = fail(f"{TF}import os\nx = 1;%ps=1\n%worker=2\n")
    assert (error.line, error.text) == (3, "x = 1;%ps=1")


@pytest.mark.parametrize("blank", [" ", "\t"])
def test_directives_below_an_indented_cell_magic_are_its_own(blank: str) -> None:
    assert scan_job(f"{blank}%%bash\necho\n%worker=2\n", TABLE) is None


# --------------------------------------------------------------------------- comments of a file


@pytest.mark.parametrize(
    ("names", "end"),
    [
        (("lr", "username"), "`%ciao magics` lists all directives."),
        (("lr", "gpu"), "a directive is written as %worker=2;%gpu=1 behind #."),
    ],
)
def test_a_note_about_comments_names_all_and_the_line_of_the_first(
    names: tuple[str, str], end: str
) -> None:
    first, second = names
    assert notes(f"# %{first} = 3\n# % {second} = 80 percent\n") == (
        f"line 2 is a comment, no directive (%{first}, %{second}): {end}",
    )


def test_a_colon_behind_another_word_is_prose() -> None:
    assert notes("# %speed: 80 is what we saw\n") == ()


# ------------------------------------------------------------------------------ Python's errors


def test_a_cell_without_code_is_shown_by_the_last_line_of_its_header() -> None:
    error = fail(f"{TF}# later\n")
    assert (error.line, error.text) == (2, "# later")


def test_the_first_magic_of_a_header_is_shown() -> None:
    assert fail(f"{TF}%cd data\n!ls\nx = 1\n").text == "%cd data"


def test_an_error_of_a_line_without_indent_is_marked_at_its_start() -> None:
    error = fail(f"{TF}return 5\n")
    assert (error.line, error.column, error.text) == (2, 0, "return 5")


def test_a_question_of_python_ends_as_one() -> None:
    assert fail(f"{TF}x = (1 2)\n").message.endswith("Perhaps you forgot a comma?")


def test_code_that_is_too_deep_has_no_line() -> None:
    error = fail(f"{TF}x = {'-' * 300_000}1")
    assert error.message == "the code is nested too deeply for Python."
    assert (error.line, error.column, error.text) == (0, 0, "")


def test_warnings_of_python_are_left_to_the_replicas() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        parse.parse(f"{TF}x = 1 is 1\n", TABLE)
    assert found == []
