"""Run pip for an environment of this machine or of an image."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ciao_kernel import file_lock
from ciao_kernel.delivery.packages import pip_settings
from ciao_kernel.delivery.packages.pip_progress import RAW_SINCE, PipProgress
from ciao_kernel.errors import CiaoError, EnvironmentFault, SourceError
from ciao_kernel.redaction import mask

if TYPE_CHECKING:
    from packaging.version import Version

_OLDEST = "22.3"
"""Version 22.2 added --report, 22.3 added --python."""
_STEPS = ("Collecting", "Downloading", "Building", "Installing", "Successfully", "Looking in")
"""First words of the lines that show pip's progress."""
_LATEST = 20
"""Number of pip's lines that an error shows."""
_POLL = 0.1
_SECONDS = 3600
AWAY = re.compile(
    r"Temporary failure|ConnectionError|NewConnection|ConnectTimeout|ReadTimeout|SSLError|"
    r"ProxyError|Connection refused|"
    # pip 26.3 says in its own words what Python's errors said.
    r"connection error:|didn't respond within|confirming the ssl certificate|"
    r"Failed to (?:connect to|establish a secure connection|resolve)"
)
"""How pip says that an index does not answer."""
_RETRIES = "WARNING: Retrying"
_PAGE = re.compile(r"Could not fetch URL .*")
_NO_PORT = re.compile(r"(Port could not be cast to integer value as ).*")
"""Python's error for an address whose password contains a /: it quotes a part of the password."""
_UNFIT = re.compile(r"This version of pip does not support python (\S+)")
_WHO = re.compile(r"\b40[13] (Client )?Error|Credentials not correct|EOFError")


class Failed(Exception):
    """pip failed.

    Args:
        lines: The output of pip, without passwords.
        pages: Complaints of pip about pages of the index: pip continues without those pages, and
            then reports that the package does not exist.
    """

    def __init__(self, lines: Sequence[str], pages: Sequence[str] = ()) -> None:
        super().__init__(lines)
        self.lines = tuple(lines)
        self.pages = tuple(pages)

    @property
    def away(self) -> bool:
        """True if the index did not answer or required authentication.

        The packages are then not the cause of the failure.
        """
        return bool(AWAY.search(self._evidence) or _WHO.search(self._evidence))

    @property
    def unfit(self) -> bool:
        """True if this pip is too new for the Python that it installs for."""
        return bool(_UNFIT.search(self._evidence))

    @property
    def said(self) -> str:
        """The last error that pip reported."""
        errors = [line for line in self.lines if line.startswith("ERROR: ")]
        said = (errors or self.lines or ("no reason given",))[-1].removeprefix("ERROR: ")
        return said[:400].rstrip(".")

    @property
    def latest(self) -> tuple[str, ...]:
        """The last lines that are not progress."""
        said = (
            line for line in self.lines if line.strip() and not line.lstrip().startswith(_STEPS)
        )
        return tuple(said)[-_LATEST:]

    @property
    def _evidence(self) -> str:
        # A request that is tried again may well be answered; one that is not has a line of its own.
        told = (line for line in self.lines if not line.lstrip().startswith(_RETRIES))
        return "\n".join((*told, *self.pages))

    def explained(self) -> CiaoError:
        """Return the error for the user."""
        text = self._evidence
        if "No space left" in text or "Disk quota" in text:
            return full()
        if unfit := _UNFIT.search(text):
            return EnvironmentFault(
                f"the kernel's pip is too new for Python {unfit[1]}, for which it has to install.",
                "Install the packages into that environment and leave %packages out, or install an "
                "older pip in the kernel's environment.",
            )
        if _NO_PORT.search(text):
            return SourceError(
                "the address of a package index or of a package is wrong: it has no valid port.",
                "In a user or a password, write %2F instead of / and %40 instead of @.",
            )
        if _WHO.search(text):
            return SourceError(
                f"the package index requires authentication: {self.said}.",
                "Put name and password into ~/.netrc or into pip's own configuration.",
            )
        if AWAY.search(text):
            return SourceError(
                f"the package index does not answer: {self.said}.",
                "Can this machine reach it? %pipIndex=URL names another index.",
            )
        return SourceError(
            f"pip cannot install the packages: {self.said}.", "Check their names and versions."
        )


def full() -> EnvironmentFault:
    """Return the error for a full disk."""
    return EnvironmentFault(
        "no space is left for packages.",
        "Free some space, or move ciao's folder: `%ciao config storage=/some/disk`.",
    )


