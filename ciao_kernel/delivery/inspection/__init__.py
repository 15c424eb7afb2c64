"""Looking into the processes of a replica: stacks of those that run, and prompts of pdb."""

from __future__ import annotations

import inspect

from ciao_kernel.delivery import site_folder
from ciao_kernel.delivery.inspection import debugger, stack_handler
from ciao_kernel.model import Source

_HANDLER, _DEBUGGER = "ciao_stack_handler.py", "ciao_debugger.py"


def with_files(source: Source, passed_over: str = "") -> Source:
    """Return a source with the handler and the debugger.

    Args:
        source: The program.
        passed_over: Why breakpoint() is passed over, to end a sentence; "" if it is not.
    """
    texts = {
        _HANDLER: inspect.getsource(stack_handler),
        _DEBUGGER: inspect.getsource(debugger),
        debugger.SENTENCE: passed_over,
    }
    return site_folder.add(source, texts)


def has_files(source: Source) -> bool:
    """Return whether a source has the handler."""
    return any(file.path == f"{site_folder.FOLDER}/{_HANDLER}" for file in source.own)
