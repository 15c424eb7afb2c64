"""Layers of a cell: what a replica may write to, and how far their packing is."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from ciao_kernel.builders.layers import packed
from ciao_kernel.model import Source, SourceFile


def test_packing_counts_the_bytes_of_all_files(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(bytes(1 << 20))
    entry = SourceFile("ciao_cell.py", b"print(1)\n", size=9)
    data = SourceFile("data.bin", origin=tmp_path / "data.bin", size=1 << 20)
    noted: list[tuple[int, int]] = []
    layers = packed(Source(entry, files=(data,)), tmp_path, lambda *two: noted.append(two))
    assert len(layers) == 2
    total = (1 << 20) + 9
    assert {whole for _, whole in noted} == {total}
    done = [part for part, _ in noted]
    assert done == sorted(done)
    assert done[0] < total / 10
    assert done[-1] >= 1 << 20


def test_each_user_may_write_to_files_and_to_the_folders_of_the_cell(tmp_path: Path) -> None:
    """The user of the image is not known, and often it is not root."""
    script = tmp_path / "run.sh"
    script.write_text("true\n")
    script.chmod(0o700)
    source = Source(
        SourceFile("train/cell.py", b""),
        modules=(SourceFile("pkg/sub/m.py", b""), SourceFile("data/load.py", b"")),
        files=(SourceFile("data/x.csv", b"1"), SourceFile("data/bin/run.sh", origin=script)),
        own=(SourceFile(".ciao/sitecustomize.py", b""),),
    )
    modes: dict[str, int] = {}
    for layer in packed(source, tmp_path, lambda *two: None):
        assert isinstance(layer.content, bytes)
        with tarfile.open(fileobj=io.BytesIO(layer.content)) as tar:
            modes |= {member.name: member.mode for member in tar}  # the upper layer's counts
    folders = ("ciao", "ciao/train", "ciao/pkg", "ciao/pkg/sub", "ciao/data", "ciao/data/bin")
    assert modes == {
        **dict.fromkeys(folders, 0o777),
        "ciao/data/x.csv": 0o666,
        "ciao/data/bin/run.sh": 0o777,
        "ciao/train/cell.py": 0o644,
        "ciao/pkg/sub/m.py": 0o644,
        "ciao/data/load.py": 0o644,
        "ciao/.ciao": 0o755,
        "ciao/.ciao/sitecustomize.py": 0o644,
    }
