"""Many replicas, many jobs at once, and the GPUs they share."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.errors import DirectiveError
from ciao_kernel.model import State
from tests.helpers.jobs import Ended, Place, Recorder, wait


def variables(place: Place, job: str) -> list[dict[str, str]]:
    record = json.loads((place.storage / "jobs" / job / "job.json").read_text())
    return [replica["env"] for replica in record["replicas"]]


def ports(place: Place, job: str) -> set[str]:
    config = json.loads(variables(place, job)[0]["TF_CONFIG"])
    return {address for addresses in config["cluster"].values() for address in addresses}


def gpus(place: Place, job: str) -> list[str]:
    return [env["CUDA_VISIBLE_DEVICES"] for env in variables(place, job)]


def test_sixty_four_replicas_start_and_end(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=tensorflow
        %ps=4
        %worker=60
        import json, os, sys, time
        cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
        print(os.environ["CIAO_REPLICA"], len({a for all in cluster.values() for a in all}))
        sys.stdout.flush()
        open(os.environ["CIAO_REPLICA"], "w").close()
        while os.environ["CIAO_REPLICA"].startswith("ps"):
            time.sleep(60)
        while sum(os.path.exists(f"worker-{n}") for n in range(60)) < 60:
            time.sleep(0.05)
        while sum(os.path.exists(f"ps-{n}") for n in range(4)) < 4:
            time.sleep(0.05)
        """,
        linger=30.0,
    )
    assert ended.error is None
    assert len(ended.display.status.replicas) == 64
    for one in ended.display.status.replicas:
        name = str(one.replica)
        assert ended.display.data(name) == f"{name} 64\n".encode()
        assert one.state is (State.STOPPED if name.startswith("ps") else State.SUCCEEDED)
    assert jobs.training() == []


WAITING = """
%framework=tensorflow
%ps=1
%worker=2
%gpu=1
import os, time
print("ready")
while not os.path.exists("go"):
    time.sleep(0.02)
"""


def test_five_jobs_at_once_share_nothing(jobs: Place) -> None:
    async def main() -> None:
        devices = tuple(map(str, range(15)))
        displays = [Recorder() for _ in range(5)]
        work = [
            asyncio.ensure_future(jobs.ended(WAITING, jobs.session(devices=devices), display))
            for display in displays
        ]
        for display in displays:
            await display.until("ready")
        names = [display.job.name for display in displays if display.job]
        assert len(set(names)) == 5
        assert len(set().union(*(ports(jobs, name) for name in names))) == 15
        assert sorted(int(gpu) for name in names for gpu in gpus(jobs, name)) == list(range(15))
        # The sixteenth GPU is asked for in vain, and the error names who has the others.
        refused = await jobs.ended(WAITING, jobs.session(devices=devices))
        assert isinstance(refused.error, DirectiveError)
        assert "0 of 15 are free" in refused.error.message
        assert names[0] in refused.error.message
        for display in displays:
            assert display.job is not None
            (Path(display.job.place) / "go").touch()
        assert [(await one).error for one in work] == [None] * 5
        # They are free again.
        assert (await jobs.session(devices=devices).find(names[0]))[2].settled
        again = Recorder()
        last = asyncio.ensure_future(jobs.ended(WAITING, jobs.session(devices=devices), again))
        await again.until("ready")
        assert again.job is not None
        (Path(again.job.place) / "go").touch()
        assert (await last).error is None

    asyncio.run(main())


def run(place: Place, text: str, devices: tuple[str, ...]) -> Ended:
    return place.run(text, place.session(devices=devices))


def test_gpus_are_shared_out_without_overlap(jobs: Place) -> None:
    text = """
        %framework=tensorflow
        %ps=1;%gpu=0
        %worker=2;%gpu=2
        import os
        print(os.environ["CUDA_VISIBLE_DEVICES"])
        """
    ended = run(jobs, text, ("0", "1", "2", "3"))
    assert ended.error is None
    shares = gpus(jobs, ended.job.name)
    assert shares[0] == ""
    assert sorted(",".join(shares[1:]).split(",")) == ["0", "1", "2", "3"]
    assert ended.display.data("worker-0").decode().strip() == shares[1]
    refused = run(jobs, text, ("0", "1", "2"))
    assert isinstance(refused.error, DirectiveError)
    assert "asks for 4 GPUs in all, and this machine has 3 GPUs" in refused.error.message
    assert (refused.error.line, refused.error.text) == (3, "%worker=2;%gpu=2")


def test_no_gpus_hide_them_and_silence_leaves_them(
    jobs: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    show = 'import os\nprint(repr(os.environ.get("CUDA_VISIBLE_DEVICES")))\n'
    ended = run(jobs, "%framework=tensorflow\n%gpu=0\n" + show, ())
    assert ended.display.data("worker-0") == b"''\n"
    ended = run(jobs, "%framework=tensorflow\n" + show, ())
    assert ended.display.data("worker-0") == b"'5'\n"
    # The user's own word comes last, and is remembered as theirs.
    text = "%framework=tensorflow\n%envvar=CUDA_VISIBLE_DEVICES=7\n" + show
    assert run(jobs, text, ()).display.data("worker-0") == b"'7'\n"


def test_other_vendors_gpus_are_for_clusters(jobs: Place) -> None:
    ended = run(jobs, "%framework=tensorflow\n%gpu=amd.com/gpu:1\nprint()\n", ("0",))
    assert isinstance(ended.error, DirectiveError)
    assert "not amd.com/gpu" in ended.error.message


def test_a_gpu_is_free_again_when_its_job_is_stopped_or_its_submit_fails(jobs: Place) -> None:
    class Broken:
        name, backend, supported_fields = "folder", "local", frozenset[str]()

        async def build(self, *_: Any) -> Any:
            raise OSError(28, "No space left on device")

    async def main() -> None:
        one = "%framework=tensorflow\n%gpu=1\n%detach\nimport time\ntime.sleep(600)\n"
        for _ in range(2):
            session = jobs.session(devices=("0",))
            session.registry.builder = lambda name, settings: Broken()  # type: ignore[method-assign,assignment,return-value]
            assert (await jobs.ended(one, session)).error is not None
            session = jobs.session(devices=("0",))
            ended = await jobs.ended(one, session)
            assert ended.result is not None
            assert (await jobs.ended(one, session)).error is not None
            backend, job, _ = await session.find(ended.result.name)
            await backend.stop(job, "test")
            await wait(lambda: not jobs.training())

    asyncio.run(main())
