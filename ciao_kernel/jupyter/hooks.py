"""IPython's own treatment of a cell, for cells that the kernel runs itself.

Extensions such as autoreload register functions that IPython calls around each cell, and IPython
replaces ``$name`` and ``{expression}`` in the line of a magic. Both must also hold for job cells
and for ``%ciao`` commands.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Mapping
from typing import Any

from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult, InteractiveShell
from IPython.utils.text import DollarFormatter

_log = logging.getLogger(__name__)


class Hooks:
    """Calls the functions that are registered for the events of one cell.

    Args:
        shell: IPython's shell, which has the registered functions.
        code: The cell.
        store_history: False if the cell is not stored in the history.
        cell_id: The ID of the cell, if the front-end has sent one.
        cell_meta: The metadata of the cell, likewise.
    """

    def __init__(
        self,
        shell: InteractiveShell,
        code: str,
        store_history: bool,
        cell_id: str | None,
        cell_meta: dict[str, Any] | None,
    ) -> None:
        self.code, self.store_history = code, store_history
        self._shell = shell
        # IPython has no annotations here, and each version has other parameters.
        parameters = inspect.signature(ExecutionInfo.__init__).parameters
        optional = {"cell_id": cell_id, "transformed_cell": code, "cell_meta": cell_meta}
        self._info = ExecutionInfo(  # type: ignore[no-untyped-call]
            raw_cell=code,
            store_history=store_history,
            silent=False,
            shell_futures=True,
            **{name: value for name, value in optional.items() if name in parameters},
        )

    def before(self) -> None:
        """Trigger the events before the cell. An error of a function is printed.

        Raises:
            KeyboardInterrupt: A function was interrupted; the cell must not run.
        """
        with contextlib.suppress(SystemExit):
            self._shell.events.trigger("pre_execute")
            self._shell.events.trigger("pre_run_cell", self._info)

    def after(self, outcome: Mapping[str, Any], number: int | None) -> None:
        """Trigger the events after the cell.

        Args:
            outcome: Content of the reply, with ``status``, ``ename`` and ``evalue``.
            number: Number of the cell in the history; None if it did not begin.
        """
        shell = self._shell
        result = ExecutionResult(self._info)  # type: ignore[no-untyped-call]
        if self.store_history:
            result.execution_count = number
        if outcome["status"] == "error":
            result.error_in_exec = CellError(f"{outcome['ename']}: {outcome['evalue']}")
        shell.last_execution_succeeded = result.success
        shell.last_execution_result = result
        with contextlib.suppress(SystemExit):
            shell.events.trigger("post_execute")
            shell.events.trigger("post_run_cell", result)


class CellError(Exception):
    """Error of a job cell or a command, as ``post_run_cell`` receives it."""


def expand_variables(line: str, variables: Mapping[str, Any]) -> str:
    """Replace ``$name`` and ``{expression}`` as in the line of any magic; a wrong one is kept.

    The command after ``--`` is not changed: its braces and dollars are for a replica's shell.
    """
    own, dashes, command = line.partition(" -- ")
    try:
        text: str = DollarFormatter().vformat(own, (), dict(variables))
    except Exception:  # as IPython does
        _log.debug("the line of a command was not expanded", exc_info=True)
        return line
    return text + dashes + command
