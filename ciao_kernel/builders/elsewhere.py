"""Runs pip for another machine's Python; a program that :mod:`ciao_kernel.builders.wheels` starts.

pip itself can choose wheels for another Python and platform. However, it takes two things from the
Python that it runs in, and gets them here for the other Python: the installed packages, and the
values for markers of requirements (``; python_version < "3.11"``).

    python -I -S elsewhere.py PIP INSTALLED MARKERS install …
"""

import importlib
import json
import sys
from typing import Any


def main() -> None:
    """Run pip.

    Arguments: the folder of pip, the folder that describes the installed packages, the markers as
    JSON, and the arguments for pip.
    """
    where, installed, markers, *arguments = sys.argv[1:]
    sys.path.insert(0, where)
    pip: Any = importlib.import_module("pip._internal.cli.main")
    options: Any = importlib.import_module("pip._internal.cli.cmdoptions")
    packaging: Any = importlib.import_module("pip._vendor.packaging.markers")
    # Packages beside pip are not installed on the other machine.
    sys.path[0] = installed
    importlib.invalidate_caches()
    own, known = packaging.default_environment, json.loads(markers)
    packaging.default_environment = lambda: {**own(), **known}
    # Before 23.3, a dry run for another platform requires --target, and with it pip treats nothing
    # as installed.
    options.check_dist_restriction = lambda *values, **named: None
    sys.exit(pip.main(arguments))


if __name__ == "__main__":
    main()
