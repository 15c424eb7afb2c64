"""Files that come back from pods by %output, by exec from the container that keeps them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from ciao_kernel.errors import ClusterFault, JobFailed
from tests.cluster.namespace import Namespace
from tests.e2e.jobs.conftest import EXEC, JOBS, ROLE, Team, made, rules

WRITES = """
import hashlib, os, pathlib
me = os.environ["CIAO_REPLICA"]
pathlib.Path("model").mkdir()
if me == "worker-0":
    pathlib.Path("model/net.pt").write_bytes(os.urandom(3_000_000))
    print(hashlib.sha256(pathlib.Path("model/net.pt").read_bytes()).hexdigest())
pathlib.Path("log.csv").write_text(me)
pathlib.Path("same.txt").write_text("the same")
os.symlink("/etc/passwd", "model/passwd")
metrics = {"loss": 0.25}
"""


def team_of(
    namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: Path
) -> Team:
    return made(namespace, tmp_path, monkeypatch, [*rules(role), *rules(EXEC)])


@pytest.mark.stands_for("operators")
def test_files_of_all_replicas_come_back_before_the_pods_end(
    namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = team_of(namespace, tmp_path, monkeypatch, ROLE)
    header = "%framework=tensorflow\n%ps=1\n%worker=2\n%output=model/ log.csv, ./same.txt metrics\n"
    ended = team.run(f"{header}%output=absent.bin\n{WRITES}")
    assert ended.error is None
    assert ended.result is not None
    folder = ended.result.folder
    digest = ended.display.data("worker-0").decode().split()[0]
    assert hashlib.sha256((folder / "model/net.pt").read_bytes()).hexdigest() == digest
    assert (folder / "worker-0/log.csv").read_text() == "worker-0"
    assert (folder / "worker-1/log.csv").read_text() == "worker-1"
    assert (folder / "same.txt").read_text() == "the same"
    assert not (folder / "model/passwd").exists()
    text = ended.display.notices
    assert "model/net.pt (3.0 MB, worker-0)" in text
    assert "no file matches absent.bin" in text
