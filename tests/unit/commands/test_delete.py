"""Many jobs that are deleted at once: one search for processes, and each job's own end."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel import commands
from ciao_kernel.backends.local import processes, removal
from ciao_kernel.backends.local.backend import LocalBackend
from ciao_kernel.backends.local.hosts import Host
from ciao_kernel.backends.local.record import Folder
from ciao_kernel.commands import delete
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, NoSuchJob, UsageError
from ciao_kernel.model import Job, Status
from ciao_kernel.model.queries import Where

STUCK = "cannot be removed completely"


class Place:
    """Finished jobs of this machine, and the verb that deletes them."""

    def __init__(self, storage: Path) -> None:
        self.root = storage / "jobs"
        self._host = Host(storage)
        self.settings = Settings(storage=storage)
        self._backend = LocalBackend(self.settings, host=self._host)
        self.written: list[str] = []
        self.retries: dict[str, int] = {}
        """Those of jobs of a cluster, by their names."""
        self.meanwhile: Callable[[], object] = lambda: None
        """What happens before a person answers."""

    def finish(
        self, *names: str, since: float = 1.0, uid: str = "", header: str = "", **other: Any
    ) -> None:
        """Make jobs that are over since some time, as a supervisor leaves them.

        Args:
            names: Their names.
            since: When they ended.
            uid: The uid of each; "" makes it of the name.
            header: The directives of each.
            other: Fields of their status that differ.
        """
        for number, name in enumerate(names):
            folder = Folder(self.root / name)
            folder.logs.mkdir(parents=True)
            (folder.path / "work").mkdir()
            asked = {"id": uid or f"{name}-1", "name": name, "host": self._host.identity}
            asked |= {
                "framework": "pytorch",
                "header": header,
                "created": float(number),
                "by": "me",
            }
            asked |= {"detached": False, "workdir": "w", "program": "p", "grace": 1.0}
            folder.write_job({**asked, "replicas": []})
            status: dict[str, Any] = {"state": "Succeeded", "since": since, "reason": ""}
            status |= {"message": "", "decided_by": None, "settled": True, "ended": True}
            nobody = {"pid": 2**22 + 1, "birth": "1", "host": self._host.identity}
            folder.write_status({**status, "supervisor": nobody, "replicas": [], **other})

    def lose(self, name: str, host: str, silent: float) -> None:
        """Make a job that was submitted long ago, and whose supervisor is silent since a while."""
        nobody = {"pid": 2**22 + 1, "birth": "1", "host": host or self._host.identity}
        self.finish(name, state="Running", settled=False, ended=False, supervisor=nobody)
        os.utime(self.root / name / "status.json", (time.time() - silent,) * 2)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir())

    def delete(self, *words: str, answer: str | None = None, terminal: bool = False) -> None:
        """Run the verb; a person gives the answer, if any."""
        args = commands.parse(["delete", *words], self.written.append)

        async def ask(question: str) -> str:
            self.written.append(question)
            self.meanwhile()
            return answer or ""

        caller = commands.Caller(
            self,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            self.written.append,
            self.root,
            terminal=terminal,
            ask=None if answer is None else ask,
        )
        asyncio.run(delete.run(args, caller))

    # What the verb asks of a session.

    async def jobs(self, faults: object, where: Where) -> list[tuple[Job, Status]]:
        return [
            (self._of_cluster(job) if job.name in self.retries else job, status)
            for job, status in await self._backend.jobs(where)
        ]

    def _of_cluster(self, job: Job) -> Job:
        return replace(job, retries=self.retries[job.name], kind_of_place="namespace")

    async def find(self, name: str, where: Where) -> tuple[LocalBackend, Job, Status]:
        return self._backend, *await self._backend.find(name, where)

    def backend(self, name: str) -> LocalBackend:
        return self._backend

    def owns(self, job: Job) -> bool:
        return True


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of jobs whose folders cannot be removed."""
    names: set[str] = set()
    remove = removal.remove

    def fail(folder: Folder) -> None:
        if any(name in folder.path.name.strip(".").split("-") for name in names):
            raise BackendError(f"{folder.path} {STUCK}.", "Remove it by hand.")
        remove(folder)

    monkeypatch.setattr(removal, "remove", fail)
    return names


