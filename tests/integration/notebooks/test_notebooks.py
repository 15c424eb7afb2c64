"""Every notebook in notebooks/ trains its real model through the real kernel."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import nbformat
import psutil
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell

from ciao_kernel.session.plugin_registry import Registry
from tests.helpers import frameworks_notebook, surviving_notebook
from tests.helpers.colors import uncolored
from tests.helpers.kernels import LINGER

NOTEBOOKS = Path(__file__).parents[3] / "notebooks"
_PRINTED = re.compile(r"\[\w+-\d+\] (step|epoch|rank|worker|serving) ?")

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def _own_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIAO_STORAGE", str(tmp_path / "storage"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CIAO_LINGER", LINGER)


def _needs(*packages: str) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: pip install '.[tensorflow,pytorch,examples]'")


def _run(
    name: str,
    tmp_path: Path,
    change: tuple[str, str] = ("", ""),
    prepare: Callable[[nbformat.NotebookNode], object] = lambda _: None,
) -> nbformat.NotebookNode:
    """Execute a copy of a notebook, in a copy of its folder, as nbconvert and papermill do."""
    folder = tmp_path / "notebooks"
    shutil.copytree(NOTEBOOKS, folder, ignore=shutil.ignore_patterns("*.npz", "__pycache__"))
    notebook = nbformat.read(folder / name, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace(*change) if change[0] else cell.source
    prepare(notebook)
    client = NotebookClient(
        notebook, kernel_name="ciao", timeout=400, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return notebook


def _job_cell(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    return next(cell for cell in notebook.cells if cell.source.startswith("%framework"))


def _lines(cell: nbformat.NotebookNode) -> list[str]:
    text = "".join(out.text for out in cell.outputs if out.output_type == "stream")
    return uncolored(text).splitlines()


def _losses(lines: list[str], replica: str) -> list[float]:
    return [
        float(match[1])
        for line in lines
        if (match := re.match(rf"\[{replica}\] .*loss ([\d.]+)", line))
    ]


def test_quickstart_trains_tensorflow_with_a_parameter_server(tmp_path: Path) -> None:
    _needs("tensorflow", "sklearn")

    notebook = _run("quickstart.ipynb", tmp_path)

    lines = _lines(_job_cell(notebook))
    assert "[ps-0] serving the model's variables" in lines
    for worker in ("worker-0", "worker-1"):
        assert f"[{worker}] worker {worker[-1]} is done" in lines
    # Both workers train one model, and either may come first.
    losses = [*_losses(lines, "worker-0"), *_losses(lines, "worker-1")]
    assert max(losses) > 1.5
    for worker in ("worker-0", "worker-1"):
        assert _losses(lines, worker)[-1] < 0.5
    table = _job_cell(notebook).outputs[0].data
    assert table["text/plain"].splitlines()[0].endswith(": Succeeded")
    assert re.search(r"ps-0 +Stopped", table["text/plain"])
    assert "Succeeded" in table["text/html"]


def test_pytorch_trains_by_torchrun_on_two_replicas(tmp_path: Path) -> None:
    _needs("torch", "sklearn")

    notebook = _run("pytorch_ddp.ipynb", tmp_path)

    lines = _lines(_job_cell(notebook))
    for replica in ("master-0", "worker-0"):
        losses = _losses(lines, replica)
        assert len(losses) == 6
        assert losses[-1] < losses[0] / 4
    assert any(re.match(r"\[master-0\] rank 0 of 2 wrote [\d,]+ bytes", line) for line in lines)
    ends = _lines(notebook.cells[-1])
    assert [end.partition(":")[0] for end in ends] == ["master-0", "worker-0"]
    assert all(re.search(r"loss \d\.\d+ at first, 0\.\d+ at the end", end) for end in ends)


@pytest.mark.second("docs")
def test_mixed_prepares_trains_and_plots(tmp_path: Path) -> None:
    _needs("torch", "sklearn", "matplotlib")

    notebook = _run("mixed.ipynb", tmp_path)

    assert "included, because the code imports them: digits_net.py" in _lines(_job_cell(notebook))
    work = next((tmp_path / "storage" / "jobs").iterdir()) / "work"
    assert {"ciao_cell.py", "digits_net.py", "digits.npz"} <= {path.name for path in work.iterdir()}
    for replica in ("master-0", "worker-0"):
        losses = _losses(_lines(_job_cell(notebook)), replica)
        assert len(losses) == 40
        assert losses[-1] < 0.2
    picture = notebook.cells[-1].outputs[0].data
    assert picture["image/png"]


@pytest.mark.second("docs")
def test_a_fault_in_one_pytorch_rank_is_blamed_on_that_rank(tmp_path: Path) -> None:
    _needs("torch", "sklearn")
    fault = "    if rank == 1 and epoch == 7:\n        raise ValueError('boom')\n"
    anchor = "    optimizer.zero_grad()\n"

    with pytest.raises(CellExecutionError) as caught:
        _run("pytorch_ddp.ipynb", tmp_path, (anchor, fault + anchor))

    assert caught.value.ename == "JobFailed"
    assert "worker-0" in caught.value.evalue
    assert "ValueError: boom" in caught.value.evalue
    source = nbformat.read(tmp_path / "notebooks" / "pytorch_ddp.ipynb", as_version=4)
    cell = _job_cell(source).source.replace(anchor, fault + anchor)
    line = cell.splitlines().index("        raise ValueError('boom')") + 1
    assert f"Cell, line {line}, in <module>" in uncolored(str(caught.value))


@pytest.mark.second("docs")
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_each_framework_trains_one_model(tmp_path: Path, figure: Callable[[str], None]) -> None:
    """A framework that is not installed is refused, and the others run."""
    packages = {
        "tensorflow": "tensorflow", "pytorch": "torch", "pytorch, elastic": "torch", "jax": "jax",
        "xgboost": "xgboost", "paddle": "paddle", "mpi": "mpi4py",
    }  # fmt: skip
    absent = {name for name, one in packages.items() if importlib.util.find_spec(one) is None}
    _needs("sklearn")

    ran = frameworks_notebook.run(tmp_path / "notebooks", patience=400)

    figure(", ".join(f"{name} {one.seconds:.0f} s" for name, one in ran.items()))
    ranks = frameworks_notebook.RANKS
    assert list(ran) == list(ranks)
    wrong = {name: said for name in ranks if (said := ran[name].wrong(ranks[name]))}
    assert set(wrong) == absent, wrong
    for name in absent:
        assert f"has no package {packages[name]}" in wrong[name]


@pytest.mark.second("docs")
@pytest.mark.slow
def test_a_training_survives_the_loss_of_its_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Callable[[str], None]
) -> None:
    """The cluster's test of it is tests/e2e/jobs/test_surviving_notebook.py."""
    _needs("tensorflow", "tensorboard", "matplotlib")
    claim = tmp_path / "claim"
    claim.mkdir()
    monkeypatch.setenv("CIAO_VOLUMES", f"training={claim}")

    async def lose() -> None:
        replica = _program(f"CIAO_CHECKPOINT={tmp_path}")
        replica.kill()

    figure(asyncio.run(surviving_notebook.survives(tmp_path / "notebooks", lose, patience=400)))
    assert (claim / "line.csv").is_file()
    assert (claim / "runs" / "line" / "checkpoint").is_file()


