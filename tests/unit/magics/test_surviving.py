"""The values of %checkpoint and %grace, and the errors for those that cannot be one."""

from __future__ import annotations

import pytest

from ciao_kernel.errors import DirectiveError
from ciao_kernel.magics import parse
from ciao_kernel.magics.directives.surviving import grace_of
from ciao_kernel.model import Checkpoint, JobSpec
from ciao_kernel.session.plugin_registry import Registry

TABLE = Registry(third_party={}).table


def read(line: str) -> JobSpec:
    return parse.parse(f"%framework=tensorflow\n%worker=1\n{line}\nprint()\n", TABLE).spec


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("%checkpoint", Checkpoint()),
        ("%checkpoint=runs", Checkpoint("runs")),
        ("%checkpoint=runs/team/./a/", Checkpoint("runs", "team/a")),
        ("", None),
    ],
)
def test_each_form_of_a_checkpoint_is_read(line: str, place: Checkpoint | None) -> None:
    assert read(line).checkpoint == place


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Runs", "CLAIM or CLAIM/FOLDER, or nothing"),
        ("runs/", "CLAIM or CLAIM/FOLDER"),
        ("/data", "CLAIM or CLAIM/FOLDER"),
        ("runs/../x", "a path without .."),
        ("a b", "CLAIM or CLAIM/FOLDER"),
        ("", "has no value"),
    ],
)
def test_another_checkpoint_is_refused_with_its_line(value: str, expected: str) -> None:
    with pytest.raises(DirectiveError) as caught:
        read(f"%checkpoint={value}")
    assert expected in caught.value.message
    assert "%checkpoint=training/runs" in (caught.value.hint or "")
    assert caught.value.line == 3


def test_the_grace_is_a_time_and_found_again_in_a_stored_header() -> None:
    assert read("%grace=2m").grace == 120
    assert grace_of("%framework=tensorflow\n%grace=120s\n") == 120
    assert grace_of("%framework=tensorflow\n") is None
    with pytest.raises(DirectiveError, match="a time such as 90s"):
        read("%grace=soon")
