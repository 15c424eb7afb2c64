"""Run a kubeconfig's exec plug-in, which returns the user's credentials.

The protocol is client.authentication.k8s.io: an ExecCredential in KUBERNETES_EXEC_INFO as input,
and one on standard output. The plug-in's standard output is secret, and is never shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube.server_clock import SKEW
from ciao_kernel.redaction import mask

_log = logging.getLogger(__name__)

_TIMEOUT = 60.0
_LAST_WORDS = 2.0
"""Seconds for which the pipes are still read after the program has ended."""
_KILLED = 1.0
"""Seconds to wait for the end of a killed program."""
_SHOWN = 300
"""Characters of a plug-in's last output that are shown in a message."""
# Possible secrets: a JSON web token, the value after a word like "token", and any long sequence of
# letters and digits.
_SECRET = re.compile(
    r"eyJ[\w.-]+|(?i:(?<=token)|(?<=secret)|(?<=password))['\"]?[=:]\s*\S+|[\w+=-]{40,}"
)
_MODES = ("Never", "IfAvailable", "Always")


@dataclass(frozen=True, slots=True)
class Credential:
    """Credentials from a plug-in: a token, or a certificate with its key, or both.

    Args:
        token: Token for the header.
        certificate: Certificate in PEM.
        key: Key in PEM.
        until: Expiry (seconds since the epoch); infinite if the plug-in gave none.
    """

    token: str = field(default="", repr=False)
    certificate: str = ""
    key: str = field(default="", repr=False)
    until: float = math.inf


async def run(config: Mapping[str, Any], cluster: Mapping[str, Any], folder: Path) -> Credential:
    """Run a plug-in.

    Args:
        config: The ``exec`` entry of a user in a kubeconfig.
        cluster: The server to sign in to, as ``spec.cluster`` of an ExecCredential.
        folder: Folder of the kubeconfig: a command with a slash is relative to it.

    Raises:
        ClusterFault: The plug-in needs a terminal or returned no usable credentials; the message
            has the reason.
        ValueError: The entry cannot be used.
    """
    command = str(config.get("command") or "")
    if "/" in command:
        command = str(folder / command)
    mode = str(config.get("interactiveMode") or _MODES[0])
    if mode not in _MODES:
        raise ValueError(f"its interactiveMode {mode} is none of {', '.join(_MODES)}")
    if mode == "Always":
        raise ClusterFault(
            f"the sign-in program {command} of the kubeconfig needs a terminal "
            "(interactiveMode: Always), and ciao gives it none.",
            "Set `interactiveMode: IfAvailable` if it also works without questions, or use "
            "another way to sign in.",
        )
    version = str(config.get("apiVersion") or "")
    spec: dict[str, Any] = {"interactive": False}
    if config.get("provideClusterInfo") is True:
        spec["cluster"] = cluster
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    named = {str(one["name"]): str(one["value"]) for one in config.get("env") or ()}
    environment = {**os.environ, **named, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    arguments = [str(one) for one in config.get("args") or ()]
    hint = str(config.get("installHint") or "").strip()
    began = time.monotonic()
    output = await _output(command, arguments, environment, hint)
    _log.debug("the sign-in program %s answered in %.3f s", command, time.monotonic() - began)
    return _read(output, command, version)


async def _output(
    command: str, arguments: list[str], environment: Mapping[str, str], hint: str
) -> bytes:
    loop, program = asyncio.get_running_loop(), _Program()
    # Not in a new session: a plug-in that asks in the terminal (/dev/tty) needs this one.
    starting = asyncio.ensure_future(
        loop.subprocess_exec(
            lambda: program,
            command,
            *arguments,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,  # the plug-in must not read our input
        )
    )
    try:
        async with asyncio.timeout(_TIMEOUT):
            # A start that is cancelled kills the program, but none of its child processes.
            transport, _ = await asyncio.shield(starting)
            await program.end()
    except TimeoutError:
        # It may have asked the user to open a page.
        why = f"it gave no answer for {_TIMEOUT:.0f} seconds{program.last_words()}"
        raise _failed(command, why) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ClusterFault(
            f"the sign-in program {command} of the kubeconfig cannot be started: {why}.",
            hint or "Install it, or put it on ciao's PATH.",
        ) from None
    finally:
        await _end(starting, program)
    if code := transport.get_returncode():
        raise _failed(command, f"exit code {code}{program.last_words()}")
    return bytes(program.said[1])


async def _end(
    starting: asyncio.Future[tuple[asyncio.SubprocessTransport, _Program]], program: _Program
) -> None:
    """End a program that still runs, and let go of it."""
    try:
        transport, _ = await starting
    except (OSError, ValueError):
        return  # it never ran
    try:
        if transport.get_returncode() is None:
            _kill(transport.get_pid())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_KILLED):
                    await program.ended.wait()
    finally:
        transport.close()  # do not wait for other processes that hold the pipes


class _Program(asyncio.SubprocessProtocol):
    """A running program: collects its output and signals its end.

    ``Process.wait`` of Python 3.11 returns only after all processes have closed the pipes.
    """

    def __init__(self) -> None:
        self.said = {1: bytearray(), 2: bytearray()}
        self.ended, self._closed = asyncio.Event(), asyncio.Event()
        self._open = set(self.said)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.said[fd] += data

    def pipe_connection_lost(self, fd: int, _: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open:
            self._closed.set()

    def process_exited(self) -> None:
        self.ended.set()

    async def end(self) -> None:
        """Wait until the program has ended and its output was read."""
        await self.ended.wait()
        # Child processes that still run may hold the pipes; the program's own output is complete.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                await self._closed.wait()

    def last_words(self) -> str:
        """Return the end of what it said to the user, masked, to follow a sentence; or ""."""
        text = self.said[2].decode(errors="replace").strip()
        last = _SECRET.sub("…", mask(" ".join(text.split()[-60:])))[-_SHOWN:]
        return f": {last}" if last else ""


def _kill(pid: int) -> None:
    """Kill a program and all its child processes: the child of a wrapper would keep running."""
    import psutil

    with contextlib.suppress(psutil.Error):
        program = psutil.Process(pid)
        for one in (program, *program.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                one.kill()


def _read(output: bytes, command: str, version: str) -> Credential:
    try:
        answer = json.loads(output)
    except (ValueError, RecursionError):
        raise _failed(command, "it printed no JSON") from None
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(status, dict):
        raise _failed(command, "it printed no ExecCredential with a status")
    if answer.get("apiVersion") != version:
        raise _failed(command, f"the kubeconfig requires {version}, but it uses another version")
    token, certificate, key = (
        text if isinstance(text := status.get(name), str) else ""
        for name in ("token", "clientCertificateData", "clientKeyData")
    )
    if not token and not (certificate and key):
        raise _failed(command, "it gave neither a token nor a certificate with its key")
    ends, until = status.get("expirationTimestamp"), math.inf
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        until = datetime.fromisoformat(ends or "").astimezone(UTC).timestamp()
    now = time.time()
    if until <= now - SKEW:
        raise _failed(command, f"its credentials expired at {ends}")
    if until <= now:  # or this machine's clock is ahead: the server decides, as for kubectl
        _log.warning("the credentials of %s expired at %s by this machine's clock", command, ends)
        until = math.inf
    return Credential(token, certificate, key, until)


def _failed(command: str, why: str) -> ClusterFault:
    return ClusterFault(
        f"the sign-in program {command} of the kubeconfig failed: {why.rstrip('.')}.",
        "Sign in with it in a terminal, then try again.",
    )
