"""Finds files of a replica, and sends or receives them over standard input and output.

This file is also the program that runs in a pod (:mod:`.transfers` starts it), so it takes the
standard library alone, from Python 3.8 on, and needs neither a shell nor tar.

A message is a byte that names its kind, the length of its body in four bytes, and the body.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib
import json
import os
import posixpath
import re
import select
import shutil
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

LIST, FILE, DATA, END, DONE, BEAT = b"L", b"F", b"D", b"E", b"Z", b"B"
"""Kinds of messages: what there is, the next file, a piece of it, its digest, the last message, and
a sign of life."""
FAULT, CHANGED = b"X", b"C"
"""Kinds of messages: a file that does not come, and why; the file before was written meanwhile."""
POD = b"P"
"""Kind of the first message of what is read later: the uid of the pod that wrote it."""
HEADER = struct.Struct(">cI")
EVENT_FILES = "/**/*tfevents*"
"""End of the word for the event files of ``%tensorboard``."""
OWN = ".ciao"
"""Folder beside the program that is ciao's: it never counts as the program's."""
RELEASE = b"release\n"
HELD = "CIAO_HELD"
"""Variable of the container that keeps files after the program's end: the folder for its marks."""
POD_UID = "CIAO_POD_UID"
"""Variable of a container that writes files to a bucket or a registry: the uid of its pod."""
COPIED = "CIAO_COPIES"
"""Variable of a container that does not see the program's folder: the folder for copies of files.
There are none if the program was killed with its parent."""
CONTACT, TAKEN, STOPPED, TOO_LARGE = "contact", "taken", "stopped", "too-large"
"""Marks: files are being fetched, all are fetched, the replica was told to end, and (with their
size) files are not kept because they are too large."""
REPLICA = "replica"
"""Mark with the name of the replica."""
POD_MARK = "pod"
"""Mark with the uid of the pod that wrote the files beside it."""
NOT_COPIED = "not-copied.json"
"""Mark with the files that could not be copied, and why."""
BUSY = 6
"""Exit code of a removal that did nothing, as somebody reads the files."""
COPIES = "files"
"""Folder beside the marks for copies of the files, where the program's folder cannot be seen."""
LOG_LINE, LOG_END = b"ciao-output ", b"ciao-output-end "
"""Beginnings of the lines that carry files through a log, and of the last of them."""
LOG_LONGEST = 12_000
"""Characters of base64 in such a line; container runtimes split lines of 16 KiB."""
LOG_MOST = 4 << 20
"""Bytes that a log carries: as lines they stay below 10 MiB, of which a node keeps the newest."""
_ABOUT_FILE, _LOG_NAMES = 256, 1 << 20
"""Bytes of the messages about a file, without its path, and of all such messages in a log."""
_PIECE = 1 << 18
_BEAT = 1.0


_OF_A_JOB = re.compile(r"(?:^|/)ciao-output/[0-9a-f]{32}(?:/|$)")
_OF_JOBS = re.compile(r"(?:^|/)ciao-output$")
"""Where the files of a job, and of all jobs, are on a claim."""
_UID = re.compile(r"[0-9A-Za-z-]+")
_REMOVALS = 1000
"""Most beginnings of a removal: each ends at a file that somebody else has removed."""


class Found(NamedTuple):
    """The files that words name."""

    sizes: dict[str, int]
    """Their sizes by path."""
    missing: list[str]
    """The words that name nothing."""
    left_out: list[str]
    """Links that lead out of the folder, links to folders, and what is no file."""
    faults: dict[str, str]
    """Files and folders that cannot be read, and why."""


def pattern(word: str) -> re.Pattern[str]:
    """Return what matches the paths that a word names; a folder names all that is in it.

    As in a shell, a name that begins with a dot is not matched by a star or a question mark there.
    """
    parts, before = [], "/"
    for piece in re.split(r"(\*\*/?|\*|\?)", posixpath.normpath(word)):
        known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
        first = r"(?!\.)" if piece in ("*", "?") and before.endswith("/") else ""
        parts.append(first + (known.get(piece) or re.escape(piece)))
        before = piece or before
    return re.compile("(?:" + "".join(parts) + ")(?:/.*)?", re.DOTALL)


