"""TensorFlow jobs whose parameter servers and workers only serve, with the real TensorFlow.

The cells are those of docs/frameworks.md.
"""

from __future__ import annotations

import re

import pytest

from ciao_kernel.model import State
from tests.helpers.jobs import Place
from tests.helpers.serving import CELLS

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.second("packages")
@pytest.mark.parametrize("kind", CELLS)
def test_the_chief_alone_has_code_and_trains_by_the_servers(jobs: Place, kind: str) -> None:
    ended = jobs.run(CELLS[kind])
    assert ended.error is None, ended.error
    (accuracy,) = re.findall(r"^accuracy (0\.\d+)$", ended.log("chief-0").decode(), re.M)
    assert float(accuracy) > 0.8
    states = {str(one.replica): one.state for one in ended.display.status.replicas}
    assert states.pop("chief-0") is State.SUCCEEDED
    assert states == dict.fromkeys(("ps-0", "worker-0", "worker-1"), State.STOPPED)
    assert "still at work" not in ended.display.notices


EVALUATOR = """
import json, os
if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "evaluator":
    raise SystemExit
"""


@pytest.mark.second("packages")
def test_the_coordinator_does_not_wait_for_an_evaluator(jobs: Place) -> None:
    served = "%serve=ps,worker\n"
    before, _, code = CELLS["coordinator"].partition(served)
    ended = jobs.run(f"{before}%evaluator=1\n{served}{EVALUATOR}{code}")
    assert ended.error is None, ended.error
    assert "accuracy 0." in ended.log("chief-0").decode()
