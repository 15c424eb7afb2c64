"""When a job is over, how it went, and what is stopped then."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ciao_kernel.backends.local.record import Folder
from ciao_kernel.errors import JobFailed
from ciao_kernel.model import State
from tests.helpers.jobs import PATIENCE, Place, Recorder, interrupted, wait

SLEEPER = "import time\nwhile True: time.sleep(60)\n"


def test_worker_0_ends_the_job_though_a_ps_never_ends(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=tensorflow
        %ps=2
        %worker=1
        import os, time
        if os.environ["CIAO_REPLICA"].startswith("ps"):
            while True: time.sleep(60)
        print("trained")
        """,
        linger=600.0,  # which no PS gets
    )
    assert ended.result is not None
    assert ended.result.state is State.SUCCEEDED
    assert ended.display.state("ps-0") is ended.display.state("ps-1") is State.STOPPED
    assert str(ended.display.status.decided_by) == "worker-0"


def test_the_chief_ends_the_job_and_not_worker_0(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=tensorflow
        %chief=1
        %worker=1
        import os, time
        if os.environ["CIAO_REPLICA"] == "worker-0":
            with open("written", "w") as file:
                file.write(str(os.getpid()))
            os.rename("written", "pid")
            raise SystemExit
        while not os.path.exists("pid"):
            time.sleep(0.01)
        pid = int(open("pid").read())
        try:
            while True:
                os.kill(pid, 0)  # until its parent has seen its end
                time.sleep(0.01)
        except ProcessLookupError:
            time.sleep(0.3)  # the worker is over and the job is not
        """
    )
    assert ended.error is None
    assert ended.display.state("worker-0") is State.SUCCEEDED
    assert str(ended.display.status.decided_by) == "chief-0"


def test_another_worker_may_end_by_itself_a_little_later(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=tensorflow
        %worker=2
        import os, time
        if os.environ["CIAO_REPLICA"] == "worker-1":
            while not os.path.exists("first"):
                time.sleep(0.01)
            time.sleep(0.5)
            print("saved")
        else:
            open("first", "w").close()
        """
    )
    assert ended.display.state("worker-1") is State.SUCCEEDED
    assert ended.display.data("worker-1") == b"saved\n"