def find(base: str, words: list[str], skip: Sequence[str] = ()) -> Found:
    """Find the files of some words.

    Args:
        base: The folder to which paths are relative.
        words: Paths with ``*``, ``**`` and ``?``.
        skip: Folders that are passed over.
    """
    real = os.path.realpath(base)
    sizes: dict[str, int] = {}
    missing: list[str] = []
    left_out: list[str] = []
    faults: dict[str, str] = {}
    for word in words:
        wanted, seen = pattern(word), False
        first = re.split(r"[*?]", posixpath.normpath(word))[0]
        start = first if first == posixpath.normpath(word) else posixpath.dirname(first)
        for path, size, fault in _walk(base, real, start, first, (OWN, *skip)):
            if fault:
                if _leads_to(word, path):
                    seen, faults[path or "."] = True, fault
                continue
            if not wanted.fullmatch(path):
                continue
            seen = True
            if size is None:
                left_out.append(path)
            else:
                sizes[path] = size
        if not seen:
            missing.append(word)
    return Found(dict(sorted(sizes.items())), missing, sorted(set(left_out)), faults)


def fitting(found: Found, words: list[str], limit: int) -> Found:
    """Return the files without event files that come for TensorBoard, if all are too large.

    Args:
        found: All files.
        words: The words that name them.
        limit: Largest number of bytes.
    """
    others = [pattern(word) for word in words if not word.endswith(EVENT_FILES)]
    if not others or sum(found.sizes.values()) <= limit:
        return found
    sizes, faults = dict(found.sizes), dict(found.faults)
    for path in found.sizes:
        if not any(one.fullmatch(path) for one in others):
            del sizes[path]
            faults[path] = "all files together are too large"
    return found._replace(sizes=sizes, faults=faults)


def survey(base: str, words: list[str], limit: int, marks: str) -> tuple[Found, int]:
    """Return the files to send, and the bytes of all.

    The bytes are more than those of the files if there were too many for copies.

    Args:
        base: The folder with the files, or with their copies.
        words: The words that name them.
        limit: Largest number of bytes.
        marks: Folder of marks; "" if there is none.
    """
    found = fitting(find(base, words), words, limit)
    total = sum(found.sizes.values())
    if marks:  # a program's own file may have the name of a mark
        with contextlib.suppress(OSError, ValueError):
            total = int(read_mark(marks, TOO_LARGE))
        with contextlib.suppress(OSError, ValueError):
            found.faults.update(json.loads(read_mark(marks, NOT_COPIED)))
    return found, total


def _own(found: Found) -> Found:
    """Return the files of a claim without those that other jobs have there."""

    def foreign(path: str) -> bool:
        return _OF_A_JOB.search(path) is not None

    return found._replace(
        sizes={path: size for path, size in found.sizes.items() if not foreign(path)},
        left_out=[path for path in found.left_out if not foreign(path)],
        # The folder of all jobs may be that of another user, who alone can list it.
        faults={
            path: why
            for path, why in found.faults.items()
            if not foreign(path) and not _OF_JOBS.search(path)
        },
    )


def _joined(found: Found, more: Found, total: int) -> tuple[Found, int]:
    """Return the files of two folders, and the bytes of all; of two with one path the first."""
    new = {path: size for path, size in more.sizes.items() if path not in found.sizes}
    return Found(
        dict(sorted({**found.sizes, **new}.items())),
        [word for word in found.missing if word in more.missing],
        sorted({*found.left_out, *more.left_out}),
        {**more.faults, **found.faults},
    ), total + sum(new.values())


