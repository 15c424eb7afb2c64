"""Footers of tables from pods: what pyarrow writes is taken, too large claims are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.delivery.output import parquet_check, result_views

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pandas = pytest.importorskip("pandas")

ROWS = 777_777
PLAIN: dict[str, Any] = {"compression": "none", "use_dictionary": False}


def number(value: int) -> bytes:
    """A number as a footer has it."""
    return varint((value << 1) ^ (value >> 63))


def varint(rest: int) -> bytes:
    found = b""
    while rest > 127:
        found += bytes([rest & 127 | 128])
        rest >>= 7
    return found + bytes([rest])


def with_footer(path: Path, change: Callable[[bytes], bytes]) -> Path:
    """Change the footer of a file."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    made = change(data[-8 - length : -8])
    path.write_bytes(data[: -8 - length] + made + len(made).to_bytes(4, "little") + b"PAR1")
    return path


def replaced(old: int, new: int, which: int) -> Callable[[bytes], bytes]:
    """Replace a number at one of the places that have it."""

    def change(footer: bytes) -> bytes:
        parts = footer.split(number(old))
        assert len(parts) > which + 1
        parts[which : which + 2] = [parts[which] + number(new) + parts[which + 1]]
        return number(old).join(parts)

    return change


def said(file: Path) -> str:
    """Check a file; return the refusal, "" if there is none."""
    try:
        parquet_check.check(file)
    except ValueError as error:
        return str(error)
    return ""


@pytest.fixture
def missing(tmp_path: Path) -> Path:
    """Of missing values, in one group."""
    file = tmp_path / "value.parquet"
    nothing = pyarrow.table({"a": pyarrow.nulls(ROWS, pyarrow.int64())})
    parquet.write_table(nothing, file, write_statistics=False, store_schema=False, **PLAIN)
    parquet_check.check(file)
    return file


TABLES: dict[str, Callable[[], Any]] = {
    "numbers": lambda: pyarrow.table({"a": range(1000), "b": [0.5] * 1000}),
    "missing": lambda: pyarrow.table({"a": [None, 1] * 500, "b": pyarrow.nulls(1000)}),
    "lists": lambda: pyarrow.table({"a": [[1, 2, 3], [], None, [None]] * 99}),
    "structs": lambda: pyarrow.table({"a": [{"x": [{"y": 1}], "z": "t"}, {"x": [], "z": None}]}),
    "maps": lambda: pyarrow.table(
        {"a": pyarrow.array([[("k", 1)], []], pyarrow.map_(pyarrow.string(), pyarrow.int8()))}
    ),
    "categories": lambda: pyarrow.table({"a": pyarrow.array(["x", "y"] * 99).dictionary_encode()}),
    "no rows": lambda: pyarrow.table({"a": pyarrow.array([], pyarrow.list_(pyarrow.string()))}),
    "no columns": lambda: pyarrow.Table.from_pandas(pandas.DataFrame(index=range(5))),
    "nothing": lambda: pyarrow.Table.from_pandas(pandas.DataFrame()),
    "many columns": lambda: pyarrow.table({f"c{n}": [n] for n in range(2000)}),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "usual": {},
    "old": {"version": "1.0", "store_schema": False, "write_statistics": False},
    "second pages": {"data_page_version": "2.0", "write_page_index": True},
    "many groups": {"row_group_size": 7, "write_page_checksum": True},
    "sorted": {"sorting_columns": [parquet.SortingColumn(0)]},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
def test_what_pyarrow_writes_plain_is_taken(
    tmp_path: Path, make: Callable[[], Any], options: dict[str, Any]
) -> None:
    table, file = make(), tmp_path / "value.parquet"
    if options.get("sorting_columns") and not table.num_columns:
        options = {}
    parquet.write_table(table, file, **PLAIN, **options)
    parquet_check.check(file)
    rows = table.num_rows if table.num_columns else 0  # it writes no others
    assert result_views.text("value", file, "table").startswith(
        f"{rows:,} row{'' if rows == 1 else 's'} ("
    )


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_what_pyarrow_writes_compressed_is_never_called_damaged(
    tmp_path: Path, make: Callable[[], Any], compression: str
) -> None:
    file = tmp_path / "value.parquet"
    parquet.write_table(make(), file, compression=compression)
    assert parquet_check.footer(file) == parquet.read_metadata(file)
    assert said(file) in ("", "value.parquet is compressed")


@pytest.mark.parametrize(
    ("which", "rows"),
    [
        pytest.param(1, -1, id="less than no values"),
        pytest.param(1, ROWS - 1, id="less values than rows"),
        pytest.param(3, 1 << 40, id="more rows than values"),
        pytest.param(3, -1, id="less than no rows"),
    ],
)
def test_counts_that_contradict_each_other_are_refused(
    missing: Path, which: int, rows: int
) -> None:
    with_footer(missing, replaced(ROWS, rows, which))
    with pytest.raises(ValueError, match=r"^value\.parquet is damaged$"):
        parquet_check.check(missing)


def test_a_size_below_zero_hides_no_other(missing: Path) -> None:
    size = parquet.read_metadata(missing).row_group(0).column(0).total_compressed_size
    with_footer(missing, replaced(size, -size, 1))
    assert parquet.read_metadata(missing).row_group(0).column(0).total_compressed_size == -size
    with pytest.raises(ValueError, match="is damaged"):
        parquet_check.check(missing)


def test_a_dictionary_that_no_encoding_names_is_refused(missing: Path) -> None:
    column = parquet.read_metadata(missing).row_group(0).column(0)
    pages = b"\x26" + number(column.data_page_offset)
    # The same field again is two behind it: the place of a dictionary.
    with_footer(missing, lambda old: old.replace(pages, pages * 2, 1))
    assert parquet.read_metadata(missing).row_group(0).column(0).has_dictionary_page
    with pytest.raises(ValueError, match="is compressed"):
        parquet_check.check(missing)


COLUMN = b"\x15\x02\x19\x2c\x48\x01r\x15\x02\x00\x15\x04\x25\x00\x18\x01a\x00"
"""The version of the format, and a schema of one column."""
CLAIMS = {
    "columns": COLUMN + b"\x16\x00\x19\x1c\x19\xfc" + varint(1_000_000),
    "groups": COLUMN + b"\x16\x00\x19\xfc" + varint(1_000_000),
    "schema": b"\x15\x02\x19\xfc" + varint(1_000_000),
}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_lists_that_are_longer_than_the_footer_take_no_memory(missing: Path, claim: bytes) -> None:
    with_footer(missing, lambda _: claim + bytes(3))
    with pytest.raises(OSError, match="size limit"):
        parquet_check.check(missing)
    assert result_views.text("value", missing, "pandas.DataFrame").startswith("DataFrame (")
