"""`ciao cp` and the folder that a relative path is in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel import commands
from ciao_kernel.config import Settings
from ciao_kernel.delivery.warm.marks import marker
from ciao_kernel.errors import BackendError, UsageError
from ciao_kernel.model import Job, Replica
from ciao_kernel.model.queries import Streams, Where
from ciao_kernel.session.plugin_registry import Registry
from tests.helpers.rights import as_nobody

ZERO = Replica("worker", 0)


class Place:
    """A job with %warm whose second run has begun, and the session that finds it."""

    name = "fake"

    def __init__(self, folder: Path, *, on_cluster: bool) -> None:
        self.root = folder / "agent"
        for name in ("agent/run-1", "agent/run-2", "mine"):
            (folder / name).mkdir(parents=True)
        self.mine = folder / "mine"
        kind = "namespace" if on_cluster else "folder"
        job = Job("a", self.name, "python", (ZERO,), 1.0, kind_of_place=kind, header="%warm=10m\n")
        self.job = replace(job, root=str(self.root), place=str(folder))
        self.settings = Settings()
        self.registry = Registry()
        self.requests: list[str] = []
        self.logs_read = 0

    async def find(self, name: str, where: Where) -> tuple[Any, Job, None]:
        return self, self.job, None

    async def log(self, job: Job, replica: Replica) -> bytes:
        self.logs_read += 1
        ready = {"ev": "ready", "root": str(self.root)}
        told = (ready, {"ev": "begin", "id": 1}, {"ev": "end", "id": 1}, {"ev": "begin", "id": 2})
        return b"".join(b"\n" + marker("0" * 16) + json.dumps(one).encode() + b"\n" for one in told)

    async def execute(
        self, job: Job, replica: Replica, command: Sequence[str], streams: Streams
    ) -> int:
        assert streams.input is not None
        self.requests.append((await anext(aiter(streams.input))).decode().splitlines()[-1])
        return 1

    def copy(self, source: str, target: str, write: Callable[[str], Any] = str) -> None:
        self.run(["cp", source, target], write=write)

    def run(
        self,
        words: Sequence[str],
        *,
        write: Callable[[str], Any] = str,
        folder_removed: bool = False,
    ) -> None:
        args = commands.parse(words, str)
        assert args is not None
        none: Any = None
        session: Any = self
        caller = commands.Caller(session, none, write, self.mine, folder_removed=folder_removed)
        asyncio.run(args.run(args, caller))


def test_a_path_of_a_warm_job_is_in_the_folder_of_its_newest_run(tmp_path: Path) -> None:
    place = Place(tmp_path, on_cluster=False)
    (place.root / "run-2/model.pt").write_text("two")
    place.copy("a/worker-0:model.pt", ".")
    assert (place.mine / "model.pt").read_text() == "two"
    place.copy("model.pt", "a:in/")
    assert (place.root / "run-2/in/model.pt").read_text() == "two"


@pytest.mark.parametrize(
    ("path", "base", "target"),
    [
        ("in/model.pt", "{run}/in", "{run}/in/model.pt"),
        ("in/", "{run}/.", "{run}/in/"),
        ("/data/model.pt", "/data", "/data/model.pt"),
    ],
)
def test_a_pod_is_asked_for_the_folder_of_the_newest_run(
    tmp_path: Path, path: str, base: str, target: str
) -> None:
    place = Place(tmp_path, on_cluster=True)
    (place.mine / "model.pt").write_text("mine")
    for source, goal in ((f"a:{path}", "."), ("model.pt", f"a:{path}")):
        with pytest.raises(BackendError):
            place.copy(source, goal)
    took, gave = place.requests
    assert f"'base': '{base.format(run=place.root / 'run-2')}'" in took
    assert f"'path': '{target.format(run=place.root / 'run-2')}'" in gave


def test_a_path_that_is_absolute_needs_no_log(tmp_path: Path) -> None:
    place = Place(tmp_path, on_cluster=False)
    (place.root / "model.pt").write_text("whole")
    place.copy(f"a:{place.root}/model.pt", ".")
    assert (place.mine / "model.pt").read_text() == "whole"
    assert place.logs_read == 0
    place.copy("model.pt", "a:in/")
    assert place.logs_read


def test_a_copy_that_is_not_whole_fails(readable: Path) -> None:
    """A script may remove the source after a success."""
    place = Place(readable, on_cluster=False)
    for name in "ab":
        (place.mine / "data" / name).parent.mkdir(exist_ok=True)
        (place.mine / "data" / name).write_text(name)
    place.copy("data/a", "a:")  # the first copy imports what nobody may not read
    (place.mine / "data/b").chmod(0)
    (place.root / "run-2").chmod(0o777)
    written: list[str] = []
    with as_nobody(), pytest.raises(BackendError, match=r"could not be copied: data/b \(Perm"):
        place.copy("data", "a:", written.append)
    assert written == ["copied 1 file, 1 byte\n"]
    assert (place.root / "run-2/data/a").read_text() == "a"


@pytest.mark.parametrize("removed", [False, True], ids=["", "removed folder"])
@pytest.mark.parametrize(
    "words", [["cp", "a:model.pt", "~nosuch1/x"], ["cp", "~nosuch1/x", "a:"]], ids=["to", "from"]
)
def test_the_home_of_a_user_that_is_missing_is_wrong_usage(
    tmp_path: Path, words: list[str], removed: bool
) -> None:
    place = Place(tmp_path, on_cluster=False)
    with pytest.raises(UsageError, match="no user has the name nosuch1"):
        place.run(words, folder_removed=removed)


def test_other_paths_with_such_a_home_are_wrong_usage(tmp_path: Path) -> None:
    place = Place(tmp_path, on_cluster=False)
    (place.mine / "x").touch()
    for words in (["cp", "x", "a:~nosuch1/"], ["run", "~nosuch1/train.py"]):
        with pytest.raises(UsageError, match="no user has the name nosuch1"):
            place.run(words)
