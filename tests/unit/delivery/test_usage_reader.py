"""What a container uses, from files of control groups of both versions, and from nvidia-smi."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ciao_kernel.delivery.inspection import usage_reader

MI = 1024 * 1024
NO_LIMIT = "9223372036854771712\n"
"""What version 1 has where nothing limits the memory."""


def files(folder: Path, **texts: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(text)


def version_2(folder: Path, limit: str = "268435456\n") -> None:
    files(
        folder,
        memory__current=f"{244 * MI}\n",
        memory__peak=f"{250 * MI}\n",
        memory__max=limit,
        memory__stat=f"anon {200 * MI}\nfile {30 * MI}\ninactive_file {4 * MI}\nactive_file 7\n",
        cpu__stat="usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n",
    )


def version_1(root: Path, limit: str = "268435456\n") -> None:
    files(
        root / "memory",
        memory__usage_in_bytes=f"{244 * MI}\n",
        memory__max_usage_in_bytes=f"{250 * MI}\n",
        memory__limit_in_bytes=limit,
        memory__stat=f"cache 5\ninactive_file 0\ntotal_cache 5\ntotal_inactive_file {4 * MI}\n",
    )
    files(root / "cpu,cpuacct", cpuacct__usage="2500000000\n")


EXPECTED = {"memory": 240 * MI, "peak": 250 * MI, "limit": 256 * MI, "cpu": 2.5}


def own(folder: Path, text: str) -> str:
    path = folder / "own"
    path.write_text(text)
    return str(path)


def test_version_2(tmp_path: Path) -> None:
    files(tmp_path, cgroup__controllers="cpu memory\n")
    version_2(tmp_path)
    assert usage_reader.sample(str(tmp_path), own(tmp_path, "0::/\n")) == EXPECTED


def test_version_2_in_a_container_that_sees_all_groups(tmp_path: Path) -> None:
    files(tmp_path, cgroup__controllers="cpu memory\n")
    version_2(tmp_path / "kubepods/pod1/c2")
    found = usage_reader.sample(str(tmp_path), own(tmp_path, "0::/kubepods/pod1/c2\n"))
    assert found == EXPECTED


def test_version_2_without_a_limit_and_before_linux_5_19(tmp_path: Path) -> None:
    files(tmp_path, cgroup__controllers="cpu memory\n")
    version_2(tmp_path, "max\n")
    (tmp_path / "memory.peak").unlink()
    found = usage_reader.sample(str(tmp_path), own(tmp_path, "0::/\n"))
    assert found == {"memory": 240 * MI, "cpu": 2.5}


def test_version_1(tmp_path: Path) -> None:
    version_1(tmp_path)
    groups = own(tmp_path, "9:memory:/kubepods/pod1/c2\n3:cpu,cpuacct:/kubepods/pod1/c2\n")
    assert usage_reader.sample(str(tmp_path), groups) == EXPECTED


def test_version_1_without_a_limit(tmp_path: Path) -> None:
    version_1(tmp_path, NO_LIMIT)
    assert "limit" not in usage_reader.sample(str(tmp_path), own(tmp_path, ""))


def test_files_that_are_missing_or_odd_are_no_numbers(tmp_path: Path) -> None:
    assert usage_reader.sample(str(tmp_path), str(tmp_path / "none")) == {}
    version_1(tmp_path)
    (tmp_path / "memory/memory.usage_in_bytes").write_text("many\n")
    (tmp_path / "memory/memory.stat").write_text("total_inactive_file x\n")
    found = usage_reader.sample(str(tmp_path), own(tmp_path, "odd\n"))
    assert found == {"peak": 250 * MI, "limit": 256 * MI, "cpu": 2.5}


def test_the_answer_of_nvidia_smi() -> None:
    text = "87, 11264, 81559\n[N/A], 3, 81559\n"
    assert usage_reader.read_gpus(text) == [
        [0.87, 11264 * MI, 81559 * MI],
        [None, 3 * MI, 81559 * MI],
    ]
    assert usage_reader.read_gpus("NVIDIA-SMI has failed, because of the driver\n") == []


def test_a_watch_ends_with_its_input(tmp_path: Path) -> None:
    version_1(tmp_path)
    program = usage_reader.program(f"watch(600, root={str(tmp_path)!r})")
    command = [sys.executable, "-I", "-S", "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as watch:
        assert watch.stdin
        assert watch.stdout
        first = {name: value for name, value in EXPECTED.items() if name != "cpu"}
        assert json.loads(watch.stdout.readline()) == first
        watch.stdin.close()
        assert watch.wait(60) == 0


def gpus_of_watch(folder: Path, script: str, lines: int) -> list[object]:
    """Return the GPUs in the first lines of a watch where a script is nvidia-smi."""
    version_1(folder)
    programs = folder / "bin"
    programs.mkdir()
    asked = programs / "nvidia-smi"
    asked.write_text(f"#!/bin/sh\necho asked >> {folder}/asked\n{script}\n")
    asked.chmod(0o755)
    program = usage_reader.program(f"watch(0.01, True, {str(folder)!r})")
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
    ) as watch:
        assert watch.stdin
        assert watch.stdout
        found = [json.loads(watch.stdout.readline()).get("gpus") for _ in range(lines)]
        watch.stdin.close()
        watch.stdout.read()
        assert watch.wait(60) == 0
    return found


def test_gpus_that_do_not_answer_twice_are_asked_again(tmp_path: Path) -> None:
    script = f"[ $(wc -l < {tmp_path}/asked) -gt 2 ] && echo 50, 1, 2"
    assert gpus_of_watch(tmp_path, script, 4) == [None, None, *[[[0.5, MI, 2 * MI]]] * 2]


def test_gpus_that_never_answer_are_asked_three_times(tmp_path: Path) -> None:
    assert gpus_of_watch(tmp_path, "exit 9", 6) == [None] * 6
    assert (tmp_path / "asked").read_text() == "asked\n" * 3


def test_a_watch_tells_how_busy_processors_are_and_asks_gpus_on_wish(tmp_path: Path) -> None:
    version_1(tmp_path)
    folder = tmp_path / "bin"
    folder.mkdir()
    asked = folder / "nvidia-smi"
    asked.write_text("#!/bin/sh\necho 50, 1, 2\n")
    asked.chmod(0o755)
    program = usage_reader.program(f"watch(0.01, True, {str(tmp_path)!r})")
    command = [sys.executable, "-I", "-S", "-c", program]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
    ) as watch:
        assert watch.stdin
        assert watch.stdout
        found = [json.loads(watch.stdout.readline()) for _ in range(2)]
        watch.stdin.close()
        watch.stdout.read()
        assert watch.wait(60) == 0
    assert "cpu" not in found[0]
    assert found[1]["cpu"] == 0.0
    assert [one["gpus"] for one in found] == [[[0.5, MI, 2 * MI]]] * 2
