"""Runs pip for another machine's Python; a program that :mod:`ciao_kernel.builders.target` starts.

pip itself can choose wheels for another Python and platform. However, it takes two things from the
Python that it runs in, and gets them here for the other Python: the installed packages, and the
values for markers of requirements (``; python_version < "3.11"``). Markers of dependencies are
known only when pip has found these packages, so ciao cannot evaluate them for pip. And it refuses
to build packages.

The specification of markers names the function or the variable of Python behind each value
(https://packaging.python.org/en/latest/specifications/dependency-specifiers/#environment-markers).
Those that may differ between two Linux machines are replaced, but nothing in pip; its report
contains the values that it has used, and :mod:`ciao_kernel.builders.target` compares them.

    python -I -S pip_for_target.py PIP PREFIX INSTALLED PYTHON MACHINE RESTRICTED install …
"""

import importlib
import platform
import runpy
import sys
from types import SimpleNamespace
from typing import Any


def main() -> None:
    """Run pip.

    Arguments: the folder of pip, the prefix of its environment, the folder that describes the
    installed packages, the version of Python, the machine as Python names it, ``restricted`` if
    this pip has no dry run for another machine, and the arguments for pip.
    """
    where, prefix, installed, python, machine, restricted, *arguments = sys.argv[1:]
    _become(python, machine)
    # Without site, Python before 3.14 has that of the Python behind a virtual environment, and pip
    # would not read the settings of the environment (`pip config --site`).
    sys.prefix = prefix
    sys.path.insert(0, where)
    importlib.import_module("pip")
    _refuse_builds()
    if restricted:
        # Before 23.3, a dry run for another platform requires --target, and with it pip treats
        # nothing as installed. These releases of pip do not change any more.
        options: Any = importlib.import_module("pip._internal.cli.cmdoptions")
        options.check_dist_restriction = lambda *values, **named: None
    # Packages beside pip are not installed on the other machine.
    sys.path[0] = installed
    importlib.invalidate_caches()
    sys.argv = ["pip", *arguments]
    runpy.run_module("pip", run_name="__main__")


def _refuse_builds() -> None:
    """Let pip fail where it would run code of a package, on the machine of the user.

    pip builds a source to learn what it requires. ``--only-binary`` keeps sources of an index away,
    but not those whose address a line names, or a dependency of a wheel, and files of requirements
    may switch it off. All releases of pip that ciao accepts come through this method.
    """
    errors: Any = importlib.import_module("pip._internal.exceptions")
    sources: Any = importlib.import_module("pip._internal.distributions.sdist").SourceDistribution
    sources.prepare_distribution_metadata  # noqa: B018  (an AttributeError if pip has changed)

    def refuse(source: Any, *values: Any, **named: Any) -> None:
        wanted = source.req
        name = wanted.name or getattr(wanted.link, "filename", "") or "a package"
        by = getattr(wanted.comes_from, "name", "") or "the requirements"
        raise errors.InstallationError(f"No wheel: {name} of {by} would be built.")

    sources.prepare_distribution_metadata = refuse


def _become(python: str, machine: str) -> None:
    """Replace what Python reports about itself and its machine."""
    major, minor = map(int, python.split("."))
    # The lowest possible version: with it, backports for newer versions are installed too.
    version = SimpleNamespace(major=major, minor=minor, micro=0, releaselevel="final", serial=0)
    told = {**vars(sys.implementation), "name": "cpython", "version": version}
    sys.implementation = SimpleNamespace(**told)  # type: ignore[assignment]
    values: dict[str, Any] = {
        "machine": machine,
        "python_implementation": "CPython",
        "python_version": f"{python}.0",
        "python_version_tuple": (str(major), str(minor), "0"),
    }
    for name, value in values.items():
        setattr(platform, name, lambda value=value: value)


if __name__ == "__main__":
    main()
