"""A reader of the documentation who has a cluster: does what its pages say is for one."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import recipes
from tests.cluster.layout import cache
from tests.cluster.programs import programs
from tests.cluster.rights import settle
from tests.e2e.docs.ground import Ground
from tests.e2e.gateway.place import wheel
from tests.integration.docs import blocks, commands
from tests.integration.docs.blocks import ROOT, Block
from tests.integration.docs.reader import Reader

GUIDE = ROOT / "docs" / "admin.md"
BESIDE = {
    "README.md": {"train_utils.py": "", "data/train.csv": "1,2\n"},
    "docs/packages.md": {"requirements.txt": "tabulate==0.9.0\n"},
}
"""Files that cells name and that are the reader's own."""
ENVIRONMENT = re.compile(r"the environment is (\S+)")


class ClusterReader(Reader):
    """Goes through a page as ada does, and her administrator where it says kubectl.

    Args:
        place: Ada's folders.
        start_kernel: Starts kernels.
        ground: Where she works.
    """

    def __init__(self, place: Any, start_kernel: Callable[[str], Any], ground: Ground) -> None:
        super().__init__(place, start_kernel)
        self.ground, self.tag = ground, ""
        self.done: set[str] = set()
        place.env |= ground.environment
        self.overlay: Path = place.folder / "overlay"
        self.overlay.mkdir()
        ground.words["PATH/"] = f"{os.path.relpath(ROOT, self.overlay.resolve())}/"

    def enter(self, page: str, *, works: bool) -> None:
        """Have the administrator make the namespace, and all that ada needs if she works in it.

        Where she does, the page's files and its lines for the administrator come before its cells.
        """
        for block in blocks.read(GUIDE):
            if block.language == "yaml" and (works or "deploy/team" in block.text):
                self.yaml(block)
            elif block.language == "toml":
                self.write("~/.config/ciao/config.toml", self.ground.filled(block.text))
            elif block.language == "sh" and works:
                self.administer(block)
        for name, text in BESIDE.get(page, {}).items():
            self.write(name, text)
        for block in blocks.read(ROOT / page) if works else ():
            if block.kind == "file":
                self.take(block)
            elif block.language == "sh":
                self.administer(block)

    def administer(self, block: Block) -> None:
        """Run the lines of a block that make something in the namespace."""
        for line in blocks.command_lines(block.text):
            if line.startswith(("kubectl apply -n", "kubectl create")):
                self.command(block, line)
                self.done.add(line)

    def take(self, block: Block) -> None:
        if block.kind == "file":
            self.write(block.word, self.ground.filled(block.text))
        elif blocks.for_cluster(block) or "ciao config images." in block.text:
            {"python": self.python, "sh": self.sh, "yaml": self.yaml}[block.language](block)

    def python(self, block: Block) -> None:
        text = self.ground.filled(block.text)
        if "%framework" not in text:  # a part of a cell
            text = f"%framework=tensorflow\n{text}print()\n"
        if block.kind == "cluster":
            shown = self.cell(block, text, 200)
            if self.tag and (found := ENVIRONMENT.search(shown)):
                self.ground.words = {self.tag: found[1], **self.ground.words}
        if block.kind == "dry run" or "%dryrun\n" in text:
            shown = self.cell(block, "%dryrun=server\n" + text.replace("%dryrun\n", "\n"))
            assert shown.rstrip().endswith("would accept it."), f"{block.place}:\n{shown}"

    def sh(self, block: Block) -> None:
        self.output = ""
        for line in blocks.command_lines(block.text):
            if block.kind == "cluster" or line.startswith("ciao config images."):
                self.shell(block, self.ground.filled(line), self.place.work)
            elif line.startswith("docker "):
                self.docker(shlex.split(line))
            elif blocks.line_for_cluster(line) and line not in self.done:
                self.command(block, line)

    def command(self, block: Block, line: str) -> None:
        """What is the administrator's, or a developer's of ciao: from the top of a checkout."""
        kubectl = programs("kubernetes")
        env = {
            "KUBECONFIG": str(self.ground.shelf.cluster.at.kubeconfig),
            "CIAO_CLUSTER_CACHE": str(cache()),
            "PATH": os.pathsep.join([str(kubectl), self.place.env["PATH"]]),
        }
        filled = self.ground.filled(line)
        assert "github.com" not in filled, f"{block.place}: another version than the tests' own"
        self.shell(block, filled, ROOT if "kubectl" in line else self.checkout(), env)
        team = self.ground.namespace
        made = line.startswith(("kubectl apply", "kubectl create"))
        if made and team.cluster.kubectl("get", "namespace", team.name, "--ignore-not-found"):
            settle(team.cluster, team.name)  # what the page does next may need what it gave

    def docker(self, words: list[str]) -> None:
        """There is no docker: builds by what the tests have, or by the page's next cell."""
        if words[1] == "push":
            assert words[2] == self.tag
            return
        self.tag = words[words.index("-t") + 1]
        file, context = commands.dockerfile(words)
        if context == "dist":
            assert recipes.KERNEL_FILE.copies[0][0] == "*.whl"
            self.ground.shelf.cluster.put(recipes.kernel(wheel()))
            return
        shutil.copytree(ROOT / context, self.place.work, dirs_exist_ok=True)
        small = f"ARG BASE={self.ground.shelf.images['python']}"
        text = re.sub(r"^ARG BASE=.*$", small, (ROOT / file).read_text(), flags=re.MULTILINE)
        (self.place.work / "Dockerfile").write_text(text)

    def yaml(self, block: Block) -> None:
        text = self.ground.filled(block.text)
        documents = list(yaml.safe_load_all(text))
        if all("apiVersion" in one for one in documents):
            (self.overlay / "objects.yaml").write_text(text)
            self.command(block, f"kubectl apply -f {self.overlay}/objects.yaml")
        else:
            (self.overlay / "kustomization.yaml").write_text(text)
            self.command(block, f"kubectl apply -k {self.overlay}")
