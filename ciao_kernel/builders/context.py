"""Context of a build: files of the user's folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

from ciao_kernel.builders.packed_context import size_of, unreadable
from ciao_kernel.delivery.input import secret_files
from ciao_kernel.delivery.input.boundary import Boundary
from ciao_kernel.delivery.input.file_patterns import CACHES
from ciao_kernel.delivery.input.held_file import HeldFile, open_checked
from ciao_kernel.delivery.input.ignore_files import Ignored
from ciao_kernel.errors import SourceError
from ciao_kernel.oci.layer import File
from ciao_kernel.visible_text import listed, short, visible

_MAX_TEXT = 1 << 20
"""Size limit of a text, in bytes; no real Dockerfile reaches it."""
_MAX_TOTAL = 4 << 30
_NO_FILE = "it is neither a file nor a folder"
_PERMISSION_HINT = "Fix its permissions, or leave it out."
_IGNORE_FILES = (".dockerignore", "Dockerfile.dockerignore")
"""Ignore files that the executor itself reads from a context."""
_EXCLUDE_HINT = "Exclude it by a line in .dockerignore (for S2I in .s2iignore)."


def read(folder: Path, name: str, what: str) -> str:
    """Read a text file beside the notebook.

    Args:
        folder: Folder of the notebook.
        name: Path of the file, relative to the folder.
        what: Directive that names the file.

    Raises:
        SourceError: The file is missing, too large, or not text.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or name.startswith("~"):
        raise SourceError(
            f"{what} names {_shown(name)}, which is outside the folder of your code, {folder}.",
            "Copy it there.",
        )
    try:
        with HeldFile(folder / name) as held:
            if Boundary.around(folder).is_outside(held.real):
                raise SourceError(
                    f"{what} names {_shown(name)}, which leads to {_shown(str(held.real))}, "
                    f"outside the folder of your code, {folder}.",
                    "Copy it there.",
                )
            with held.open() as opened:
                raw = opened.read(_MAX_TEXT + 1)
        if len(raw) > _MAX_TEXT:
            raise OSError(errno.EFBIG, "it is larger than a megabyte")
        return raw.decode("utf-8-sig")
    except OSError as error:
        why = error.strerror or str(error)
    except UnicodeDecodeError:
        why = "it is not text"
    except ValueError:  # a null byte, or half a character
        why = "no file can have this name"
    raise SourceError(
        f"{_shown(name)} cannot be read: {why}.", f"{what} names a file next to your code."
    )


def read_optional(folder: Path, name: str) -> str:
    """Return the text of a file such as ``.dockerignore``; "" if there is none."""
    return read(folder, name, name) if (folder / name).is_file() else ""


def gather(
    folder: Path,
    wanted: Iterable[tuple[str, str]],
    ignored: Ignored,
    say: Callable[[str], None] = lambda _: None,
    spare: Callable[[str], bool] = lambda _: False,
    leave: Callable[[str], None] = lambda _: None,
) -> tuple[File, ...]:
    """Find the files that a build takes from the user's folder, empty folders included.

    Args:
        folder: Folder of the notebook. A link out of it is taken only if a line of an ignore file
            includes exactly this file, ``!name``.
        wanted: Patterns, each with the place that names it, for messages.
        ignored: Paths that are excluded.
        say: Receives a notice about links that are not followed.
        spare: Returns whether a pattern takes a path only if it matches no others.
        leave: Receives each spare path that a pattern does not take.

    Raises:
        SourceError: A pattern matches nothing, or a file that no image should contain.
    """
    found: dict[str, File] = {}
    links: list[str] = []
    boundary = Boundary.around(folder)
    for pattern, place in wanted:
        taken: dict[str, Path] = {}
        for name, path, is_named in _inside(folder, pattern, place, boundary):
            if ignored(name):
                continue
            if path.is_symlink() and not is_named and path.is_dir():
                links.append(name)
            elif name != ".":
                taken[name] = path
        alone = all(map(spare, taken))
        for name, path in taken.items():
            if alone or not spare(name):
                found[name] = _file(name, path, place, boundary, ignored.anyway(name))
            else:
                leave(name)
    if links:
        say(f"links to folders are not followed: {listed(links)}")
    total = sum(map(size_of, found.values()))
    if total > _MAX_TOTAL:
        raise SourceError(
            f"the build takes {total / 1e9:,.1f} GB of files; {_MAX_TOTAL / 1e9:,.1f} GB is the "
            "limit.",
            "Exclude files by a file .dockerignore.",
        )
    return tuple(found[name] for name in sorted(found))


