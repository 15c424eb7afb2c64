"""A SoS notebook whose job cells run on the cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from ciao_kernel.builders.configmap import LIMIT
from ciao_kernel.errors import SourceError
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import Team
from tests.e2e.jobs.test_kernel import CELL, environment


@pytest.fixture
def sos(team: Team, place: Any) -> Iterator[Any]:
    from tests.helpers.sos import Sos

    kernel = Sos(place, environment(team))
    try:
        yield kernel
    finally:
        kernel.shutdown(now=False)


def test_variables_of_sos_reach_a_job_and_its_lines_come_back(team: Team, sos: Any) -> None:
    sos.ok("rates = {'é': [0.1, 0.2]}\nraw = bytes(range(10))")
    sos.ok("%use Ciao\n%get rates raw\nimport numpy, pandas\narray = numpy.arange(10)")
    sos.ok("labels = pandas.Series([1, 2], ['a', 'b'])")

    done = sos.ok(
        "%framework=tensorflow\n%worker=2\n%successPolicy=allWorkers\n"
        "%input=rates array, raw labels\n"
        "import json, os\n"
        "print('got', json.load(open('input/rates.json')), os.path.getsize('input/array.npy'),\n"
        "      sum(open('input/raw.bin', 'rb').read()), os.path.exists('input/labels.parquet'))\n",
        120,
    )

    assert done.text.count("got {'é': [0.1, 0.2]} 208 45 True") == 2
    sos.ok("from pathlib import Path\nsaid = [Path(one.log).read_text() for one in _job.replicas]")
    sos.ok("%put said")
    assert "2 True" in sos.ok("%use SoS\nprint(len(said), all('got' in one for one in said))").text


@pytest.mark.second("gateway")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.xdist_group("training")  # one at a time: two starve each other
@pytest.mark.usefixtures("with_frameworks")
def test_the_example_runs_on_the_cluster_as_it_stands(team: Team, place: Any) -> None:
    from tests.helpers.sos import run_example

    team.images["pytorch"] = team.namespace.cluster.image("pytorch")

    (*_, trained, _, plotted) = run_example(place, environment(team))

    for replica in ("master-0", "worker-0"):
        assert f"[{replica}] epoch 40 loss 0." in trained[0]
    assert [out for out in plotted[1].outputs if "image/png" in out.get("data", {})]
    (job,) = team.jobs()
    assert job[0].resource == "pytorchjobs"


@pytest.mark.second("gateway")
def test_stop_deletes_the_job_and_the_end_of_sos_leaves_it(team: Team, sos: Any) -> None:
    sos.ok("%use Ciao")
    running = sos.execute(CELL)
    sos.wait(lambda: running.text.count("here\n") == 2, "both replicas")
    sos.interrupt()
    sos.finish(running)
    assert running.error == "KeyboardInterrupt"
    until(lambda: not team.left(), "everything to be gone", 90)

    again = sos.execute(CELL)
    sos.wait(lambda: again.text.count("here\n") == 2, "both replicas")
    sos.shutdown()
    assert "TFJob/mine" in team.left()


@pytest.mark.second("gateway")
def test_a_job_outlives_a_killed_kernel_and_is_attached(team: Team, sos: Any) -> None:
    sos.ok("%use Ciao")
    running = sos.execute(CELL)
    sos.wait(lambda: running.text.count("here\n") == 2, "both replicas")
    sos.kill_ciao()
    sos.finish(running)
    assert running.error == "KernelDied"
    assert "TFJob/mine" in team.left()

    attached = sos.execute("%ciao attach mine")
    sos.wait(lambda: attached.text.count("here\n") == 2, "lines from before")
    sos.interrupt()
    sos.finish(attached)
    assert "TFJob/mine" in team.left()


@pytest.mark.second("gateway")
def test_variables_that_no_configmap_holds_are_named(team: Team) -> None:
    ended = team.run(
        "%framework=tensorflow\n%worker=1\n%input=small large\nprint()",
        variables={"small": 1, "large": os.urandom(LIMIT).hex()},
    )
    assert isinstance(ended.error, SourceError)
    assert "input/large.json (2.0 MiB)" in ended.error.message
    assert "%input" in ended.error.hint
    assert not team.left()