def _program(variable: str) -> psutil.Process:
    """The process of a program with the beginning of a variable that no other test has."""
    name, _, value = variable.partition("=")
    parents = {}
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if one.environ().get(name, "").startswith(value):
                parents[one] = one.ppid()
    pids = {one.pid for one in parents}
    (program,) = (one for one, parent in parents.items() if parent not in pids)
    return program


def _copy_warm(notebook: nbformat.NotebookNode) -> None:
    """Put two copies with %warm behind each job cell that can have it, and drop the other ones."""
    cells = []
    forkable = Registry({}).table.names.forkable
    for cell in notebook.cells:
        head, _, rest = cell.source.partition("\n")
        if not head.startswith("%framework"):
            cells.append(cell)
        elif head.partition("=")[2] in forkable and not rest.startswith("%worker=2\n%min="):
            copies = (new_code_cell(f"{head}\n%warm\n{rest}") for _ in range(2))
            cells += [cell, *copies]
    notebook.cells = cells


def _said(cell: nbformat.NotebookNode) -> list[str]:
    """Return what the programs print, in one order; libraries warn with times, and of other things.

    Replicas that run at once write in any order.
    """
    return sorted(line for line in _lines(cell) if _PRINTED.match(line))


@pytest.mark.second("docs")
@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", ["quickstart", "pytorch_ddp", "mixed", "frameworks"])
def test_a_notebook_has_the_same_results_in_warm_replicas(name: str, tmp_path: Path) -> None:
    _needs("tensorflow", "torch", "jax", "sklearn", "matplotlib")

    notebook = _run(f"{name}.ipynb", tmp_path, prepare=_copy_warm)

    jobs = [cell for cell in notebook.cells if cell.source.startswith("%framework")]
    assert len(jobs) == (12 if name == "frameworks" else 3)
    for cold, first, again in zip(jobs[::3], jobs[1::3], jobs[2::3], strict=True):
        for number, cell in ((1, first), (2, again)):
            shown = next(out for out in cell.outputs if out.output_type == "display_data")
            title = shown.data["text/plain"].splitlines()[0]
            assert title.endswith(f", run {number}, warm: Succeeded")
            if "%framework=tensorflow" not in cold.source:
                assert _said(cell) == _said(cold)
                continue
            # Two workers train one model, and either may be faster.
            shape = {re.sub(r"\d[\d,.]*", "N", line) for line in _said(cold)}
            assert {re.sub(r"\d[\d,.]*", "N", line) for line in _said(cell)} == shape
            last = [float(line.split()[-1]) for line in _said(cell) if "accuracy" in line]
            assert max(last) > 0.8
        assert _said(cold)