def _inside(
    folder: Path, pattern: str, place: str, boundary: Boundary
) -> Iterator[tuple[str, Path, bool]]:
    """Yield name and path of all that a pattern matches, and True if it names just this path."""
    relative = PurePosixPath(pattern.lstrip("/") or ".")
    if ".." in relative.parts:
        raise SourceError(
            f"{place}: {pattern} is outside the folder of your code, {folder}.", "Copy it there."
        )
    matches = [folder / relative]
    if not os.path.lexists(matches[0]):
        matches = _matches(folder, relative) if set("*?[") & set(pattern) else []
    if not matches:
        raise SourceError(
            f"{place}: there is no {pattern} in {folder}.", "Paths are relative to that folder."
        )
    for match in matches:
        if match.is_dir() and boundary.is_outside(real := Path(os.path.realpath(match))):
            raise _outside(place, match.relative_to(folder).as_posix(), real, boundary)
        for path in _files(match, folder, place):
            yield path.relative_to(folder).as_posix(), path, path == match


def _matches(folder: Path, pattern: PurePosixPath) -> list[Path]:
    """Return the matches of a pattern; none if no path can match it."""
    try:
        return sorted(folder.glob(str(pattern)))
    except (OSError, ValueError, RecursionError):  # the last: a pattern of a thousand folders
        return []


def with_rules(files: Iterable[File], rules: str) -> tuple[File, ...]:
    """Replace the lines of ignore files that the executor reads from the context."""
    return tuple(
        replace(one, content=rules.encode()) if one.path in _IGNORE_FILES else one for one in files
    )


def force_include(files: Iterable[File], folder: str) -> tuple[File, ...]:
    """Make sure that no ``.dockerignore`` in the context hides our folder from the executor.

    Raises:
        SourceError: A file cannot be read.
    """
    more = f"\n!{folder}\n!{folder}/**\n".encode()
    return tuple(
        replace(one, content=_bytes(one) + more) if one.path in _IGNORE_FILES else one
        for one in files
    )


def _bytes(file: File) -> bytes:
    try:
        if isinstance(file.content, bytes):
            return file.content
        with open_checked(file.content) as opened:
            return opened.read()
    except OSError as error:
        raise unreadable(error) from None


def _files(top: Path, folder: Path, place: str) -> Iterator[Path]:
    """Yield a file, or all files below a folder; also empty folders, and links, unfollowed."""

    def on_error(error: OSError) -> None:
        path = Path(str(error.filename)).relative_to(folder).as_posix()
        raise _refused(place, path, error.strerror or "it cannot be read", _PERMISSION_HINT)

    if not top.is_dir():
        yield top
        return
    for parent, folders, names in os.walk(top, onerror=on_error):
        folders[:] = sorted(name for name in folders if name not in CACHES)
        if not folders and not names:
            yield Path(parent)
        yield from (path for name in folders if (path := Path(parent, name)).is_symlink())
        for name in sorted(names):
            yield Path(parent, name)


def _file(name: str, path: Path, place: str, boundary: Boundary, forced: bool) -> File:
    try:
        name.encode()
        if path.is_dir():
            return File(f"{name}/", b"")
        if not path.is_file():
            reason = "it is a broken link" if path.is_symlink() else _NO_FILE
            raise _refused(place, name, reason, _EXCLUDE_HINT)
        with HeldFile(path) as held:
            if not forced and boundary.is_outside(held.real):
                raise _outside(place, name, held.real, boundary)
            secret = "" if forced else secret_files.reason(path, held)
        executable = bool(held.real.stat().st_mode & 0o100)
    except UnicodeEncodeError:
        raise _refused(place, name, "its name is not UTF-8", _EXCLUDE_HINT) from None
    except OSError as error:
        raise _refused(
            place, name, error.strerror or "it cannot be read", _PERMISSION_HINT
        ) from None
    if secret:
        hint = f"{_EXCLUDE_HINT[:-1]}; a line !{name} there includes it anyway."
        raise _refused(place, name, secret, hint)
    return File(name, held.real, executable)


def _outside(place: str, name: str, real: Path, boundary: Boundary) -> SourceError:
    reason = f"it leads to {_shown(str(real))}, outside of {_shown(str(boundary.top))}"
    hint = "Copy it there, or exclude it by a line in .dockerignore (for S2I in .s2iignore)"
    return _refused(place, name, reason, f"{hint}; a line !{name} there includes a file anyway.")


def _shown(text: str) -> str:
    return visible(short(text))


def _refused(place: str, name: str, reason: str, hint: str) -> SourceError:
    return SourceError(f"{place}: {_shown(name)} cannot be taken: {reason}.", hint)
