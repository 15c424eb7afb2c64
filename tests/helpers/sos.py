"""A real SoS kernel, which starts real kernels of its own."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
from nbformat import NotebookNode

from tests.helpers.colors import uncolored
from tests.helpers.kernels import ROOT, WAIT, Kernel, Place, Request


def install(place: Place) -> dict[str, str]:
    """Add SoS' kernelspec to a place, as users do; return what its environment needs more."""
    command = [sys.executable, "-m", "sos_notebook.install", "--prefix", str(place.folder / "sos")]
    subprocess.run(command, env=place.env, check=True, capture_output=True, timeout=60)
    made = place.folder / "sos" / "share" / "jupyter" / "kernels" / "sos"
    shutil.copytree(made, place.kernels / "sos")
    home = place.folder / "home"  # SoS keeps its state in ~/.sos.
    home.mkdir()
    return {"HOME": str(home)}


def run_example(place: Place, env: dict[str, str] | None = None) -> list[tuple[str, NotebookNode]]:
    """Run notebooks/sos.ipynb to its end; return what each code cell wrote, and the cell.

    Args:
        place: Where it is copied to.
        env: Variables in addition to the place's.
    """
    for name in ("sos.ipynb", "digits_net.py", "run.py"):
        shutil.copy(ROOT / "notebooks" / name, place.work)
    done = subprocess.run(
        [sys.executable, "run.py", "sos.ipynb", "--kernel", "sos", "--inplace"],
        cwd=place.work, env={**place.env, **install(place), **(env or {})},
        capture_output=True, text=True, timeout=380, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    cells = nbformat.read(place.work / "sos.ipynb", as_version=4).cells
    return [(_written(cell), cell) for cell in cells if cell.cell_type == "code"]


def _written(cell: NotebookNode) -> str:
    text = "".join(out.text for out in cell.outputs if out.output_type == "stream")
    return uncolored(text)


class Sos(Kernel):
    """A SoS kernel in which cells are run as a program without a page runs them.

    Args:
        place: Where its user works.
        env: Variables in addition to the place's.
    """

    def __init__(self, place: Place, env: dict[str, str] | None = None) -> None:
        super().__init__(place, "sos", {**install(place), **(env or {})})

    def ok(self, code: str, within: float = 60.0) -> Request:
        """Run a cell that must not fail, and must not warn either."""
        done = self.run(code, within)
        assert done.status == "ok", (done.text, done.reply and done.reply["content"])
        warned = [part["text"] for part in done.of("stream") if part["name"] == "stderr"]
        assert not warned, warned
        return done

    def kill_ciao(self) -> None:
        """Kill -9 the ciao kernel, and see it dead."""
        (kernel,) = self.kernels()
        kernel.kill()
        until = time.monotonic() + WAIT
        while not _dead(kernel):
            assert time.monotonic() < until, "a killed kernel lives"
            time.sleep(0.02)

    def kernels(self) -> list[psutil.Process]:
        """The ciao kernels that SoS has started and that live."""
        found = []
        children: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            children = self.process.children(recursive=True)
        for child in children:
            with contextlib.suppress(psutil.Error):
                command = child.cmdline()
                if command[1:3] == ["-m", "ciao_kernel"] and child.status() != "zombie":
                    found.append(child)
        return found


def _dead(process: psutil.Process) -> bool:
    """Whether its parent may see it dead: that it is not before its last thread has ended."""
    with contextlib.suppress(psutil.Error, OSError):
        threads = list(Path(f"/proc/{process.pid}/task").iterdir())
        return process.status() == psutil.STATUS_ZOMBIE and len(threads) == 1
    return True
