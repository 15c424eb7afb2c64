"""The header of a cell is scanned once: the parser uses what the kernel has scanned."""

from __future__ import annotations

import pytest

from ciao_kernel.errors import DirectiveError, SourceError
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


LOOP = "for lr in (0.001, 0.01):\n%framework=python\n%worker=1\n%args=0.1\n    print(lr)\n"


def test_a_loop_around_directives_is_told_to_run_in_one_job() -> None:
    (note,) = parse.parse(LOOP, TABLE).notes
    assert note.startswith("the loop of line 1 (`for lr in (0.001, 0.01):`) runs in the replicas")
    assert "`%ciao run FILE --detach --args {lr}`" in note


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import os\n%framework=python\nfor x in y:\n    print()\n", 0),
        ("for x in y:\n    print()\n%framework=python\n", 0),
        ("%framework=python\nfor x in y:\n    print()\n", 0),
        ("while True:\n    x = 1\n%framework=python\n    break\n", 1),
        ("for a, b in y:\n    for c in b:\n%framework=python\n        print()\n", 1),
        ("def f():\n    for x in y:\n%framework=python\n%worker=1\n        print()\n", 1),
        ("if x:\n%framework=python\n    print()\n", 0),
    ],
)
def test_only_a_loop_around_directives_is_told(text: str, told: int) -> None:
    assert len(parse.parse(text, TABLE).notes) == told


SWEEP = "`%ciao run FILE --detach --args {lr}`"
TOP = "at the top"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("for lr in rates:\n    %framework=python\n    %args={lr}\n    print()\n", SWEEP),
        ("%time f()\nfor lr in rates:\n    !ls 'x\n    %framework=python\n", SWEEP),
        ("for lr in rates:\n    if lr:\n\n        x = 1\n        %framework=python\n", SWEEP),
        ("async def f():\n  async for lr in rates:\n    %framework=python\n", SWEEP),
        ("for a, b in rates:\n    %framework=python\n", SWEEP.replace("lr", "value")),
        ("while True:\n    %framework=python\n", SWEEP.replace("lr", "value")),
        ("for\tlr in [\n    1,\n]:\n    # note\n# note\n    %worker=2\n", SWEEP),
        ('for lr in rates:\n    s = """\nabc\n"""\n    f(a,\nb)\n    %worker=2\n', SWEEP),
        ("def f():\n  for lr in rates:\n\t%worker=2\n", SWEEP),
        ('"""notes\nfor the record"""\n    %worker=2\n', TOP),
        ("for lr in rates:\n    print()\nelse:\n    %worker=2\n", TOP),
        ("import os\n\t%worker=2\n", TOP),
        ("if x:\n    %framework=python\n", TOP),
        ("for lr in rates:\n    print()\nif x:\n    %framework=python\n", TOP),
        ("forms = 1\nwhile_ = 2\n    %worker=2\n", TOP),
    ],
)
def test_directives_behind_blanks_are_one_error_that_says_how_it_is_written(
    text: str, hint: str
) -> None:
    job = scan_job(text, TABLE)
    assert job is not None
    with pytest.raises(SourceError, match="begin in the first column") as caught:
        parse.parse(job, TABLE)
    assert text.splitlines()[caught.value.line - 1].lstrip().startswith(("%framework", "%worker"))
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "x = '''\n    %worker=2\n'''",
        "x = (a\n    %worker==2)",
        "x = a \\\n    %worker",
        "if x:\n    %time f()\n    %wroker=2\n",
        "if x:\n    %worker 2\n",
        "%%bash\nif x\n    %worker=2\n",
        "\n%%writefile x.py\nif x\n    %worker=2\n",
        "for lr in rates:\n    %ciao run x.py --args {lr}\n",
        "import os\n!printf '%s' \\\n    %args=3\n",
        "x = 1\n%sql select 1 \\\n    %name=3\n",
    ],
)
def test_what_only_looks_like_directives_behind_blanks_is_a_plain_cell(text: str) -> None:
    assert scan_job(text, TABLE) is None
