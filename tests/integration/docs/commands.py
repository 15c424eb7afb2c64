"""Looks at commands of the documentation before they are run: what they name has to be there."""

from __future__ import annotations

import configparser
import importlib
import itertools
import re
import shlex
from collections.abc import Callable

from ciao_kernel import commands
from tests.integration.docs.blocks import ROOT

_VARIABLE = re.compile(r"[A-Za-z_]\w*=")
_CREATED = frozenset({"role", "rolebinding", "secret", "namespace", "quota", "serviceaccount"})
OTHERS = frozenset({"jupyterlab"})
"""Packages of others that the documentation has pip install."""
IMAGES = {
    "deploy/enterprise-gateway/Dockerfile": "tests/cluster/recipes.py",
    "builders/tensorflow/Dockerfile": "tests/e2e/docs/reader.py",
}
"""Dockerfiles that the documentation builds, and what builds them in the tests."""
ONLY_SHOWN = {
    "test": "it is what runs this test; .ci/run starts it",
    "test-all": "the same with all tiers",
    "check": "a part of `make test`",
    "cluster-down": "tests/e2e/cluster lowers a cluster of its own",
}
"""Targets of which `make -n` shows the commands, and nobody runs them here."""


def program(line: str) -> str:
    """What a command starts: the first word that sets no variable."""
    words = shlex.split(line, comments=True)
    return next((word for word in words if not _VARIABLE.match(word)), "")


def check(line: str) -> None:
    """See that a command could be run; raises AssertionError if not."""
    words = shlex.split(line, comments=True)
    while words and _VARIABLE.match(words[0]):
        words = words[1:]
    if words and (known := CHECKS.get(words[0])):
        known(words[1:])
    else:
        assert not words or words[0] in SIMPLE, f"nobody knows how to check {words[0]}: {line}"


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
            # pip itself only warns.
            missing = set((checkout[1] or "").split(",")) - {*extras, ""}
            assert not missing, f"setup.cfg has no extra {missing}"
        else:
            # ciao itself is on no package index.
            assert word in (f"dist/{wheel}-*.whl", *OTHERS), f"pip would not find {word}"


def _make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for word in words:
        assert "=" in word or word in targets, f"the Makefile has no {word}"


def _kubectl(words: list[str]) -> None:
    verb = words[0]
    assert verb in ("apply", "create", "label", "auth", "get"), words
    if verb == "create":
        assert words[1] in _CREATED, words
    for option, path in itertools.pairwise(words):
        if option in ("-f", "-k") and "github.com" not in path:
            assert (ROOT / path).exists(), f"there is no {path}"


def _docker(words: list[str]) -> None:
    assert words[0] in ("build", "push"), words
    if words[0] == "build":
        file, context = dockerfile(words)
        assert file in IMAGES, f"no test builds {file}"
        assert (ROOT / file).is_file(), file
        # The one that is not in the repository is made by the line before: pip's wheel.
        assert (ROOT / context).is_dir() or context == "dist", context


def dockerfile(words: list[str]) -> tuple[str, str]:
    """The Dockerfile and the context of a `docker build`."""
    context = words[-1]
    file = words[words.index("-f") + 1] if "-f" in words else f"{context}/Dockerfile"
    return file, context


def _jupyter(words: list[str]) -> None:
    from jupyter_server.serverapp import ServerApp

    assert words[0] in ("lab", "server"), words
    classes = {one.__name__: one for one in (ServerApp, *ServerApp.classes)}
    for word in words[1:]:
        # A server starts with options that it does not know.
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
        assert words[1] in ("sos_notebook.install", "tests.cluster"), words
    else:
        assert (ROOT / words[0]).is_file(), words


SIMPLE = frozenset({"cat", "echo", "eval", "ls", "mkdir"})
CHECKS: dict[str, Callable[[list[str]], None]] = {
    "ciao": _ciao,
    "docker": _docker,
    "jupyter": _jupyter,
    "kubectl": _kubectl,
    "make": _make,
    "pip": _pip,
    "python": _python,
}
