"""The language module for SoS: ``%use Ciao``, and exchange of variables with other languages.

SoS loads this module in its own process, by the entry point group ``sos_languages``, and makes a
new object for every magic. No part of ciao imports this module, because SoS is an optional package.
"""

from __future__ import annotations

import base64
import logging
import pickle
import tempfile
import time
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from sos.utils import as_fstring, env

from ciao_kernel import __version__
from ciao_kernel.jupyter.sos import kernel_side, versions

_log = logging.getLogger(__name__)
# Only at the level debug: SoS shows other records in the notebook, without filling in arguments.

_CHECK_INTERVAL = 0.5
"""Seconds between two checks that the kernel is alive, while SoS waits for it."""
_LARGE = 1024 * 1024
"""Size in bytes above which a value is first sent through a file: a message can contain values
only as source code, and IPython takes up to a second for a megabyte of it."""
_READY_TIMEOUT = 60.0
"""Seconds that a kernel may take to become ready."""


class KernelDied(Exception):
    """The kernel's process ended while SoS waited for its answer; a cell shows this error."""


class _Refused(Exception):
    """The kernel could not fulfil the request; the text is that of the kernel's error."""


class Ciao:
    """Ciao as a language of SoS, which prescribes the names of methods and attributes.

    Args:
        sos_kernel: The kernel of SoS.
        kernel_name: The kernelspec of the cell's kernel.
    """

    supported_kernels: ClassVar = {"Ciao": ["ciao"]}
    background_color: ClassVar = {"Ciao": "#D5F5E3"}
    options: ClassVar = {
        "variable_pattern": r"^\s*[A-Za-z_][A-Za-z0-9_.]*\s*$",
        "assignment_pattern": r"^\s*([A-Za-z_][A-Za-z0-9_.]*)\s*=.*$",
        "indentation_aware": True,
    }
    cd_command = "__import__('os').chdir({dir!r})"
    init_statements = ""
    __version__ = __version__

    def __init__(self, sos_kernel: Any, kernel_name: str = "ciao") -> None:
        self.sos_kernel = sos_kernel
        self.kernel_name = kernel_name
        # The first object is made right after the kernel has started, before any cell.
        for name, (manager, client) in sos_kernel.kernels.items():
            if manager.kernel_name == kernel_name and not hasattr(manager, "_ciao_watches"):
                manager._ciao_watches = True
                manager._ciao_version = _drain_messages(client)
                _watch(client, manager, name)
                _watch_restarts(sos_kernel, manager, name)

    async def get_vars(self, names: list[str], as_var: str | None = None) -> None:
        """Put variables of SoS into the kernel's plain cells (``%get``)."""
        for name in names:
            if not (as_var or name).isidentifier():  # "run.losses", which no cell could read
                self.sos_kernel.warn(f"%get cannot create {name} in Ciao: rename it by --as NAME")
                continue
            try:
                pickled = pickle.dumps({as_var or name: env.sos_dict[name]})
            except Exception as error:  # any error that the value's type raises
                _log.debug("%%get cannot send %s", name, exc_info=True)
                self.sos_kernel.warn(f"%get cannot send {name}: {error}")
                continue
            reply = await self._send(pickled)
            if reply["status"] != "ok":
                self.sos_kernel.warn(f"%get cannot create {name} in Ciao: {self._error(reply)}")

    def put_vars(
        self, items: list[str], to_kernel: str | None = None, as_var: str | None = None
    ) -> dict[str, Any]:
        """Return variables of the kernel, which SoS passes on (``%put``)."""
        expressions = {as_var or item: item for item in items}
        values: dict[str, Any] = {}
        try:
            answers = self._ask("give", expressions)
        except Exception as error:  # the kernel does not answer any more
            _log.debug("%put got no answer", exc_info=True)
            answers = {name: ["", str(error)] for name in expressions}
        for name, (pickled, problem) in answers.items():
            if not problem:
                try:
                    values[name] = pickle.loads(base64.b64decode(pickled))
                except Exception as error:  # the type is not available in SoS's process
                    _log.debug("%%put cannot read %s", name, exc_info=True)
                    problem = f"{type(error).__name__}: {error}"
            if problem:
                self.sos_kernel.warn(f"%put cannot send {expressions[name]}: {problem}")
        if to_kernel not in (None, "SoS"):
            # SoS keeps using this list object, and passes nothing on if an item has no value.
            items[:] = [expressions[name] for name in values]
        return values

    def expand(self, text: str, sigil: str) -> str:
        """Fill in expressions of the kernel's variables (``%expand --in Ciao``)."""
        if sigil != "{ }":
            from sos.parser import replace_sigil

            text = replace_sigil(text, sigil)
        filled: str = self._ask("evaluate", as_fstring(text))
        return filled

    def preview(self, item: str) -> tuple[str, str]:
        """Return a value's description and its beginning (``%preview``). SoS takes only text."""
        description, text = self._ask("preview", item)
        return description, text

    def sessioninfo(self) -> list[tuple[str, str]]:
        """Return versions (``%sessioninfo``)."""
        return [(name, version) for name, version in self._ask("session")]

    async def _send(self, pickled: bytes) -> dict[str, Any]:
        """Send variables to the kernel; return its reply."""
        if len(pickled) > _LARGE:
            with tempfile.NamedTemporaryFile(prefix="ciao-") as file:
                file.write(pickled)
                file.flush()
                reply = await self._run(_call("take_file", file.name))
            if reply.get("ename") not in ("FileNotFoundError", "PermissionError"):
                return reply
            # The kernel runs on another machine, or as another user.
        return await self._run(_call("take", base64.b64encode(pickled).decode()))

    async def _run(self, code: str) -> dict[str, Any]:
        reply: dict[str, Any] = await self.sos_kernel.run_cell(code, True, False)
        return reply

    def _ask(self, function: str, *arguments: Any) -> Any:
        """Call a function of :mod:`ciao_kernel.jupyter.sos.kernel_side` and return its answer.

        Raises:
            _Refused: The function raised an error, or gave no answer.
            KernelDied: The kernel's process has ended.
        """
        mark = uuid.uuid4().hex
        code = _call("ask", mark, function, *arguments)
        for kind, content in self.sos_kernel.get_response(code, ["display_data", "error"]):
            if kind == "error":
                raise _Refused(self._error(content))
            answer = content["data"].get(kernel_side.ANSWER)
            if answer and answer["mark"] == mark:
                return answer["answer"]
        raise _Refused(self._explained("the kernel gave no answer"))

    def _error(self, content: Mapping[str, Any]) -> str:
        return self._explained(f"{content['ename']}: {content['evalue']}")

    def _explained(self, error: str) -> str:
        for manager, _ in self.sos_kernel.kernels.values():
            if manager.kernel_name == self.kernel_name and hasattr(manager, "_ciao_version"):
                return versions.explained(error, __version__, manager._ciao_version)
        return error


