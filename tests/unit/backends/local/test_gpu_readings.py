"""Which of this machine's GPUs are those of a replica, by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from ciao_kernel.backends.local.inspection.gpu_readings import GpuReadings
from ciao_kernel.delivery.inspection import usage_reader
from ciao_kernel.model.usage import GpuUsage

MI = 1024 * 1024
ANSWER = """\
0, GPU-8f6a0001-aaaa, 87, 1, 2
1, GPU-8f6a0002-bbbb, 50, 3, 4
2, GPU-9c000003-cccc, [N/A], 5, 6
"""
FIRST, SECOND = GpuUsage(0.87, MI, 2 * MI), GpuUsage(0.5, 3 * MI, 4 * MI)
THIRD = GpuUsage(None, 5 * MI, 6 * MI)


def readings(root: Path, devices: str) -> GpuReadings:
    """Return the readings of a machine where process 1 has devices."""
    (root / "1").mkdir()
    (root / "1" / "environ").write_bytes(f"A=1\0CUDA_VISIBLE_DEVICES={devices}\0B=2\0".encode())
    return GpuReadings(lambda: usage_reader.read_named_gpus(ANSWER), root)


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ("0", (FIRST,)),
        ("2,1", (THIRD, SECOND)),
        ("GPU-8f6a0002-bbbb", (SECOND,)),
        ("GPU-9c, GPU-8f6a0001", (THIRD, FIRST)),
        ("GPU-8f6a", ()),
        ("3,GPU-1", ()),
        ("", ()),
    ],
)
def test_gpus_are_found_by_index_uuid_and_the_begin_of_a_uuid(
    tmp_path: Path, devices: str, expected: tuple[GpuUsage, ...]
) -> None:
    known = readings(tmp_path, devices)
    assert known.of([7, 1]) == expected
    assert known.remark() == ""


def test_a_remark_tells_that_a_part_of_a_gpu_has_no_numbers(tmp_path: Path) -> None:
    known = readings(tmp_path, "MIG-8f6a0001-aaaa,0")
    assert known.of([1]) == (FIRST,)
    assert "MIG" in known.remark()


def test_a_sentence_instead_of_an_answer_is_no_gpu() -> None:
    assert usage_reader.read_named_gpus("NVIDIA-SMI has failed, because of the driver\n") == {}
