"""Every code block of the documentation is run: here, on a cluster, or by a test that it names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import nbformat
import pytest

from ciao_kernel.errors import DirectiveError, SettingError, SourceError, UsageError
from tests.helpers import once
from tests.integration.docs import blocks, commands, manifests
from tests.integration.docs.blocks import PAGES, ROOT, Block
from tests.integration.docs.reader import Reader

BLOCKS = [block for page in PAGES for block in blocks.read(page)]
ONLY_LOOKED_AT = {
    "README.md": 2,
    "CONTRIBUTING.md": 1,
    "docs/architecture.md": 2,
    "docs/map.md": 1,
    "docs/data.md": 5,
    "docs/inside.md": 7,
    "docs/queues.md": 2,
}
"""Drawings, a synopsis, cells whose code is the reader's, and what a cell shows at a moment: how
many of them on which page."""
PROGRAMS = "docs/jupyter.md"
LONG = {
    "docs/index.md",
    "docs/coming-from.md",
    "docs/commands.md",
    "docs/first-steps.md",
    "docs/frameworks.md",
    "docs/gateway.md",
    "docs/magics.md",
    "docs/sos.md",
    "docs/surviving.md",
}
"""Pages that take a minute: most train or install. README.md has the same first steps."""
STANDS_FOR_THE_OTHERS = "docs/tutorial.md"
"""The page that represents those on the cluster: jobs, commands and files, in a kernel."""


def _with_marks(page: Path) -> Any:
    """A page, and whether reading it trains."""
    name = page.relative_to(ROOT).as_posix()
    texts = "".join(one.text for one in BLOCKS if (one.page, one.kind) == (name, "run"))
    marks = [pytest.mark.slow] if "pip install" in texts else []
    trains = ("import tensorflow", "import torch", "import xgboost", "make demo")
    if any(words in texts for words in trains):
        marks += [pytest.mark.slow, pytest.mark.frameworks, pytest.mark.timeout(900)]
    if name == STANDS_FOR_THE_OTHERS:
        marks += [pytest.mark.stands_for("docs")]
    if name in LONG:
        marks += [pytest.mark.second("docs")]
    return pytest.param(page, id=name, marks=marks)


@pytest.mark.parametrize("page", [_with_marks(page) for page in PAGES])
def test_its_blocks_do_what_it_says(
    page: Path, place: Any, start_kernel: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    reader = Reader(place, start_kernel, once.folder(tmp_path_factory))
    for block in blocks.read(page):
        reader.take(block)


@pytest.mark.parametrize(
    "program",
    [
        # tests/integration/frontends runs a notebook by each of them; these have no more to it.
        pytest.param("nbconvert", marks=pytest.mark.second("docs")),
        pytest.param("execute", marks=pytest.mark.second("docs")),
        "papermill",
    ],
)
def test_its_table_of_programs_runs_its_notebook(program: str, place: Any) -> None:
    """The commands of docs/jupyter.md, on a notebook of the cells below them."""
    text = (ROOT / PROGRAMS).read_text(encoding="utf-8")
    (line,) = re.findall(rf"^\|[^|]*\| `((?:jupyter )?{program} [^`]+)` \|$", text, re.MULTILINE)
    *_, parameters, cell = [
        one for one in BLOCKS if (one.page, one.language) == (PROGRAMS, "python")
    ]
    assert "epochs =" in parameters.text
    seen = str(place.work / "seen")
    spec = {"name": "ciao", "display_name": "Ciao", "language": "python"}
    made = nbformat.v4.new_notebook(metadata={"kernelspec": spec})
    cells = (
        parameters.text,
        f"{cell.text}open({seen!r}, 'w').write(open('input/epochs.json').read())",
    )
    made.cells = [nbformat.v4.new_code_cell(one) for one in cells]
    made.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(made, place.work / "train.ipynb")
    here = str(Path(sys.executable).parent)
    env = place.env | {"PATH": os.pathsep.join([here, os.environ["PATH"]]), "KUBECONFIG": ""}
    done = subprocess.run(
        ["sh", "-c", line], cwd=place.work, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(Path(seen).read_text()) == (3 if program == "papermill" else 2)


def test_what_nobody_runs_is_little_and_says_why() -> None:
    assert Counter(one.page for one in BLOCKS if one.kind == "not run") == ONLY_LOOKED_AT
    kinds = {block.kind for block in BLOCKS}
    assert kinds == {"run", "file", "output", "fails", "cluster", "dry run", "by", "not run"}
    given = {
        " ".join(line.split()[:2]) for one in BLOCKS for line in blocks.command_lines(one.text)
    }
    assert {f"make {target}" for target in commands.ONLY_SHOWN} <= given


@pytest.mark.parametrize(
    ("language", "text", "wanted"),
    [
        ("sh", "kubectl get pods\n", True),
        ("sh", "ls\nmake cluster   # up\n", True),
        ("sh", "make cluster-down\nciao jobs\n", False),
        ("yaml", "apiVersion: v1\nkind: Namespace\n", True),
        ("yaml", "# kustomization.yaml\nresources: [team]\n", True),
        ("yaml", "key: value\n", False),
        ("python", "%framework=tensorflow\nprint()\n", False),
    ],
)
def test_what_is_for_a_cluster_is_told_by_what_it_is(
    language: str, text: str, wanted: bool
) -> None:
    assert blocks.for_cluster(Block("page.md", 1, language, text)) is wanted
    assert blocks.for_cluster(Block("page.md", 1, language, text, "dry run"))
    assert not blocks.for_cluster(Block("page.md", 1, language, text, "not run"))


@pytest.mark.parametrize(
    "block", [one for one in BLOCKS if one.kind == "by"], ids=lambda block: block.place
)
def test_a_test_that_runs_a_block_reads_it_from_its_page(block: Block) -> None:
    assert Path(block.page).name in (ROOT / block.word).read_text(encoding="utf-8")


@pytest.mark.parametrize(("file", "test"), commands.IMAGES.items())
def test_what_builds_an_image_of_the_documentation_names_its_folder(file: str, test: str) -> None:
    text = (ROOT / test).read_text(encoding="utf-8")
    assert all(part in text for part in Path(file).parts[-2:]), test


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("```\nx\n```\n", "the language '' is not known"),
        ("```cobol\nx\n```\n", "the language 'cobol' is not known"),
        ("<!-- block: later -->\n\n```sh\nls\n```\n", "the comment 'later' is not known"),
        ("<!-- block: not run: why -->\n```sh\nls\n```\n", "is not known"),
        ("<!-- block: output -->\n\nwords\n", "no block stands below"),
        ("```text\nx\n```\n", "text is output"),
        ("```sh\nls\n", "does not end"),
    ],
)
def test_what_nobody_could_run_is_an_error(text: str, says: str) -> None:
    with pytest.raises(blocks.Unclear, match=says):
        list(blocks._blocks(text.splitlines(), "page.md"))


@pytest.mark.parametrize(
    "line",
    [
        "cobc train.cob",
        "pip install '.[cobol]'",
        "pip install ciao-kernel",
        "pip install dist/ciao-*.whl",
        "jupyter lab --GatewayClient.adress=http://GATEWAY:8888",
        "jupyter lab --ServerApp.kernel_websocket_connection_class=ciao_kernel.gateway.None",
        "make coffee",
        "kubectl apply -f deploy/none.yaml",
        "docker build -f deploy/Dockerfile .",
        "python notebooks/none.py",
    ],
)
def test_a_command_that_cannot_be_run_is_an_error(line: str) -> None:
    with pytest.raises(AssertionError):
        commands.check(line)


ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "Role",
    "metadata": {"name": "r"},
    "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
}


def test_a_manifest_is_checked_by_its_kind() -> None:
    manifests.check(ROLE, "page.md:1")
    wrong = [
        {**ROLE, "kind": "Rule"},
        {**ROLE, "apiVersion": "rbac.authorization.k8s.io/v1beta1"},
        {**ROLE, "rule": []},
        {**ROLE, "rules": [{"resource": ["pods"], "verbs": ["get"]}]},
    ]
    for one in wrong:
        with pytest.raises(AssertionError):
            manifests.check(one, "page.md:1")


@pytest.mark.parametrize(
    ("language", "text", "fault"),
    [
        ("toml", 'flavour = "vanilla"\n', SettingError),
        ("toml", "ttl = \n", tomllib.TOMLDecodeError),
        ("json", '"env": {\n', json.JSONDecodeError),
        ("python", "%framework=tensorflow\nprint(\n", SourceError),
        ("python", "%framework=tensorflow\n%wroker=2\nprint()\n", DirectiveError),
        ("sh", "ciao jobs --flavour vanilla\n", UsageError),
    ],
)
def test_a_block_that_is_wrong_fails_also_where_it_is_only_read(
    language: str, text: str, fault: type[Exception], place: Any
) -> None:
    block = Block("page.md", 1, language, text, "cluster")
    with pytest.raises(fault):
        Reader(place, pytest.fail).take(block)


def test_an_output_is_compared_line_by_line() -> None:
    said = "a job\n[worker-0]  step 1\n[worker-0] step 2\n"
    assert blocks.shown("[worker-0] step …\n…\n[worker-0] step 2\n", said)
    assert not blocks.shown("[worker-0] step 2\n[worker-0] step 1\n", said)
    assert not blocks.shown("step 1\n", said)
