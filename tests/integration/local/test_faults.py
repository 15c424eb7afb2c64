"""What cannot run says why before anything exists; what breaks midway leaves nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.builders.folder import FolderBuilder
from ciao_kernel.config import Settings
from ciao_kernel.errors import (
    BackendError,
    CiaoError,
    DirectiveError,
    EnvironmentFault,
    JobFailed,
    SourceError,
)
from ciao_kernel.model import State
from ciao_kernel.plugins import Build
from tests.helpers.jobs import Ended, Place, Recorder, interrupted, wait


def refused(place: Place, text: str, **settings: Any) -> CiaoError:
    """The error of a cell that must not start; it has left nothing."""
    ended = place.run(text, **settings)
    assert ended.error is not None, "it ran"
    assert not isinstance(ended.error, JobFailed)
    assert place.leftovers() == []
    assert place.alive() == []
    assert ended.display.begun == 0
    return ended.error


# ----------------------------------------------------------------------------- interpreters


def test_a_missing_interpreter(jobs: Place) -> None:
    for asked in ("/nowhere/python", "no-such-python", "~/nowhere/python", "./python"):
        error = refused(jobs, f"%framework=tensorflow\n%python={asked}\nprint()\n")
        assert isinstance(error, DirectiveError)
        assert f"there is no Python interpreter {asked}" in error.message
        assert "%python" in error.hint


def test_a_program_that_is_no_python(jobs: Place) -> None:
    script = jobs.write("fake", "#!/nowhere/sh\n")
    script.chmod(0o755)
    for asked in ("/bin/true", "/bin/false", str(script)):
        error = refused(jobs, f"%framework=tensorflow\n%python={asked}\nprint()\n")
        assert isinstance(error, EnvironmentFault)
        assert f"{asked} does not run as Python" in error.message


@pytest.mark.parametrize("packages", ["", "%packages=app\n"])
def test_the_setting_is_named_whose_interpreter_does_not_run(jobs: Place, packages: str) -> None:
    script = jobs.write(
        "shim", "#!/bin/sh\nprintf 'no such command\\n\\nNote: see\\n  help\\n' >&2\nexit 9\n"
    )
    script.chmod(0o755)
    text = f"%framework=tensorflow\n{packages}print()\n"
    for named, hint in (
        ("", "Correct the setting python"),
        (f"%python={script}\n", "with %python."),
    ):
        error = refused(jobs, named + text, python=str(script))
        assert error.message == f"{script} does not run as Python: no such command."
        assert hint in error.hint


def test_the_folder_of_a_virtual_environment_is_understood(jobs: Place, tmp_path: Path) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    # Said aloud on standard error at its start: that is no reason to refuse it.
    python = tmp_path / "env" / "bin" / "python"
    python.write_text(f'#!/bin/sh\necho warning >&2\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    text = "%framework=tensorflow\n%python={}\nimport sys\nprint('ran')\n"
    for asked in (tmp_path / "env", "../env", "../env/bin/python"):
        ended = jobs.run(text.format(asked))
        assert ended.error is None
        assert b"ran\n" in ended.display.data("worker-0")
    # The same by a setting, which the cell may override.
    assert jobs.run("%framework=tensorflow\nprint('ran')\n", python=str(python)).error is None
    assert jobs.run(text.format("/nowhere"), python=str(python)).error is not None


@pytest.mark.skipif(shutil.which("false") is None, reason="needs coreutils")
def test_a_package_is_only_asked_for_where_it_is_needed(jobs: Place, tmp_path: Path) -> None:
    # An interpreter without site packages: it surely has neither framework.
    python = tmp_path / "bare"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    ask = f"%python={python}\n"
    for text, package in (
        (f"%framework=tensorflow\n{ask}import tensorflow as tf\n", "tensorflow"),
        (f"%framework=tensorflow\n{ask}def f():\n    from tensorflow import keras\n", "tensorflow"),
        (f"%framework=pytorch\n{ask}print('no import')\n", "torch"),
        (f"%framework=pytorch\n%runner=python\n{ask}import torch\n", "torch"),
    ):
        error = refused(jobs, text)
        assert isinstance(error, EnvironmentFault)
        assert f"has no package {package}" in error.message
        assert f"`{python} -m pip install {package}" in error.hint
    assert jobs.run(f"%framework=tensorflow\n{ask}print('fine')\n").error is None
    assert jobs.run(f"%framework=pytorch\n%runner=python\n{ask}print('fine')\n").error is None


# ---------------------------------------------------------------------------------- places


def test_too_many_replicas(jobs: Place) -> None:
    error = refused(jobs, "%framework=tensorflow\n%ps=2\n%worker=500\nprint()\n")
    assert isinstance(error, DirectiveError)
    assert (error.line, error.text) == (3, "%worker=500")
    assert "502 replicas" in error.message
    assert "localReplicas" in error.hint


def test_a_storage_that_cannot_be_used(jobs: Place, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = refused(jobs, "%framework=tensorflow\nprint()\n", storage=tmp_path / "file")
    assert isinstance(error, EnvironmentFault)
    assert str(tmp_path / "file") in error.message
    assert "%ciao config storage" in error.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take rights away and back")
def test_a_storage_that_may_not_be_written(jobs: Place, tmp_path: Path) -> None:
    async def both() -> tuple[Ended, CiaoError]:
        session = jobs.session(storage=tmp_path / "closed" / "ciao")
        ended = await jobs.ended("%framework=tensorflow\nprint()\n", session)
        with pytest.raises(CiaoError) as caught:
            await session.jobs()
        return ended, caught.value

    (tmp_path / "closed" / "ciao" / "jobs").mkdir(parents=True, mode=0o700)
    (tmp_path / "closed" / "ciao").chmod(0o700)
    os.seteuid(65534)
    try:
        ended, listing = asyncio.run(both())
    finally:
        os.seteuid(0)
    assert isinstance(ended.error, EnvironmentFault)
    assert "Permission denied" in ended.error.message
    assert "%ciao config storage" in ended.error.hint
    assert isinstance(listing, BackendError)
    assert jobs.leftovers() == []


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    path.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"mode=700,size={size}", "none", str(path)],
        capture_output=True,
    )
    if made.returncode:
        pytest.skip(f"a small disk needs the right to mount: {made.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_full_disk_is_seen_before_the_start(jobs: Place, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk:
        error = refused(jobs, "%framework=tensorflow\nprint()\n", storage=disk)
        assert isinstance(error, EnvironmentFault)
        assert "no room for the job" in error.message
        assert list((disk / "jobs").iterdir()) == []


def test_a_disk_that_takes_no_file_at_all(jobs: Place, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64m,nr_inodes=8") as disk:
        error = refused(jobs, "%framework=tensorflow\nprint()\n", storage=disk)
        assert isinstance(error, EnvironmentFault)
        assert "full" in error.message
        assert list((disk / "jobs").iterdir()) == []


def test_a_disk_that_fills_up_while_the_job_runs(jobs: Place, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "24m") as disk:
        ended = jobs.run(
            """
            %framework=tensorflow
            %worker=2
            import os, time
            if os.environ["CIAO_REPLICA"] == "worker-1":
                while True: time.sleep(60)
            with open("big", "wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 65536)
            """,
            storage=disk,
        )
        # The supervisor could still say how it went, and no replica is left.
        assert isinstance(ended.error, JobFailed)
        assert "worker-0 ended with exit code 1" in ended.error.message
        assert "The disk is full" in ended.error.hint
        assert ended.display.state("worker-1") is State.STOPPED
        assert jobs.training() == []


def test_a_log_that_fills_the_disk_stops_neither_supervisor_nor_reader(
    jobs: Place, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", "24m") as disk:
        ended = jobs.run(
            """
            %framework=tensorflow
            import os
            try:
                while True:
                    os.write(1, b"y" * 1023 + b"\\n")
            except OSError:
                os._exit(7)
            """,
            storage=disk,
        )
        assert isinstance(ended.error, JobFailed)
        assert "exit code 7" in ended.error.message
        assert "The disk is full" in ended.error.hint
        assert ended.display.data("worker-0") == ended.log("worker-0")


def test_a_port_that_is_taken_meanwhile_gets_a_hint(jobs: Place) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ended = jobs.run(
            f"""
            %framework=tensorflow
            import socket
            socket.create_server(("127.0.0.1", {taken.getsockname()[1]}))
            """
        )
    assert isinstance(ended.error, JobFailed)
    assert "Address already in use" in ended.error.message
    assert "Run it again" in ended.error.hint


def test_a_file_and_a_module_that_the_job_misses_are_named_with_their_directive(
    jobs: Place,
) -> None:
    jobs.write("my data.csv", "1,2\n")
    jobs.write("late.py", "x = 1\n")
    ended = jobs.run("%framework=tensorflow\nopen('my data.csv')\n")
    assert isinstance(ended.error, JobFailed)
    assert "%files='my data.csv'" in ended.error.hint
    assert jobs.run("%framework=tensorflow\n%files='my data.csv'\nopen('my data.csv')\n").result
    ended = jobs.run("%framework=tensorflow\n__import__('late')\n")
    assert ended.error is not None
    assert "%files=late.py" in ended.error.hint


def test_nothing_exists_after_any_error_in_the_text(jobs: Place) -> None:
    for text, kind in (
        ("%framework=tensorflow\n%files=nothing.csv\nprint()\n", DirectiveError),
        ("%framework=tensorflow\n%files=../x\nprint()\n", DirectiveError),
        ("%framework=tensorflow\n%gpu=1\nprint()\n", DirectiveError),
        ("%framework=tensorflow\n%ps=1\nprint()\n", DirectiveError),
        ("%framework=tensorflow\nprint(\n", SourceError),
        ("%framework=tensorflow\n", SourceError),
    ):
        assert isinstance(refused(jobs, text), kind)
    assert not jobs.storage.exists()


def test_a_dry_run_runs_nothing_and_tells_all(jobs: Place) -> None:
    jobs.write("data.csv", "1\n")
    jobs.write("helper.py", "x = 1\n")
    ended = jobs.run(
        """
        %framework=tensorflow
        %ps=1
        %worker=2
        %name=mnist
        %envvar=MODE='very fast'
        %args='a b'
        %files=data.csv
        %dryrun
        import helper
        """
    )
    assert ended.error is None
    assert ended.result is None
    text = ended.display.notices
    for part in (
        "would run on local",
        "ciao_cell.py",
        "helper.py",
        "data.csv  2 bytes",
        "ps-0:",
        "worker-1:",
        "TF_CONFIG='{",
        "MODE='very fast'",
        "CIAO_JOB=mnist",
        f"{jobs.storage}/jobs/mnist/work/ciao_cell.py 'a b'",
    ):
        assert part in text, part
    assert not jobs.storage.exists()


# -------------------------------------------------------------------------------- rollback


class Failing(FolderBuilder):
    """Copies, then fails as a disk does."""

    async def build(self, *arguments: Any) -> Any:
        await super().build(*arguments)
        raise OSError(28, "No space left on device", "/somewhere")


class Slow(FolderBuilder):
    """Copies, then takes its time."""

    async def build(self, *arguments: Any) -> Any:
        made = await super().build(*arguments)
        await asyncio.sleep(600)
        return made


def session_with(place: Place, builder: FolderBuilder) -> Any:
    session = place.session()
    session.registry.builder = lambda name, settings: builder  # type: ignore[method-assign]
    return session


def test_a_failing_builder_leaves_nothing(jobs: Place) -> None:
    ended = jobs.run("%framework=tensorflow\nprint()\n", session_with(jobs, Failing(Settings())))
    assert isinstance(ended.error, EnvironmentFault)
    assert "the disk is full" in ended.error.message
    assert jobs.leftovers() == []


def test_too_many_open_files_are_named_though_nothing_can_be_removed(jobs: Place) -> None:
    """Without a free descriptor the start cannot be rolled back either: that is not the cause."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    class Exhausting(FolderBuilder):
        async def build(self, ask: Build, emit: Any) -> Any:
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
            return await super().build(ask, emit)

    try:
        session = session_with(jobs, Exhausting(Settings()))
        ended = jobs.run("%framework=tensorflow\nprint()\n", session)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert isinstance(ended.error, EnvironmentFault)
    assert "too many open files" in ended.error.message


def test_a_supervisor_that_cannot_start_leaves_nothing(jobs: Place) -> None:
    class Breaking(FolderBuilder):
        async def build(self, ask: Build, emit: Any) -> Any:
            (ask.folder / "status.json").mkdir()  # its first word cannot be written there
            (ask.folder / "status.json" / "x").touch()
            made = await super().build(ask, emit)
            (ask.folder / "job.json").mkdir()
            return made

    ended = jobs.run("%framework=tensorflow\nprint()\n", session_with(jobs, Breaking(Settings())))
    assert isinstance(ended.error, EnvironmentFault | BackendError)
    assert jobs.leftovers() == []


def test_a_replica_that_cannot_be_started_fails_the_job(jobs: Place) -> None:
    class Wrong(FolderBuilder):
        async def build(self, *arguments: Any) -> Any:
            return replace(await super().build(*arguments), python="/gone/python")

    text = "%framework=tensorflow\n%worker=3\nprint()\n"
    ended = jobs.run(text, session_with(jobs, Wrong(Settings())))
    assert isinstance(ended.error, JobFailed)
    assert "worker-0 cannot be started: No such file or directory" in ended.error.message
    assert ended.display.state("worker-0") is State.FAILED
    assert ended.display.state("worker-2") is State.STOPPED


def test_an_interrupt_while_building_leaves_nothing(jobs: Place) -> None:
    async def main() -> None:
        work = asyncio.ensure_future(
            jobs.ended("%framework=tensorflow\nprint()\n", session_with(jobs, Slow(Settings())))
        )
        await wait(lambda: list(jobs.storage.glob("jobs/*/work/ciao_cell.py")))
        await interrupted(work)
        assert jobs.leftovers() == []

    asyncio.run(main())


def test_an_interrupt_while_a_large_file_is_copied_leaves_nothing(jobs: Place) -> None:
    with jobs.write("large.bin").open("wb") as file:
        file.truncate(600 * 1024 * 1024)  # a hole: the copy is what takes time and room

    async def main() -> None:
        display = Recorder()
        work = asyncio.ensure_future(
            jobs.ended(
                "%framework=tensorflow\n%files=large.bin\nprint()\n", jobs.session(), display
            )
        )
        await wait(lambda: list(jobs.storage.glob("jobs/*/work/large.bin")))
        await interrupted(work)
        assert "copying 600 MiB" in display.notices
        assert jobs.leftovers() == []

    asyncio.run(main())


@pytest.mark.parametrize("step", ["claim", "job.json", "supervisor", "replicas"])
def test_an_interrupt_in_any_step_of_the_submit_leaves_nothing(jobs: Place, step: str) -> None:
    seen = {
        "claim": lambda: jobs.leftovers(),
        "job.json": lambda: list(jobs.storage.glob("jobs/*/job.json")),
        "supervisor": lambda: list(jobs.storage.glob("jobs/*/supervisor.log")),
        "replicas": lambda: list(jobs.storage.glob("jobs/*/logs/*")),
    }

    async def main() -> None:
        work: asyncio.Task[Ended] = asyncio.ensure_future(
            jobs.ended(
                "%framework=tensorflow\n%worker=4\n%cleanPolicy=all\nimport time\n"
                "while True: time.sleep(60)\n",
                jobs.session(stop_grace=5.0),
            )
        )
        while not seen[step]():
            await asyncio.sleep(0)
        await interrupted(work)
        await wait(lambda: not jobs.training())
        assert jobs.leftovers() == []

    for _ in range(3):
        asyncio.run(main())


def test_what_a_killed_submit_left_goes_with_a_later_one(jobs: Place) -> None:
    code = f"""
import asyncio, os, signal
from pathlib import Path
from tests.helpers.jobs import Place, Recorder
from ciao_kernel.config import Settings
from tests.integration.local.test_faults import Slow, session_with
place = Place(Path({str(jobs.folder.parent)!r}), {jobs.mark!r})
text = "%framework=tensorflow\\n%name=killed\\nprint()\\n"
asyncio.run(session_with(place, Slow(Settings())).run(text, Recorder(), place.folder))
"""
    submit = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[3])
    left = jobs.storage / "jobs" / "killed"

    async def main() -> None:
        await wait((left / "work" / "ciao_cell.py").exists)
        await wait(lambda: len(jobs.alive()) > 1)  # its supervisor waits for the record
        submit.kill()
        submit.wait()
        await wait(lambda: not jobs.alive())
        mine = jobs.storage / "jobs" / "mine"
        mine.mkdir()
        (mine / "notes.txt").touch()
        session = jobs.session()
        assert await session.jobs() == []
        text = "%framework=tensorflow\n%name=fresh\nprint()\n"
        await jobs.ended(text, session)
        assert jobs.leftovers() == ["fresh", "killed", "mine"]  # it might still be at work
        for path in (left, mine):
            os.utime(path, (0, 0))
        await jobs.ended(text, session)
        assert jobs.leftovers() == ["fresh", "fresh-2", "mine"]

    asyncio.run(main())


