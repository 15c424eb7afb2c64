"""How a hint says that a package can be installed."""

from __future__ import annotations

import sys

from ciao_kernel.backends.local.interpreter import install_words


def test_only_for_the_kernels_own_python_is_there_a_command_of_ipython() -> None:
    own = install_words(sys.executable, "torch")
    assert own == f"`{sys.executable} -m pip install torch` (in a notebook: %pip install torch)"
    assert install_words("/opt/other/python", "torch") == "`/opt/other/python -m pip install torch`"
