"""The small parts of the local backend: ports, GPUs, interpreters, processes, claims."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from ciao_kernel.backends.local import interpreter, processes
from ciao_kernel.backends.local.hosts import Host
from ciao_kernel.backends.local.machine import gpus, ports
from ciao_kernel.backends.local.machine.claims import Claims
from ciao_kernel.backends.local.machine.gpus import Devices
from ciao_kernel.backends.local.record import Folder
from ciao_kernel.backends.local.replica import inherited
from ciao_kernel.errors import EnvironmentFault, NoRoom, SpecError
from ciao_kernel.model import Gpu, JobSpec, Replica, ReplicaGroup, Resources

# ----------------------------------------------------------------------------------- ports


def test_ports_are_free_different_and_not_held() -> None:
    found = ports.free(200)
    assert len(set(found)) == 200
    low = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if low.exists() and int(low.read_text().split()[0]) > 21_000:
        assert max(found) < int(low.read_text().split()[0])
    for port in found[:5]:
        with socket.socket() as probe:
            probe.bind((ports.HOST, port))
    assert not set(ports.free(200, found)) & set(found)


def test_all_ports_are_tried_in_any_order() -> None:
    everything = list(range(20_000, 21_000))
    tried = list(ports._in_random_order(list(everything)))
    assert tried != everything
    assert sorted(tried) == everything


def test_a_port_that_is_taken_is_not_given() -> None:
    with socket.socket() as taken:
        taken.bind((ports.HOST, ports.free(1)[0]))
        taken.listen()
        everything = range(20_000, 61_000)
        held = set(everything) - {taken.getsockname()[1]}
        with pytest.raises(EnvironmentFault, match="needs 1 free ports"):
            ports.free(1, held)


# ------------------------------------------------------------------------------------ GPUs


@pytest.mark.parametrize(
    ("visible", "devices"),
    [
        ("0,1", ("0", "1")),
        (" 3 , 5 ", ("3", "5")),
        ("", ()),
        ("-1", ()),
        ("2,-1,3", ("2",)),
        ("GPU-8932f937-d72c,MIG-1", ("GPU-8932f937-d72c", "MIG-1")),
    ],
)
def test_cuda_visible_devices_is_respected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, visible: str, devices: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without nvidia-smi
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    # Their numbers are in the order of the environment.
    assert gpus.installed() == Devices(devices)


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        (None, {"0": "GPU-aa1", "1": "GPU-ab2"}),
        ("1", {"1": "GPU-ab2"}),
        ("GPU-ab,0", {"GPU-ab": "GPU-ab2", "0": "GPU-aa1"}),
        ("GPU-a,MIG-7,5", {}),  # which one is not certain, or not known
    ],
)
def test_nvidia_smi_tells_which_device_a_name_means(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, visible: str | None, uuids: dict[str, str]
) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 0, GPU-aa1\necho 1, GPU-ab2\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus.installed().uuids == uuids


def test_what_is_no_uuid_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho '0, [N/A]'\necho '1, [N/A]'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus.installed() == gpus.Devices(("0", "1"), "PCI_BUS_ID")


MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"


@pytest.mark.parametrize(
    ("script", "devices", "fault"),
    [
        ("echo 0; echo 1", ("0", "1"), ""),
        ("echo No devices were found", (), "No devices were found"),
        (f"echo {MISMATCH}; echo more; exit 18", (), MISMATCH),
        ("echo A sentence. >&2; exit 9", (), "A sentence"),
        ("echo 0; exit 15", (), "it ended with exit code 15"),
        ("exec sleep 600", (), "it gave no answer in 1 s"),
        (None, (), ""),
    ],
)
def test_nvidia_smi_is_asked(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    script: str | None,
    devices: tuple[str, ...],
    fault: str,
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    if script is not None:
        script = script.replace("sleep", str(shutil.which("sleep", path=os.defpath)))
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    found = gpus.installed(patience=1.0)
    assert (found.names, found.fault) == (devices, fault)
    if devices:
        assert found.variables(["1"])["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
        assert gpus.installed().variables(["1"]) == {"CUDA_VISIBLE_DEVICES": "1"}


def test_a_driver_that_fails_is_not_a_machine_without_gpus() -> None:
    with pytest.raises(SpecError) as caught:
        gpus.check(1, Devices(fault=MISMATCH), {})
    assert f"nvidia-smi lists none of this machine: {MISMATCH}." in caught.value.message
    assert "restart the machine" in caught.value.hint


def spec(*groups: tuple[str, int, int | None], for_all: int | None = None) -> JobSpec:
    return JobSpec(
        "tensorflow",
        tuple(
            ReplicaGroup(role, count, Resources(gpu=None if gpu is None else Gpu(gpu)))
            for role, count, gpu in groups
        ),
        Resources(gpu=None if for_all is None else Gpu(for_all)),
    )


def test_shares_do_not_overlap_and_avoid_what_is_taken() -> None:
    asked = spec(("ps", 1, None), ("worker", 2, 2))
    assert gpus.wanted(asked) == 4
    shares = gpus.share(asked, ["0", "1", "2", "3", "4"], ["1"])
    assert shares == {
        Replica("ps", 0): (),
        Replica("worker", 0): ("0", "2"),
        Replica("worker", 1): ("3", "4"),
    }


def test_who_does_not_speak_of_gpus_keeps_what_is_there() -> None:
    assert gpus.share(spec(("worker", 1, None)), ["0"], []) == {}
    assert gpus.share(spec(("worker", 1, 0)), ["0"], []) == {Replica("worker", 0): ()}
    assert gpus.wanted(spec(("ps", 1, 0), ("worker", 2, None), for_all=1)) == 2


@pytest.mark.parametrize(
    ("total", "devices", "taken", "said"),
    [
        (1, [], {}, "asks for 1 GPU in all, and this machine has none"),
        (3, ["0"], {}, "asks for 3 GPUs in all, and this machine has 1 GPU"),
        (1, ["0"], {"0": "mnist"}, "0 of 1 are free: the others are used by mnist"),
        (2, ["0", "1"], {"0": "b", "9": "other"}, "1 of 2 are free: the others are used by b"),
    ],
)
def test_what_cannot_be_given_is_said(
    total: int, devices: list[str], taken: dict[str, str], said: str
) -> None:
    with pytest.raises(SpecError) as caught:
        gpus.check(total, Devices(tuple(devices)), taken)
    assert said in caught.value.message
    assert caught.value.directive == "gpu"


def test_only_jobs_whose_end_makes_room_are_told() -> None:
    taken = {"0": "warm", "1": "other", "2": "other", "3": "other"}
    for total, holders in ((1, {"warm", "other"}), (2, {"other"}), (4, set())):
        with pytest.raises(NoRoom) as caught:
            gpus.check(total, Devices(tuple("0123")), taken)
        assert caught.value.holders == holders
        assert "used by other, warm" in caught.value.message


# ---------------------------------------------------------------------------- interpreters


def test_how_an_interpreter_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bin_ = tmp_path / "my env" / "bin"
    bin_.mkdir(parents=True)
    (bin_ / "python").symlink_to(sys.executable)
    (tmp_path / "home" / "env").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = str(bin_ / "python")  # the link, not what it points to
    for asked in ("my env", "./my env/bin/python", "~/my env", str(bin_.parent), expected):
        assert interpreter.find(asked, tmp_path) == expected
    monkeypatch.setenv("PATH", str(bin_))
    assert interpreter.find("python", tmp_path / "home") == expected
    for asked in ("home/env", "home", "gone", "~/gone", str(tmp_path / "my env" / "bin")):
        with pytest.raises(EnvironmentFault, match="no Python interpreter"):
            interpreter.find(asked, tmp_path)
    (tmp_path / "text").touch()
    with pytest.raises(EnvironmentFault):
        interpreter.find("./text", tmp_path)


def test_what_the_own_interpreter_has(monkeypatch: pytest.MonkeyPatch) -> None:
    async def has(name: str) -> bool:
        return await interpreter.has(sys.executable, name)

    assert asyncio.run(has("json"))
    assert not asyncio.run(has("no_such_package_at_all"))


SHIM = """pyenv: python3.9: command not found

