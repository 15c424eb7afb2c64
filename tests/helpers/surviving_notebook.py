"""notebooks/surviving.ipynb: runs it, takes a pod away meanwhile, and checks what came back."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tests.helpers import tensorboard
from tests.helpers.colors import uncolored
from tests.helpers.jobs import wait

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
NAME = "surviving.ipynb"
JOB, REPLICA = "line", "worker-0"
"""The job that trains, and its replica."""
EPOCHS = 40
_ADDRESS = re.compile(rf"TensorBoard of {JOB}: (http://127\.0\.0\.1:\d+/)")
_EPOCH = re.compile(r"epoch (\d+) loss ([\d.]+)")


async def survives(folder: Path, lose: Callable[[], Awaitable[None]], *, patience: int) -> str:
    """Run the notebook as it stands, lose the replica while it trains, and check all results.

    Args:
        folder: Where the copy of the notebook is made.
        lose: Takes the replica away.
        patience: Seconds for a cell.

    Returns:
        The epochs that were trained twice, for a figure.
    """
    folder.mkdir()
    shutil.copy(NOTEBOOKS / NAME, folder)
    notebook = nbformat.read(folder / NAME, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, kernel_name="ciao", timeout=patience, resources=resources)
    (training,) = (cell for cell in notebook.cells if f"%name={JOB}\n" in cell.source)
    async with client.async_setup_kernel():
        for index, cell in enumerate(notebook.cells):
            run = asyncio.ensure_future(client.async_execute_cell(cell, index))
            if cell is training:
                await _takes_away(cell, run, lose, patience)
            await run
        await asyncio.to_thread(
            tensorboard.scalars, _address(training), f"{JOB}/{REPLICA}", step=EPOCHS
        )
    _results(notebook.cells[-1])
    return _continues(_text(training))


async def _takes_away(
    cell: nbformat.NotebookNode,
    run: asyncio.Task[nbformat.NotebookNode],
    lose: Callable[[], Awaitable[None]],
    patience: int,
) -> None:
    """Lose the replica when some epochs are over; TensorBoard may come later than these."""
    await wait(lambda: run.done() or "epoch 5 loss" in _text(cell), patience)
    if run.done():
        return  # its error is better than any other
    assert f"epoch {EPOCHS} loss" not in _text(cell)
    await lose()


def _continues(text: str) -> str:
    """Check that two tries trained one model; return the epochs that both have trained."""
    begins = [int(one) for one in re.findall(r"begins after epoch (\d+)", text)]
    assert len(begins) == 2, text
    assert begins[0] == 0 < begins[1], text
    assert f"{JOB} is started again" in text, text
    first, second = text.split(f"begins after epoch {begins[1]}")
    epochs = [[int(one[0]) for one in _EPOCH.findall(part)] for part in (first, second)]
    assert epochs[1] == list(range(begins[1] + 1, EPOCHS + 1)), text
    # The pod was lost between the checkpoint of an epoch and its line, or the next checkpoint.
    assert epochs[0] == list(range(1, len(epochs[0]) + 1)), text
    twice = len(epochs[0]) - begins[1]
    assert twice in (-1, 0), text
    # Exactly the curve of a run that nothing disturbs.
    losses = [float(one[1]) for part in (first, second) for one in _EPOCH.findall(part)]
    assert losses == sorted(losses, reverse=True), text
    return f"lost in epoch {begins[1] + 1}, {max(twice, 0)} epochs trained twice"


def _results(cell: nbformat.NotebookNode) -> None:
    assert f"{EPOCHS} epochs\n" in _text(cell), cell.outputs
    assert "slope and offset: [3. 1.]\n" in _text(cell), cell.outputs
    assert any("image/png" in out.get("data", {}) for out in cell.outputs), cell.outputs


def _text(cell: nbformat.NotebookNode) -> str:
    return uncolored("".join(out.text for out in cell.outputs if out.output_type == "stream"))


def _address(cell: nbformat.NotebookNode) -> str:
    shown = "\n".join(out.get("data", {}).get("text/plain", "") for out in cell.outputs)
    found = _ADDRESS.findall(shown)
    assert found, shown
    return str(found[-1])
