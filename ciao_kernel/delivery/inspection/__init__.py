"""Looking into the processes of a replica: the handler in them, and the reader that asks it."""

from __future__ import annotations

import inspect

from ciao_kernel.delivery import site_folder
from ciao_kernel.delivery.inspection import stack_handler
from ciao_kernel.model import Source

_HANDLER = "ciao_stack_handler.py"


def with_files(source: Source) -> Source:
    """Return a source with the handler."""
    return site_folder.add(source, {_HANDLER: inspect.getsource(stack_handler)})
