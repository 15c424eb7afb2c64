"""The end of a PyTorchJob of several replicas."""

from __future__ import annotations

import pytest

from ciao_kernel.model import State
from tests.e2e.jobs.conftest import Team
from tests.helpers.slow_torchrun import SEND_AND_RECEIVE, SLOW


@pytest.mark.second("operators")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.xdist_group("training")  # one at a time: two starve each other
@pytest.mark.usefixtures("with_frameworks")
def test_the_master_ends_after_the_others_have_read_its_store(team: Team) -> None:
    (team.folder / "sitecustomize.py").write_text(SLOW)
    header = "%framework=pytorch\n%worker=2\n%files=sitecustomize.py\n%envvar=PYTHONPATH=/ciao\n"
    images = {"pytorch": team.namespace.cluster.image("pytorch")}
    ended = team.run(header + SEND_AND_RECEIVE, images=images)
    assert ended.error is None, ended.error
    assert ended.display.status.state is State.SUCCEEDED
    logs = [ended.display.data(one) for one in ("master-0", "worker-0", "worker-1")]
    assert [log.count(b"says that it has ended") for log in logs] == [0, 1, 1]
    assert all(word not in log for log in logs for word in (b"Error", b"Traceback", b"Connection"))
