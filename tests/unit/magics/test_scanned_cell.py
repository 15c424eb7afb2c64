"""The header of a cell is scanned once: the parser uses what the kernel has scanned."""

from __future__ import annotations

import pytest

from ciao_kernel.errors import DirectiveError
from ciao_kernel.jupyter import cells
from ciao_kernel.magics import header, parse
from ciao_kernel.magics.header import Header, Style
from ciao_kernel.magics.scanned_cell import scan, scan_job
from ciao_kernel.magics.table import Table
from ciao_kernel.session.plugin_registry import Registry

TABLE = Registry(third_party={}).table
CELLS = [
    "%framework=tensorflow\n%worker=2\nprint()\n",
    "%%ciao\n%framework=tensorflow\n%worker=2\nprint()\n",
    "import os\n%framework=tensorflow\n%worker=2\nprint()\n",
]


class CountingScanner:
    """Counts the scans of headers."""

    def __init__(self) -> None:
        self.scans = 0

    def __call__(self, text: str, table: Table, style: Style) -> Header:
        self.scans += 1
        return header.scan(text, table, style)


@pytest.mark.parametrize("text", CELLS)
def test_a_job_is_scanned_once_and_parsed_from_the_result(text: str) -> None:
    scanner = CountingScanner()
    job = scan_job(text, TABLE, scan_header=scanner)
    assert job is not None
    assert scanner.scans == 1
    assert parse.parse(job, TABLE) == parse.parse(text, TABLE)


def test_the_parser_does_not_scan_again() -> None:
    """The directives of another text show which header the parser has used."""
    other = scan(CELLS[0].replace("2", "3"), TABLE)
    job = scan_job(CELLS[0], TABLE, scan_header=lambda *_: other.header)
    assert job is not None
    assert parse.parse(job, TABLE).spec.groups[0].count == 3


@pytest.mark.parametrize(
    "text", ["print()\n", "%time 1\n", "%%bash\n%worker=2\n", "'''\n%worker=2'''"]
)
def test_other_cells_are_no_jobs(text: str) -> None:
    assert scan_job(text, TABLE) is None
    assert cells.scan_job(text) is None


def test_a_file_keeps_its_style() -> None:
    text = "#%framework=tensorflow\n#%worker=2\nprint()\n"
    job = scan_job(text, TABLE, Style.FILE)
    assert job is not None
    assert [token.name for token in job.tokens] == ["framework", "worker"]
    assert parse.parse(job, TABLE).code == text


def test_errors_of_a_scanned_cell_name_the_line() -> None:
    job = scan("%framework=tensorflow\n%worker=two\nprint()\n", TABLE)
    with pytest.raises(DirectiveError) as caught:
        parse.parse(job, TABLE)
    assert caught.value.line == 2
