"""Settings that a user, an administrator or a kernel sets once, for all cells.

Each place overrides the one before: built-in, ``/etc/ciao/config.toml``,
``~/.config/ciao/config.toml``, ``CIAO_*`` variables, ``%ciao config key=value``. A cell's
directives come last. Names are compared like names of directives: ``onShutdown``,
``on-shutdown`` and ``CIAO_ON_SHUTDOWN`` are the same setting.
"""

from ciao_kernel.config.settings import Settings, shown_name
from ciao_kernel.config.sources import config_files, load, load_with_errors

__all__ = ["Settings", "config_files", "load", "load_with_errors", "shown_name"]
