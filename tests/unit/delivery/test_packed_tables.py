"""Tables of pods travel packed: they are unpacked up to a size that is known before."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from ciao_kernel.delivery.input import value_formats
from ciao_kernel.delivery.output import packed_tables

PLAIN = b"PAR1" + b"".join(number.to_bytes(4, "little") for number in range(1 << 20)) + b"PAR1"


def both(place: Path, data: bytes) -> bytes:
    """Unpack a table in memory and as a file, which are the same."""
    place.write_bytes(data)
    packed_tables.unpack(place)
    found = packed_tables.unpacked(data)
    assert place.read_bytes() == found
    return found


@pytest.mark.parametrize("level", [0, 1, 9])
def test_a_packed_table_becomes_the_plain_one(tmp_path: Path, level: int) -> None:
    assert both(tmp_path / "part", zlib.compress(PLAIN, level)) == PLAIN
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


@pytest.mark.parametrize("more", range(-3, 4))
def test_no_byte_is_lost_at_the_end_of_a_part(tmp_path: Path, more: int) -> None:
    plain = bytes(packed_tables._BLOCK + more)
    assert both(tmp_path / "part", zlib.compress(plain)) == plain


@pytest.mark.parametrize("data", [PLAIN, b"", b"text"])
def test_others_stay_as_they_are(tmp_path: Path, data: bytes) -> None:
    """Pods of an earlier version send them."""
    assert both(tmp_path / "part", data) == data


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (zlib.compress(bytes((1 << 26) + 1)), "the table has more than 67.1 MB, too many"),
        (zlib.compress(PLAIN)[:-1], "the end of the packed table is missing"),
        (b"x", "the end of the packed table is missing"),
        (zlib.compress(PLAIN)[:-1] + b"?", "the packed table is damaged"),
        (b"xyz", "the packed table is damaged"),
    ],
)
def test_a_table_that_is_refused_leaves_no_part(tmp_path: Path, data: bytes, why: str) -> None:
    part = tmp_path / "part"
    part.write_bytes(data)
    with pytest.raises(ValueError, match=why):
        packed_tables.unpack(part)
    with pytest.raises(ValueError, match=why):
        packed_tables.unpacked(data)
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


def test_a_large_table_may_have_several_times_its_size() -> None:
    assert value_formats.most_unpacked(1 << 30) == 32 << 30
