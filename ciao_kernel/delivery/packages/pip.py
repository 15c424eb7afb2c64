"""Runs pip: for an environment of this machine, or for an image's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from ciao_kernel.errors import CiaoError, EnvironmentFault, SourceError
from ciao_kernel.redaction import masked

_OLDEST = (22, 3)
"""--report came with 22.2, --python with 22.3."""
STEPS = ("Collecting", "Downloading", "Building", "Installing", "Successfully", "Looking in")
"""What lines begin with that tell how far pip is."""
_LATEST = 20
"""Lines of pip's that an error shows."""
_POLL = 0.1
_SECONDS = 3600
# Settings of the user's that would send packages to another place.
_DROPPED = ("TARGET", "PREFIX", "ROOT", "PYTHON", "DRY_RUN", "REPORT", "QUIET", "VERBOSE", "LOG")
_ELSEWHERE = ("EXTRA_INDEX_URL", "FIND_LINKS", "NO_INDEX")
"""Where else packages are looked for: not where one index is named."""
_AWAY = re.compile(
    r"Temporary failure|ConnectionError|NewConnection|ConnectTimeout|ReadTimeout|SSLError|"
    r"ProxyError|Connection refused"
)
_PAGE = re.compile(r"Could not fetch URL .*")
_WHO = re.compile(r"\b40[13] (Client )?Error|Credentials not correct|EOFError")


class Failed(Exception):
    """pip did not do it.

    Args:
        lines: What it wrote, without passwords.
        pages: Its complaints about pages of the index: it goes on without them, and says that
            there is no such package.
    """

    def __init__(self, lines: Sequence[str], pages: Sequence[str] = ()) -> None:
        super().__init__(lines)
        self.lines = tuple(lines)
        self.pages = tuple(pages)

    @property
    def away(self) -> bool:
        """Its index did not answer or asked who asks: it says nothing of the packages."""
        text = "\n".join((*self.lines, *self.pages))
        return bool(_AWAY.search(text) or _WHO.search(text))

    @property
    def said(self) -> str:
        """Its last complaint."""
        errors = [line for line in self.lines if line.startswith("ERROR: ")]
        said = (errors or self.lines or ("no reason",))[-1].removeprefix("ERROR: ")
        return said[:400].rstrip(".")

    @property
    def latest(self) -> tuple[str, ...]:
        """The last lines that say something about it."""
        said = (line for line in self.lines if line.strip() and not line.lstrip().startswith(STEPS))
        return tuple(said)[-_LATEST:]

    def explained(self) -> CiaoError:
        """The error for a user."""
        text = "\n".join((*self.lines, *self.pages))
        if "No space left" in text or "Disk quota" in text:
            return full()
        if _WHO.search(text):
            return SourceError(
                f"the package index wants to know who asks: {self.said}.",
                "Keep name and password in ~/.netrc, or in pip's own configuration.",
            )
        if _AWAY.search(text):
            return SourceError(
                f"the package index does not answer: {self.said}.",
                "Can this machine reach it? %pipIndex=URL names another one.",
            )
        return SourceError(
            f"pip cannot bring the packages: {self.said}.", "Are names and versions right?"
        )


def full() -> EnvironmentFault:
    """The error where the disk is full."""
    return EnvironmentFault(
        "no space is left for packages.",
        "Free some, or move ciao's folder: `%ciao config storage=/some/disk`.",
    )


def check() -> Path:
    """Return the folder that holds pip.

    Raises:
        EnvironmentFault: The kernel's Python has none, or one that is too old.
    """
    from importlib import metadata

    try:
        found = metadata.distribution("pip")
    except metadata.PackageNotFoundError:
        raise EnvironmentFault(
            f"packages are brought by pip, and {sys.executable} has none.",
            f"Install it: `{sys.executable} -m ensurepip`, or `uv pip install pip`.",
        ) from None
    numbers = tuple(int(part) for part in re.findall(r"\d+", found.version)[:2])
    if numbers < _OLDEST:
        raise EnvironmentFault(
            f"pip {found.version} is too old to bring packages: it takes 22.3.",
            "In a plain cell: %pip install --upgrade pip",
        )
    return Path(str(found.locate_file("")))


async def run(
    command: Sequence[str],
    index: str,
    say: Callable[[str], None] = lambda line: None,
    lock: IO[str] | None = None,
) -> None:
    """Run pip to its end; a cancellation ends it with all that it has started.

    Args:
        command: A whole command line; passwords do not stand in it.
        index: Address of the package index; "" means pip's own setting.
        say: Is told each line.
        lock: Stays locked until pip has ended, even if this process is killed.

    Raises:
        Failed: It ended with an error.
    """
    with tempfile.TemporaryDirectory(prefix="ciao-pip-") as folder:
        log = Path(folder) / "log"
        try:
            await _run(command, environment(index) | {"PIP_LOG": str(log)}, say, lock)
        except Failed as error:
            with contextlib.suppress(OSError):
                pages = _PAGE.findall(log.read_text(errors="replace"))
                raise Failed(error.lines, [masked(page) for page in pages]) from None
            raise


async def _run(
    command: Sequence[str],
    environment: Mapping[str, str],
    say: Callable[[str], None],
    lock: IO[str] | None,
) -> None:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd="/",  # not the user's folder, where modules may have any name
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
        start_new_session=True,
        pass_fds=[lock.fileno()] if lock else [],
    )
    lines: list[str] = []
    try:
        assert process.stdout is not None
        rest = b""
        async with asyncio.timeout(_SECONDS):
            while piece := await process.stdout.read(1 << 16):
                *whole, rest = (rest + piece).split(b"\n")
                for raw in whole:
                    lines.append(masked(raw.decode(errors="replace").rstrip()))
                    say(lines[-1])
            lines += [masked(rest.decode(errors="replace"))] if rest else []
            code = await process.wait()
    except TimeoutError:
        raise Failed([*lines, f"ERROR: it took more than {_SECONDS} s"]) from None
    finally:
        # pip runs itself a second time for another environment, and compilers.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if code:
        raise Failed(lines)


@contextlib.asynccontextmanager
async def alone(path: Path, wait: Callable[[], None]) -> AsyncIterator[IO[str]]:
    """Hold a lock among all processes of this machine; what waits can be cancelled.

    Args:
        path: The file to lock; its folder is made.
        wait: Is called once where another process holds it.

    Raises:
        EnvironmentFault: Nothing can be written there.
    """
    import fcntl

    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = path.open("w")
    except OSError as error:
        raise EnvironmentFault(
            f"packages cannot be kept in {path.parent}: {error.strerror}.",
            "Name another place: `%ciao config storage=/some/folder`.",
        ) from None
    with lock:
        told = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    wait()
                told = True
                await asyncio.sleep(_POLL)
            except OSError as error:
                raise EnvironmentFault(
                    f"nothing can be locked in {path.parent}: {error.strerror}.",
                    "Name another place: `%ciao config storage=/some/folder`.",
                ) from None
        yield lock


def environment(index: str) -> dict[str, str]:
    """The variables that pip gets.

    Args:
        index: Address of the package index; "" means pip's own setting.
    """
    dropped = {f"PIP_{name}" for name in (*_DROPPED, *(_ELSEWHERE if index else ()))}
    found = {name: value for name, value in os.environ.items() if name not in dropped}
    found |= {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_PROGRESS_BAR": "off",
        "PIP_REQUIRE_VIRTUALENV": "0",
        "PIP_USER": "0",
        "PYTHONUNBUFFERED": "1",
    }
    return found | ({"PIP_INDEX_URL": index} if index else {})
