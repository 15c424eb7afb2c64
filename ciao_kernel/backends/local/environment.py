"""A virtual environment with what ``%packages`` and ``%requirements`` ask for.

It lies on top of the interpreter that the replicas would have without it, so that only what is
missing there is installed. Made once for the same wishes, and kept for every later cell.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from ciao_kernel.errors import EnvironmentFault, SourceError
from ciao_kernel.model import Notice
from ciao_kernel.plugins import Emit
from ciao_kernel.requirements import Requirements

_DONE = "ciao-done"
_SITES = (
    "import json, sys; print(json.dumps([sys.version, "
    "[path for path in sys.path if path.endswith('-packages')]]))"
)


async def bring(python: str, wanted: Requirements, cache: Path, emit: Emit) -> str:
    """Return an interpreter that has the packages, too.

    Args:
        python: The interpreter to build on.
        wanted: What is asked for.
        cache: Folder that keeps environments.
        emit: Shows what pip does.

    Raises:
        SourceError: pip cannot bring what is asked for.
        EnvironmentFault: The interpreter does not run, or there is no room.
    """
    version, sites = json.loads(await _run([python, "-c", _SITES], python))
    key = json.dumps([python, version, sites, wanted.key])
    folder = cache / "environments" / hashlib.sha256(key.encode()).hexdigest()[:24]
    with _alone(folder):
        if not (folder / _DONE).exists():
            emit(Notice(f"installing {wanted.label} …"))
            try:
                await _make(python, folder, sites, wanted, emit)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
    return str(folder / "bin" / "python")


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process at a time make an environment; the others find it made."""
    import fcntl

    try:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = folder.with_suffix(".lock").open("w")
    except OSError as error:
        raise EnvironmentFault(
            f"no environment can be made in {folder.parent}: {error.strerror}.",
            "Name another place: `%ciao config storage=/some/folder`.",
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


async def _make(
    python: str, folder: Path, sites: list[str], wanted: Requirements, emit: Emit
) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    await _run([python, "-m", "venv", "--without-pip", str(folder)], python)
    (own,) = folder.glob("lib/python3*/site-packages")
    (own / "below.pth").write_text("".join(f"{site}\n" for site in sites))
    command = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    command += [
        "--no-warn-script-location",
        *(["--index-url", wanted.index] if wanted.index else []),
    ]
    process = await asyncio.create_subprocess_exec(
        *command,
        *wanted.arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=1 << 20,
    )
    said: list[str] = []
    try:
        assert process.stdout is not None
        async for raw in process.stdout:
            line = raw.decode(errors="replace").rstrip()
            said.append(line)
            if line.startswith(("Collecting", "Downloading", "Building", "Installing", "Success")):
                emit(Notice(f"[pip] {line}"))
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code:
        errors = [line for line in said if line.startswith("ERROR")] or said[-1:] or ["no reason"]
        raise SourceError(
            f"pip cannot bring the packages: {errors[-1].removeprefix('ERROR: ')}",
            "Are names and versions right, and can this machine reach the package index?",
        )
    (folder / _DONE).touch()


async def _run(command: list[str], python: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd="/",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        lines = err.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise EnvironmentFault(
            f"{python} cannot make a virtual environment: {lines[-1][:200]}",
            "On Debian it takes the package python3-venv.",
        )
    return out.decode()