def test_a_worker_that_hangs_is_stopped_after_the_linger(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=tensorflow
        %worker=2
        import os, time
        if os.environ["CIAO_REPLICA"] == "worker-1":
            while True: time.sleep(60)
        """,
        linger=0.2,
    )
    assert ended.error is None
    assert ended.display.state("worker-1") is State.STOPPED


@pytest.mark.parametrize("bad", ["ps-0", "worker-1", "worker-0"])
def test_any_failing_replica_fails_the_job_and_the_others_are_stopped(
    jobs: Place, bad: str
) -> None:
    ended = jobs.run(
        f"""
        %framework=tensorflow
        %ps=1
        %worker=2
        import os, time
        if os.environ["CIAO_REPLICA"] == "{bad}":
            raise ValueError("bad data")
        while True: time.sleep(60)
        """
    )
    assert isinstance(ended.error, JobFailed)
    assert ended.error.message == f"{bad} ended with exit code 1: ValueError: bad data"
    assert "  Cell, line 6, in <module>" in ended.error.traceback
    others = {"ps-0", "worker-0", "worker-1"} - {bad}
    assert {ended.display.state(name) for name in others} == {State.STOPPED}
    assert ended.display.state(bad) is State.FAILED
    assert jobs.training() == []


def test_a_stop_is_sigterm_to_the_group_and_leaves_time_to_save(jobs: Place) -> None:
    async def main() -> None:
        display = Recorder()
        work = asyncio.ensure_future(
            jobs.ended(
                """
                %framework=tensorflow
                import os, signal, subprocess, sys, time
                child = subprocess.Popen([sys.executable, "-uc", '''if True:
                    import signal, sys, time
                    def save(*_):
                        print("child saves")
                        sys.exit()
                    signal.signal(signal.SIGTERM, save)
                    print("child is ready")
                    while True: time.sleep(60)
                '''])
                def save(*_):
                    print("saves", child.wait(60))
                    time.sleep(0.3)
                    print("saved")
                    sys.exit(0)
                signal.signal(signal.SIGTERM, save)
                print("ready")
                while True: time.sleep(60)
                """,
                jobs.session(stop_grace=60.0),
                display,
            )
        )
        await display.until("child is ready\n", "ready\n")
        await interrupted(work)
        log = (Path(display.job.place).parent / "logs/worker-0.log").read_text()  # type: ignore[union-attr]
        assert log.splitlines()[-3:] == ["child saves", "saves 0", "saved"]
        assert "is stopped; its files stay in" in display.notices

    asyncio.run(main())


STOPPED_WHILE_IT_LOOKS = """
import os, signal, sys
from pathlib import Path
from ciao_kernel.backends.local.record import Folder
from ciao_kernel.backends.local.supervisor import Supervisor

class Stopping(type(Path())):
    asked = False
    def iterdir(self):
        found = list(super().iterdir())
        if not Stopping.asked:
            Stopping.asked = True
            os.kill(os.getpid(), signal.SIGTERM)
        return found

Supervisor(Folder(Stopping(sys.argv[1]))).run()
"""


def test_a_stop_is_heard_while_the_supervisor_looks_for_its_folder(jobs: Place) -> None:
    """It was lost if it came in that very moment: the job ran on until it was killed."""
    ended = jobs.run(
        """
        %framework=tensorflow
        import pathlib, time
        again = pathlib.Path("again")
        if again.exists():
            while True: time.sleep(60)
        again.touch()
        """
    )
    folder = Path(ended.job.place).parent
    command = [sys.executable, "-c", STOPPED_WHILE_IT_LOOKS, str(folder)]
    subprocess.run(command, check=True, timeout=PATIENCE)
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["reason"]) == ("Stopped", "StoppedByUser")


@pytest.mark.parametrize("moment", ["made", "runs"])
def test_a_job_whose_folder_another_one_has_ends_without_a_trace(jobs: Place, moment: str) -> None:
    text = "%framework=python\n%worker=1\n%name=mine\n%detach\nimport time\ntime.sleep(600)\n"
    folder = jobs.storage / "jobs" / "mine"

    async def main() -> None:
        session = jobs.session()
        await session.run(text, Recorder(), jobs.folder)
        old = set(jobs.alive())
        supervisor = json.loads((folder / "status.json").read_text())["supervisor"]["pid"]
        os.kill(supervisor, signal.SIGSTOP)  # it does not see that its folder is gone meanwhile
        shutil.rmtree(folder)
        if moment == "made":
            folder.mkdir(mode=0o700)
            (folder / "logs").mkdir(mode=0o700)
        else:
            await session.run(text, Recorder(), jobs.folder)
        before = {path: path.stat() for path in sorted(folder.rglob("*"))}
        os.kill(supervisor, signal.SIGCHLD)  # it looks as soon as it goes on
        os.kill(supervisor, signal.SIGCONT)
        await wait(lambda: not old & set(jobs.alive()))
        after = {path: path.stat() for path in sorted(folder.rglob("*"))}
        assert {path: one.st_ino for path, one in after.items()} == {
            path: one.st_ino for path, one in before.items()
        }
        if moment == "runs":
            job, status = await session.backend("local").find("mine")
            assert status.state is State.RUNNING
            await session.backend("local").delete(job)
        assert not jobs.training()

    asyncio.run(main())


def test_a_folder_with_another_number_is_still_that_of_its_job(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.mkdir(mode=0o700)
    folder = Folder(path)
    folder.write_job({"id": "mine-1", "name": "mine"})
    folder.hold()
    shutil.copytree(path, tmp_path / "copy")
    path.rename(tmp_path / "first")
    (tmp_path / "copy").rename(path)
    assert not folder.is_stop_requested()
    folder.write_status({"state": "Running"})
    Folder(path).write_job({"id": "mine-2", "name": "mine"})
    assert folder.is_stop_requested()
    with pytest.raises(FileNotFoundError):
        folder.write_status({"state": "Stopped"})
    folder.add_line("worker-0", "a line")
    assert not (path / "logs").exists()
    assert json.loads((path / "status.json").read_text()) == {"state": "Running"}


def test_sigkill_follows_for_one_that_ignores_sigterm(jobs: Place) -> None:
    async def main() -> None:
        display = Recorder()
        session = jobs.session(stop_grace=0.3)
        work = asyncio.ensure_future(
            jobs.ended(
                """
                %framework=tensorflow
                import signal, time
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                print("ready")
                while True: time.sleep(60)
                """,
                session,
                display,
            )
        )
        await display.until("ready")
        await interrupted(work)
        assert display.job is not None
        _, _, status = await session.find(display.job.name)
        assert status.state is State.STOPPED
        assert status.replicas[0].exit_code == -9
        assert jobs.training() == []

    asyncio.run(main())


def test_a_cell_ends_soon_though_a_replica_takes_its_time(
    jobs: Place, figure: Callable[[str], None]
) -> None:
    async def main() -> None:
        from ciao_kernel.jupyter.shutdown import Lifetime

        display = Recorder()
        work = asyncio.ensure_future(
            jobs.ended(
                """
                %framework=tensorflow
                import os, signal, time
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                print("ready")
                while not os.path.exists("go-on"): time.sleep(0.01)
                """,
                session := jobs.session(stop_grace=600.0, lifetime=Lifetime()),
                display,
            )
        )
        await display.until("ready")
        started = time.monotonic()
        await interrupted(work)
        figure(f"{time.monotonic() - started:.2f} s to the end of the cell")
        assert "has not ended yet" in display.notices
        assert len(jobs.training()) == 1
        assert display.job is not None
        (Path(display.job.place) / "go-on").touch()
        await wait(lambda: not jobs.alive())
        assert (await session.jobs())[0][1].state is State.STOPPED

    asyncio.run(main())


def test_grandchildren_in_sessions_of_their_own_end_too(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=tensorflow
        import subprocess, sys
        code = "import os, time; os.setsid() if os.fork() else 0; time.sleep(600)"
        for _ in range(3):
            subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        print("started")
        """
    )
    assert ended.error is None
    assert jobs.training() == []


