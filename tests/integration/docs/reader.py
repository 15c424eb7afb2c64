"""A reader of the documentation: goes through a page from above, and does what it says."""

from __future__ import annotations

import configparser
import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from ciao_kernel import config
from ciao_kernel.config import Settings
from ciao_kernel.magics import parse
from ciao_kernel.magics.scanned_cell import scan_job
from ciao_kernel.session.plugin_registry import Registry
from tests.integration.docs import blocks, checkout, commands, manifests
from tests.integration.docs.blocks import ROOT, Block

PLAIN = ("%load_ext ciao_kernel", "%%ciao")
"""How cells begin that belong into a kernel which is not ciao's."""
_WAIT = 240.0
"""Seconds for a cell or a command: several replicas may import TensorFlow."""
ASKS = ("%ciao stacks", "%ciao top")
"""How cells begin that look at a running job. A busy replica may not be where the page has it."""
_AGAIN = 60.0
"""Seconds in which such a cell may be repeated."""
SAMPLES = {"//GATEWAY": "//127.0.0.1", "=TOKEN": "=a-token"}
"""What stands for the words in capitals of commands."""


class Reader:
    """Goes through a page as its reader does, on this machine.

    Args:
        place: The reader's folders (tests.helpers.kernels.Place).
        start_kernel: Starts kernels by the names of their kernelspecs.
        run: A folder that the readers of all pages share; without it this one is the first.
    """

    def __init__(
        self, place: Any, start_kernel: Callable[[str], Any], run: Path | None = None
    ) -> None:
        self.place, self.start_kernel = place, start_kernel
        self.run = run or place.folder
        self.kernels: dict[str, Any] = {}
        self.output = ""
        self.asked: tuple[Block, str] | None = None
        """The last cell, if it only asks."""
        home = place.folder / "home"
        home.mkdir()
        here = str(Path(sys.executable).parent)
        place.env |= {"HOME": str(home), "PATH": os.pathsep.join([here, os.environ["PATH"]])}
        place.env |= {"KUBECONFIG": "", "COLUMNS": "200"}

    def take(self, block: Block) -> None:
        """Do what a block says; raises AssertionError if that is not what it promises."""
        if block.kind == "file":
            self.write(block.word, block.text)
        elif block.kind == "output":
            until = time.monotonic() + _AGAIN
            while not blocks.shown(block.text, self.output):
                again = self.asked is not None and time.monotonic() < until
                assert again, (
                    f"{block.place}: this is not what the block before it wrote:\n{self.output}"
                )
                time.sleep(0.1)
                assert self.asked
                self.cell(*self.asked)
        elif block.kind not in ("by", "not run"):
            HANDLERS[block.language](self, block)

    def write(self, name: str, text: str) -> None:
        """Write a file of the page: beside the notebook, or where settings are kept."""
        own = name.removeprefix("~/.config/")
        at = self.place.work if own == name else Path(self.place.env["XDG_CONFIG_HOME"])
        (at / own).parent.mkdir(parents=True, exist_ok=True)
        (at / own).write_text(text, encoding="utf-8")

    def python(self, block: Block) -> None:
        if block.kind in ("cluster", "dry run"):
            _parse(block.text)
        else:
            self.cell(block, block.text)

    def cell(self, block: Block, text: str, within: float = _WAIT) -> str:
        """Run a cell in the page's kernel and return what it showed."""
        name = "python3" if text.startswith(PLAIN) else "ciao"
        if name not in self.kernels:
            self.kernels[name] = self.start_kernel(name)
        done = self.kernels[name].run(text, within)
        said = [
            "\n".join(content["traceback"]) if "traceback" in content else ""
            for content in done.of("error")
        ]
        data = [content["data"].get("text/plain", "") for content in done.of("execute_result")]
        self.output = "\n".join([done.text, *done.tables, *data, *said])
        wanted = block.word if block.kind == "fails" else ""
        assert done.error == wanted, f"{block.place}: {done.error or 'no error'}\n{self.output}"
        self.asked = (block, text) if text.startswith(ASKS) else None
        return self.output

    def sh(self, block: Block) -> None:
        self.output, self.asked = "", None
        for line in blocks.command_lines(block.text):
            commands.check(line)
            if block.kind in ("run", "fails") and not blocks.line_for_cluster(line):
                self.command(block, line)

    def command(self, block: Block, line: str) -> None:
        """Give a command of a block."""
        for word, sample in SAMPLES.items():
            line = line.replace(word, sample)
        program = commands.program(line)
        if program == "jupyter" or line.startswith("make lab"):
            self.serve(line)
            return
        folder = self.place.work
        if program in ("pip", "make"):
            folder = self.checkout()
        if program == "pip" and "PIP_PYTHON" not in self.place.env:
            self.place.env |= checkout.installing(self.place.folder / "env", self.place.env["PATH"])
        if program == "make":
            target = line.split()[1]
            if target in commands.ONLY_SHOWN or not self.first(target):
                line = line.replace("make ", "make -n ", 1)
        self.shell(block, line, folder)

    def first(self, target: str) -> bool:
        """Whether no reader has run a target: `make demo` trains, and once is enough."""
        try:
            (self.run / f"make-{target}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def shell(
        self, block: Block, line: str, folder: Path, env: dict[str, str] | None = None
    ) -> str:
        """Run a command in a folder, by the shell, and return what it wrote."""
        done = subprocess.run(
            ["bash", "-c", line], cwd=folder, env=self.place.env | (env or {}),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_WAIT,
        )  # fmt: skip
        self.output += done.stdout + done.stderr
        wanted = block.word if block.kind == "fails" else "0"
        assert str(done.returncode) == wanted, (
            f"{block.place}: {line}: {done.returncode}\n{self.output}"
        )
        return done.stdout

    def checkout(self) -> Path:
        """The reader's copy of the sources."""
        folder: Path = self.place.folder / "checkout"
        return folder if folder.exists() else checkout.copied(folder)

    def serve(self, line: str) -> None:
        """Start a server, and see that it answers and knows the kernel."""
        lab = checkout.Lab(self.place, line, self.checkout())
        try:
            lab.wait_ready()
            if "GatewayClient" not in line:  # then it would ask the gateway
                assert "ciao" in lab.ask("/api/kernelspecs")["kernelspecs"]
        finally:
            lab.close()

    def yaml(self, block: Block) -> None:
        for document in yaml.safe_load_all(block.text):
            manifests.check(document, block.place)

    def toml(self, block: Block) -> None:
        Settings().with_values(tomllib.loads(block.text), block.place)

    def ini(self, block: Block) -> None:
        configparser.ConfigParser().read_string(block.text)

    def json(self, block: Block) -> None:
        """A part of a kernelspec of deploy/: ciao reads the variables that it sets."""
        part = json.loads(f"{{{block.text.rstrip().rstrip(',')}}}")
        (spec,) = (ROOT / block.page).parent.rglob("kernel.json")
        assert part.keys() == {"env"} & json.loads(spec.read_text()).keys(), block.place
        assert config.load([], part["env"]).images, block.place

    def dockerfile(self, block: Block) -> None:
        raise AssertionError(f"{block.place}: a Dockerfile is a file")


HANDLERS: dict[str, Callable[[Reader, Block], None]] = {
    "python": Reader.python,
    "sh": Reader.sh,
    "yaml": Reader.yaml,
    "toml": Reader.toml,
    "ini": Reader.ini,
    "json": Reader.json,
    "dockerfile": Reader.dockerfile,
}


def _parse(text: str) -> None:
    """Read a cell as the kernel does."""
    table = Registry(third_party={}).table
    assert scan_job(text, table), text
    parse.parse(f"{text}pass\n", table, default_framework="tensorflow")
