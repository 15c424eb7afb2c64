"""What the documentation has pip install, against what its notebooks and pages import."""

from __future__ import annotations

import ast
import configparser
import json
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
NOTEBOOKS = ROOT / "notebooks"
FIRST = ("README.md", "docs/first-steps.md", "docs/index.md")
"""Pages that say how to install ciao, for the reader's first hour."""
READ = (*FIRST, "docs/tutorial.md", "docs/recipes.md")
"""Pages whose cells have to run after that."""
OF_OTHERS = {"sklearn": "scikit-learn", "tensorflow": "tensorflow-cpu"}
"""Distributions that have another name than what is imported."""
OWN = frozenset({"ciao_input", "ciao_kernel"})
_COMMAND = re.compile(r"pip install '\.\[([\w,]+)\]'")
_BLOCK = re.compile(
    r"(?:<!-- block: (?P<mark>[^\n]*) -->\n\n)?^```python\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_DIRECTIVE = re.compile(r"^([ ]*)[%!].*$", re.MULTILINE)
_MODULE = re.compile(r"file (?P<path>\S+)\.py")


def extras(text: str) -> frozenset[str]:
    """The extras of the first command that installs a checkout."""
    found = _COMMAND.search(text)
    assert found is not None, "no command installs a checkout"
    return frozenset(found[1].split(","))


def packages(names: frozenset[str]) -> frozenset[str]:
    """What the extras of setup.cfg bring."""
    spec = configparser.ConfigParser(interpolation=None)
    spec.read(ROOT / "setup.cfg")
    lines = [line for name in names for line in spec["options.extras_require"][name].splitlines()]
    wanted = [line for line in lines if line and not line.startswith("#")]
    return frozenset(Requirement(line).name for line in wanted)


def imported(code: str, local: frozenset[str] = frozenset()) -> frozenset[str]:
    """The distributions of others that a cell imports; ``%packages`` brings some itself."""
    brought = {
        Requirement(word).name
        for words in re.findall(r"^%packages=(.*)$", code, re.MULTILINE)
        for word in words.split()
    }
    tree = ast.parse(_DIRECTIVE.sub(r"\1pass", code))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    tops = {name.partition(".")[0] for name in names} - sys.stdlib_module_names - OWN - local
    return frozenset(OF_OTHERS.get(name, name) for name in tops) - brought


def of_notebook(name: str) -> frozenset[str]:
    """The distributions that the cells of a notebook import."""
    local = frozenset(path.stem for path in NOTEBOOKS.iterdir())
    cells = json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))["cells"]
    code = ["".join(one["source"]) for one in cells if one["cell_type"] == "code"]
    return frozenset().union(*(imported(one, local) for one in code))


def of_page(name: str) -> frozenset[str]:
    """The distributions that the cells of a page import, but for those that nobody runs."""
    text = (ROOT / name).read_text(encoding="utf-8")
    found = [(one["mark"] or "", one["text"]) for one in _BLOCK.finditer(text)]
    files = [match["path"] for mark, _ in found if (match := _MODULE.fullmatch(mark))]
    local = frozenset(path.partition("/")[0] for path in files)
    run = [code for mark, code in found if not mark.startswith(("not run", "dry run", "cluster"))]
    return frozenset().union(*(imported(code, local) for code in run))


@pytest.mark.parametrize("page", FIRST)
def test_the_documented_install_runs_the_quickstart(page: str) -> None:
    named = extras((ROOT / page).read_text(encoding="utf-8"))
    assert {"scikit-learn", "tensorflow-cpu"} <= of_notebook("quickstart.ipynb")
    assert of_notebook("quickstart.ipynb") <= packages(named)
    assert "jupyterlab" in packages(named)


def test_the_documented_install_runs_the_notebook_of_a_lost_pod() -> None:
    named = extras((ROOT / FIRST[0]).read_text(encoding="utf-8"))
    assert of_notebook("surviving.ipynb") <= packages(named)


@pytest.mark.parametrize("notebook", ["pytorch_ddp.ipynb", "mixed.ipynb", "images.ipynb"])
def test_the_other_framework_in_its_place_runs_the_other_notebooks(notebook: str) -> None:
    for page in FIRST[:2]:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert "# or pytorch;" in text
        named = extras(text) - {"tensorflow"} | {"pytorch"}
        assert of_notebook(notebook) <= packages(named)


def test_the_notebook_of_several_languages_names_its_own_install() -> None:
    text = (NOTEBOOKS / "sos.ipynb").read_text(encoding="utf-8")
    assert of_notebook("sos.ipynb") <= packages(extras(text))


@pytest.mark.parametrize("page", READ)
def test_the_cells_of_a_page_import_what_was_installed(page: str) -> None:
    named = extras((ROOT / FIRST[1]).read_text(encoding="utf-8"))
    assert of_page(page) <= packages(named | {"pytorch"})


def test_make_demo_installs_the_same() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(,)", ",")
    (made,) = re.findall(
        r"^\$\(VENV\)/\.demo:.*\n\t\$\(call install,\$\(VENV\),([\w,]+)\)", text, re.M
    )
    assert frozenset(made.split(",")) == extras((ROOT / FIRST[1]).read_text(encoding="utf-8"))


def test_a_package_that_no_extra_brings_is_found() -> None:
    code = "%framework=pytorch\n%packages=tabulate==0.9.0\nimport tabulate, os, sklearn.svm\n"
    assert imported(code) == {"scikit-learn"}
    assert not imported(code) <= packages(frozenset({"lab", "tensorflow"}))