def test_the_processes_are_searched_for_once_for_many_jobs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[tuple[str, ...]] = []
    members = processes._members

    def look(*marks: str) -> dict[int, str | None]:
        looks.append(marks)
        return members(*marks)

    monkeypatch.setattr(processes, "_members", look)
    names = [f"job{number}" for number in range(2 * delete._AT_ONCE)]
    place.finish(*names)
    place.delete("--finished", "--yes")
    assert place.names() == []
    assert sorted(place.written) == sorted(
        f"{name} (Succeeded) and its files were removed.\n" for name in names
    )
    # A search is two looks that find nothing, and here two for each of the two groups of jobs.
    assert len(looks) == 4
    assert {mark for marks in looks for mark in marks} == {f"{name}-1" for name in names}


def test_a_folder_that_stays_is_said_at_the_end_and_the_others_go(
    place: Place, stuck: set[str]
) -> None:
    names = [f"job{number}" for number in range(delete._AT_ONCE + 5)]
    place.finish(*names)
    stuck.add("job3")
    with pytest.raises(BackendError, match=STUCK) as caught:
        place.delete("--finished", "--yes")
    assert "job3" in caught.value.message
    assert caught.value.hint == "Remove it by hand."
    assert len(place.written) == len(names) - 1
    (left,) = place.names()
    assert left.startswith(".job3-")


def test_named_jobs_go_too_if_one_of_them_stays(place: Place, stuck: set[str]) -> None:
    place.finish("a", "b", "c")
    stuck.add("a")
    with pytest.raises(BackendError, match=STUCK):
        place.delete("a", "b")
    assert place.written == ["b (Succeeded) and its files were removed.\n"]
    assert [name for name in place.names() if name[0] != "."] == ["c"]


def test_many_folders_that_stay_are_one_error(place: Place, stuck: set[str]) -> None:
    place.finish(*"abcdef")
    stuck |= set("abcde")
    with pytest.raises(BackendError) as caught:
        place.delete("--finished", "--yes", "--output", "json")
    message = caught.value.message
    assert message.startswith("5 jobs could not be deleted completely. ")
    assert message.endswith(" And 2 more.")
    assert message.count(STUCK) == 3
    (text,) = place.written
    assert [record["name"] for record in json.loads(text)] == ["f"]
    stuck.clear()
    place.finish(*"ab")
    stuck |= set("ab")
    with pytest.raises(BackendError) as caught:
        place.delete("a", "b")
    assert "more" not in caught.value.message


def test_records_are_in_the_order_of_the_list(place: Place) -> None:
    names = [f"job{number}" for number in range(30)]
    place.finish(*names)
    place.delete("--finished", "--yes", "-o", "json")
    assert [record["name"] for record in json.loads("".join(place.written))] == names


def test_after_a_wrong_name_nothing_is_deleted(place: Place) -> None:
    place.finish("a")
    with pytest.raises(NoSuchJob):
        place.delete("a", "b")
    assert place.names() == ["a"]


def test_an_interrupt_tells_what_is_gone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"job{number:02}" for number in range(delete._AT_ONCE + 1)]
    place.finish(*names)
    real = LocalBackend.delete

    async def slow(backend: LocalBackend, job: Job) -> None:
        if job.name == names[-1]:
            raise asyncio.CancelledError
        await real(backend, job)

    monkeypatch.setattr(LocalBackend, "delete", slow)
    with pytest.raises(asyncio.CancelledError):
        place.delete("--finished", "--yes", "-o", "json")
    assert [record["name"] for record in json.loads("".join(place.written))] == names[:-1]
    assert place.names() == names[-1:]


@pytest.mark.parametrize(("answer", "left"), [("y", []), ("Yes", []), ("", ["a"]), ("no", ["a"])])
def test_finished_jobs_are_listed_and_a_person_is_asked(
    place: Place, answer: str, left: list[str]
) -> None:
    place.finish("a")
    place.delete("--finished", answer=answer, terminal=True)
    assert "a     pytorch" in place.written[0]
    assert place.written[1] == "Delete 1 job, with all files? [y/N] "
    assert place.names() == left
    assert place.written[2] == (
        "Nothing was deleted.\n" if left else "a (Succeeded) and its files were removed.\n"
    )


def test_a_notebook_shows_the_command_that_deletes(place: Place) -> None:
    place.finish("a", "b")
    place.delete("--finished", "--older", "1h", "--backend", "local")
    assert place.names() == ["a", "b"]
    command = "%ciao delete --finished --older 1h --backend local --yes"
    assert place.written[1] == (
        f"Nothing was deleted yet. `{command}` deletes 2 jobs, with all files.\n"
    )
    place.delete(*command.split()[2:])
    assert place.names() == []


