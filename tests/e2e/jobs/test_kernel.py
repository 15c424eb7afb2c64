"""A real kernel, a real notebook, a real cluster: stops, shutdowns and lists of jobs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import CPU_REQUEST, Team
from tests.e2e.jobs.test_endings import GO_ON, HEAD, UNTIL_TOLD, straggler
from tests.helpers.colors import uncolored
from tests.helpers.kernels import IN_PODS, Kernel

ROOT = Path(__file__).parents[3]
CELL = (
    "%framework=tensorflow\n%name=mine\n%worker=2\n"
    "import time\nprint('here', flush=True)\ntime.sleep(300)\n"
)


def environment(team: Team) -> dict[str, str]:
    import os

    images = " ".join(f"{name}={image}" for name, image in team.images.items())
    return {
        **IN_PODS,
        "KUBECONFIG": os.environ["KUBECONFIG"],
        "CIAO_NAMESPACE": team.namespace.name,
        "CIAO_IMAGES": images,
        "CIAO_CPU_REQUEST": CPU_REQUEST,
        "CIAO_STORAGE": str(team.storage),
    }


def ciao(team: Team, *words: str) -> str:
    import os

    done = subprocess.run(
        [Path(sys.executable).with_name("ciao"), *words],
        env=os.environ | environment(team), capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def wait_for_deletions(kernel: Kernel) -> None:
    """Let a kernel's end wait for what it deletes, however slow a busy cluster is.

    Else it waits for five seconds, and Jupyter for as many.
    """
    kernel.be_patient()
    text = "from ciao_kernel.jupyter import shutdown\nshutdown.MAX_SHUTDOWN_DELAY = 600.0"
    assert kernel.run(text).status == "ok"


@pytest.mark.second("docs", only="pytorch")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.xdist_group("training")  # one at a time: two starve each other
@pytest.mark.usefixtures("with_frameworks")
@pytest.mark.parametrize(
    ("notebook", "framework", "kind", "said", "result"),
    [
        ("quickstart", "tensorflow", "tfjob", "worker 0 is done", r"State.SUCCEEDED|Succeeded"),
        ("pytorch_ddp", "pytorch", "pytorchjob", "rank 0 of 2 wrote", r"worker-0: loss \d\.\d+ at"),
        ("mixed", "pytorch", "pytorchjob", "[worker-0] epoch 40 loss 0.", "<Figure"),
    ],
)
def test_the_notebooks_run_on_the_cluster_as_they_stand(
    team: Team,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    notebook: str,
    framework: str,
    kind: str,
    said: str,
    result: str,
) -> None:
    team.images[framework] = team.namespace.cluster.image(framework)
    for name, value in environment(team).items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "notebooks"
    shutil.copytree(ROOT / "notebooks", folder)
    made = nbformat.read(folder / f"{notebook}.ipynb", as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(made, kernel_name="ciao", timeout=280, resources=resources).execute()
    cells = [cell for cell in made.cells if cell.cell_type == "code"]
    training = next(cell for cell in cells if cell.source.startswith("%framework"))
    text = uncolored("".join(out.get("text", "") for out in training.outputs))
    assert said in text
    if notebook != "mixed":
        assert float(re.findall(r"accuracy (\d\.\d+)", text)[-1]) > 0.9
    shown = next(out for out in training.outputs if out.output_type == "display_data")
    name = shown.data["text/plain"].partition(":")[0]
    assert team.namespace.condition(f"{kind}/{name}", "Succeeded")
    last = [out.get("text") or out.data["text/plain"] for out in cells[-1].outputs]
    assert re.search(result, "".join(last)), last


def test_a_stop_deletes_the_job_and_a_shutdown_leaves_it(
    team: Team, start_kernel: Callable[..., Any]
) -> None:
    kernel = start_kernel(env=environment(team))
    client = kernel
    running = client.execute(CELL)
    client.wait(lambda: running.text.count("here\n") == 2, "both replicas")
    kernel.interrupt()
    client.finish(running)
    assert running.status == "error"
    until(lambda: not team.left(), "everything to be gone", 60)

    again = client.execute(CELL)
    client.wait(lambda: again.text.count("here\n") == 2, "both replicas")
    process = kernel.process
    kernel.shutdown()
    process.wait(60)
    assert "TFJob/mine" in team.left()
    for number in (0, 1):  # a node serves a log before the API says that its pod runs
        team.namespace.wait_for_pod(f"mine-worker-{number}", "Running")
    listed = ciao(team, "jobs")
    assert "mine" in listed
    assert "Running" in listed
    assert "[worker-1] here" in ciao(team, "logs", "mine")
    assert "worker-0" in ciao(team, "describe", "mine")
    ciao(team, "delete", "mine")
    until(lambda: not team.left(), "everything to be gone", 60)
    assert "There are no jobs." in ciao(team, "jobs")


@pytest.mark.second("faults")
def test_lines_of_replicas_that_are_stopped_come_behind_the_red_cell(
    team: Team, start_kernel: Callable[..., Any]
) -> None:
    """The kernel runs another cell meanwhile; each line is in its own cell, once."""
    client = start_kernel(env={**environment(team), "CIAO_STOP_GRACE": "60"})
    program = straggler("worker-1", UNTIL_TOLD, code=1)
    failed = client.run(HEAD + program + "raise ValueError('a bad batch')\n")
    assert failed.error == "JobFailed"
    assert "at last" not in failed.text
    assert client.run("print('meanwhile')").text == "meanwhile\n"
    pods = [pod["metadata"]["name"] for pod in team.namespace.get("pods")["items"]]
    (late,) = [name for name in pods if name.endswith("-worker-1")]
    team.namespace.touch(late, GO_ON)
    client.wait(lambda: "at last" in failed.text, "the last line of worker-1")
    assert failed.text.count("at last\n") == failed.text.count("here\n") == 1
    client.wait(lambda: "Stopped" in failed.tables[-1], "the last table")


@pytest.mark.second("faults")
def test_the_error_repeats_a_traceback_whose_lines_the_cell_folds_also_with_output(
    team: Team, start_kernel: Callable[..., Any]
) -> None:
    failed = start_kernel(env=environment(team)).run(
        "%framework=tensorflow\n%worker=1\n%output=loss accuracy\n"
        "raise ValueError('a bad batch')\n",
        90,
    )
    assert failed.error == "JobFailed"
    shown = uncolored(failed.text).splitlines()
    assert shown == [
        "[worker-0] … 4 lines of the traceback shown below …",
        "no values came back for %output: the program failed before it could give back loss or "
        "accuracy.",
    ]


def test_a_kernel_that_is_killed_leaves_its_job_to_be_attached(
    team: Team, start_kernel: Callable[..., Any]
) -> None:
    kernel = start_kernel(env=environment(team))
    kernel.execute(CELL)

    def made() -> bool:
        return {"TFJob", "ConfigMap"} <= {one.partition("/")[0] for one in team.left()}

    until(made, "the job and its source", 60)
    kernel.kill()
    kernel.process.wait(60)
    assert "TFJob/mine" in team.left()
    other = start_kernel(env=environment(team))
    client = other
    attached = client.execute("%ciao attach mine")
    client.wait(lambda: attached.text.count("here\n") == 2, "both replicas")
    other.interrupt()
    client.finish(attached)
    assert "TFJob/mine" in team.left()


@pytest.mark.second("faults")
def test_the_next_kernel_says_once_what_runs_from_before(
    team: Team, start_kernel: Callable[..., Any]
) -> None:
    short = "%framework=tensorflow\n%worker=1\nprint('new')\n"
    first, other = (start_kernel(env=environment(team)) for _ in range(2))
    assert "from before" not in first.run(CELL.replace("%worker=2", "%worker=1\n%detach")).text
    assert "from before" not in first.run(short).text
    # Another kernel's job is no news while that kernel lives.
    assert "from before" not in other.run(short).text
    first.shutdown()

    last = start_kernel(env=environment(team))
    assert "from before" not in last.run("%ciao config").text
    for _ in range(3):  # a cell that is faster than the question leaves it to the next
        told = last.run(short)
        if "from before" in told.text:
            break
    assert re.search(r"^still running from before: mine \(\d+[sm], `%ciao attach mine`\)$",
                     told.text, re.M)  # fmt: skip
    kinds = [event for event in told.events if event in ("stream", "display_data")]
    assert kinds[0] == "stream"  # before the job's table
    assert "from before" not in last.run(short).text

    listed = start_kernel(env=environment(team))
    assert "mine" in listed.run("%ciao jobs").text
    assert "from before" not in listed.run("%ciao describe mine").text


@pytest.mark.second("faults")
def test_a_setting_turns_it_round(team: Team, start_kernel: Callable[..., Any]) -> None:
    kernel = start_kernel(env={**environment(team), "CIAO_ON_SHUTDOWN": "delete"})
    wait_for_deletions(kernel)
    client = kernel
    running = client.execute(CELL)
    client.wait(lambda: running.text.count("here\n") == 2, "both replicas")
    kernel.shutdown()
    until(lambda: not team.left(), "everything to be gone", 60)
