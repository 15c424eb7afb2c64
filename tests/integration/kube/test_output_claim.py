"""Files of %output on a claim: copied by the real keeper, read by the command of a transfer."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.delivery import replica_files, results, transfers
from ciao_kernel.delivery.fetch import Fetch
from ciao_kernel.delivery.returned_files import ReturnedFiles
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Replica
from tests.helpers.rights import ordinary_reader
from tests.helpers.signals import wait_until_caught
from tests.integration.kube.test_output_log import folder
from tests.integration.test_transfers import Pod

__all__ = ["folder"]
WORKER = Replica("worker", 0)


@dataclass
class Claim:
    """The folder of a job on a claim.

    Args:
        program: The program's folder.
        path: The folder of the job.
    """

    program: Path
    path: Path

    @property
    def own(self) -> Path:
        return self.path / "worker-0"

    def save(
        self,
        uid: str = "one",
        limit: int = 10**9,
        *,
        stopped: bool = False,
        before: Any = (),
        replica: str = "worker-0",
    ) -> tuple[int, str]:
        """Let the sidecar copy the files at the program's end; return its code and its words."""
        marks = self.program.parent / f"marks-{uid}"
        marks.mkdir()
        (marks / replica_files.REPLICA).write_text(replica)
        if stopped:
            (marks / replica_files.STOPPED).touch()
        keeper = self.program / ".ciao" / results.KEEPER
        words = ["save", str(marks), "30", "0", str(limit), str(self.path), "model/", "absent.txt"]
        with subprocess.Popen(
            [*before, sys.executable, "-I", "-S", str(keeper), *words],
            cwd=self.program,
            env={**os.environ, replica_files.POD_UID: uid},
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            wait_until_caught(process.pid, signal.SIGTERM)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate()
            return process.returncode, err

    def fetch(self, here: Path, limit: int = 10**9, **more: Any) -> Fetch:
        return Fetch(
            Pod(self.path.parent).execute,
            sys.executable,
            ["model/", "absent.txt"],
            ReturnedFiles(here).receiver(WORKER),
            limit,
            base=str(self.own / replica_files.COPIES),
            more={"kept": str(self.own), **more},
        )


@pytest.fixture
def claim(folder: Path, tmp_path: Path) -> Claim:
    path = tmp_path / "claim/ciao-output/token"
    path.parent.parent.mkdir()
    return Claim(folder, path)


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def test_files_are_copied_and_read_and_removed(claim: Claim, tmp_path: Path) -> None:
    (claim.program / "model/run.sh").write_text("echo")
    (claim.program / "model/run.sh").chmod(0o755)
    (claim.program / "model/passwd").symlink_to("/etc/passwd")
    assert claim.save() == (0, "")
    assert (claim.own / replica_files.POD_MARK).read_text() == "one"
    here = tmp_path / "here"
    one = claim.fetch(here)
    asyncio.run(one.run())
    assert (here / "model/net.bin").read_bytes() == (claim.program / "model/net.bin").read_bytes()
    assert os.access(here / "model/run.sh", os.X_OK)
    assert not (here / "model/passwd").exists()
    assert one.listing.missing == ("absent.txt",)
    (claim.path / "worker-1").mkdir()

    async def remove(path: Path) -> int:
        request = {"do": "remove", "path": str(path)}
        command = transfers.called(sys.executable, request, lambda _: None, lambda _: None)
        return await Pod(tmp_path).execute(*command)

    assert asyncio.run(remove(claim.own)) == 0
    assert names(claim.path) == ["worker-1"]
    assert asyncio.run(remove(claim.path / "worker-1")) == 0
    assert not claim.path.exists()
    with pytest.raises(BackendError, match=r"^they are there no more: they were fetched, or"):
        asyncio.run(claim.fetch(here).run())


def test_a_later_try_takes_the_place_of_an_earlier_one(claim: Claim) -> None:
    assert claim.save() == (0, "")
    (claim.program / "model/leer").unlink()
    assert claim.save("two") == (0, "")
    assert (claim.own / replica_files.POD_MARK).read_text() == "two"
    assert names(claim.own / "files/model") == ["net.bin", "zeros.bin"]
    assert names(claim.path) == ["worker-0"]


@pytest.mark.parametrize("replica", ["../../data", "", "worker-1/..", "worker-0\n"])
def test_a_damaged_name_of_a_replica_removes_nothing(claim: Claim, replica: str) -> None:
    """The program can write to the folder of the marks."""
    data = claim.path.parent.parent / "data"
    for kept in (data, claim.path / "worker-1"):
        kept.mkdir(parents=True)
        (kept / "precious").touch()
    code, words = claim.save(replica=replica)
    assert (code, "the name of the replica is damaged" in words) == (1, True)
    assert (data / "precious").exists()
    assert (claim.path / "worker-1/precious").exists()
    assert names(claim.path) == ["worker-1"]


def test_a_program_that_was_stopped_leaves_nothing(claim: Claim) -> None:
    code, words = claim.save(stopped=True)
    assert (code, words) == (1, "it was stopped before its program had ended\n")
    assert not claim.path.exists()


def test_too_large_files_are_not_copied_and_the_size_is_told(claim: Claim, tmp_path: Path) -> None:
    assert claim.save(limit=1000) == (0, "")
    assert not list((claim.own / "files").rglob("*.bin"))
    with pytest.raises(BackendError, match=r"^its files have 400\.0 kB, and fetchLimit is 1\.0 kB"):
        asyncio.run(claim.fetch(tmp_path / "here", limit=1000).run())


def test_a_claim_to_which_nobody_may_write_is_told(claim: Claim) -> None:
    claim.path.parent.mkdir()
    claim.path.parent.chmod(0o555)
    before = ordinary_reader()
    code, words = claim.save(before=before)
    assert (code, words) == (1, "the claim cannot be written: Permission denied\n")


def test_files_that_the_program_wrote_to_a_volume_come_too(claim: Claim, tmp_path: Path) -> None:
    """Those of other jobs that lie there do not."""
    volume, here = tmp_path / "volume", tmp_path / "here"
    (volume / "model/ciao-output/x").mkdir(parents=True)
    (volume / "model/more.bin").write_bytes(b"more")
    (volume / "model/ciao-output/x/other.bin").write_bytes(b"other")
    (volume / "absent.txt").write_text("here")
    assert claim.save() == (0, "")
    one = claim.fetch(here, also=[str(volume)], without=["model/ciao-output/"])
    asyncio.run(one.run())
    assert (here / "model/more.bin").read_bytes() == b"more"
    assert (here / "model/net.bin").exists()
    assert (here / "absent.txt").read_text() == "here"
    assert not (here / "model/ciao-output").exists()
    assert one.listing.missing == ()
