"""Layers: the same bytes for the same files, and nothing lost in them."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import random
import stat
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciao_kernel.errors import UsageError
from ciao_kernel.oci.layer import File, Layer, pack

NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=20
).filter(lambda name: name not in (".", "..") and not name.startswith(".wh."))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
AWKWARD = [
    "données/ü.bin",
    "日本/語.txt",
    "é.txt",  # as two characters
    "new\nline",
    "a" * 255,
    "/".join(["d" * 120] * 4) + "/long.py",
    "with space/and 'quote\".py",
    "-rf",
    "~",
    "..hidden",
    b"latin-\xfc.txt".decode(errors="surrogateescape"),
]


def raw(layer: Layer) -> bytes:
    body = layer.open()
    if isinstance(body, bytes):
        return body
    with body:
        return body.read()


def unpacked(layer: Layer) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(raw(layer))) as tar:
        return {member.name: member for member in tar}


def contents(layer: Layer) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(raw(layer))) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar if m.isfile()}  # type: ignore[union-attr]


def test_digests_and_size_are_those_of_the_bytes(tmp_path: Path) -> None:
    files = [File("ciao/a.py", b"print(1)\r\n")]
    for layer in (pack(files), pack(files, tmp_path / "layer.tar.gz")):
        packed = raw(layer)
        assert layer.size == len(packed)
        assert layer.digest == f"sha256:{hashlib.sha256(packed).hexdigest()}"
        plain = gzip.decompress(packed)
        assert layer.diff_id == f"sha256:{hashlib.sha256(plain).hexdigest()}"


def test_order_times_modes_and_place_of_the_files_do_not_matter(tmp_path: Path) -> None:
    files = [File(f"ciao/{i % 3}/{i}.py", f"print({i})".encode() * 100) for i in range(20)]
    on_disk = []
    for i, file in enumerate(files):
        path = tmp_path / f"{i}"
        assert isinstance(file.content, bytes)
        path.write_bytes(file.content)
        path.chmod(0o600)
        os.utime(path, (i, i * 1000))
        on_disk.append(File("/" + file.path, path))
    random.Random(1).shuffle(on_disk)

    first = raw(pack(files))

    assert raw(pack(reversed(files))) == first
    assert raw(pack(on_disk)) == first
    assert raw(pack(files, tmp_path / "layer")) == first


def test_it_is_the_same_on_every_machine() -> None:
    """Another digest here makes every image new: change it knowingly, with the version."""
    layer = pack([File("ciao/ciao_cell.py", b"print('hello')\n")], writable=["ciao"])

    assert layer.diff_id == (
        "sha256:c984bd79adaa48d04a5a29784eb34bea06de02eca0cccc71b19143662e85e355"
    )


def test_members_belong_to_root_and_are_of_one_time() -> None:
    members = unpacked(
        pack([File("opt/ciao/run", b"", executable=True), File("opt/x", b"")], writable=["opt/w"])
    )

    modes = {name: (stat.filemode(m.mode), m.isdir()) for name, m in members.items()}
    assert modes == {
        "opt": ("?rwxr-xr-x", True),
        "opt/ciao": ("?rwxr-xr-x", True),
        "opt/ciao/run": ("?rwxr-xr-x", False),
        "opt/w": ("?rwxrwxrwx", True),
        "opt/x": ("?rw-r--r--", False),
    }
    assert {(m.uid, m.gid, m.uname, m.gname) for m in members.values()} == {(0, 0, "", "")}
    assert {m.mtime for m in members.values()} == {1_000_000_000}


def test_folders_come_before_what_is_in_them() -> None:
    files = [File("b/c/d.py", b""), File("b-c/x", b""), File("a", b""), File("b/c.py", b"")]
    seen: set[str] = set()
    for name in unpacked(pack(files)):
        assert name.rpartition("/")[0] in {"", *seen}
        seen.add(name)


@pytest.mark.parametrize("name", AWKWARD, ids=ascii)
def test_awkward_names_come_through(name: str, tmp_path: Path) -> None:
    content = bytes(range(256)) * 5
    layer = pack([File(f"ciao/{name}", content)])

    with tarfile.open(fileobj=io.BytesIO(raw(layer))) as tar:
        tar.extractall(tmp_path)  # with `filter` only from Python 3.11.4 on
    assert (tmp_path / "ciao" / name).read_bytes() == content


@given(st.dictionaries(PATHS, st.binary(max_size=2000), max_size=8))
def test_all_files_come_out_as_they_went_in(files: dict[str, bytes]) -> None:
    listed = [File(path, content) for path, content in files.items()]
    above = {path.rsplit("/", n)[0] for path in files for n in range(1, path.count("/") + 1)}
    if above & files.keys():
        with pytest.raises(UsageError, match="a file and a folder at once"):
            pack(listed)
        return

    assert contents(pack(listed)) == files


def test_of_two_files_of_a_path_the_last_counts() -> None:
    assert contents(pack([File("a", b"1"), File("/a", b"2")])) == {"a": b"2"}


def test_no_files_are_a_layer_too() -> None:
    assert contents(pack([])) == {}


@pytest.mark.parametrize(
    "path", ["", "/", ".", "..", "a/../b", "../a", "a//b", "./a", "a/.", "a\0b"], ids=ascii
)
def test_paths_that_are_none(path: str) -> None:
    with pytest.raises(UsageError, match="is not a valid path in an image"):
        pack([File(path, b"")])


@pytest.mark.parametrize("path", [".wh.passwd", "etc/.wh.passwd", "etc/.wh..wh..opq", ".wh.a/b"])
def test_names_that_would_delete_are_refused(path: str) -> None:
    with pytest.raises(UsageError, match="delete files"):
        pack([File(path, b"")])


def test_a_large_file_is_not_held_in_memory(tmp_path: Path) -> None:
    import tracemalloc

    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(64 << 20)
    tracemalloc.start()
    try:
        layer = pack([File("large", large)], tmp_path / "layer")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert layer.size == (tmp_path / "layer").stat().st_size < 1 << 20


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        pack([File("a", tmp_path / "gone")], tmp_path / "layer")


def test_a_file_that_shrinks_meanwhile_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data.bin"
    data.write_bytes(os.urandom(1 << 20))

    def shrink(_: int) -> None:
        os.truncate(data, 100)

    with pytest.raises(OSError, match="it became shorter while it was read") as raised:
        pack([File("data.bin", data)], on_progress=shrink)
    assert raised.value.filename == str(data)
