"""The log of ciao: recent records in memory, and the records of all processes in one file.

Each module writes to ``logging.getLogger(__name__)``. A front end (kernel, extension, command)
calls :func:`start` at its beginning, and :func:`write_to` as soon as it knows the settings.

Levels: DEBUG for each request and for faults that are expected and harmless, INFO for what happens
to jobs, WARNING for faults that ciao survives and a developer should see. A record never holds a
secret: modules log names and places, and :func:`ciao_kernel.redaction.scrub` removes what a
library's error message may quote.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from io import BufferedWriter, FileIO, TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import TextIO, TypeVar

from ciao_kernel import file_lock, private_files
from ciao_kernel.redaction import scrub

_OLDER = ".log.1"
_RECENT = 2000
"""Records in memory; a request is one record."""
_LARGEST = 2_000_000
_LONGEST = 20_000
"""Characters of one record; the traceback of a deep recursion has more."""
_BUFFER = 1 << 17
_PRIVATE = 0o600

_H = TypeVar("_H", bound=logging.Handler)

_ciao = logging.getLogger("ciao_kernel")


class _Format(logging.Formatter):
    """One line for a record, then its traceback; without secrets and terminal commands."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(process)d %(name)s: %(message)s")
        self.datefmt = "%Y-%m-%dT%H:%M:%S"

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        text = super().format(record)
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST // 2]}\n…\n{text[-_LONGEST // 2 :]}"
        return scrub("\n".join(map(_printable, text.split("\n"))))


def _printable(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


class _Memory(logging.Handler):
    """Keeps the newest records of this process."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: deque[str] = deque(maxlen=_RECENT)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text of a record: the record itself would keep the variables of a traceback."""
        self.texts.append(self.format(record))


class _File(WatchedFileHandler):
    """Appends to a file to which other processes append too.

    A record is one write in append mode, so the records of two processes do not mix. A log that
    cannot be written must not disturb a cell: errors are ignored, and the memory has the record.
    """

    def __init__(self, path: Path, largest: int) -> None:
        super().__init__(path, delay=True)
        self._largest = largest

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; then rename a file that has become large."""
        try:
            super().emit(record)
            if self.stream is not None and self.stream.tell() > self._largest:
                self._rename(self.stream.fileno())
        except OSError:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Do nothing: logging would write to the standard error of a cell."""

    def _open(self) -> TextIOWrapper:
        path = Path(self.baseFilename)
        try:
            private_files.make_folders(path.parent, path.parent.parent)
            descriptor = private_files.open_to_append(path)
        except private_files.Untrusted as error:  # as if there were no right to write
            raise PermissionError(str(error)) from error
        # The buffer holds a whole record, so that it is one write.
        return TextIOWrapper(BufferedWriter(FileIO(descriptor, "a"), _BUFFER), "utf-8", "replace")

    def _rename(self, descriptor: int) -> None:
        """Rename the file, unless another process has done so; the next record opens a new one."""
        path = Path(self.baseFilename)
        if (lock := file_lock.try_lock(path, mode=_PRIVATE)) is not None:
            with lock:
                if os.path.sameopenfile(lock.fileno(), descriptor):
                    path.rename(path.with_suffix(_OLDER))


def start() -> None:
    """Begin to keep records in memory; further calls do nothing."""
    if not _handlers(_Memory):
        _ciao.setLevel(logging.DEBUG)
        # Not to the handlers of the user's program, which may show every record in a cell.
        _ciao.propagate = False
        _add(_Memory())


def write_to(storage: Path, largest: int = _LARGEST) -> None:
    """Write the records from now on to a file too, ``log/ciao.log``.

    Args:
        storage: This user's storage folder. The file is created at the first record;
            without the right to write there, there is no file.
        largest: Bytes of the file after which it is renamed; one older file is kept.
    """
    start()
    if not _handlers(_File):
        _add(_File(files(storage)[-1], largest))


def end() -> None:
    """Forget the records, and write no more; for tests."""
    for handler in _handlers(logging.Handler):
        _ciao.removeHandler(handler)
        handler.close()
    _ciao.setLevel(logging.NOTSET)
    _ciao.propagate = True


def show_on(stream: TextIO, level: int) -> None:
    """Write the records from now on to a stream too, such as the standard error.

    Args:
        stream: The stream.
        level: The lowest level to write, such as ``logging.INFO``.
    """
    start()
    handler = logging.StreamHandler(stream)
    handler.setLevel(level)
    _add(handler)


class ignored:
    """Context that suppresses the errors of a step, and logs them with their traceback.

    Args:
        logger: The logger of the module that takes the step.
        step: The step, as the subject of "… failed".
        errors: Their types; none: every ``Exception``, and a developer should look at it.
    """

    def __init__(self, logger: logging.Logger, step: str, *errors: type[Exception]) -> None:
        self._logger = logger
        self._step = step
        self._errors = errors or (Exception,)
        self._level = logging.DEBUG if errors else logging.WARNING

    def __enter__(self) -> None:
        """Begin the step."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Return whether the error is suppressed."""
        if not isinstance(error, self._errors):
            return False
        self._logger.log(self._level, "%s failed", self._step, exc_info=error)
        return True


def recent() -> list[str]:
    """Return the newest records of this process, oldest first; a traceback belongs to a record."""
    return [text for memory in _handlers(_Memory) for text in memory.texts]


def files(storage: Path) -> tuple[Path, Path]:
    """Return the paths of the older file and of the current file, which may not exist."""
    current = storage / "log" / "ciao.log"
    return current.with_suffix(_OLDER), current


def _add(handler: logging.Handler) -> None:
    handler.setFormatter(_Format())
    _ciao.addHandler(handler)


def _handlers(kind: type[_H]) -> list[_H]:
    return [handler for handler in _ciao.handlers if isinstance(handler, kind)]