FORKED = """
import os, signal, sys, time
from pathlib import Path
from ciao_kernel.backends.local import supervisor_start
from ciao_kernel.backends.local.record import Folder
supervisor_start.start(Folder(Path(sys.argv[1])), "forked-0")
copy = os.fork()  # it keeps the pipe to the supervisor open
if copy == 0:
    time.sleep(120)
    os._exit(0)
print(copy, flush=True)
time.sleep(float(sys.argv[2]))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_supervisor_ends_with_its_submitter_though_a_fork_of_that_lives(
    jobs: Place, tmp_path: Path, seconds: int
) -> None:
    command = [sys.executable, "-c", FORKED, str(tmp_path), str(seconds)]
    submitter = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert submitter.stdout
    copy = int(submitter.stdout.readline())
    try:
        submitter.wait()
        asyncio.run(wait(lambda: jobs.alive() == [copy]))
    finally:
        os.kill(copy, signal.SIGKILL)
        submitter.stdout.close()


def test_two_interrupts_leave_nothing_either(jobs: Place) -> None:
    async def main() -> None:
        work = asyncio.ensure_future(
            jobs.ended("%framework=tensorflow\nprint()\n", session_with(jobs, Slow(Settings())))
        )
        await wait(lambda: list(jobs.storage.glob("jobs/*/work/ciao_cell.py")))
        work.cancel()
        await asyncio.sleep(0)
        await interrupted(work)
        await wait(lambda: not jobs.leftovers())

    asyncio.run(main())


# ---------------------------------------------------------------------------- what is run


def test_the_program_arrives_to_the_byte(jobs: Place) -> None:
    text = (
        "%framework=tensorflow\r\n\t# ü 漢\r\nx = '$HOME `ls` ${X} \\\\ EOM'\r\n"
        "if x:\n\ty = '''\r\nEOM\n'''\n\tprint(open(__file__, 'rb').read())\n# no final newline 🙂"
    )

    async def main() -> Ended:
        display = Recorder()
        result = await jobs.session().run(text, display, jobs.folder)
        return Ended(display, result)

    ended = asyncio.run(main())
    delivered = (Path(ended.job.place) / "ciao_cell.py").read_bytes()
    assert delivered == b"#" + text.encode()
    assert ended.display.data("worker-0").decode().strip() == repr(delivered)


def test_what_travels_is_what_the_replica_finds(jobs: Place) -> None:
    jobs.write("helper.py", "from pkg.deep import value\n")
    jobs.write("pkg/__init__.py")
    jobs.write("pkg/deep.py", "from . import other\nvalue = other.value\n")
    jobs.write("pkg/other.py", "value = 42\n")
    jobs.write("conf/a.yaml", "a: 1\n")
    jobs.write("conf/deep/b.yaml", "b: 2\n")
    script = jobs.write("tool.sh", "#!/bin/sh\necho tool\n")
    script.chmod(0o755)
    jobs.write("not-asked-for.txt")
    ended = jobs.run(
        """
        %framework=tensorflow
        %files=conf tool.sh
        import helper, os, subprocess
        print(helper.value)
        print(sorted(os.path.join(d, f) for d, _, fs in os.walk(".") for f in fs if "pyc" not in f))
        subprocess.run("./tool.sh")
        """
    )
    assert ended.error is None
    shown = ended.display.data("worker-0").decode().splitlines()
    assert shown[0] == "42"
    assert "not-asked-for" not in shown[1]
    assert "./conf/deep/b.yaml" in shown[1]
    assert shown[2] == "tool"
    assert "included, because the code imports them: helper.py, pkg/__init__.py" in (
        ended.display.notices
    )


def test_a_replica_starts_with_pythons_own_signals(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=tensorflow
        import signal
        print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        print({signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)})
        """
    )
    assert ended.display.data("worker-0").decode() == f"True\n{ {signal.SIG_DFL} }\n"