@dataclass(frozen=True, slots=True)
class Own:
    """The pip of the kernel's Python.

    Args:
        folder: The folder that holds it.
        version: Its version.
    """

    folder: Path
    version: Version


def check() -> Own:
    """Return the pip of the kernel's Python.

    Raises:
        EnvironmentFault: The kernel's Python has no pip, or its pip is too old.
    """
    from importlib import metadata

    from packaging.version import Version

    try:
        found = metadata.distribution("pip")
    except metadata.PackageNotFoundError:
        raise EnvironmentFault(
            f"%packages needs pip, which {sys.executable} lacks.",
            f"Install it: `{sys.executable} -m ensurepip`, or `uv pip install pip`.",
        ) from None
    version = Version(found.version)
    if version < Version(_OLDEST):
        raise EnvironmentFault(
            f"pip {version} is too old; {_OLDEST} or newer is required.",
            f"Upgrade it: `{sys.executable} -m pip install --upgrade pip`.",
        )
    return Own(Path(str(found.locate_file(""))), version)


def is_usable(folders: Sequence[str]) -> bool:
    """Return whether another Python has a pip that can take the place of the kernel's.

    Args:
        folders: Its folders of packages, in the order of its search.
    """
    from importlib import metadata

    from packaging.version import InvalidVersion, Version

    with contextlib.suppress(InvalidVersion):
        for found in metadata.distributions(name="pip", path=list(folders)):
            return Version(found.version) >= Version(_OLDEST)
    return False


async def run(
    command: Sequence[str],
    index: str,
    say: Callable[[str], None] = lambda line: None,
    lock: file_lock.Lock | None = None,
    progress: PipProgress | None = None,
) -> None:
    """Run pip to its end; a cancellation kills pip and all processes that it has started.

    Args:
        command: The whole command line, without passwords.
        index: Address of the package index; "" means pip's own setting.
        say: Called with each line.
        lock: Stays locked until pip has ended, even if this process is killed.
        progress: Learns how far pip is.

    Raises:
        Failed: pip ended with an error.
    """
    with tempfile.TemporaryDirectory(prefix="ciao-pip-") as folder:
        log = Path(folder) / "log"
        try:
            own = {"PIP_LOG": str(log)} | ({"PIP_PROGRESS_BAR": "raw"} if _tells(progress) else {})
            await _run(command, pip_settings.environment(index) | own, say, lock, progress)
        except Failed as error:
            with contextlib.suppress(OSError):
                pages = _PAGE.findall(log.read_text(errors="replace"))
                raise Failed(error.lines, [mask(page) for page in pages]) from None
            raise


async def _run(
    command: Sequence[str],
    environment: Mapping[str, str],
    say: Callable[[str], None],
    lock: file_lock.Lock | None,
    progress: PipProgress | None,
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
                    line = _masked(raw).rstrip()
                    if progress is not None and progress.read(line):
                        continue
                    lines.append(line)
                    say(line)
            lines += [_masked(rest)] if rest else []
            code = await process.wait()
    except TimeoutError:
        raise Failed([*lines, f"ERROR: it took more than {_SECONDS} s"]) from None
    finally:
        # pip starts compilers, and itself a second time for another environment.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if code:
        raise Failed(lines)


def _tells(progress: PipProgress | None) -> bool:
    """Return whether pip can report bytes to a program, and somebody listens."""
    from packaging.version import Version

    return progress is not None and progress.raw and check().version >= Version(RAW_SINCE)


def _masked(line: bytes) -> str:
    return _NO_PORT.sub(r"\1…", mask(line.decode(errors="replace")))


@contextlib.asynccontextmanager
async def alone(path: Path, wait: Callable[[], None]) -> AsyncIterator[file_lock.Lock]:
    """Hold a lock among all processes of this machine; the wait can be cancelled.

    Args:
        path: The file to lock; its folder is created.
        wait: Called once if another process holds the lock.

    Raises:
        EnvironmentFault: The file cannot be created or locked.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = file_lock.try_lock(path)
        if lock is None:
            wait()
            lock = await file_lock.wait(path, _POLL)
    except OSError as error:
        raise EnvironmentFault(
            f"packages cannot be stored in {path.parent}: no file can be created and locked there "
            f"({error.strerror}).",
            "Choose another folder: `%ciao config storage=/some/folder`.",
        ) from None
    with lock:
        yield lock
