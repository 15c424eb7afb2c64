"""ciao: a Jupyter kernel whose cells train on many replicas.

Importing the package costs nothing: the kernel, the IPython extension and the command line import
other modules at their first use.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # not from typing: that import would cost more than all the rest here
if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register ``%%ciao`` and ``%ciao``; IPython calls it on ``%load_ext ciao_kernel``."""
    from ciao_kernel.jupyter.extension import register

    register(shell)