def test_what_binds_on_a_cluster_only_is_said(jobs: Place) -> None:
    text = "%framework=tensorflow\n%worker=1;%cpu=2;%memory=4Gi\n%image=a/b\n%ttl=1h\nprint()\n"
    said = jobs.run(text).display.notices
    assert "%cpu (line 2) and %memory (line 2) apply to clusters only; local replicas" in said
    assert (
        "%image (line 3), %ttl (line 4) have no effect on this machine: they apply to clusters "
        "only."
    ) in said
    one = jobs.run("%framework=tensorflow\n%ttl=60\n%worker=1;%memory=1Gi\nprint()\n")
    assert "%ttl (line 2) has no effect on this machine: it applies" in one.display.notices
    assert "%memory (line 3) applies to clusters only; local" in one.display.notices
    plain = jobs.run("%framework=tensorflow\nprint()\n").display.notices
    assert "clusters only" not in plain
    assert "no effect" not in plain


def test_a_replica_knows_nothing_of_the_kernel(
    jobs: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("TF_CONFIG", "of another job")
    monkeypatch.setenv("PET_NNODES", "7")
    monkeypatch.setenv("KEPT", "yes")
    ended = jobs.run(
        """
        %framework=tensorflow
        import os, sys
        names = "JPY_PARENT_PID MPLBACKEND TF_CONFIG PET_NNODES KEPT PYTHONUNBUFFERED".split()
        print([os.environ.get(name) for name in names])
        at_home = os.getcwd() == os.path.dirname(__file__)
        print(sys.stdin.read() == "", at_home, os.getsid(0) == os.getpid())
        """
    )
    assert ended.display.data("worker-0").decode().splitlines() == [
        "[None, None, None, None, 'yes', '1']",
        "True True True",
    ]
    assert os.environ["TF_CONFIG"]
