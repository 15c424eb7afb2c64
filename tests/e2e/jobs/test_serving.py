"""TensorFlow jobs whose parameter servers and workers only serve, on the cluster."""

from __future__ import annotations

import re

import pytest

from ciao_kernel.model import State
from tests.e2e.jobs.conftest import JOBS, Team, rules
from tests.helpers.serving import CELLS

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.slow,
    pytest.mark.xdist_group("training"),  # one at a time: two starve each other
    pytest.mark.usefixtures("with_frameworks"),
    pytest.mark.second("operators"),
]


@pytest.mark.parametrize(("kind", "api"), [("coordinator", "v1"), ("session", "job")])
def test_the_chief_alone_has_code_and_trains_by_the_servers(
    team: Team, kind: str, api: str
) -> None:
    team.user.allow(*rules(), *rules(JOBS))
    images = {"tensorflow": team.namespace.cluster.image("tensorflow")}
    ended = team.run(CELLS[kind].replace("%ps=1", f"%api={api}\n%ps=1"), images=images)
    assert ended.error is None, ended.error
    said = ended.display.data("chief-0").decode()
    (accuracy,) = re.findall(r"^accuracy (0\.\d+)$", said, re.M)
    assert float(accuracy) > 0.8
    assert ended.display.status.state is State.SUCCEEDED
    assert ended.display.state("chief-0") is State.SUCCEEDED
    assert "still at work" not in ended.display.notices
