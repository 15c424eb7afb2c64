"""%tensorboard as a directive, beside the magic of that name."""

from __future__ import annotations

import pytest

from ciao_kernel.errors import DirectiveError, SourceError
from ciao_kernel.magics import scanned_cell
from ciao_kernel.magics.directives import event_folder
from ciao_kernel.magics.directives.event_folder import EventFolder
from ciao_kernel.magics.header import Style
from ciao_kernel.magics.parse import parse
from ciao_kernel.session.plugin_registry import Registry

TABLE = Registry({}).table


@pytest.mark.parametrize(
    ("text", "folder"),
    [("", "logs"), ("runs", "runs"), ("./runs/one/", "runs/one"), ("'a b'", "a b")],
)
def test_a_folder_beside_the_program(text: str, folder: str) -> None:
    assert EventFolder().parse(text) == folder
    assert EventFolder().parse(EventFolder().render(folder)) == folder
    assert event_folder.event_folder_in(f"%worker=2\n%tensorboard={text}\n") == folder


@pytest.mark.parametrize(
    "text",
    ["/tmp/logs", "~/logs", "../logs", "a/../../b", ".", "runs*", "a b", "s3://b/x", "'a\x1b'"],
)
def test_other_values_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"folder|path"):
        EventFolder().parse(text)
    assert event_folder.event_folder_in(f"%tensorboard={text}") is None


def test_a_header_without_it_has_no_folder() -> None:
    assert event_folder.event_folder_in("%worker=2\n%plot=loss\n") is None


@pytest.mark.parametrize(
    "cell",
    [
        "%tensorboard --logdir runs",
        "%load_ext tensorboard\n%tensorboard --logdir runs --port 6007",
        "%tensorboard dev list",
    ],
)
def test_the_magic_with_its_arguments_is_no_directive(cell: str) -> None:
    assert scanned_cell.scan_job(cell, TABLE) is None


@pytest.mark.parametrize("line", ["%tensorboard", "%tensorboard=runs", "%tensorboard = runs"])
def test_the_directive_makes_a_job(line: str) -> None:
    assert scanned_cell.scan_job(f"{line}\nprint(1)", TABLE) is not None


def test_the_magic_in_a_job_is_explained() -> None:
    cell = scanned_cell.scan("%framework=python\n%tensorboard --logdir runs\nprint(1)\n", TABLE)
    with pytest.raises(SourceError) as caught:
        parse(cell, TABLE)
    assert "Write %tensorboard=FOLDER" in caught.value.hint


def test_a_wrong_value_is_named_with_its_line() -> None:
    cell = scanned_cell.scan("%framework=python\n%tensorboard=/tmp\nprint(1)\n", TABLE, Style.CELL)
    with pytest.raises(DirectiveError):
        parse(cell, TABLE)
