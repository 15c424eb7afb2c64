"""`_job` and `ciao_kernel.job()` with a job on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import JOBS, ROLE, Team, rules
from tests.e2e.jobs.test_kernel import environment

CELL = """\
%framework=tensorflow
%name=numbers
%worker=2
%detach
import os, time
for step in range(1, 101):
    print(f"step {step} loss {1 / step}")
print("ready", flush=True)
while not os.path.exists("/tmp/go-on"):
    time.sleep(0.02)
print("last words")
"""


def test_a_job_is_followed_from_python(team: Team, start_kernel: Callable[..., Any]) -> None:
    kernel = start_kernel(env=environment(team))
    assert kernel.run(CELL).status == "ok"
    ready = "while any('ready' not in _job.logs(f'worker-{i}') for i in (0, 1)): time.sleep(0.1)"
    # A node serves the log of a container before it reports that it runs.
    ready += "\nwhile str(_job.state) != 'Running': time.sleep(0.1)"
    assert kernel.run(f"import time\n{ready}").status == "ok"
    shown = kernel.run("print(_job.state, _job.metrics['loss'].last)")
    assert shown.status == "ok", shown.of("error")
    assert shown.text == ("Running {'worker-0': 0.01, 'worker-1': 0.01}\n")
    for index in (1, 0):
        team.namespace.touch(f"numbers-worker-{index}", "/tmp/go-on")
    assert kernel.run("print(_job.wait())").text == "Succeeded\n"
    assert kernel.run("print(_job.logs('worker-0', tail=1), end='')").text == "last words\n"
    # All lines are on this machine now, each once.
    kept = "(_job.folder / 'worker-0.log').read_text().splitlines()"
    assert kernel.run(f"print(len({kept}), len(set({kept})))").text == "102 102\n"
    kernel.run("_job.stop()")


@pytest.mark.second("faults")
def test_a_job_is_stopped_from_python(team: Team, start_kernel: Callable[..., Any]) -> None:
    kernel = start_kernel(env=environment(team))
    assert kernel.run(CELL).status == "ok"
    assert kernel.run("import ciao_kernel as ciao\njob = ciao.job('numbers')").status == "ok"
    assert kernel.run("print(job.stop())").text == "Stopped\n"
    until(lambda: not team.left(), "everything to be gone", 60)
    assert kernel.run("print(job)").text.startswith("<job numbers: Stopped, tensorflow, 2 rep")


OUTPUT = """\
%framework=tensorflow
%name=values
%ps=1
%worker=2
%output=metrics state
import json, os
index = json.loads(os.environ["TF_CONFIG"])["task"]
metrics = {"loss": 0.5, "task": index}
state = "x" * 9000
if index["type"] == "ps":
    import time
    time.sleep(600)
"""


@pytest.mark.second("operators", only="job")
@pytest.mark.parametrize("api", ["v1", "job"])
def test_values_of_the_deciding_replica_come_back(
    team: Team, start_kernel: Callable[..., Any], api: str
) -> None:
    team.user.allow(*rules(JOBS if api == "job" else ROLE))
    kernel = start_kernel(env={**environment(team), "CIAO_API": api})
    done = kernel.run(OUTPUT)
    assert done.status == "ok", done.text
    assert "brought back from worker-0: metrics, state (" in done.text
    assert kernel.run("print(len(_job.result['state']))").text == "9000\n"  # by the log
    shown = "{'loss': 0.5, 'task': {'type': 'worker', 'index': 0}}\n"
    assert kernel.run("print(_job.result['metrics'])").text == shown
    # They are also there for who attaches later, on a machine without the first one's files.
    kernel.run("import shutil; shutil.rmtree(_job.folder)")
    assert kernel.run("%ciao attach values").status == "ok"
    assert kernel.run("print(_job.result['metrics'])").text == shown
    assert kernel.run("print(len(_job.result['state']))").text == "9000\n"
    kernel.run("_job.stop()")
