"""Runs pip for another machine's Python; a program that :mod:`ciao_kernel.builders.wheels` starts.

pip itself chooses wheels of another Python and platform. It takes two things from the Python that
it runs in, though, and gets them here from the other one: what is installed, and the markers of
requirements (``; python_version < "3.11"``).

    python -I -S elsewhere.py PIP INSTALLED MARKERS install …
"""

import importlib
import json
import sys
from typing import Any


def main() -> None:
    """Run pip.

    The arguments: the folder that holds pip, the folder that holds what counts as installed, the
    markers as JSON, and pip's own.
    """
    where, installed, markers, *arguments = sys.argv[1:]
    sys.path.insert(0, where)
    pip: Any = importlib.import_module("pip._internal.cli.main")
    options: Any = importlib.import_module("pip._internal.cli.cmdoptions")
    packaging: Any = importlib.import_module("pip._vendor.packaging.markers")
    # What lies beside pip is not installed over there.
    sys.path[0] = installed
    importlib.invalidate_caches()
    own, known = packaging.default_environment, json.loads(markers)
    packaging.default_environment = lambda: {**own(), **known}
    # Before 23.3 a dry run for another platform wants a --target, with which nothing counts as
    # installed.
    options.check_dist_restriction = lambda *values, **named: None
    sys.exit(pip.main(arguments))


if __name__ == "__main__":
    main()