def test_a_notebook_gets_json_or_nothing(place: Place) -> None:
    place.finish("a", "b")
    with pytest.raises(UsageError, match="nothing was deleted: --finished means 2 jobs") as caught:
        place.delete("--finished", "--older", "1h", "-o", "json")
    assert place.written == []
    assert place.names() == ["a", "b"]
    command = "%ciao delete --finished --older 1h --output json --yes"
    assert caught.value.hint == f"`{command}` deletes them."
    place.delete(*command.split()[2:])
    assert [record["name"] for record in json.loads("".join(place.written))] == ["a", "b"]


def test_a_program_must_say_yes(place: Place) -> None:
    place.finish("a")
    with pytest.raises(
        UsageError, match=r"--finished means 1 job, and nobody can confirm"
    ) as caught:
        place.delete("--finished", terminal=True)
    assert caught.value.hint == "Add --yes to delete them."
    assert "a     pytorch" in "".join(place.written)
    assert place.names() == ["a"]
    place.written.clear()
    with pytest.raises(UsageError):
        place.delete("--finished", "-o", "json", terminal=True)
    assert place.written == []  # standard output holds JSON or nothing
    place.delete("a", terminal=True)  # a job that is named needs no answer
    assert place.names() == []


def test_older_is_a_time_since_the_end(place: Place) -> None:
    place.finish("old", since=time.time() - 7300)
    place.finish("new", since=time.time() - 7100)
    place.delete("--finished", "--older", "2h", "--yes")
    assert place.names() == ["new"]


def test_a_lost_job_ended_when_it_was_last_known_to_live(place: Place) -> None:
    """Its status tells when it began, which may be weeks ago."""
    place.lose("old", "", silent=7300)
    place.lose("new", "", silent=7100)
    place.delete("--finished", "--older", "2h", "--yes")
    assert place.names() == ["new"]


def test_a_job_of_a_machine_that_may_sleep_is_deleted_only_by_its_name(place: Place) -> None:
    place.lose("asleep", "laptop boot/pid:[1]", silent=3600)
    place.lose("before-a-restart", f"{os.uname().nodename} boot/pid:[1]", silent=3600)
    place.lose("gone", "container boot/pid:[1]", silent=30 * 86_400)
    place.delete("--finished", "--yes", "--older", "30m")
    assert place.names() == ["asleep"]
    said = "1 job stays, whose machine may only sleep; `ciao delete asleep` deletes by name.\n"
    assert place.written[0] == said
    place.delete("asleep")
    assert place.names() == []


def test_a_job_that_may_be_starting_again_is_not_finished(place: Place) -> None:
    now = time.time()
    place.finish("again", since=now - 60, state="Failed")
    place.finish("given-up", since=now - 7200, state="Failed")
    place.finish("done", since=now - 60)
    place.finish("no-tries", since=now - 60, state="Failed")
    place.retries = {"again": 3, "given-up": 3, "done": 3}
    place.delete("--finished", "--yes")
    assert place.names() == ["again"]
    assert place.written[0] == (
        "1 job stays, which may be starting again (%retries); "
        "`ciao delete again` deletes by name.\n"
    )
    place.delete("again")
    assert place.names() == []


def test_a_failed_job_of_this_machine_does_not_start_again(place: Place) -> None:
    """Its supervisor counts the tries, and tells only the last failure."""
    place.finish("a", since=time.time() - 60, header="%retries=3\n", state="Failed")
    place.delete("--finished", "--yes")
    assert place.names() == []


def test_a_job_that_starts_again_before_the_answer_stays(place: Place) -> None:
    place.finish("a", "b", "named")

    def start_again() -> None:
        shutil.rmtree(place.root / "a")
        place.finish("a", uid="a-2", state="Running", settled=False)
        shutil.rmtree(place.root / "b")
        place.finish("b", uid="b-2")

    place.meanwhile = start_again
    place.delete("--finished", "named", answer="y")
    assert place.names() == ["a", "b"]
    assert place.written[2:] == ["named (Succeeded) and its files were removed.\n"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--finished", "--older", "soon"), "--older cannot be 'soon'."),
        (("--older", "2h", "a"), "--older belongs to --finished."),
    ],
)
def test_wrong_options_delete_nothing(place: Place, words: tuple[str, ...], message: str) -> None:
    place.finish("a")
    with pytest.raises(UsageError) as caught:
        place.delete(*words)
    assert caught.value.message == message
    assert place.names() == ["a"]
