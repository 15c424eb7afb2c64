"""The cache: folders named after what they hold and a digest of what they were made from."""

import fcntl
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.layout import cache

KEEP = 14 * 24 * 3600  # seconds that a folder which no checkout asks for stays


def digest(*inputs: object) -> str:
    """Return a short name for these inputs. A Path counts with the content of its files."""
    total = hashlib.sha256()
    for item in inputs:
        if isinstance(item, Path):
            for file in sorted(item.rglob("*")) if item.is_dir() else [item]:
                if file.is_file():
                    total.update(f"\0{file.relative_to(item.parent)}\0".encode())
                    total.update(file.read_bytes())
        else:
            total.update(f"\0{item!r}".encode())
    return total.hexdigest()[:12]


def made(name: str, key: str) -> Path | None:
    """Return the folder if it is in the cache, and note that it was asked for."""
    folder = cache() / f"{name}-{key}"
    if not folder.exists():
        return None
    os.utime(folder)
    return folder


def make(name: str, key: str, build: Callable[[Path], None]) -> Path:
    """Return the folder, built by `build(folder)` unless it is there. All of it, or nothing."""
    if folder := made(name, key):
        return folder
    folder = cache() / f"{name}-{key}"
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    build(part)
    part.rename(folder)
    return folder


def sweep() -> None:
    """Remove what an interrupted build left, and what nobody has asked for in two weeks."""
    for folder in cache().iterdir() if cache().exists() else ():
        old = time.time() - folder.stat().st_mtime > KEEP
        if folder.suffix == ".part" or (old and folder.name not in ("run", "logs")):
            shutil.rmtree(folder, ignore_errors=True)


_THREADS = threading.RLock()
_held = False


@contextmanager
def lock() -> Iterator[None]:
    """Let one process at a time build or raise. Others wait; the kernel frees it at any end.

    Who holds it may ask for it again: so may what is built while an older operator runs.
    """
    global _held
    with _THREADS:
        if _held:
            yield
            return
        cache().mkdir(parents=True, exist_ok=True)
        with (cache() / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("==> another process builds or raises a cluster; waiting for it", flush=True)
                fcntl.flock(file, fcntl.LOCK_EX)
            _held = True
            try:
                yield
            finally:
                _held = False
