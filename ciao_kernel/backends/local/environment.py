"""Virtual environments with the packages of ``%packages`` and ``%requirements``.

An environment extends the replicas' usual interpreter, so that only missing packages are installed.
It is created once for the same requirements, shared by later cells, and removed when it was unused
for a long time. If a package that it counted on is gone from the interpreter, the next cell creates
another one.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

from ciao_kernel import disk_cache, private_files
from ciao_kernel.backends.local import interpreter, processes
from ciao_kernel.delivery.packages import fingerprint, pip, pip_settings, stand_ins
from ciao_kernel.delivery.packages.pip_progress import PipProgress
from ciao_kernel.delivery.packages.requirements import Requirements
from ciao_kernel.errors import EnvironmentFault
from ciao_kernel.file_lock import Lock
from ciao_kernel.model import Notice
from ciao_kernel.plugins import Emit, Step
from ciao_kernel.visible_text import short

_DONE = "ciao-done"
"""Has the folders of those packages of the interpreter that the requirements are fulfilled by."""
_SITES = (
    "import glob, json, os, sys, sysconfig; "
    "sites = [path for path in sys.path if path.endswith('-packages')]; "
    # pip finds packages in these too, and replicas get the same variable.
    "named = filter(os.path.isabs, os.environ.get('PYTHONPATH', '').split(os.pathsep)); "
    "more = [path for path in map(os.path.abspath, named) if path not in sites "
    "and glob.glob(os.path.join(glob.escape(path), '*-info'))]; "
    # Machines of two architectures may share a home, and have one text of their version.
    "print(json.dumps([f'{sys.version} {sysconfig.get_platform()}', sites, more]))"
)
_SATISFIED = re.compile(r"Requirement already satisfied: ([A-Za-z0-9][\w.-]*)")
_NO_VENV = "On Debian, install the package python3-venv."


async def prepare(
    python: str, wanted: Requirements, cache: Path, emit: Emit, days: float = 30.0, hint: str = ""
) -> str:
    """Return an interpreter that also has the packages.

    Args:
        python: The interpreter to extend.
        wanted: Requirements for pip.
        cache: Folder that keeps environments.
        emit: Receives the progress; pip's own lines only after its failure.
        days: Days after which unused environments are removed, when a new one is created.
        hint: How to name another interpreter, if this one does not run.

    Raises:
        SourceError: pip cannot install the requirements.
        EnvironmentFault: The interpreter does not run, pip is missing, its settings name another
            place for packages, or there is no space.
    """
    if not wanted.packages:
        return python
    version, sites, more = await _asked(python, hint)
    await asyncio.to_thread(pip_settings.check)
    answers = await asyncio.to_thread(fingerprint.digest, wanted.options, wanted.index)
    key = json.dumps([python, version, sites, more, wanted.key, answers])
    folder = await asyncio.to_thread(_place, cache / "environments", key)
    disk_cache.used(folder / _DONE)
    if _is_made(folder):
        return str(folder / "bin" / "python")

    def wait() -> None:
        emit(Notice(f"another job is installing {wanted.label}; waiting for it …"))

    async with pip.alone(folder.with_suffix(".lock"), wait) as lock:
        if not _is_made(folder):
            name = f"installing {short(wanted.label)}"
            emit(Notice(f"{name} …", name))
            try:
                with Step(emit, name, announced=True) as step:
                    await _make(python, folder, (sites, more), wanted, emit, lock, step)
            except BaseException as error:
                await asyncio.shield(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))
                if isinstance(error, OSError):
                    raise _unwritable(error, folder) from None
                raise
    await asyncio.to_thread(disk_cache.prune, folder.parent, days, _DONE, processes.name)
    return str(folder / "bin" / "python")


def _place(environments: Path, key: str) -> Path:
    """Return the folder of the environment with this key; one that no longer fits is passed over.

    It stays there, because jobs may run in it.
    """
    number = 0
    while True:
        text = f"{key} {number}" if number else key
        folder = environments / hashlib.sha256(text.encode()).hexdigest()[:24]
        if not _is_made(folder) or _fits(folder):
            return folder
        number += 1


def _fits(folder: Path) -> bool:
    """Return whether the interpreter still has the packages that the environment counted on."""
    try:
        text = (folder / _DONE).read_text()
        return all(Path(one).exists() for one in (json.loads(text) if text else ()))
    except (OSError, ValueError):
        return False


def _is_made(folder: Path) -> bool:
    return disk_cache.is_own(folder) and (folder / _DONE).exists()


async def _asked(python: str, hint: str) -> tuple[str, list[str], list[str]]:
    """Return the interpreter's version, and the folders of its packages and of the PYTHONPATH's."""
    said = await _run([python, "-c", _SITES], f"{python} does not run as Python", hint)
    try:
        version, sites, more = json.loads(said)
    except ValueError:
        raise EnvironmentFault(f"{python} does not answer like Python.", hint) from None
    return version, sites, more


async def _make(
    python: str,
    folder: Path,
    below: tuple[list[str], list[str]],
    wanted: Requirements,
    emit: Emit,
    lock: Lock,
    step: Step,
) -> None:
    from packaging.utils import canonicalize_name

    sites, more = below
    pip.check()
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    private_files.make_folder(folder)  # venv's own mode would follow the umask
    command = [python, "-m", "venv", "--without-pip", str(folder)]
    await _run(command, f"{python} cannot make a virtual environment", _NO_VENV)
    own = next(folder.glob("lib/*/site-packages"), None)
    if own is None:
        raise EnvironmentFault(f"{python} creates environments with an unknown layout.", _NO_VENV)
    # pip starts itself again in this environment, and reads the file that lies in it.
    if (settings := pip_settings.site_file()).is_file():
        (folder / settings.name).symlink_to(settings)
    # Not one line per folder: addsitedir also processes their own .pth files.
    # %envvar may give the replicas another PYTHONPATH than pip has.
    text = f"import site, sys; list(map(site.addsitedir, {sites!r})); sys.path.extend({more!r})\n"
    (own / "below.pth").write_text(text)
    counted = stand_ins.of(stand_ins.installed([*more, *sites]), wanted)
    for name, number in counted.items():
        stand_ins.note(own, name, number)
    install = ["-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    counted_on: set[str] = set()

    def note(line: str) -> None:
        if found := _SATISFIED.match(line):
            counted_on.add(canonicalize_name(found[1]))

    try:
        # Requirement lines may contain a password, so the files are temporary.
        with tempfile.TemporaryDirectory(prefix="ciao-pip-") as place:
            options = ["--no-warn-script-location", *wanted.arguments(Path(place))]
            try:
                command = [sys.executable, *install, *options]
                await pip.run(command, wanted.index, note, lock, PipProgress(step))
            except pip.Failed as error:
                if not (error.unfit and pip.is_usable([*more, *sites])):
                    raise
                command, progress = [python, *install, *options], PipProgress(step, raw=False)
                await pip.run(command, wanted.index, note, lock, progress)
    except pip.Failed as error:
        for line in error.latest:
            emit(Notice(f"[pip] {line}"))
        raise error.explained() from None
    for name, number in counted.items():
        stand_ins.forget(own, name, number)
        counted_on |= stand_ins.behind(name) if name in counted_on else set()
    below_folders = await asyncio.to_thread(_info_folders, [*more, *sites], counted_on)
    (folder / _DONE).write_text(json.dumps(below_folders))


def _info_folders(sites: list[str], names: set[str]) -> list[str]:
    """Return the folders by which pip finds these packages: each has the version in its name."""
    from packaging.utils import canonicalize_name

    found: dict[str, str] = {}
    for site in sites:
        for path in sorted(Path(site).glob("*-info")):
            name = canonicalize_name(path.name.partition("-")[0])
            if name in names:
                found.setdefault(name, str(path))
    return sorted(found.values())


async def _run(command: list[str], fault: str, hint: str) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd="/",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise EnvironmentFault(f"{fault}: {error.strerror}.", hint) from None
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        why = interpreter.reason(err or out) or "no reason given"
        raise EnvironmentFault(f"{fault}: {why}.", hint)
    return out.decode(errors="replace")


def _unwritable(error: OSError, folder: Path) -> EnvironmentFault:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return pip.full()
    return EnvironmentFault(
        f"packages cannot be stored in {folder.parent}: {error.strerror}.",
        "Name another place: `%ciao config storage=/some/folder`.",
    )
