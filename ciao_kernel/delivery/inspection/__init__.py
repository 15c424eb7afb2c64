"""Looking into the processes of a replica: stacks of those that run, and prompts of pdb."""

from __future__ import annotations

import inspect
from importlib import resources

from ciao_kernel.delivery import site_folder
from ciao_kernel.delivery.inspection import debugger, post_mortem, stack_handler
from ciao_kernel.model import Source

_HANDLER, _DEBUGGER = "ciao_stack_handler.py", "ciao_debugger.py"
_PARTS = {"ciao_debug_wire.py": "debug_wire.py", "ciao_debug_prompt.py": "debug_prompt.py"}
"""Files that the debugger loads, and their names here. One imports pdb, so none is imported."""
_POST_MORTEM = "ciao_post_mortem.py"
_LONGEST = 7 * 24 * 3600
"""Seconds that a socket may wait at most: it counts milliseconds, in 32 bits."""


def with_files(
    source: Source, passed_over: str = "", wait: float = 600.0, kept_for: int | None = None
) -> Source:
    """Return a source with the handler and the debugger.

    Args:
        source: The program.
        passed_over: Why breakpoint() is passed over, to end a sentence; "" if it is not.
        wait: Seconds for which a program that was stopped from outside waits alone.
        kept_for: Seconds for which a program that fails is kept at its error; None: it is not.
    """
    here = resources.files(__name__)
    texts = {
        _HANDLER: inspect.getsource(stack_handler),
        _DEBUGGER: inspect.getsource(debugger),
        **{name: here.joinpath(own).read_text("utf-8") for name, own in _PARTS.items()},
        debugger.SENTENCE: passed_over,
        debugger.WAIT: str(min(wait, _LONGEST)),
    }
    if kept_for:
        texts[_POST_MORTEM] = inspect.getsource(post_mortem)
        texts[post_mortem.SECONDS] = str(kept_for)
    return site_folder.add(source, texts)


def has_files(source: Source) -> bool:
    """Return whether a source has the handler."""
    return any(file.path == f"{site_folder.FOLDER}/{_HANDLER}" for file in source.own)
