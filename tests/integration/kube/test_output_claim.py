"""Files of %output on a claim: copied by the real keeper, read by the command of a transfer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.delivery import replica_files, transfers
from ciao_kernel.delivery.fetch import Fetch
from ciao_kernel.delivery.output import results
from ciao_kernel.delivery.output.returned_files import ReturnedFiles
from ciao_kernel.delivery.replica_files import on_claim
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
        more: Sequence[str] = (),
    ) -> tuple[int, str]:
        """Let the sidecar copy the files at the program's end; return its code and its words."""
        marks = self.program.parent / f"marks-{uid}"
        marks.mkdir()
        (marks / replica_files.REPLICA).write_text(replica)
        if stopped:
            (marks / replica_files.STOPPED).touch()
        keeper = self.program / ".ciao" / results.KEEPER
        words = ["save", str(marks), "30", "0", str(limit), str(self.path), "model/", "absent.txt"]
        words += more
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

    def fetch(
        self,
        here: Path,
        limit: int = 10**9,
        *,
        waits: bool = False,
        on_progress: Callable[[int, int], object] = lambda *_: None,
        **more: Any,
    ) -> Fetch:
        return Fetch(
            Pod(self.path.parent).execute,
            sys.executable,
            ["model/", "absent.txt"],
            ReturnedFiles(here).receiver(WORKER),
            limit,
            waits=waits,
            on_progress=on_progress,
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


def remove(claim: Claim, pod: str = "one") -> int:
    """Run the command that removes the files of a pod; return its exit code."""
    request = {"do": "remove", "path": str(claim.own), "pod": pod}
    command = transfers.called(sys.executable, request, lambda _: None, lambda _: None)
    return asyncio.run(Pod(claim.path.parent.parent).execute(*command))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


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

    assert remove(claim) == 0
    assert names(claim.path) == ["worker-1"]
    (claim.path / "worker-1").rmdir()
    assert remove(claim) == 0
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


def test_jobs_and_replicas_of_other_users_may_write_beside_and_read(claim: Claim) -> None:
    """Nobody but its owner can list the folder of all jobs, whose names are secret."""
    secret = claim.program / "model/secret.txt"
    secret.write_text("x")
    secret.chmod(0o600)
    before = os.umask(0o077)
    try:
        assert claim.save() == (0, "")
    finally:
        os.umask(before)
    assert (mode(claim.path.parent), mode(claim.path)) == (0o1733, 0o1777)
    assert mode(claim.own) == 0o755
    assert mode(claim.own / "files/model/secret.txt") == 0o644
    assert claim.save("two", replica="worker-1") == (0, "")
    assert names(claim.path) == ["worker-0", "worker-1"]


def test_files_of_a_pod_that_were_not_fetched_are_never_removed(claim: Claim) -> None:
    """A later try has written its own in place of those that are here."""
    assert claim.save("two") == (0, "")
    assert remove(claim, "one") == 0
    assert names(claim.path) == ["worker-0"]
    for damaged in ("", "../../data", "one/.."):
        assert remove(claim, damaged) == 1
    assert remove(claim, "two") == 0
    assert not claim.path.exists()


def test_what_killed_pods_and_cut_removals_left_is_removed(claim: Claim) -> None:
    """A pod that copies meanwhile keeps its part."""
    claim.path.mkdir(parents=True)
    (claim.path / "worker-0.zero/files").mkdir(parents=True)
    assert claim.save() == (0, "")
    assert names(claim.path) == ["worker-0"]
    (claim.path / "worker-0.earlier").mkdir()
    old = (claim.own / replica_files.POD_MARK).stat().st_mtime - 1
    os.utime(claim.path / "worker-0.earlier", (old, old))
    (claim.path / "worker-0.later").mkdir()
    (claim.path / "worker-01.other").mkdir()
    assert remove(claim) == 0
    assert names(claim.path) == ["worker-0.later", "worker-01.other"]
    (claim.path / "worker-0.one/files").mkdir(parents=True)  # its removal was cut
    assert remove(claim) == 0
    assert names(claim.path) == ["worker-0.later", "worker-01.other"]


def test_files_that_a_later_pod_saves_during_a_removal_stay(claim: Claim) -> None:
    """They were moved with the name of those that are here."""
    assert claim.save("two") == (0, "")
    claim.own.rename(claim.path / "worker-0.one")
    assert remove(claim) == 0
    assert names(claim.path) == ["worker-0"]
    assert (claim.own / replica_files.POD_MARK).read_text() == "two"


def test_two_removals_at_once_remove_all(tmp_path: Path) -> None:
    folder = tmp_path / "claim"
    folder.mkdir()
    for number in range(2000):
        (folder / str(number)).touch()
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(on_claim._clear, str(folder)) for _ in range(2)]:
            done.result()
    assert not folder.exists()


