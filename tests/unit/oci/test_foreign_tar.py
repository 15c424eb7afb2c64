"""A tar that claims more than it has takes no memory."""

from __future__ import annotations

import tarfile
from io import BytesIO

import pytest

from ciao_kernel.oci import foreign_tar


def header(kind: bytes, size: int, name: str = "x") -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.USTAR_FORMAT)


def names(raw: bytes) -> list[str]:
    return [member.name for member, _ in foreign_tar.members(BytesIO(raw))]


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_are_read(form: int) -> None:
    buffer, wanted = BytesIO(), ["a/" * 2000 + "b", "c"]
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for name in wanted:
            tar.addfile(tarfile.TarInfo(name))
    assert names(buffer.getvalue()) == wanted


@pytest.mark.parametrize(
    "kind",
    [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE],
)
def test_a_header_that_claims_much_is_refused(kind: bytes) -> None:
    class Endless(BytesIO):
        """Counts what is asked for."""

        asked = 0

        def read(self, size: int | None = -1) -> bytes:
            self.asked += size or 0
            return super().read(size)

    stream = Endless(header(kind, 4 << 30) + bytes(8 << 20))
    with pytest.raises(tarfile.ReadError, match="claims 4,294,967,296 bytes"):
        list(foreign_tar.members(stream))
    assert stream.asked < 4 << 20


def test_many_headers_in_a_row_are_refused() -> None:
    raw = b"".join(header(tarfile.GNUTYPE_LONGNAME, 0) for _ in range(5000))
    with pytest.raises(tarfile.ReadError, match="too many headers in a row"):
        names(raw)


def test_many_global_headers_are_refused() -> None:
    def record(number: int) -> bytes:
        text = f" key{number:06}=x\n"
        return f"{len(text) + 2}{text}".encode()

    raw = b""
    for start in range(0, 1100, 100):
        one = b"".join(record(number) for number in range(start, start + 100))
        raw += header(tarfile.XGLTYPE, len(one)) + one.ljust(-(-len(one) // 512) * 512, b"\0")
    with pytest.raises(tarfile.ReadError, match="too many global headers"):
        names(raw + header(tarfile.REGTYPE, 0, "a") + bytes(1024))


def test_members_that_were_read_are_not_kept() -> None:
    raw = b"".join(header(tarfile.REGTYPE, 0, f"n{number}") for number in range(9))
    kept = [len(vars(tar)["members"]) for _, tar in foreign_tar.members(BytesIO(raw))]
    assert kept == [0] * 9


def test_a_sparse_file_of_many_pieces_is_refused() -> None:
    raw = bytearray(header(tarfile.GNUTYPE_SPARSE, 0))
    raw[482] = 1  # more of its map follows
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    with pytest.raises(tarfile.ReadError, match="sparse file of many pieces"):
        names(bytes(raw) + bytes(1024))


def test_a_sparse_file_with_a_map_before_its_content_is_refused() -> None:
    text = b"".join(
        b"%d %s=%s\n" % (len(name) + len(value) + 5, name, value)
        for name, value in ((b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"))
    )
    raw = header(tarfile.XHDTYPE, len(text)) + text.ljust(512, b"\0")
    with pytest.raises(tarfile.ReadError, match="map before its content"):
        names(raw + header(tarfile.REGTYPE, 0, "a") + bytes(1024))
