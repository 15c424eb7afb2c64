"""notebooks/frameworks.ipynb: runs it in a copy of its folder, and reads what its cells show."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tests.helpers.colors import uncolored

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
RANKS = {
    "tensorflow": 2, "pytorch": 2, "pytorch, elastic": 2, "jax": 2, "xgboost": 2, "paddle": 2,
    "mpi": 4, "python": 2, "custom": 2,
}  # fmt: skip
"""The replicas, or ranks, of each cell that print the result."""
_LINE = re.compile(r"^\[\S+\] rank (\d) of (\d): (.+)$", re.M)


@dataclass(frozen=True)
class Ran:
    """What a cell has shown."""

    text: str
    error: str
    seconds: float

    def wrong(self, ranks: int) -> str:
        """Return what is not as it should be: each rank once, and all with one result."""
        if self.error:
            return self.error
        found = _LINE.findall(self.text)
        right = sorted((rank, world) for rank, world, _ in found) == [
            (str(rank), str(ranks)) for rank in range(ranks)
        ]
        results = {result for _, _, result in found}
        good = all(float(result.removeprefix("accuracy ")) > 0.8 for result in results
                   if result.startswith("accuracy"))  # fmt: skip
        return "" if right and len(results) == 1 and good else self.text or "no lines"


def run(folder: Path, *, patience: int) -> dict[str, Ran]:
    """Run the notebook as it stands; its cells may fail.

    Args:
        folder: Where the copy of its folder is made.
        patience: Seconds for a cell.
    """
    shutil.copytree(NOTEBOOKS, folder)
    made = nbformat.read(folder / "frameworks.ipynb", as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(made, kernel_name="ciao", timeout=patience, resources=resources).execute()
    return {_name(cell): _ran(cell) for cell in made.cells if cell.source.startswith("%framework")}


def _name(cell: nbformat.NotebookNode) -> str:
    framework = cell.source.splitlines()[0].partition("=")[2]
    return f"{framework}, elastic" if "\n%min=" in cell.source else str(framework)


def _ran(cell: nbformat.NotebookNode) -> Ran:
    text = "".join(out.text for out in cell.outputs if out.output_type == "stream")
    error = "\n".join(
        f"{out.ename}: {out.evalue}" for out in cell.outputs if out.output_type == "error"
    )
    times = cell.metadata["execution"]
    began, ended = (
        datetime.fromisoformat(times[word])
        for word in ("iopub.execute_input", "shell.execute_reply")
    )
    seconds = (ended - began).total_seconds()
    return Ran(uncolored(text), uncolored(error), seconds)
