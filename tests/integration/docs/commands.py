"""Reads the commands of the documentation: runs ciao's, and checks what others name."""

from __future__ import annotations

import configparser
import importlib
import itertools
import re
import shlex
from collections.abc import Callable

from ciao_kernel import commands
from tests.integration.docs.blocks import ROOT

RUN = frozenset({"ciao", "cat", "echo", "ls", "mkdir"})
_VARIABLE = re.compile(r"[A-Za-z_]\w*=")
_CREATED = frozenset({"rolebinding", "secret", "namespace", "quota"})
OTHERS = frozenset({"jupyterlab"})
"""Packages of others that the documentation has pip install."""


def lines(text: str) -> list[str]:
    """The commands of a block, each in one line."""
    joined = text.replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip() and line[0] != "#"]


def program(line: str) -> str:
    """What a command starts: the first word that sets no variable."""
    words = shlex.split(line, comments=True)
    return next((word for word in words if not _VARIABLE.match(word)), "")


def check(line: str) -> None:
    """See that a command could be run; raises AssertionError if not."""
    words = shlex.split(line, comments=True)
    while words and _VARIABLE.match(words[0]):
        words = words[1:]
    if not words:
        return
    known = CHECKS.get(words[0])
    assert known is not None, f"nobody knows how to check {words[0]}: {line}"
    known(words[1:])


def _ciao(words: list[str]) -> None:
    commands.parse(words, lambda text: None)


def _pip(words: list[str]) -> None:
    spec = configparser.ConfigParser(interpolation=None)
    spec.read(ROOT / "setup.cfg")
    extras = spec["options.extras_require"]
    wheel = spec["metadata"]["name"].replace("-", "_")
    assert words[0] in ("install", "wheel"), words
    named = [word for word in words[1:] if not word.startswith("-")]
    for word in named if words[0] == "install" else ():
        checkout = re.fullmatch(r"\.(?:\[([\w,]+)\])?", word)
        if checkout:
            missing = set((checkout[1] or "").split(",")) - {*extras, ""}
            assert not missing, f"setup.cfg has no extra {missing}"
        else:
            # ciao itself is on no package index.
            assert word in (f"PATH/{wheel}-*.whl", *OTHERS), f"pip would not find {word}"


def _make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for word in words:
        assert "=" in word or word in targets, f"the Makefile has no {word}"


def _kubectl(words: list[str]) -> None:
    verb = words[0]
    assert verb in ("apply", "create", "auth", "get"), words
    if verb == "create":
        assert words[1] in _CREATED, words
    for option, path in itertools.pairwise(words):
        if option in ("-f", "-k") and "://" not in path and "github.com" not in path:
            _exists(path)


def _docker(words: list[str]) -> None:
    assert words[0] in ("build", "push"), words
    for option, path in itertools.pairwise(words):
        if option == "-f":
            _exists(path)
            assert (ROOT / path).is_file(), path


def _exists(path: str) -> None:
    """A file of the repository, named from its top or from the page's folder."""
    if path in (".", "-") or path.startswith("PATH"):
        return
    found = [ROOT / path, *ROOT.glob(f"deploy/*/{path}")]
    assert any(one.exists() for one in found), f"there is no {path}"


def _jupyter(words: list[str]) -> None:
    from jupyter_server.serverapp import ServerApp

    assert words[0] in ("lab", "server"), words
    classes = {one.__name__: one for one in (ServerApp, *ServerApp.classes)}
    for word in words[1:]:
        found = re.fullmatch(r"--(\w+)\.(\w+)=(.*)", word)
        assert found, f"nobody knows how to check {word}"
        kind, trait, value = found.groups()
        assert kind in classes, f"Jupyter Server has no {kind}"
        assert trait in classes[kind].class_trait_names(config=True), f"{kind} has no {trait}"
        module, _, name = value.rpartition(".")
        if module.startswith("ciao_kernel"):
            assert hasattr(importlib.import_module(module), name), f"there is no {value}"


def _python(words: list[str]) -> None:
    if words[0] == "-m":
        assert words[1] in ("pip", "sos_notebook.install", "tests.cluster", "venv"), words
        if words[1] == "pip":
            _pip(words[2:])
    else:
        assert (ROOT / words[0]).is_file(), words


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "ciao": _ciao,
    "docker": _docker,
    "jupyter": _jupyter,
    "kubectl": _kubectl,
    "make": _make,
    "pip": _pip,
    "python": _python,
}
