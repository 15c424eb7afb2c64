"""The language module for SoS: ``%use Ciao`` and what goes between it and other languages.

SoS loads it in its own process, by the entry point group ``sos_languages``, and makes a new object
for every magic. Nothing of ciao imports it, for only here SoS is sure to be installed.
"""

from __future__ import annotations

import base64
import pickle
import tempfile
import time
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from sos.utils import as_fstring, env

from ciao_kernel import __version__
from ciao_kernel.jupyter.sos import kernel_side

_LOOK = 0.5
"""Seconds between two looks at whether the kernel lives, while SoS waits for it."""
_LARGE = 1024 * 1024
"""Bytes of a value from which a file is tried first: a message can hold values only as source,
and IPython takes up to a second for a megabyte of it."""
_READY = 60.0
"""Seconds that a kernel gets to start again."""


class KernelDied(Exception):
    """The kernel's process ended while SoS waited for its answer; a cell shows it."""


class _Refused(Exception):
    """The kernel could not do what was asked; the text is its error's."""


class Ciao:
    """Ciao as a language of SoS. The names are SoS' own.

    Args:
        sos_kernel: SoS.
        kernel_name: The kernelspec that the cell's kernel was started from.
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
                _settle(client)
                _watch(client, manager, name)
                _watch_restarts(sos_kernel, manager, name)

    async def get_vars(self, names: list[str], as_var: str | None = None) -> None:
        """``%get``: put variables of SoS into the kernel's plain cells."""
        for name in names:
            if not (as_var or name).isidentifier():  # "run.losses", which no cell could read
                self.sos_kernel.warn(f"%get cannot make {name} in Ciao: --as NAME gives it a name")
                continue
            try:
                pickled = pickle.dumps({as_var or name: env.sos_dict[name]})
            except Exception as error:  # whatever the value's type raises
                self.sos_kernel.warn(f"%get cannot send {name}: {error}")
                continue
            reply = await self._send(pickled)
            if reply["status"] != "ok":
                self.sos_kernel.warn(f"%get cannot make {name} in Ciao: {_error(reply)}")

    def put_vars(
        self, items: list[str], to_kernel: str | None = None, as_var: str | None = None
    ) -> dict[str, Any]:
        """``%put``: return variables of the kernel, which SoS passes on."""
        asked = {as_var or item: item for item in items}
        values: dict[str, Any] = {}
        try:
            answers = self._ask("give", asked)
        except Exception as error:  # nobody answers any more
            answers = {name: ["", str(error)] for name in asked}
        for name, (pickled, fault) in answers.items():
            if not fault:
                try:
                    values[name] = pickle.loads(base64.b64decode(pickled))
                except Exception as error:  # of a type that SoS does not know
                    fault = f"{type(error).__name__}: {error}"
            if fault:
                self.sos_kernel.warn(f"%put cannot send {asked[name]}: {fault}")
        if to_kernel not in (None, "SoS"):
            # SoS goes on with this very list, and hands on nothing if one is missing.
            items[:] = [asked[name] for name in values]
        return values

    def expand(self, text: str, sigil: str) -> str:
        """``%expand --in Ciao``: fill in expressions of the kernel's variables."""
        if sigil != "{ }":
            from sos.parser import replace_sigil

            text = replace_sigil(text, sigil)
        filled: str = self._ask("evaluate", as_fstring(text))
        return filled

    def preview(self, item: str) -> tuple[str, str]:
        """``%preview``: return what a value is and how it begins. SoS takes only text."""
        description, text = self._ask("preview", item)
        return description, text

    def sessioninfo(self) -> list[tuple[str, str]]:
        """``%sessioninfo``: return versions."""
        return [(name, version) for name, version in self._ask("session")]

    async def _send(self, pickled: bytes) -> dict[str, Any]:
        """Hand variables to the kernel; return its reply."""
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
            _Refused: It raised.
            KernelDied: Nobody answers any more.
        """
        mark = uuid.uuid4().hex
        code = _call("ask", mark, function, *arguments)
        for kind, content in self.sos_kernel.get_response(code, ["display_data", "error"]):
            if kind == "error":
                raise _Refused(_error(content))
            answer = content["data"].get(kernel_side.ANSWER)
            if answer and answer["mark"] == mark:
                return answer["answer"]
        raise _Refused("the kernel gave no answer")


def _call(function: str, *arguments: Any) -> str:
    """A cell that calls a function of ``inside`` with the user's namespace."""
    module = kernel_side.__name__
    given = ", ".join(["globals()", *map(repr, arguments)])
    return f"__import__({module!r}, fromlist=['*']).{function}({given})"


def _error(content: Mapping[str, Any]) -> str:
    return f"{content['ename']}: {content['evalue']}"


def _settle(client: Any) -> None:
    """Let a client take all that its kernel has said while it started.

    SoS takes any "idle" for the end of its cell: a late one of the kernel's start would cost the
    first cell its output.
    """
    client.execute_interactive("", silent=True, store_history=False, timeout=_READY)


def _watch(client: Any, manager: Any, name: str) -> None:
    """Let SoS notice that a kernel died.

    While a cell runs, SoS asks its client again and again for a reply, and for nothing else: a
    kernel that died would keep SoS and all other languages waiting for ever.
    """
    channel = client.shell_channel
    ready = channel.msg_ready
    looked = time.monotonic()

    def msg_ready() -> bool:
        nonlocal looked
        if ready():
            return True
        if time.monotonic() - looked > _LOOK:
            if not manager.is_alive():
                raise KernelDied(
                    f"the kernel {name} died. The next cell starts it again, without its "
                    "variables. A job on a cluster runs on: `%ciao jobs` lists it."
                )
            looked = time.monotonic()
        return False

    channel.msg_ready = msg_ready


def _watch_restarts(sos_kernel: Any, manager: Any, name: str) -> None:
    """Let SoS use a kernel that it has started again.

    SoS then makes a client and sends the cell at once. A kernel that is faster than the client's
    subscription says "busy" to nobody, and SoS waits for that word for ever.
    """
    make = manager.client

    def client(**options: Any) -> Any:
        _, old = sos_kernel.kernels[name]
        old.stop_channels()
        made = make(**options)
        made.start_channels()
        made.wait_for_ready(timeout=_READY)
        _settle(made)
        _watch(made, manager, name)
        sos_kernel.kernels[name] = (manager, made)
        return made

    manager.client = client
