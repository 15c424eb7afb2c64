"""Sign-in programs as they are: wrappers whose children hang, and some that ask in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.cluster.target import Targets
from ciao_kernel.config import Settings
from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube import exec_plugin

VERSION = "client.authentication.k8s.io/v1"
ANSWER = json.dumps({"apiVersion": VERSION, "status": {"token": "TOKEN"}})


@pytest.fixture
def program(tmp_path: Path) -> Any:
    """Makes a shell script the plug-in of a kubeconfig."""

    def make(body: str) -> dict[str, Any]:
        path = tmp_path / "sign-in"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return {"command": "./sign-in", "apiVersion": VERSION}

    return make


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Path]:
    """Where a script puts the process id of what it starts; that is ended after the test."""
    path = tmp_path / "child"
    yield path
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(path.read_text()), signal.SIGKILL)


def gone(pid: int) -> bool:
    """Whether a process ends by itself: what it runs would take longer than this looks."""
    for _ in range(1200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


# A wrapper: it waits for its child, which holds its output.
HANGS = "sleep 600 & echo $! > child.new; mv child.new child; wait"


def test_a_child_that_hangs_ends_with_its_wrapper(
    program: Any, tmp_path: Path, child: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_plugin, "_TIMEOUT", 15.0)
    config = program(f"cd {tmp_path}; {HANGS}")

    async def main() -> None:
        async with asyncio.timeout(60):
            with pytest.raises(ClusterFault, match="it gave no answer for 15 seconds"):
                await exec_plugin.run(config, {}, tmp_path)

    asyncio.run(main())
    assert gone(int(child.read_text()))


def test_an_interrupt_does_not_wait_for_a_child_that_hangs(
    program: Any, tmp_path: Path, child: Path
) -> None:
    config = program(f"cd {tmp_path}; {HANGS}")

    async def main() -> None:
        task = asyncio.create_task(exec_plugin.run(config, {}, tmp_path))
        async with asyncio.timeout(60):
            while not child.exists():
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert gone(int(child.read_text()))


def test_an_interrupt_of_the_start_ends_the_child_too(
    program: Any, tmp_path: Path, child: Path
) -> None:
    config = program(f"cd {tmp_path}; {HANGS}")

    async def main() -> None:
        task = asyncio.create_task(exec_plugin.run(config, {}, tmp_path))
        for _ in range(600):
            await asyncio.sleep(0)  # a step of the start, which waits for this loop
            time.sleep(0.1)
            if child.exists() and child.read_text().strip():
                break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert gone(int(child.read_text()))


def test_what_a_program_leaves_running_is_not_waited_for(
    program: Any, tmp_path: Path, child: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_plugin, "_LAST_WORDS", 0.2)
    config = program(f"echo '{ANSWER}'; sleep 600 & echo $! > {child}")

    async def main() -> exec_plugin.Credential:
        async with asyncio.timeout(60):
            return await exec_plugin.run(config, {}, tmp_path)

    assert asyncio.run(main()).token == "TOKEN"
    os.kill(int(child.read_text()), 0)  # such as an agent that keeps what was typed


def test_a_first_cell_with_little_time_leaves_the_sign_in_to_the_others(
    program: Any, tmp_path: Path, child: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start may open a page in a browser; the end of the clients ends it."""
    started = tmp_path / "started"
    config = program(f"cd {tmp_path}; echo x >> started; {HANGS}")
    kubeconfig = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {"exec": config}}],
    }
    (tmp_path / "config").write_text(json.dumps(kubeconfig))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))

    async def main() -> None:
        targets = Targets(Settings())
        async with asyncio.timeout(60):
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await targets.of()
            asking = asyncio.ensure_future(targets.of())  # without anybody it would be given up
            while not child.exists():
                await asyncio.sleep(0.02)
            asking.cancel()
            await targets.close()

    asyncio.run(main())
    assert started.read_text() == "x\n"
    assert gone(int(child.read_text()))


IN_TERMINAL = f"""
import asyncio, os, pathlib, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))  # the first one of a session becomes its terminal
from ciao_kernel.kube import exec_plugin
config = {{"command": "./sign-in", "apiVersion": "{VERSION}"}}
print("got", asyncio.run(exec_plugin.run(config, {{}}, pathlib.Path(sys.argv[1]))).token)
"""


def test_a_program_may_ask_in_the_terminal_of_the_command_line(
    program: Any, tmp_path: Path
) -> None:
    answer = ANSWER.replace("TOKEN", "$word")
    program(f"printf 'word? ' > /dev/tty; read word < /dev/tty; cat <<END\n{answer}\nEND")
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", IN_TERMINAL, str(tmp_path)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    said = b""
    try:
        os.write(ours, b"sesame\n")
        with contextlib.suppress(OSError):  # Linux says so when nobody has the other end
            while piece := os.read(ours, 4096):
                said += piece
        assert process.wait(30) == 0, said.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"word? " in said
    assert b"got sesame" in said
