"""A file becomes a link to a secret after it was found: the secret goes nowhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.delivery import replica_files
from ciao_kernel.delivery.output import registry_push
from ciao_kernel.delivery.output.output_keeper.copies import copy
from ciao_kernel.delivery.replica_files import open_inside, sender
from ciao_kernel.delivery.replica_files.messages import LIST

SECRET = b"s3cret"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "runs").mkdir(parents=True)
    (folder / "runs" / "log").write_bytes(b"events")
    (folder / "runs" / "other").write_bytes(b"more")
    (tmp_path / "config").write_bytes(SECRET)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "log").write_bytes(SECRET)
    (tmp_path / "work-2").mkdir()
    (tmp_path / "work-2" / "log").write_bytes(SECRET)
    return folder


def by_link(base: Path) -> None:
    (base / "runs/log").unlink()
    (base / "runs/log").symlink_to(base.parent / "config")


def by_folder(base: Path) -> None:
    (base / "runs").rename(base / "before")
    (base / "runs").symlink_to(base.parent / "secrets")


def by_neighbour(base: Path) -> None:
    (base / "runs").rename(base / "before")
    (base / "runs").symlink_to(base.parent / "work-2")


def by_pipe(base: Path) -> None:
    (base / "runs/log").unlink()
    os.mkfifo(base / "runs/log")


CHANGES = [by_link, by_folder, by_neighbour]


def opened(base: Path) -> bytes:
    with open_inside(str(base), "runs/log") as file:
        return file.read()


def test_files_and_links_inside_are_opened(base: Path) -> None:
    assert opened(base) == b"events"
    (base / "runs/log").unlink()
    (base / "runs/log").symlink_to("other")
    assert opened(base) == b"more"
    link = base.parent / "link"
    link.symlink_to(base)
    assert opened(link) == b"more"


@pytest.mark.parametrize("change", CHANGES)
def test_links_that_lead_out_are_not(base: Path, change: Callable[[Path], None]) -> None:
    change(base)
    with pytest.raises(OSError, match="a link that leads out of the folder"):
        opened(base)


def test_a_pipe_waits_for_no_writer(base: Path) -> None:
    by_pipe(base)
    with pytest.raises(OSError, match="no file any more"):
        opened(base)


@pytest.mark.parametrize("change", [*CHANGES, by_pipe])
def test_a_sender(base: Path, change: Callable[[Path], None]) -> None:
    sent: list[bytes] = []

    def write(data: bytes) -> None:
        if not sent:
            assert data.startswith(LIST)
            change(base)
        sent.append(data)

    request = {"base": str(base), "words": ["runs/log"], "limit": 100, "after": "", "offset": 0}
    sender.Sender(write).send({**request, "waits": False, "waits_only": False})
    assert SECRET not in b"".join(sent)
    assert b"runs/log" in sent[-3], "the fault"


class Files:
    """The module of a pod; the files change right after they are found.

    Args:
        change: Changes them.
    """

    def __init__(self, change: Callable[[], None]) -> None:
        self._change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(replica_files, name)

    def survey(self, *arguments: Any) -> Any:
        found = replica_files.survey(*arguments)
        self._change()
        return found

    def fitting(self, *arguments: Any) -> Any:
        found = replica_files.fitting(*arguments)
        self._change()
        return found


class Repository:
    """Keeps what is pushed.

    Args:
        change: Called before the bytes of a file are taken.
    """

    def __init__(self, change: Callable[[], None]) -> None:
        self._change = change
        self.pushed: list[bytes] = []

    def blob(
        self, digest: str, size: int, pieces: Callable[[], Sequence[bytes]], what: str
    ) -> bool:
        if what == "runs/log":
            self._change()
        self.pushed.append(b"".join(pieces()))
        assert registry_push._digest(self.pushed[-1]) == digest
        return True

    def manifest(self, tag: str, raw: bytes) -> None:
        self.pushed.append(raw)


def nothing() -> None:
    pass


@pytest.mark.parametrize("change", CHANGES)
def test_a_push_to_a_registry(
    base: Path, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(replica_files.POD_UID, "one")
    repository: Any = Repository(nothing)
    files = Files(lambda: change(base))
    registry_push._Artifact(repository, files, str(base)).push("", 100, ["runs/log"])
    assert SECRET not in b"".join(repository.pushed)
    assert b"leads out of the folder" in b"".join(repository.pushed)


@pytest.mark.parametrize("change", CHANGES)
def test_a_push_that_reads_a_file_again(
    base: Path, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes are those of its digest, and come from the file that was opened."""
    monkeypatch.setenv(replica_files.POD_UID, "one")
    repository: Any = Repository(lambda: change(base))
    registry_push._Artifact(repository, replica_files, str(base)).push("", 100, ["runs/log"])
    assert repository.pushed[0] == b"events"


@pytest.mark.parametrize("change", CHANGES)
def test_copies(
    base: Path, tmp_path: Path, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(base)
    copies = tmp_path / "copies"
    copy(Files(nothing), str(tmp_path), str(copies), 100, ["runs/"])
    assert (copies / "runs/log").read_bytes() == b"events"
    copy(Files(lambda: change(base)), str(tmp_path), str(copies), 100, ["runs/log"])
    assert not (copies / "runs/log").exists()
    assert "leads out" in (tmp_path / replica_files.NOT_COPIED).read_text()


def test_a_copy_keeps_the_right_to_run(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(base)
    (base / "runs/log").chmod(0o755)
    copy(replica_files, str(tmp_path), str(tmp_path / "copies"), 100, ["runs/log"])
    assert (tmp_path / "copies/runs/log").stat().st_mode & 0o777 == 0o755
