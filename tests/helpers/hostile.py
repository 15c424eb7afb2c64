"""Cells with hostile values, and the check that each of them ends in an error of ciao or in none.

``python -m tests.helpers.hostile 100000 [SEED]`` runs so many and prints what became of them.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ciao_kernel.backends.local import interpreter
from ciao_kernel.builders import context
from ciao_kernel.config import Settings
from ciao_kernel.delivery.input import imports
from ciao_kernel.delivery.input.variables import deliver
from ciao_kernel.delivery.packages import requirements
from ciao_kernel.errors import CiaoError, SpecError, describe
from ciao_kernel.magics.parse import Parsed
from ciao_kernel.magics.render import render
from ciao_kernel.model import Owner
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session

BODY = "print(1)\n"
PATHS = (
    *("python", "files", "requirements", "condaEnv", "dockerfile"),
    *("base", "registry", "image", "input", "volume", "name"),
)
"""Directives whose values become names of files, folders, images or objects."""
WORDS = (
    *("file", "folder", "folder/one.csv", "missing", "file/below", "folder/", "./file", "."),
    *("loop", "loop/below", "broken", "zero", "pipe", "closed/one", "link/one.csv"),
    *("..", "../..", "folder/../..", "/", "/dev/zero", "/proc/self/mem", "~", "~nobody-has-it/x"),
    *("a" * 300, "a" * 5000, "/".join(["a" * 300] * 20), "/".join(["a"] * 2000), "/" * 5000),
    *("*", "**", "***", "*/*", "**/*", "*/loop/*", "?" * 300, "*" * 5000, "[", "[]", "[!a]"),
    *("[" * 3000, "/".join(["*"] * 1000), "**/" * 1000 + "*", "[a-", "*[", "folder/*.csv"),
    *("!file", "!", "!!", "!loop", "!*/*", "a\0b", "*\0", "a\nb", "a\rb", "a\x1b[2Jb", "a\tb"),
    *("a\udcffb", "*\udcff", "a\ud800b", "~\ud800", "\u202egnp", "é" * 200, "🚀", " ", "' '"),
    *("'", '"', "\\", "'file'", "$HOME", "`ls`", "-", "--", "-r file", "%", ";%", "a;%worker=2"),
    *("=", "a=b", "A=" + "b" * 5000, "9" * 5000, "-1", "1e400", "nan", "٣", "0x10", "1_0"),
    *("a:b:c", "a@sha256:", "host:99999/a", "https://u:p@h/x", "file://file", "a==", "-e ."),
)


def plant(folder: Path) -> None:
    """Fill a folder with all that a path may lead to."""
    (folder / "folder").mkdir()
    (folder / "folder" / "one.csv").write_text("1\n")
    (folder / "file").write_text("numpy\n")
    for name, target in (("loop", "loop"), ("broken", "nothing"), ("zero", "/dev/zero")):
        (folder / name).symlink_to(target)
    (folder / "link").symlink_to("folder")
    os.mkfifo(folder / "pipe")
    (folder / "closed").mkdir(mode=0)
    (folder / "a\nb").touch()
    os.close(os.open(os.fsencode(folder) + b"/\xff\xfe", os.O_CREAT | os.O_WRONLY))


class Cells:
    """Makes cells, and takes them as far as they go without a process.

    Args:
        folder: The notebook's folder, see :func:`plant`.
        seed: Makes the same cells again.
    """

    def __init__(self, folder: Path, seed: int = 0) -> None:
        settings = Settings(framework="tensorflow", storage=folder / "storage")
        self._session = Session(Registry({}), Owner("a test"), settings)
        self._folder = folder
        self._random = random.Random(seed)
        self._entries = self._session.registry.table.entries
        self.ends: Counter[str] = Counter()

    def header(self) -> str:
        """Return some directives of the table, most of them with values that none expects."""
        lines = []
        for _ in range(self._random.randint(1, 4)):
            if self._random.random() < 0.5:
                name = self._random.choice(PATHS)
                entry = next((one for one in self._entries if one.name == name), None)
            else:
                entry = self._random.choice(self._entries)
            if entry is None or self._random.random() < 0.1:
                lines.append((entry or self._entries[0]).example)
            else:
                lines.append(f"%{entry.name}={self._value()}")
        return "\n".join(lines) + "\n"

    def _value(self) -> str:
        chosen = self._random.choices(WORDS, k=self._random.choice((1, 1, 1, 2, 3)))
        text = self._random.choice((" ", "/", "")).join(chosen)
        if self._random.random() < 0.2:
            text = "'" + text.replace("'", "") + "'"
        if self._random.random() < 0.1:
            cut = self._random.randrange(len(text) + 1)
            text = text[:cut] + chr(self._random.randrange(0x110000)) + text[cut:]
        return text

    def take(self, text: str) -> None:
        """Take one cell; whatever is no error of ciao is raised, and an error can be shown."""
        try:
            parsed = self._session.parse(text + BODY)
        except CiaoError as error:
            self._note(error)
            return
        for step in (self._files, self._python, self._requirements, self._conda, self._docker):
            self._try(step, parsed)
        render(parsed.spec, self._session.registry.table, secrets=False)
        self.ends["parsed"] += 1

    def _try(self, step: Callable[[Parsed], Any], parsed: Parsed) -> None:
        try:
            step(parsed)
        except SpecError as error:
            self._note(parsed.locate(error))
        except CiaoError as error:
            self._note(error)

    def _note(self, error: CiaoError) -> None:
        assert "\n".join(describe(error)).encode()  # it can be sent to a notebook
        self.ends[type(error).__name__] += 1

    def _files(self, parsed: Parsed) -> None:
        source = imports.gather(parsed.code, self._folder, parsed.spec.files)
        if parsed.spec.inputs:
            deliver(source, parsed.spec.inputs, {"a": 1})

    def _python(self, parsed: Parsed) -> None:
        if parsed.spec.python:
            interpreter.find(parsed.spec.python, self._folder)

    def _requirements(self, parsed: Parsed) -> None:
        requirements.read(parsed.spec.build, self._folder)

    def _conda(self, parsed: Parsed) -> None:
        if name := parsed.spec.build.conda_env:
            context.read(self._folder, name, "%condaEnv")

    def _docker(self, parsed: Parsed) -> None:
        if name := parsed.spec.build.dockerfile:
            context.read(self._folder, name, "%dockerfile")


def run(number: int, seed: int = 0) -> Counter[str]:
    """Take so many random cells, and return how often each end came."""
    with tempfile.TemporaryDirectory() as name:
        plant(folder := Path(name))
        cells = Cells(folder, seed)
        for at in range(number):
            text = cells.header()
            try:
                cells.take(text)
            except Exception as error:
                error.add_note(f"cell {at} of seed {seed}: {text!r:.400}")
                raise
        return cells.ends


def main() -> None:
    """Run as many cells as the first argument says."""
    number, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    began = time.monotonic()
    ends = run(number, seed)
    took = time.monotonic() - began
    print(f"{number:,} cells in {took:.0f} s, {number / took:.0f} per second")
    for name, count in ends.most_common():
        print(f"{count:>9,} {name}")


if __name__ == "__main__":
    main()
