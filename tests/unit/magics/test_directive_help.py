"""Help on directives, and whether a cell is complete."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from ciao_kernel.jupyter import typing_help
from ciao_kernel.magics.header import Style
from ciao_kernel.magics.help.completeness import answer
from ciao_kernel.magics.help.directive_help import MOST_USED, explain, markdown, overview, reference
from ciao_kernel.magics.scanned_cell import scan
from ciao_kernel.magics.table import Table
from ciao_kernel.session.plugin_registry import Registry

TABLE = Registry(third_party={}).table
ROOT = Path(__file__).parents[3]


def at(marked: str, style: Style = Style.CELL) -> str | None:
    cursor = marked.index("|")
    return explain(marked[:cursor] + marked[cursor + 1 :], cursor, TABLE, style)


def test_help_of_a_role() -> None:
    assert at("%framework=tensorflow\n%wor|ker=2;%cpu=1\nx") == (
        "%worker=…\n"
        "Number of workers.\n"
        "\n"
        "Value:   a whole number from 0 to 1000\n"
        "Place:   a separate line; resources and volumes of the role may follow: %worker=1;%cpu=2\n"
        f"For:     {', '.join(TABLE.names.frameworks)}\n"
        "Example: %worker=1"
    )


@pytest.mark.parametrize(
    ("marked", "row"),
    [
        ("%gp|u", "Place:   after a role, for that role; on a separate line, for all roles"),
        ("%ar|gs", "Place:   a separate line, or after another directive and ;"),
        ("%ar|gs", "Several: the lines add up"),
        ("%back|end=local", "Default: auto"),
        ("%ps|", "For:     tensorflow"),
    ],
)
def test_a_row_of_help(marked: str, row: str) -> None:
    assert row in (at(marked) or "").splitlines()


def test_help_has_no_rows_without_words() -> None:
    rows = [line.partition(":")[0] for line in (at("%name|=x") or "").splitlines()[3:]]
    assert rows == ["Value", "Default", "Place", "Example"]
    rows = [line.partition(":")[0] for line in (at("%deadline|=9") or "").splitlines()[3:]]
    assert rows == ["Value", "Place", "Example"]


@pytest.mark.parametrize("entry", TABLE.entries, ids=lambda entry: entry.name)
def test_every_directive_has_help(entry: object) -> None:
    name, example = entry.name, entry.example  # type: ignore[attr-defined]
    text = explain(f"%{name}", 1, TABLE)
    assert text is not None
    assert text.startswith(f"%{name}")
    assert example in text
    assert max(map(len, text.splitlines())) <= 96


@pytest.mark.parametrize(
    ("marked", "start"),
    [
        ("|%worker=2", "%worker="),
        ("%worker=2|", "%worker="),
        ("%worker=2;%c|pu=1", "%cpu="),
        ("%worker=2;|%cpu=1", "%cpu="),
        ("%worker=2|;%cpu=1", "%worker="),
        ("%detach|", "%detach\n"),
        ("%files='a b|' c", "%files="),
        ("%wroker|=2", "There is no directive %wroker. Did you mean %worker?"),
        ("%qqq|=2", "There is no directive %qqq. `%ciao magics` lists all."),
    ],
)
def test_what_is_under_the_cursor(marked: str, start: str) -> None:
    assert (at(marked) or "").startswith(start)


@pytest.mark.parametrize(
    "marked",
    ["|", "pri|nt", "%matplotlib| inline", "%|", "x = 1\n%worker|=2", "# %worker|=2", "%%ti|me"],
)
def test_nothing_of_ours_under_the_cursor(marked: str) -> None:
    assert at(marked) is None


def test_help_in_a_file() -> None:
    assert (at("#%worker|=2", Style.FILE) or "").startswith("%worker=")
    assert at("#%worker|=2") is None


def test_overview_names_all_and_fits_a_terminal() -> None:
    text = overview(TABLE)
    for entry in TABLE.entries:
        assert re.search(rf"^  %{entry.name}(=…)?  ", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 96
    assert text.index("%framework=…") < text.index("%worker=…") < text.index("%cpu=…")


def test_overview_is_in_groups_with_defaults_and_wraps_under_its_texts() -> None:
    lines = overview(TABLE).splitlines()
    titles = [line for line in lines[6:] if line and not line.startswith(" ")]
    assert titles == ["Framework and replicas", "Resources of each replica", "The job"]
    texts = [line for line in lines[6:] if line.startswith(" ")]
    width = len("  ") + max(len(f"%{entry.name}=…") for entry in TABLE.entries) + len("  ")
    assert all(line[width] != " " and line[width - 2 : width] == "  " for line in texts)
    assert any(line.endswith("Backend that runs the job. Default: auto.") for line in lines)
    assert any(line.endswith("  Number of workers.") for line in lines)


@pytest.mark.parametrize(
    ("write", "names"), [(markdown, MOST_USED), (reference, [one.name for one in TABLE.entries])]
)
def test_tables_have_a_row_for_each(write: Callable[[Table], str], names: Sequence[str]) -> None:
    text = write(TABLE)
    entries = [entry for name in names if (entry := TABLE.find(name))]
    assert len(entries) == len(names)
    assert all(f"`{entry.example}`" in text for entry in entries)
    rows = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    assert len({row.count(" |") for row in rows}) == 1
    assert len([row for row in rows if row.startswith("| `")]) == len(entries)


# ------------------------------------------------------------------------------------- docs


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_docs_are_the_codes(generate: ModuleType) -> None:
    assert generate.stale() == {}, "run: python docs/generate.py"
    assert "`%worker=1`" in (ROOT / "docs" / "magics.md").read_text(encoding="utf-8")


def test_a_stale_table_is_found_and_only_it_is_replaced(
    generate: ModuleType, tmp_path: Path
) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("a\n<!-- directives -->\nold\n<!-- /directives -->\nb\n", encoding="utf-8")
    found = generate.stale(tmp_path)
    assert list(found) == [readme]
    assert found[readme].startswith("a\n<!-- directives -->\n\n| Example |")
    assert found[readme].endswith(" |\n\n<!-- /directives -->\nb\n")
    readme.write_text(found[readme], encoding="utf-8")
    assert generate.stale(tmp_path) == {}


def test_an_argument_that_may_come_once_is_no_list(generate: ModuleType) -> None:
    verbs = generate.verbs(Registry(third_party={}).table)
    attach = verbs.partition("### attach")[2].partition("### ")[0]
    assert "| `[NAME[/REPLICA]]` |" in attach
    delete = verbs.partition("### delete")[2].partition("### ")[0]
    assert "| `[NAME …]` |" in delete


# ----------------------------------------------------------------------------- completeness


@pytest.mark.parametrize(
    "text",
    [
        "%framework=tensorflow",
        "%worker=2\n",
        "%framework=tensorflow\n# note\n\n",
        "%%ciao",
        "%%ciao\n%worker=2\n",
    ],
)
def test_a_header_alone_wants_code(text: str) -> None:
    assert answer(scan(text, TABLE), TABLE) == {"status": "incomplete", "indent": ""}


@pytest.mark.parametrize(
    "text",
    [
        "%worker=two",
        "%wroker=2\nx = 1",
        "%framework=pytorch\n%ps=1\n",
        "%worker=1\n!ls\n",
        "%worker=1\nx = 1\n%ps=z",
    ],
)
def test_a_wrong_directive_is_invalid(text: str) -> None:
    assert answer(scan(text, TABLE), TABLE) == {"status": "invalid", "indent": ""}


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("%framework=python\n%worker={n}", "incomplete"),
        ("%framework=python\n%worker=$n\n", "incomplete"),
        ("%framework={python}\n%deadline={n}m", "incomplete"),
        ("%worker={n};%cpu=1;%ps=2", "incomplete"),
        ("%worker={ask()}", "incomplete"),
        ("%worker={nope}", "invalid"),
        ("%worker=$nope", "invalid"),
        ("%worker='$n'", "invalid"),
        ("%worker={n}\n%ps=two", "invalid"),
        ("%framework={custom}\n%command=awk\nBEGIN {", "incomplete"),
        ("%framework={custom}\n%command=awk\nBEGIN {\n", "complete"),
    ],
)
def test_a_variable_is_not_evaluated_while_the_user_types(text: str, status: str) -> None:
    asked: list[None] = []
    variables = {"n": 2, "python": "python", "custom": "custom", "ask": lambda: asked.append(None)}
    assert typing_help.is_complete(text, variables) == {"status": status, "indent": ""}
    assert asked == []


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("%worker=2\nfor i in x:", "#%worker=2\nfor i in x:"),
        ("%%ciao\nx = (", "#%%ciao\nx = ("),
        ("x = 1\n%worker=2\n", "x = 1\n#%worker=2\n"),
        ("for i in x:", "for i in x:"),
        ("%matplotlib inline", "%matplotlib inline"),
        ("%%bash\n%worker=2", "%%bash\n%worker=2"),
        ("", ""),
    ],
)
def test_code_is_for_ipython_to_judge(text: str, asked: str) -> None:
    assert typing_help.is_complete(text, {}) == asked
