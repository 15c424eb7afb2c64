"""IPython's own treatment of a cell, for cells that the kernel runs itself.

Extensions such as autoreload register functions that IPython calls around each cell, and IPython
replaces ``$name`` and ``{expression}`` in the line of a magic. Both must also hold for job cells
and for ``%ciao`` commands.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult, InteractiveShell
from IPython.utils.text import DollarFormatter


class Hooks:
    """Calls the functions that are registered for the events of one cell.

    Args:
        shell: IPython's shell, which has the registered functions.
        code: The cell.
        store_history: False if the cell is not stored in the history.
        cell_id: The ID of the cell, if the front-end has sent one.
    """

    def __init__(
        self, shell: InteractiveShell, code: str, *, store_history: bool, cell_id: str | None
    ) -> None:
        self.code, self.store_history = code, store_history
        self._events = shell.events
        known = inspect.signature(ExecutionInfo.__init__).parameters
        more = {"cell_id": cell_id, "transformed_cell": code}
        # IPython has no annotations here.
        self._info = ExecutionInfo(  # type: ignore[no-untyped-call]
            raw_cell=code,
            store_history=store_history,
            silent=False,
            shell_futures=True,
            **{name: value for name, value in more.items() if name in known},
        )
        self._result = ExecutionResult(self._info)  # type: ignore[no-untyped-call]
        if store_history:
            self._result.execution_count = shell.execution_count

    @contextlib.contextmanager
    def triggered(self) -> Iterator[None]:
        """Trigger the events before and after the cell, in IPython's order."""
        self._events.trigger("pre_execute")
        self._events.trigger("pre_run_cell", self._info)
        try:
            yield
        finally:
            self._events.trigger("post_execute")
            self._events.trigger("post_run_cell", self._result)

    def failed(self, outcome: Mapping[str, Any]) -> None:
        """Note the error of the cell, if its outcome is one, for the functions after the cell."""
        if outcome["status"] == "error":
            self._result.error_in_exec = CellError(f"{outcome['ename']}: {outcome['evalue']}")


class CellError(Exception):
    """Error of a job cell or a command, as ``post_run_cell`` receives it."""


def expanded(line: str, variables: Mapping[str, Any]) -> str:
    """Replace ``$name`` and ``{expression}`` as in the line of any magic; a wrong one is kept."""
    try:
        text: str = DollarFormatter().vformat(line, (), dict(variables))
    except Exception:  # IPython does the same: braces of a shell command stay as they are
        return line
    return text
