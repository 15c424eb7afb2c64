"""The header of a job that exists, as its readers find it."""

from __future__ import annotations

import pytest

from ciao_kernel.delivery.transfers import python_of
from ciao_kernel.magics import stored_fields, stored_header
from ciao_kernel.magics.directives import surviving, warm
from ciao_kernel.magics.numeric_types import Count
from ciao_kernel.magics.parse import parse
from ciao_kernel.magics.render import render
from ciao_kernel.magics.shell_words import split_at
from ciao_kernel.magics.value_types import Word
from ciao_kernel.model import Job
from ciao_kernel.session.plugin_registry import Registry

TABLE = Registry(third_party={}).table


def stored(*lines: str) -> str:
    """Return the header of a cell with these lines, as its job has it."""
    text = "".join(f"{line}\n" for line in ("%framework=tensorflow", *lines))
    return render(parse(f"{text}x = 1\n", TABLE).spec, TABLE)


def test_a_text_is_as_it_is_written_and_a_value_is_read() -> None:
    header = stored("%worker=1", "%python='/opt/my env/bin/python'", "%retries=3")
    assert stored_header.text(header, "python") == "'/opt/my env/bin/python'"
    assert stored_header.value(header, "python", Word(), "") == "/opt/my env/bin/python"
    assert stored_header.value(header, "retries", Count(), 0) == 3


def test_a_directive_that_is_absent_has_no_text_and_the_default() -> None:
    header = stored("%worker=1", "%args=%python=x")
    assert stored_header.text(header, "python") is None
    assert stored_header.value(header, "python", Word(), "python3") == "python3"


def test_a_directive_without_a_value_has_an_empty_text() -> None:
    header = stored("%worker=1", "%checkpoint", "%warm")
    assert "\n%checkpoint\n" in header
    assert stored_header.text(header, "checkpoint") == ""
    assert surviving.has_checkpoint(header)
    assert warm.is_warm(header)
    assert not surviving.has_checkpoint(stored("%worker=1", "%args=%checkpoint"))
    assert not warm.is_warm(stored("%worker=1", "%args=%warm=10m"))


def test_a_value_of_another_version_is_the_default() -> None:
    assert stored_header.value("%python=a b\n%worker=1\n", "python", Word(), "mine") == "mine"
    assert stored_header.value("%retries=often\n", "retries", Count(), 0) == 0


@pytest.mark.parametrize(
    ("header", "setting", "on"),
    [
        ("%worker=1\n", "on", True),
        ("%worker=1\n", "off", False),
        ("%usage=on\n", "off", True),
        ("%usage=off\n", "on", False),
        ("%usage=sometimes\n", "on", True),
        ("%usage=sometimes\n", "off", False),
        ("%args=%usage=on\n", "off", False),
    ],
)
def test_the_setting_counts_for_a_header_that_does_not_decide(
    header: str, setting: str, on: bool
) -> None:
    assert stored_header.is_on(header, "usage", setting) is on


def test_a_role_has_its_own_resource_or_that_of_all_roles() -> None:
    header = stored("%memory=2Gi", "%ps=1;%cpu=1;%memory=512Mi", "%worker=2;%cpu=2")
    assert stored_header.of_role(header, "memory", "ps") == "512Mi"
    assert stored_header.of_role(header, "memory", "worker") == "2Gi"
    assert stored_header.of_role(header, "cpu", "worker") == "2"
    assert stored_header.of_role(header, "cpu", "chief") is None
    assert stored_header.of_role(header, "gpu", "worker") is None


def test_names_are_also_those_behind_a_role() -> None:
    header = stored("%worker=2;%memory=1Gi", "%detach", "%args=%image=x")
    assert stored_header.names(header) == {"framework", "worker", "memory", "detach", "args"}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("%args='a;image=b'", "args"),
        ("%args='a;%image=b'", "args"),
        ("%args=a\\;%image=b", "args"),
        ("%args='x' 'a;%image=b' \"it's;%image=c\"", "args"),
        ("%args=a;image=b", "args"),
        ("%envvar=A='b;%image=c'", "envvar"),
        ("%args='a\x0c%image=b'", "args"),
        ("%args='a\u2028%image=b'", "args"),
    ],
)
def test_a_value_in_quotes_names_no_directive(line: str, name: str) -> None:
    header = stored("%worker=1", line)
    assert stored_header.names(header) == {"framework", "worker", name}
    assert stored_header.text(header, "image") is None
    assert stored_header.of_all_roles(header, "image") == []


def test_a_value_in_quotes_is_no_resource_of_a_role() -> None:
    header = stored("%worker=1;%volume='old:/a;%memory=3Gi';%cpu=2")
    assert stored_header.names(header) == {"framework", "worker", "volume", "cpu"}
    assert stored_header.of_role(header, "memory", "worker") is None
    assert stored_header.of_role(header, "cpu", "worker") == "2"


def test_a_value_of_another_version_may_have_a_semicolon() -> None:
    header = "%framework=tensorflow\n%worker=2;image=b;%cpu=1\n"
    assert stored_header.names(header) == {"framework", "worker", "cpu"}


def test_resources_of_all_roles_and_of_single_ones() -> None:
    header = stored("%gpu=1", "%ps=1;%gpu=0", "%worker=2;%cpu=1;%gpu=2")
    assert stored_header.of_all_roles(header, "gpu") == ["1", "0", "2"]


def test_a_text_is_split_at_signs_outside_of_quotes() -> None:
    assert split_at("a;b';c'\\;d;;\";\"e", ";") == ["a", "b';c'\\;d", "", '";"e']
    assert split_at("a 'b;c d;", ";") == ["a 'b", "c d", ""]  # a quote that is never closed is text
    assert split_at("", ";") == [""]


def test_a_job_that_is_found_has_what_its_header_asks_for() -> None:
    header = stored("%worker=1", "%plot=loss", "%lines=5", "%grace=2m", "%retries=3")
    assert stored_fields.job_fields(header) == {
        "header": header, "plot": ("loss",), "lines": 5, "grace": 120, "retries": 3
    }  # fmt: skip
    assert stored_fields.job_fields("") == {
        "header": "", "plot": (), "lines": None, "grace": None, "retries": 0
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "python"),
    [
        ("%python='/opt/my env/bin/python'", "/opt/my env/bin/python"),
        ("%python=/opt/it\\'s/python", "/opt/it's/python"),
        ("%python=/opt/bin/python3", "/opt/bin/python3"),
        ("%args=%python=x", "python3"),
    ],
)
def test_the_interpreter_of_a_pod_is_a_path_without_quotes(line: str, python: str) -> None:
    job = Job("mine", "kubernetes", "tensorflow", (), 0.0, header=stored("%worker=1", line))
    assert python_of(job, "python3") == python