def _call(function: str, *arguments: Any) -> str:
    """Return a cell that calls a function of ``kernel_side`` with the user's namespace."""
    module = kernel_side.__name__
    listed = ", ".join(["globals()", *map(repr, arguments)])
    return f"__import__({module!r}, fromlist=['*']).{function}({listed})"


def _drain_messages(client: Any) -> str:
    """Let a client read all messages that its kernel sent during the start.

    SoS treats any "idle" as the end of its cell: after a late "idle" of the kernel's start, the
    output of the first cell would be lost.

    Returns:
        The version of ciao in the kernel; "" if it has none.
    """
    reply = client.execute_interactive(
        "",
        silent=True,
        store_history=False,
        user_expressions=versions.QUESTION,
        timeout=_READY_TIMEOUT,
    )
    return versions.version_in(reply["content"])


def _watch(client: Any, manager: Any, name: str) -> None:
    """Let SoS notice that a kernel died.

    While a cell runs, SoS only polls its client for a reply: if the kernel died, SoS and all
    other languages would wait for ever.
    """
    channel = client.shell_channel
    is_ready = channel.msg_ready
    checked = time.monotonic()

    def msg_ready() -> bool:
        nonlocal checked
        if is_ready():
            return True
        if time.monotonic() - checked > _CHECK_INTERVAL:
            if not manager.is_alive():
                raise KernelDied(
                    f"the kernel {name} died. The next cell starts it again, without its "
                    "variables. Jobs on a cluster keep running: `%ciao jobs` lists them."
                )
            checked = time.monotonic()
        return False

    channel.msg_ready = msg_ready


def _watch_restarts(sos_kernel: Any, manager: Any, name: str) -> None:
    """Let SoS use a kernel that it has restarted.

    SoS then makes a client and sends the cell at once. If the kernel is faster than the client's
    subscription, its "busy" is lost, and SoS waits for it for ever.
    """
    create = manager.client

    def client(**options: Any) -> Any:
        _, old = sos_kernel.kernels[name]
        old.stop_channels()
        new = create(**options)
        new.start_channels()
        new.wait_for_ready(timeout=_READY_TIMEOUT)
        manager._ciao_version = _drain_messages(new)
        _watch(new, manager, name)
        sos_kernel.kernels[name] = (manager, new)
        return new

    manager.client = client