def read_mark(marks: str, name: str) -> str:
    """Return the text of a mark.

    A link is none: a program could lead it to files of this container that it cannot read itself.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(os.path.join(marks, name), flags)) as file:
        return file.read()


def _leads_to(word: str, path: str) -> bool:
    """Return whether files of a word may be at a path or below it."""
    parts = posixpath.normpath(word).split("/")[: path.count("/") + 1]
    return not path or "**" in parts or pattern("/".join(parts)).fullmatch(path) is not None


def reason(error: OSError) -> str:
    """Return why a file cannot be read, in a few words."""
    if isinstance(error, FileNotFoundError):
        return "it has vanished"
    return error.strerror or type(error).__name__


def _walk(
    base: str, real: str, start: str, first: str, skip: tuple[str, ...]
) -> Iterator[tuple[str, int | None, str]]:
    """Yield each file at or below a path with its size, or why it cannot be read.

    The size of what is not followed is None.
    """
    todo = [start]
    while todo:
        path = todo.pop()
        if any(f"{path}/".startswith(one.rstrip("/") + "/") for one in skip):
            continue
        place = os.path.join(base, path) if path else base
        try:
            if not _is_inside(real, os.path.dirname(place) if path else place):
                continue  # by a link in the middle
            mode = os.lstat(place).st_mode
            if stat.S_ISDIR(mode) or not path:
                names = sorted(os.listdir(place), reverse=True)
                below = [posixpath.join(path, name) for name in names]
                todo += [one for one in below if one.startswith(first) or first.startswith(one)]
                continue
            link = stat.S_ISLNK(mode) and os.path.isfile(place) and _is_inside(real, place)
            follows = stat.S_ISREG(mode) or link
            size = os.stat(place).st_size if follows else None
        except OSError as error:
            # What a word names need not exist.
            if path != start or not isinstance(error, (FileNotFoundError, NotADirectoryError)):
                yield path, None, reason(error)
            continue
        yield path, size, ""


def _is_inside(real: str, place: str) -> bool:
    return (os.path.realpath(place) + os.sep).startswith(real.rstrip(os.sep) + os.sep)


# ------------------------------------------------------------------------- in a replica


def main(request: dict[str, Any]) -> None:
    """Do what a request asks for; the other side is :mod:`.transfers` and :mod:`.fetch`."""
    try:
        if request["do"] == "receive":
            _receive(request["path"])
        elif request["do"] == "remove":
            _remove(request["path"], request["pod"])
        elif request["do"] == "watch":
            _Sender(_write).watch(request)
        else:
            _Sender(_write).send(request)
    except BrokenPipeError:
        os._exit(4)


def _remove(path: str, pod: str) -> None:
    """Remove the folder of a replica on a claim, and the one that it is in if that is empty then.

    Files of another pod stay, and so do files that somebody reads. What is there no more was
    removed by somebody else.
    """
    if not _UID.fullmatch(pod):
        sys.exit("the uid of their pod is damaged")
    going = f"{path}.{pod}"
    try:
        if _locked(path, alone=True) == pod:
            _clear(going)
            os.rename(path, going)  # at once: a removal may be cut
        if os.path.isdir(going):
            if _writer(going) not in (pod, ""):  # a later pod has saved its own before the move
                os.rename(going, path)
                return
            remove_parts(path, going)
            _clear(going)
    except BlockingIOError:
        sys.exit(BUSY)
    except OSError as error:
        sys.exit(reason(error))
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))


def remove_parts(path: str, saved: str) -> None:
    """Remove what earlier pods of a replica have left beside its folder on a claim.

    They were killed before all was copied. What a later pod copies meanwhile is younger.

    Args:
        path: The replica's folder.
        saved: The same, where it is now.
    """
    with contextlib.suppress(OSError):  # somebody else removes them
        written = os.stat(os.path.join(saved, POD_MARK)).st_mtime_ns
        folder, name = os.path.split(path)
        for one in os.listdir(folder):
            part = os.path.join(folder, one)
            if one.startswith(name + ".") and os.lstat(part).st_mtime_ns < written:
                shutil.rmtree(part, ignore_errors=True)


def _writer(folder: str) -> str:
    """Return the uid of the pod that wrote a folder; "" if its mark is removed."""
    try:
        return read_mark(folder, POD_MARK)
    except FileNotFoundError:
        return ""


def _clear(folder: str) -> None:
    """Remove a folder that somebody else may be removing too."""
    for _ in range(_REMOVALS):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            if not os.path.isdir(folder):
                return
        else:
            return


def _locked(folder: str, *, alone: bool) -> str | None:
    """Lock the files that a pod wrote to a claim, as long as this process lives.

    Args:
        folder: The folder of a replica.
        alone: Whether nobody else may have a lock.

    Returns:
        The uid of the pod; None if its files are there no more.

    Raises:
        BlockingIOError: Somebody else reads, or removes them.
    """
    fcntl = importlib.import_module("fcntl")
    place = os.path.join(folder, POD_MARK)
    access = os.O_RDWR if alone else os.O_RDONLY
    try:
        file = os.open(place, access | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass  # some storage has no locks
    try:
        if not os.path.samestat(os.stat(place), os.fstat(file)):
            return None  # another one has its name
    except OSError:
        return None
    return os.read(file, 256).decode(errors="replace")


def _names(found: Found) -> int:
    """Return about how many bytes the messages about files have, without what is in the files."""
    names = [*found.sizes, *found.missing, *found.left_out, *found.faults]
    return sum(len(json.dumps(name)) + _ABOUT_FILE for name in names)


def write_stream(write: Callable[[bytes], object], words: list[str], limit: int, pod: str) -> None:
    """Write what a connection would carry, for somebody who reads it later.

    Args:
        write: Takes the bytes.
        words: Paths of files.
        limit: Largest number of bytes of files.
        pod: Uid of this pod.
    """
    write(HEADER.pack(POD, len(pod.encode())) + pod.encode())
    request = {"base": ".", "words": words, "limit": limit, "after": "", "offset": 0}
    _Sender(write).send({**request, "waits": False, "waits_only": False})


class LogWriter:
    """Writes bytes to standard output as lines of a log; :mod:`.log_lines` reads them.

    Args:
        put: Takes each line, with its line feed; by default it goes to standard output.
    """

    def __init__(self, put: Callable[[bytes], object] | None = None) -> None:
        self._put = put or _write
        self._waiting = bytearray()
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes) -> None:
        """Take bytes, and write the lines that are full."""
        self._size += len(data)
        self._digest.update(data)
        self._waiting += data
        most = LOG_LONGEST // 4 * 3
        while len(self._waiting) >= most:
            self._line(bytes(self._waiting[:most]))
            del self._waiting[:most]

    def end(self) -> None:
        """Write the rest, and the last line."""
        if self._waiting:
            self._line(bytes(self._waiting))
        self._put(LOG_END + f"{self._size} {self._digest.hexdigest()}\n".encode())

    def _line(self, data: bytes) -> None:
        self._put(LOG_LINE + base64.b64encode(data) + b"\n")


def write_to_log(
    words: list[str], limit: int, put: Callable[[bytes], object] | None = None
) -> None:
    """Write files into the log of this container, if they are not too large for it.

    Args:
        words: Their paths.
        limit: Largest number of bytes.
        put: Takes each line; by default it goes to standard output.
    """
    writer = LogWriter(put)
    request = {"base": ".", "words": words, "limit": limit, "after": "", "offset": 0}
    _Sender(writer.write).send({**request, "waits": False, "waits_only": False, "in_log": True})
    writer.end()


class _Sender:
    """Sends files.

    Args:
        write: Takes the bytes of the messages.
    """

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._marks = os.environ.get(HELD, "")
        self._beat, self._sent = 0.0, time.monotonic()

    def send(self, request: dict[str, Any]) -> None:
        base, after, limit = self._base(request["base"]), request["after"], request["limit"]
        if kept := request.get("kept"):
            self._pod(kept)
        if not request["waits_only"]:
            found, total = survey(base, request["words"], limit, kept or self._marks)
            places = dict.fromkeys(found.sizes, base)
            for other in request.get("also", ()):
                more = _own(find(other, request["words"], request["without"]))
                found, total = _joined(found, more, total)
                places = {**dict.fromkeys(found.sizes, other), **places}
            told = {"files": len(found.sizes), "bytes": total, **found._asdict(), "sizes": None}
            if request.get("in_log") and _names(found) > _LOG_NAMES:
                told.update(too_many=True, missing=[], left_out=[], faults={})
                total = limit + 1
            self._put(LIST, json.dumps(told).encode())
            if request["offset"] and after not in found.sizes:
                self._fault(after, "it has vanished")
            for path in found.sizes if total <= limit else ():
                if path >= after:
                    try:
                        self._file(places[path], path, request["offset"] if path == after else 0)
                    except BrokenPipeError:
                        raise  # the other side is gone
                    except OSError as error:
                        self._fault(path, reason(error))
        self._put(DONE, b"")
        if request["waits"]:
            self._wait(request["unheard"])

    def _pod(self, kept: str) -> None:
        """Say which pod has written the files of a folder."""
        try:
            uid = _locked(kept, alone=False)
        except BlockingIOError:
            uid = None
        except OSError as error:
            sys.exit(reason(error))
        if uid is None:
            sys.exit("they are there no more: they were fetched, or somebody has deleted them")
        self._put(POD, uid.encode())

    def watch(self, request: dict[str, Any]) -> None:
        """Send what files gain at their ends, until the other side or the program is over."""
        base, sizes = self._base(request["base"]), dict(request["sizes"])
        held, self._marks = bool(self._marks), ""  # who only looks on does not take files
        while True:
            for path, size in find(base, request["words"]).sizes.items():
                known = sizes.get(path, 0)
                if size != known:
                    sizes[path] = known
                    with contextlib.suppress(OSError):
                        sizes[path] = self._gain(base, path, known)
            self._put(DONE, b"")
            if held or (select.select([0], [], [], request["pause"])[0] and not os.read(0, 64)):
                return

    def _gain(self, base: str, path: str, known: int) -> int:
        """Send the end of a file, or all if it has become shorter; return its size."""
        with open(os.path.join(base, path), "rb", buffering=0) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                return known
            offset = known if known <= about.st_size else 0
            self._put(FILE, json.dumps({"path": path, "offset": offset}).encode())
            file.seek(offset)
            for data in _pieces(file, about.st_size - offset):
                self._put(DATA, data)
                offset += len(data)
            return offset

    def _base(self, base: str) -> str:
        """Return the folder with the files; where the program's cannot be seen, their copies."""
        return os.environ.get(COPIED, base) if base == "." else base

    def _file(self, base: str, path: str, offset: int) -> None:
        with open(os.path.join(base, path), "rb", buffering=0) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                self._fault(path, "it is no file any more")
                return
            offset = offset if offset <= about.st_size else 0
            digest = hashlib.sha256()
            for data in _pieces(file, offset):
                digest.update(data)
                self._live()
            runs = bool(about.st_mode & 0o100)
            told = {"path": path, "size": about.st_size, "offset": offset, "runs": runs}
            self._put(FILE, json.dumps(told).encode())
            for data in _pieces(file, about.st_size - offset):
                digest.update(data)
                self._put(DATA, data)
                offset += len(data)
            if offset != about.st_size:
                self._fault(path, "it has become shorter while it was fetched")
                return
            self._put(END, digest.hexdigest().encode())
            now = os.fstat(file.fileno())
            if (now.st_size, now.st_mtime_ns) != (about.st_size, about.st_mtime_ns):
                self._put(CHANGED, json.dumps({"path": path}).encode())

    def _fault(self, path: str, why: str) -> None:
        """Say that a file does not come, also if a part of it was sent."""
        self._put(FAULT, json.dumps({"path": path, "why": why}).encode())

    def _put(self, kind: bytes, body: bytes) -> None:
        self._write(HEADER.pack(kind, len(body)))
        self._write(body)
        self._sent = time.monotonic()
        self._touch()

    def _live(self) -> None:
        """Show while nothing else is sent that the replica is alive."""
        if time.monotonic() - self._sent > _BEAT:
            self._put(BEAT, b"")

    def _touch(self) -> None:
        now = time.monotonic()
        if self._marks and now - self._beat > _BEAT:
            self._beat = now
            mark(self._marks, CONTACT)

    def _wait(self, unheard: float) -> None:
        """Keep the files until the other side has them all, or is gone.

        Args:
            unheard: Seconds without a byte after which it counts as gone: the connection of a
                process that was stopped, or of a machine that sleeps, may live on.
        """
        data, heard = b"", time.monotonic()
        while RELEASE not in data:
            if select.select([0], [], [], _BEAT)[0]:
                piece = os.read(0, 64)
                if not piece:
                    return
                data, heard = (data + piece)[-64:], time.monotonic()
            elif time.monotonic() - heard > unheard:
                return
            self._touch()
        if self._marks:
            mark(self._marks, TAKEN)


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0:
        data = file.read(min(_PIECE, size))
        if not data:
            return
        size -= len(data)
        yield data


