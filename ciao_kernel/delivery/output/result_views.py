"""Values that have come back, as one short text each: ``_job.result`` in a cell.

Values of pods are foreign input, and values of any program may be secret or large: a text is
visible, short and without secrets, and of an array or a table only its head is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ciao_kernel.delivery.input import input_loader
from ciao_kernel.delivery.output import parquet_check
from ciao_kernel.delivery.transfers import size_text
from ciao_kernel.redaction import scrub
from ciao_kernel.visible_text import counted, short, visible

_LONGEST = 60
"""Characters of a value."""
_LARGEST = 100_000
"""Bytes of a value that is read for its text."""


def text(name: str, path: Path, kind: str, layout: dict[str, Any] | None = None) -> str:
    """Return a value as a text: ``{'loss': 0.25}``, ``float64 (2, 3)``, ``3 rows (a, b)``.

    Args:
        name: Name of the variable; one such as ``token`` makes the value a secret.
        path: The file of the value.
        kind: The type of the value.
        layout: What the file does not tell, such as which lists are tuples.
    """
    try:
        found = _read(path, kind, layout or {})
    except Exception:  # a library is missing, or the file is not what its name says
        found = ""
    found = found or f"{kind.rpartition('.')[2]} ({_size(path)})"
    if scrub(f"{name}=x") != f"{name}=x":
        return "…"  # the whole value: a secret may have spaces, or be one of a list
    # The name and the value together: what comes before a secret may tell that it is one.
    shown = scrub(f"{name}={visible(found)}").removeprefix(f"{name}=")
    return short(shown, _LONGEST)


def note(name: str, lost: object) -> str:
    """Return a sentence about a type that a value's file has lost; "" if it has lost none.

    Args:
        name: Name of the variable.
        lost: What its entry says: the name of the type, and of the plain type in its place.
    """
    match lost:
        case [str(kind), str(plain)]:
            kind, plain = visible(kind[:80]), visible(plain[:80])
            return f"{name} came back with {plain} in place of {kind}: files keep plain types."
    return ""


def html(rows: Iterable[tuple[str, str]]) -> str:
    """Return names and texts as a table."""
    cells = "".join(
        f'<tr><td style="text-align:left"><code>{escape(visible(name))}</code></td>'
        f'<td style="text-align:left">{escape(visible(value))}</td></tr>'
        for name, value in rows
    )
    return f"<table>{cells}</table>" if cells else "<div>no values</div>"


def _read(path: Path, kind: str, layout: dict[str, Any]) -> str:
    if path.suffix == ".npy":
        import numpy

        # The map reads the head alone.
        array = numpy.load(path, mmap_mode="r", allow_pickle=False)
        return f"{array.dtype} {array.shape}"
    if path.suffix == ".npz":
        import zipfile

        with zipfile.ZipFile(path) as archive:
            return _names([one.removesuffix(".npy") for one in archive.namelist()])
    if path.suffix == ".safetensors":
        from safetensors import (  # type: ignore[import-not-found,unused-ignore]
            safe_open,
        )

        with safe_open(path, framework="np") as tensors:
            return _names(list(tensors.keys()))
    if path.suffix == ".parquet":
        about = parquet_check.footer(path)
        rows, head = about.num_rows, about.schema.to_arrow_schema()
        names = ", ".join(name for name in head.names if not name.startswith("__index_level_"))
        return f"{counted(rows, 'row')} ({names})"
    if path.suffix == ".json" and path.stat().st_size <= _LARGEST:
        return repr(input_loader.read(path, kind, layout))
    return ""


def _names(names: Sequence[str]) -> str:
    return f"{counted(len(names), 'array')} ({', '.join(names)})"


def _size(path: Path) -> str:
    try:
        return size_text(path.stat().st_size)
    except OSError:
        return "no file"
