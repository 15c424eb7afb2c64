"""Layers of a cell: how far their packing is."""

from __future__ import annotations

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