def test_a_part_that_is_removed_while_it_is_written_is_not_taken_for_whole(claim: Claim) -> None:
    """By the removal of another pod of the replica, on a node that was cut off."""
    for number in range(3000):
        (claim.program / f"model/{number}").touch()
    moved = claim.path / "moved"

    def move(part: Path, over: threading.Event) -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                part.rename(moved)
                return
            time.sleep(0.001)

    for uid in map(str, range(20)):
        over = threading.Event()
        mover = threading.Thread(target=move, args=(claim.path / f"worker-0.{uid}", over))
        mover.start()
        code, words = claim.save(uid)
        over.set()
        mover.join()
        if moved.exists():
            break
        shutil.rmtree(claim.own)  # on a busy machine the sidecar may be quicker
    assert moved.exists()
    assert code == 1
    assert "claim cannot be written" in words
    assert not claim.own.exists()


def test_of_two_kernels_both_have_whole_files_and_the_last_one_removes_them(
    claim: Claim, tmp_path: Path
) -> None:
    assert claim.save() == (0, "")

    async def main() -> None:
        pod = Pod(claim.path.parent)
        reading = asyncio.Event()
        begun = lambda *_: reading.set()  # noqa: E731
        slow = claim.fetch(tmp_path / "slow", waits=True, on_progress=begun)
        fetching = asyncio.ensure_future(slow.run())
        await reading.wait()
        quick = claim.fetch(tmp_path / "quick")
        await quick.run()
        request = {"do": "remove", "path": str(claim.own), "pod": "one"}
        streams = transfers.called(sys.executable, request, lambda _: None, lambda _: None)
        assert await pod.execute(*streams) == replica_files.BUSY
        assert claim.own.exists()
        await slow.arrived.wait()
        slow.release()
        await fetching

    asyncio.run(main())
    for kernel in ("slow", "quick"):
        data = (tmp_path / kernel / "model/net.bin").read_bytes()
        assert data == (claim.program / "model/net.bin").read_bytes()
    assert remove(claim) == 0
    assert remove(claim) == 0
    assert not claim.path.exists()


def test_folders_that_stay_where_they_are_are_not_copied(claim: Claim) -> None:
    (claim.program / "model/volume").mkdir()
    (claim.program / "model/volume/large.bin").write_bytes(b"x")
    (claim.program / "model/volumes").mkdir()
    (claim.program / "model/volumes/own.bin").write_bytes(b"x")
    assert claim.save(more=["--without", "model/volume"]) == (0, "")
    assert not (claim.own / "files/model/volume").exists()
    assert (claim.own / "files/model/volumes/own.bin").exists()


def test_a_program_in_an_image_gives_no_copies_of_its_volumes(claim: Claim, tmp_path: Path) -> None:
    marks = tmp_path / "marks-run"
    marks.mkdir()
    keeper = str(claim.program / ".ciao" / results.KEEPER)
    write = (
        "import os; os.makedirs('model/volume'); open('model/volume/x','w').close();"
        "open('model/y','w').close()"
    )
    words = ["run", str(marks), "1", str(tmp_path / "copies"), "1000000", "model/", "*.txt"]
    words += ["--without", "model/volume", "--", sys.executable, "-c", write]
    done = subprocess.run(
        [sys.executable, "-I", "-S", keeper, *words], cwd=claim.program, check=False
    )
    assert done.returncode == 0
    assert (tmp_path / "copies/model/y").exists()
    assert not (tmp_path / "copies/model/volume").exists()


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