The `python3.9' command exists in these Python versions:
  3.9.18

Note: See 'pyenv help global' for tips on allowing multiple
      Python versions to be found at the same time.
"""
ERROR = 'Traceback (most recent call last):\n  File "<string>", line 1\nImportError: no util.\n'


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (SHIM, "pyenv: python3.9: command not found"),
        (f"warning: slow\n{ERROR}", "ImportError: no util"),
        (
            '  File "<string>", line 1\n    a b\n      ^\nSyntaxError: invalid\n',
            "SyntaxError: invalid",
        ),
        ("\n  sh: 1: not found.\n", "sh: 1: not found"),
        ("x" * 300, "x" * 200),
        (" \n", ""),
    ],
)
def test_why_an_interpreter_does_not_run(said: str, why: str) -> None:
    assert interpreter.reason(said.encode()) == why


# ------------------------------------------------------------------------------- processes


def test_a_process_is_itself_and_no_other() -> None:
    birth = processes.birth(os.getpid())
    assert processes.alive(os.getpid(), birth)
    assert not processes.alive(os.getpid(), "1")
    assert not processes.alive(os.getpid(), None)
    assert processes.birth(2**22 + 1) is None
    assert not processes.alive(2**22 + 1, None)
    processes.kill(2**22 + 1, "1", "a mark that nobody carries")
    processes.sweep("a mark that nobody carries")


def _refuse(pid: int) -> int:
    raise OSError(errno.ENOSYS, "Function not implemented")


@pytest.mark.parametrize(
    ("refused", "missing"),
    [
        (False, ()),
        (True, ()),
        (False, ((os, "pidfd_open"), (signal, "pidfd_send_signal"))),
        (False, ((os, "pidfd_open"),)),
        (False, ((signal, "pidfd_send_signal"),)),
    ],
    ids=["pidfd", "older Linux", "older build", "no pidfd_open", "no pidfd_send_signal"],
)
def test_a_signal_needs_start_time_and_mark(
    monkeypatch: pytest.MonkeyPatch, refused: bool, missing: tuple[tuple[ModuleType, str], ...]
) -> None:
    if refused:
        monkeypatch.setattr(os, "pidfd_open", _refuse)
    for module, name in missing:
        monkeypatch.delattr(module, name, raising=False)
    sleeper = subprocess.Popen(["sleep", "600"], env={processes.MARK: "mine", "PATH": os.defpath})
    try:
        birth = processes.birth(sleeper.pid)
        for since, mark in ((birth, "other"), ("1", "mine"), (None, "mine")):
            assert not processes.is_of_job(sleeper.pid, since, mark)
            processes.kill(sleeper.pid, since, mark)
        assert sleeper.poll() is None
        processes.kill(sleeper.pid, birth, "mine", signal.SIGTERM)
        assert sleeper.wait(30) == -signal.SIGTERM
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_process_that_ends_between_check_and_signal_is_not_confused_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its number may be another process' by then, so the signal goes to its descriptor."""
    sleeper = subprocess.Popen(["sleep", "600"])
    numbers: list[int] = []

    def ends() -> bool:
        sleeper.kill()
        sleeper.wait()
        monkeypatch.setattr(os, "kill", lambda pid, number: numbers.append(pid))
        return True

    before = len(list(Path("/proc/self/fd").iterdir()))
    processes._send(sleeper.pid, signal.SIGTERM, ends)
    assert sleeper.returncode == -signal.SIGKILL
    assert numbers == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_who_becomes_another_program_is_found_by_a_second_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has no environment for a moment, so no mark."""
    sleeper = subprocess.Popen(["sleep", "600"], env={processes.MARK: "mine", "PATH": os.defpath})
    found = {sleeper.pid: None}
    looks = iter([found, {}, found, {}, {}])
    monkeypatch.setattr(processes, "_members", lambda *marks: next(looks))
    processes.sweep("mine")
    assert sleeper.wait(30) == -9
    assert list(looks) == []


# ---------------------------------------------------------------------------------- claims


def status(state: str, pid: int, birth: str | None) -> dict[str, object]:
    return {"supervisor": {"pid": pid, "birth": birth}, "replicas": [{"state": state}]}


def test_claims_end_with_their_jobs(tmp_path: Path) -> None:
    claims = Claims(tmp_path, Host(tmp_path))
    assert (claims.ports(), claims.gpus()) == (set(), {})
    me = (os.getpid(), processes.birth(os.getpid()))
    states = {
        "runs": status("Running", *me),
        "over": status("Succeeded", *me),
        "lost": status("Running", me[0], "1"),
        "submitted": None,
    }
    for number, (name, record) in enumerate(states.items()):
        folder = Folder(tmp_path / "jobs" / name)
        folder.path.mkdir(parents=True)
        claims.add(name, [1000 + number], [f"{number}"])
        if record:
            folder.write_status(record)
    claims.add("gone", [5000], ["9"])
    assert claims.gpus() == {"0": "runs", "3": "submitted"}
    assert claims.ports() == {1000, 1003}
    # What has no status for so long will never have one.
    held = json.loads((tmp_path / "claims.json").read_text())
    held["submitted"]["since"] = time.time() - 1000
    (tmp_path / "claims.json").write_text(json.dumps(held))
    assert claims.gpus() == {"0": "runs"}
    (tmp_path / "claims.json").write_text("{")
    assert claims.gpus() == {}


def test_a_claim_holds_a_device_whatever_its_name(tmp_path: Path) -> None:
    claims = Claims(tmp_path, Host(tmp_path))
    (tmp_path / "jobs" / "a").mkdir(parents=True)
    claims.add("a", [], ["0"], {"0": "GPU-1", "1": "GPU-2"})
    assert claims.gpus({"0": "GPU-1", "1": "GPU-2"}) == {"0": "a"}
    assert claims.gpus({"GPU-1": "GPU-1", "1": "GPU-2"}) == {"GPU-1": "a", "0": "a"}
    assert claims.gpus({"0": "GPU-3", "1": "GPU-1"}) == {"1": "a"}  # another allocation of Slurm
    assert claims.gpus() == {"0": "a"}  # nvidia-smi does not answer: the names count
    claims.add("a", [], ["0"])  # as of an older version
    assert claims.gpus({"0": "GPU-3"}) == {"0": "a"}
    held = json.loads((tmp_path / "claims.json").read_text())
    held["a"]["uuids"] = {"0": 1}
    (tmp_path / "claims.json").write_text(json.dumps(held))
    assert claims.gpus() == {}
    del held["a"]["uuids"]
    (tmp_path / "claims.json").write_text(json.dumps(held))
    assert claims.gpus({"0": "GPU-3"}) == {"0": "a"}


def test_a_broken_record_leaves_other_claims_alone(tmp_path: Path) -> None:
    claims = Claims(tmp_path, Host(tmp_path))
    me = (os.getpid(), processes.birth(os.getpid()))
    for number, name in enumerate(("good", "empty", "zeros", "strange")):
        (tmp_path / "jobs" / name).mkdir(parents=True)
        claims.add(name, [1000 + number], [f"{number}"])
    Folder(tmp_path / "jobs" / "good").write_status(status("Running", *me))
    for name, data in (("empty", b""), ("zeros", b"\0\0"), ("strange", b"[]")):
        (tmp_path / "jobs" / name / "status.json").write_bytes(data)
    # They count as submitted just now, and as nothing once that is long ago.
    assert set(claims.gpus().values()) == {"good", "empty", "zeros", "strange"}
    held = json.loads((tmp_path / "claims.json").read_text())
    for claim in held.values():
        claim["since"] -= 1000
    (tmp_path / "claims.json").write_text(json.dumps(held))
    assert claims.gpus() == {"0": "good"}
    asyncio.run(claims.kill_orphans())
    for broken in (b"", b"[]"):
        (tmp_path / "claims.json").write_bytes(broken)
        assert claims.gpus() == {}


def test_another_machines_claims_are_kept_and_hinder_nobody_here(tmp_path: Path) -> None:
    here, there = (Claims(tmp_path, Host(tmp_path, name)) for name in ("a-host", "b-host"))
    folder, submitted = (Folder(tmp_path / "jobs" / name) for name in ("a", "submitted"))
    record = status("Running", 1, "1")
    for one in (folder, submitted):
        one.path.mkdir(parents=True)
        here.add(one.path.name, [1000], ["0"])
    record["supervisor"]["host"] = "a-host"  # type: ignore[index]
    record["supervisor"].update(pid=os.getpid(), birth=processes.birth(os.getpid()))  # type: ignore[attr-defined]
    folder.write_status(record)
    held = json.loads((tmp_path / "claims.json").read_text())
    held["submitted"]["since"] -= 100_000  # by a clock that is wrong
    (tmp_path / "claims.json").write_text(json.dumps(held))
    assert (there.gpus(), there.ports()) == ({}, set())
    there.add("mine", [1000], ["0"])
    assert set(json.loads((tmp_path / "claims.json").read_text())) == {"a", "submitted", "mine"}
    assert here.gpus()["0"] == "a"
    # Without a sign of life it holds nothing any more.
    os.utime(folder.status_file, (1, 1))
    os.utime(submitted.path, (1, 1))
    there.add("mine", [1000], ["0"])
    assert set(json.loads((tmp_path / "claims.json").read_text())) == {"mine"}


def test_a_lock_that_nobody_lets_go_of_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        claims = Claims(tmp_path, Host(tmp_path))
        async with claims.locked():
            async with asyncio.timeout(20):
                with pytest.raises(EnvironmentFault) as caught:
                    async with claims.locked(patience=0.05):
                        pass
        assert str(tmp_path / "claims.lock") in caught.value.message + caught.value.hint
        async with claims.locked(patience=0.0):
            pass

    asyncio.run(main())


def test_only_one_submit_chooses_at_a_time(tmp_path: Path) -> None:
    async def main() -> None:
        order: list[str] = []

        async def choose(name: str) -> None:
            async with Claims(tmp_path, Host(tmp_path)).locked():
                order.append(f"{name} in")
                await asyncio.sleep(0.02)
                order.append(f"{name} out")

        await asyncio.gather(*(choose(name) for name in "abcd"))
        assert [a[0] for a in order[::2]] == [b[0] for b in order[1::2]]
        # One that is interrupted while it waits lets the others go on.
        async with Claims(tmp_path, Host(tmp_path)).locked():
            waiting = asyncio.ensure_future(choose("e"))
            await asyncio.sleep(0.02)
            waiting.cancel()
            await asyncio.wait({waiting})
        await choose("f")
        assert order[-1] == "f out"

    asyncio.run(main())


# ---------------------------------------------------------------------------------- record


def test_a_record_is_the_users_alone_and_never_half(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    os.umask(umask := os.umask(0))
    try:
        os.umask(0)
        folder.write_job({"name": tmp_path.name, "program": "x"})
    finally:
        os.umask(umask)
    assert folder.job_file.stat().st_mode & 0o777 == 0o600
    assert folder.read_job()["program"] == "x"
    with pytest.raises(TypeError):
        folder.write_job({"name": tmp_path.name, "program": object()})
    assert folder.read_job()["program"] == "x"
    assert [path.name for path in tmp_path.iterdir()] == ["job.json"]
    folder.job_file.write_text(json.dumps({"version": 99}))
    with pytest.raises(ValueError, match="another version"):
        folder.read_job()
    assert folder.read_status() is None
    assert folder.read_stop_reason() == ""


def test_a_replica_inherits_no_rank_or_folder_of_another_job() -> None:
    given = {"HOME": "/h", "RANK": "3", "NODE_RANK": "1", "CIAO_CHECKPOINT": "/data", "A": "b"}
    assert inherited(given) == {"HOME": "/h", "A": "b"}  # type: ignore[arg-type]


def test_a_replica_of_a_notebook_inherits_no_wish_for_colours() -> None:
    kernel = {"CLICOLOR": "1", "CLICOLOR_FORCE": "1", "FORCE_COLOR": "1", "GIT_PAGER": "cat"}
    given = {"HOME": "/h", "TERM": "xterm-color", "PAGER": "cat", **kernel}
    assert inherited(given) == {"HOME": "/h"}  # type: ignore[arg-type]
    changed = {**given, "TERM": "dumb", "FORCE_COLOR": "3"}  # by `%env` of a cell
    assert inherited(changed) == {  # type: ignore[arg-type]
        "HOME": "/h", "TERM": "dumb", "FORCE_COLOR": "3",
    }  # fmt: skip
    terminal = {"HOME": "/h", "TERM": "xterm-color", "FORCE_COLOR": "1", "GIT_PAGER": "cat"}
    assert inherited(terminal) == terminal  # type: ignore[arg-type]
