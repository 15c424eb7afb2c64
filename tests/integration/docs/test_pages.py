"""Every code block of the documentation is run, or read where it cannot be."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml

from ciao_kernel.config import Settings
from ciao_kernel.errors import DirectiveError, SettingError, UsageError
from ciao_kernel.magics import parse
from ciao_kernel.registry import Registry
from tests.integration.docs import blocks, commands, manifests
from tests.integration.docs.blocks import PAGES, ROOT, Block

TRAIN = """%framework=tensorflow
%worker=1
%input=epochs
import json
with open({!r}, "w") as file:
    print(json.load(open("input/epochs.json")), file=file)
"""


class Reader:
    """Goes through a page from above, as its reader does.

    Args:
        place: The reader's folders (tests.helpers.kernels.Place).
        start_kernel: Starts their kernel, at the page's first cell.
    """

    def __init__(self, place: Any, start_kernel: Callable[[], Any]) -> None:
        self.place, self.start_kernel = place, start_kernel
        self.kernel: Any = None
        self.output = ""
        home = place.folder / "home"
        home.mkdir()
        here = str(Path(sys.executable).parent)
        place.env |= {"HOME": str(home), "PATH": os.pathsep.join([here, os.environ["PATH"]])}
        place.env |= {"KUBECONFIG": "", "COLUMNS": "200"}

    def take(self, block: Block) -> None:
        if block.kind == "file":
            _in(self.place.work, block.word).write_text(block.text, encoding="utf-8")
        elif block.kind == "output":
            assert blocks.shown(block.text, self.output), (
                f"{block.place}: this is not what the block before it wrote:\n{self.output}"
            )
        elif block.kind != "not run":
            HANDLERS[block.language](self, block)

    def python(self, block: Block) -> None:
        if block.kind in ("parsed", "cluster"):
            _parse(block.text)
            return
        self.kernel = self.kernel or self.start_kernel()
        done = self.kernel.run(block.text)
        said = [
            "\n".join(content["traceback"]) if "traceback" in content else ""
            for content in done.of("error")
        ]
        data = [content["data"].get("text/plain", "") for content in done.of("execute_result")]
        self.output = "\n".join([done.text, *done.tables, *data, *said])
        wanted = block.word if block.kind == "fails" else ""
        assert done.error == wanted, f"{block.place}: {done.error or 'no error'}\n{self.output}"

    def sh(self, block: Block) -> None:
        self.output = ""
        for line in commands.lines(block.text):
            if block.kind == "parsed" or commands.program(line) not in commands.RUN:
                commands.check(line)
                continue
            done = subprocess.run(
                ["sh", "-c", line],
                cwd=self.place.work,
                env=self.place.env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
            )
            self.output += done.stdout + done.stderr
            wanted = block.word if block.kind == "fails" else "0"
            assert str(done.returncode) == wanted, f"{block.place}: {line}\n{self.output}"

    def yaml(self, block: Block) -> None:
        for document in yaml.safe_load_all(block.text):
            manifests.check(document, block.place)

    def toml(self, block: Block) -> None:
        values = tomllib.loads(block.text)
        if "project" not in values:
            Settings().with_values(values, block.place)

    def ini(self, block: Block) -> None:
        assert configparser.ConfigParser().read_string(block.text) is None

    def json(self, block: Block) -> None:
        part = block.text.startswith('"')  # of an object
        json.loads(f"{{{block.text.rstrip().rstrip(',')}}}" if part else block.text)

    def dockerfile(self, block: Block) -> None:
        assert block.text.startswith(("FROM ", "ARG ")), block.place


HANDLERS: dict[str, Callable[[Reader, Block], None]] = {
    "python": Reader.python,
    "sh": Reader.sh,
    "yaml": Reader.yaml,
    "toml": Reader.toml,
    "ini": Reader.ini,
    "json": Reader.json,
    "dockerfile": Reader.dockerfile,
}


def _in(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _parse(text: str) -> None:
    """Read a cell as the kernel does; one without directives as Python does."""
    table = Registry(third_party={}).table
    if parse.is_job(text, table):
        parse.parse(f"{text}pass\n", table, default_framework="tensorflow")
        return
    for line in text.splitlines():
        if line.startswith("%ciao "):
            commands.check(line[1:])
    plain = [line for line in text.splitlines() if not line.startswith("%")]
    compile("\n".join(plain), "block", "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_its_blocks_do_what_it_says(page: Path, place: Any, start_kernel: Any) -> None:
    reader = Reader(place, start_kernel)
    for block in blocks.read(page):
        reader.take(block)


@pytest.mark.parametrize("program", ["nbconvert", "execute", "papermill"])
def test_its_table_of_programs_runs_a_notebook(program: str, place: Any) -> None:
    """The commands of docs/jupyter.md, on a notebook with a job in it."""
    text = (ROOT / "docs" / "jupyter.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^\|[^|]*\| `((?:jupyter )?{program} [^`]+)` \|$", text, re.MULTILINE)
    cells = ("epochs = 2", TRAIN.format(str(place.work / "seen")))
    spec = {"name": "ciao", "display_name": "Ciao", "language": "python"}
    made = nbformat.v4.new_notebook(metadata={"kernelspec": spec})
    made.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    made.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(made, place.work / "train.ipynb")
    here = str(Path(sys.executable).parent)
    env = place.env | {"PATH": os.pathsep.join([here, os.environ["PATH"]]), "KUBECONFIG": ""}
    done = subprocess.run(
        ["sh", "-c", line], cwd=place.work, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    seen = (place.work / "seen").read_text()
    assert seen == ("3\n" if program == "papermill" else "2\n")


def test_there_are_pages_and_blocks_of_every_kind() -> None:
    found = [block for page in PAGES for block in blocks.read(page)]
    assert {block.kind for block in found} >= {"run", "file", "output", "fails", "parsed"}
    run = [block for block in found if block.kind in ("run", "fails", "output", "file")]
    assert len(run) > len(found) / 2


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
        "pip install PATH/ciao-*.whl",
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
        ("json", "{\n", json.JSONDecodeError),
        ("python", "print(\n", SyntaxError),
        ("python", "%framework=tensorflow\n%wroker=2\nprint()\n", DirectiveError),
        ("sh", "ciao jobs --flavour vanilla\n", UsageError),
    ],
)
def test_a_block_that_is_wrong_fails_also_where_it_is_only_read(
    language: str, text: str, fault: type[Exception], place: Any
) -> None:
    block = Block("page.md", 1, language, text, "parsed")
    with pytest.raises(fault):
        Reader(place, pytest.fail).take(block)


def test_an_output_is_compared_line_by_line() -> None:
    said = "a job\n[worker-0]  step 1\n[worker-0] step 2\n"
    assert blocks.shown("[worker-0] step …\n…\n[worker-0] step 2\n", said)
    assert not blocks.shown("[worker-0] step 2\n[worker-0] step 1\n", said)
    assert not blocks.shown("step 1\n", said)
