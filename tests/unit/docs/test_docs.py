"""Pages of the documentation against the code, and their links against the files."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ciao_kernel import errors
from ciao_kernel.errors import SpecError
from ciao_kernel.model import JobSpec, ReplicaGroup, Resources
from ciao_kernel.session import plugin_checks
from tests.cluster import pins

ROOT = Path(__file__).resolve().parents[3]
PAGES = (
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "deploy").glob("*/README.md")),
    *sorted((ROOT / "builders").glob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
)
_FENCED = re.compile(r"^(`{3,}).*?^\1$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^\s()]+)\)|!\[[^\]]*\]\(([^\s()]+)\)")


@functools.cache
def sentences() -> tuple[str, ...]:
    """Every text in the code but its docstrings, with … for what is put into it."""
    found = []
    for path in sorted((ROOT / "ciao_kernel").rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if node in docstrings:
                continue
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                found.append("".join(_part(one) for one in node.values))
    return tuple(found)


def _part(value: ast.expr) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else "…"


def quoted(text: str) -> Iterator[str]:
    """What the first column of a page's tables has between backticks."""
    for line in text.splitlines():
        if match := re.match(r"\| `([^`]+)` \|", line):
            yield match[1]


def in_code(text: str) -> bool:
    """Whether one text of the code has all parts of an error, in order."""
    parts = [part.strip() for part in text.split("…") if part.strip(" .,:")]
    pattern = re.compile(".*".join(re.escape(part) for part in parts), re.DOTALL)
    return any(pattern.search(sentence) for sentence in sentences())


TROUBLE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", list(quoted(TROUBLE)))
def test_each_error_of_the_page_is_one_of_the_code(text: str) -> None:
    assert in_code(text)


def test_an_error_that_nobody_raises_is_found() -> None:
    assert len(list(quoted(TROUBLE))) > 60
    assert not in_code("the coffee of … is cold.")
    assert not in_code("no space is left in. the disk is full: …")
    assert not in_code("An error of ciao")  # so a docstring begins


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, id=what)
        for what, words in {
            "a missing module": "Add %packages=…, which installs it for this job",
            "no image": "… cannot start: …",
            "no cluster": "no cluster is configured",
            "no operator": "the cluster of … does not support …: …",
            "a quota": "the quota … of the namespace …",
            "no free GPU": "unschedulable…",
            "no memory": "OOMKilled",
            "a hang": "the job ran longer than its deadline",
            "a stop": "… could not be stopped: …",
            "a port in use": "Another program took one of this job's ports",
        }.items()
    ],
)
def test_each_likely_failure_of_the_first_hour_has_its_row(words: str) -> None:
    assert any(words in text for text in quoted(TROUBLE))


def test_each_class_of_errors_has_its_place_on_the_page() -> None:
    classes = [
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.CiaoError)
    ]
    missing = {name for name in classes if f"`{name}`" not in TROUBLE}
    assert missing == {"CiaoError", "JobError"}  # no error is of these alone


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_its_links_lead_somewhere(page: Path) -> None:
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for match in _LINK.finditer(text):
        link = match[1] or match[2]
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(target), f"{link}: there is no such heading"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.fixture(scope="module")
def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make", ROOT / "docs" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation(make: ModuleType) -> None:
    listed = {name for names in make.NAVIGATION.values() for name in names}
    assert listed | {"index"} == {page.stem for page in (ROOT / "docs").glob("*.md")}


def test_links_out_of_the_docs_lead_to_pages_of_the_site(make: ModuleType, tmp_path: Path) -> None:
    make.assemble(tmp_path)
    admin = (tmp_path / "admin.md").read_text(encoding="utf-8")
    assert "](repository/deploy/rbac/README.md#pod-security)" in admin
    assert "kind: Role" in (tmp_path / "repository/deploy/rbac/role.yaml.md").read_text()
    assert "](../../../gateway.md)" in (
        tmp_path / "repository/deploy/enterprise-gateway/README.md"
    ).read_text(encoding="utf-8")


def test_the_page_of_the_cluster_names_each_part_that_takes_a_newer_go() -> None:
    page = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")
    assert f"Go {pins.GO[0]}.{pins.GO[1]} or newer" in page
    named = re.findall(
        r"([\w-]+) (1\.[\d.]*\d)", page.partition("newer Go:\n")[2].partition(". ")[0]
    )
    newer = set()
    for file in pins.MODULES.glob("*/go.mod"):
        (go,) = re.findall(r"^go (\S+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
        if tuple(map(int, go.split(".")[:2])) > pins.GO:
            newer.add((file.parent.name, go.removesuffix(".0")))
    assert {(name.lower(), go) for name, go in named} == newer


def test_make_help_lists_every_described_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (pattern,) = re.findall(r"@sed -n 's/\^\\\((\[.*?\]\*)\\\):", makefile)
    described = re.findall(r"^([^\s:#]+):.*## ", makefile, re.MULTILINE)
    assert "e2e" in described
    assert [name for name in described if not re.fullmatch(pattern, name)] == []


def test_texts_of_make_help_start_with_a_verb() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    verbs = re.findall(r"^[\w-]+:.*## (\w+)", makefile, re.MULTILINE)
    assert set(verbs) == {
        "build", "measure", "open", "recreate", "remove", "run", "set", "show", "start", "stop",
    }  # fmt: skip


def test_a_framework_is_one_file_of_less_than_sixty_lines() -> None:
    """The page calls its code the complete plug-in, and an end-to-end test installs it."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?class LightGbm.*?)^```", page, re.M | re.S)
    assert len(code.splitlines()) < 60
    made: dict[str, Any] = {}
    exec(compile(code, "docs/extending.md", "exec"), made)
    framework = plugin_checks.checked(made["LightGbm"](), "frameworks", "lightgbm")
    worker = ReplicaGroup("worker", 2)

    def complete(*groups: ReplicaGroup) -> tuple[ReplicaGroup, ...]:
        found: JobSpec = framework.complete(JobSpec("lightgbm", groups))
        return found.groups

    assert complete(worker) == (ReplicaGroup("master", 1), worker)
    own = ReplicaGroup("master", 1, Resources(memory="8Gi"))
    assert complete(worker, own, ReplicaGroup("worker", 0)) == (own, worker)
    for count in (0, 3):
        with pytest.raises(SpecError) as caught:
            complete(ReplicaGroup("master", count), worker)
        assert caught.value.directive == "master"
