"""Refuses tables of pods that would take much more memory than their files have bytes.

What a pod sends is foreign input. Parquet compresses, names a value of a dictionary any number of
times, and counts missing values, so that a file of some hundred bytes may become gigabytes. The
writer in a pod (value_formats.py) therefore uses none of it, as far as the format lets it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_PLAIN = frozenset({"PLAIN", "RLE", "BIT_PACKED"})
"""Encodings of values that take their room, and of the levels that tell which ones are missing."""
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT96": 12}
_WIDTH, _OFFSET = 8, 4
"""Bytes of a value in memory by its type, of any other one, and of its place in a list."""
_FACTOR, _ALWAYS = 8, 1 << 30
"""Bytes in memory for each byte of a file, as of truth values, and bytes that any file may have:
missing values take nearly no bytes of it."""
_END = 8
"""Bytes behind a footer: its length, and the mark of the format."""


def check(path: Path, always: int = _ALWAYS) -> None:
    """Refuse a table of which nobody knows the size before it is read.

    Args:
        path: The file.
        always: Bytes in memory that any file may have.

    Raises:
        ImportError: pyarrow is missing.
        OSError: The footer claims more than it has.
        ValueError: The file is refused, or is no Parquet (ArrowInvalid).
    """
    size, about = path.stat().st_size, footer(path)
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    widths = [_width(about.schema.column(number)) for number in range(about.num_columns)]
    columns = [(width, one.column(at)) for one in groups for at, width in enumerate(widths)]
    for _, column in columns:
        plain = _PLAIN.issuperset(column.encodings) and not column.has_dictionary_page
        if column.compression != "UNCOMPRESSED" or not plain:
            raise _refusal(path, "is compressed")
    sizes = [column.total_compressed_size for _, column in columns]
    # Columns may share bytes of the file. A count below zero would hide another one in a sum, and
    # pyarrow makes room for the rows of a group before it reads its values.
    if sum(sizes) > size or min(sizes, default=0) < 0 or any(map(_lacks_values, groups)):
        raise ValueError(f"{path.name} is damaged")
    if sum(width * column.num_values for width, column in columns) > _FACTOR * size + always:
        raise _refusal(path, f"has too many values for its {size:,} bytes")


def footer(path: Path) -> Any:
    """Return what a file says of its columns and rows, as pyarrow reads it.

    The footer gives the length of each of its lists, and pyarrow makes room for all of a list
    before it reads the first entry.

    Args:
        path: The file.

    Raises:
        ImportError: pyarrow is missing.
        OSError: The footer claims more than it has.
        ValueError: The file is no Parquet (ArrowInvalid).
    """
    from pyarrow import parquet  # type: ignore[import-untyped,import-not-found,unused-ignore]

    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _END))
        length = int.from_bytes(file.read(4), "little")
    entries = max(1, min(length, size))  # each takes a byte, or more
    with parquet.ParquetFile(path, thrift_container_size_limit=entries) as opened:
        return opened.metadata


def _lacks_values(group: Any) -> bool:
    """Return whether a column of a group has less values than rows: a missing one counts too."""
    counts = [group.column(at).num_values for at in range(group.num_columns)]
    return group.num_rows < 0 or any(count < group.num_rows for count in counts)


def _refusal(path: Path, why: str) -> ValueError:
    error = ValueError(f"{path.name} {why}")
    error.add_note(
        f"The value is the file {path}; pandas.read_parquet reads it if you trust the job."
    )
    return error


def _width(column: Any) -> int:
    """Return the bytes of a value in memory, without those of a text, which its file has too."""
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        width = int(column.length)
    else:
        width = _WIDTHS.get(column.physical_type, _WIDTH)
    return width + _OFFSET * int(column.max_repetition_level)
