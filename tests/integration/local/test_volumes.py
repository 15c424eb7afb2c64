"""Volumes of jobs on this machine: links to the user's folders, and empty folders."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ciao_kernel.magics.directives.volumes import Volumes
from tests.helpers.jobs import Ended, Place

USES = """
import os
from pathlib import Path
print(Path("data/train/x.txt").read_text())
Path("data/train/y.txt").write_text("kept")
Path("scratch/z.txt").write_text("gone")
assert Path(os.environ["SM_CHANNEL_TRAIN"], "x.txt").read_text() == "found"
"""


def run(jobs: Place, volume: str, body: str = USES, **settings: object) -> Ended:
    async def main() -> Ended:
        session = jobs.session(**settings)  # type: ignore[arg-type]
        return await jobs.ended(
            f"%framework=tensorflow\n%worker=1\n%volume={volume}\n{body}", session
        )

    return asyncio.run(main())


def test_a_replica_reads_and_writes_the_folder_and_a_clean_up_keeps_it(
    jobs: Place, tmp_path: Path
) -> None:
    (tmp_path / "own" / "sub").mkdir(parents=True)
    (tmp_path / "own" / "sub" / "x.txt").write_text("found")
    what = "claim/sub:data/train:ro tmp:1Gi:scratch\n%cleanPolicy=all"
    ended = run(jobs, what, volumes={"claim": str(tmp_path / "own")})
    assert ended.error is None
    assert ended.display.data("worker-0") == b"found\n"
    assert "%volume (line 3): :ro has no effect on this machine" in ended.display.notices
    assert (tmp_path / "own" / "sub" / "y.txt").read_text() == "kept"
    assert not Path(ended.job.place).exists()


@pytest.mark.parametrize(
    ("volume", "message", "hint"),
    [
        ("claim:x", "has no folder on this machine", "%ciao config volumes.claim="),
        ("nfs://h/e:x", "has no folder on this machine", "volumes.nfs://h/e="),
        ("lost:x", "does not exist on this machine: /nowhere", "Create it"),
        ("host:/nowhere/a:x", "does not exist on this machine: /nowhere/a", "another folder"),
        ("tmp:/x", "has an absolute path", "relative to the program's folder"),
        ("tmp:ciao_cell.py", "are at the same place", "another folder"),
    ],
)
def test_a_volume_that_this_machine_cannot_have_is_refused_first(
    jobs: Place, volume: str, message: str, hint: str
) -> None:
    ended = run(jobs, volume, volumes={"lost": "/nowhere"})
    assert ended.error is not None
    assert message in ended.error.message
    assert hint in (ended.error.hint or "")
    assert ended.display.job is None
    assert not list(jobs.storage.glob("jobs/*"))


BY_ROLE = """
import os, time
from pathlib import Path
worker = os.environ["CIAO_REPLICA"] == "worker-0"
until = time.monotonic() + 60
while not worker and not Path("ended").exists() and time.monotonic() < until:
    time.sleep(0.05)
print(os.environ.get("SM_CHANNEL_TRAIN", "/work/none").rpartition("/work/")[2])
print(Path("data/train/x.txt").read_text(), flush=True)
if worker:
    Path("ended").touch()
"""


def test_a_volume_behind_a_role_has_its_variables_there_alone(jobs: Place, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("found")
    head = "%framework=tensorflow\n%chief=1\n%worker=1;%volume=claim:data/train\n"

    async def main() -> Ended:
        session = jobs.session(volumes={"claim": str(tmp_path)})
        return await jobs.ended(head + BY_ROLE, session)

    ended = asyncio.run(main())
    assert ended.error is None
    assert ended.display.data("worker-0") == b"data/train\nfound\n"
    assert ended.display.data("chief-0") == b"none\nfound\n"
    assert "%volume (line 3): on this machine replicas of other roles" in ended.display.notices


def test_a_volume_of_the_setting_is_mounted_where_there_is_a_folder(
    jobs: Place, tmp_path: Path
) -> None:
    (tmp_path / "x.txt").write_text("found")

    async def main() -> Ended:
        session = jobs.session(
            volumes={"claim": str(tmp_path)}, job_volumes=Volumes().parse("claim:data:ro lost:x")
        )
        text = "%framework=tensorflow\n%worker=1\nimport os\n"
        body = "print(open('data/x.txt').read(), os.path.exists('x'))\n"
        return await jobs.ended(text + body, session)

    ended = asyncio.run(main())
    assert ended.error is None
    assert ended.display.data("worker-0") == b"found False\n"
    for said in (
        "mounted, because the setting jobVolumes names them: claim:data:ro",
        "left out lost:x of the setting jobVolumes: the volume lost:x has no folder on this "
        "machine.",
    ):
        assert said in ended.display.notices.splitlines()
    assert "%volume=claim:data:ro" in ended.job.header