def test_clean_policy_all_removes_the_folder(jobs: Place) -> None:
    ended = jobs.run("%framework=tensorflow\n%cleanPolicy=all\nprint('x')\n")
    assert ended.error is None
    assert jobs.leftovers() == []
    assert "its files are removed" in ended.display.notices


def test_clean_policy_all_still_tells_why_the_job_failed(jobs: Place) -> None:
    ended = jobs.run("%framework=tensorflow\n%cleanPolicy=all\n1 / 0\n")
    assert isinstance(ended.error, JobFailed)
    assert "ZeroDivisionError" in ended.error.message
    assert ".log" not in ended.error.hint
    assert jobs.leftovers() == []


def test_clean_policy_none_leaves_what_runs_until_it_is_deleted(jobs: Place) -> None:
    async def main() -> None:
        session = jobs.session(linger=0.1)
        ended = await jobs.ended(
            """
            %framework=tensorflow
            %ps=1
            %worker=1
            %cleanPolicy=none
            import os, time
            while os.environ["CIAO_REPLICA"] == "ps-0":
                print("alive")
                time.sleep(0.001)
            """,
            session,
        )
        assert ended.result is not None
        assert ended.display.state("worker-0") is State.SUCCEEDED
        assert ended.display.state("ps-0") is State.RUNNING
        assert len(jobs.training()) == 1
        backend, job, _ = await session.find(ended.job.name)
        await backend.delete(job)
        assert jobs.training() == []
        assert jobs.leftovers() == []

    asyncio.run(main())


def test_the_deadline_fails_the_job(jobs: Place) -> None:
    ended = jobs.run("%framework=tensorflow\n%deadline=1s\n" + SLEEPER)
    assert isinstance(ended.error, JobFailed)
    assert ended.error.message == "the job ran longer than its deadline of 1 s."
    assert ended.display.status.reason == "DeadlineExceeded"
    assert jobs.training() == []


def test_a_crash_names_its_signal(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=tensorflow
        import os, signal
        print("so far")
        os.kill(os.getpid(), signal.SIGSEGV)
        """
    )
    assert isinstance(ended.error, JobFailed)
    assert ended.error.message == "worker-0 was killed by SIGSEGV."
    # Python's fault handler adds where it was.
    assert "[worker-0] so far" in ended.error.traceback
    assert "[worker-0] Fatal Python error: Segmentation fault" in ended.error.traceback


def test_an_exit_code_without_a_traceback_shows_the_last_lines(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=tensorflow
        import sys
        print("no data in /tmp")
        sys.exit(3)
        """
    )
    assert isinstance(ended.error, JobFailed)
    assert ended.error.message == "worker-0 ended with exit code 3."
    status = ended.display.status
    assert status is not None
    assert status.replicas[0].reason == ""  # as on a cluster: the exit code says it
    assert ended.error.traceback == ("[worker-0] no data in /tmp",)
    assert "whole log" in ended.error.hint


def test_equal_tracebacks_are_counted(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=tensorflow
        %worker=3
        import os, time
        open(os.environ["CIAO_REPLICA"], "w").close()
        while sum(os.path.exists(f"worker-{n}") for n in range(3)) < 3:
            time.sleep(0.01)
        raise RuntimeError("all of us")
        """,
        stop_grace=60.0,
    )
    assert isinstance(ended.error, JobFailed)
    text = "\n".join(ended.error.traceback)
    assert text.count("Traceback") == 1


def test_files_that_the_job_writes_stay_and_are_found_from_python(jobs: Place) -> None:
    ended = jobs.run("%framework=tensorflow\nopen('model.bin', 'w').write('weights')\n")
    assert ended.result is not None
    assert (ended.result.folder / "model.bin").read_text() == "weights"


def test_pytorch_by_python_gets_its_environment(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=pytorch
        %worker=1
        %runner=python
        %envvar=GREETING='hello there'
        %args=--lr 0.1 'two words'
        import os, sys
        names = "MASTER_ADDR WORLD_SIZE RANK PET_NNODES GREETING".split()
        print(*(os.environ[name] for name in names), sys.argv[1:], sep="|")
        """
    )
    assert ended.error is None
    rest = "['--lr', '0.1', 'two words']"
    assert ended.display.data("master-0").decode() == f"127.0.0.1|2|0|2|hello there|{rest}\n"
    assert ended.display.data("worker-0").decode() == f"127.0.0.1|2|1|2|hello there|{rest}\n"