def mark(folder: str, name: str) -> None:
    """Set a mark, or renew its time."""
    with contextlib.suppress(OSError), open(os.path.join(folder, name), "ab"):
        os.utime(os.path.join(folder, name))


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def _read(size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(0, min(_PIECE, size - len(data)))
        if not piece:
            sys.exit(5)  # the other side is gone: what has come is removed
        data += piece
    return data


def _receive(target: str) -> None:
    """Take files from standard input; each gets its name when it is whole.

    Args:
        target: Where they go. If it is a folder, or ends with a slash, into it.
    """
    into = target.endswith("/") or os.path.isdir(target)
    part, digest, place, runs = None, hashlib.sha256(), "", False
    temporary = ""
    try:
        while True:
            kind, size = HEADER.unpack(_read(HEADER.size))
            body = _read(size)
            if kind == FILE:
                told = json.loads(body)
                place = os.path.join(target, told["path"]) if into else target + told["below"]
                os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
                temporary, runs = f"{place}.ciao-part", told["runs"]
                part, digest = open(temporary, "wb"), hashlib.sha256()  # noqa: SIM115
            elif kind == DATA and part is not None:
                digest.update(body)
                part.write(body)
            elif kind == END and part is not None:
                part.close()
                if digest.hexdigest().encode() != body:
                    raise OSError(f"{place} arrived damaged")
                if runs:
                    os.chmod(temporary, os.stat(temporary).st_mode | 0o111)
                os.replace(temporary, place)
                temporary = ""
            elif kind == DONE:
                _write(HEADER.pack(DONE, 0))
                return
    except OSError as error:
        sys.exit(f"{error.strerror or error}: {place}")
    finally:
        if temporary:
            with contextlib.suppress(OSError):
                os.remove(temporary)
