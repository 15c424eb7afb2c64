"""Finds the programs that a job needs besides Python, before the processes of the job start."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import PurePosixPath

from ciao_kernel.backends.local import interpreter
from ciao_kernel.errors import EnvironmentFault, SpecError
from ciao_kernel.plugins import Launching, Plan
from ciao_kernel.visible_text import short


def check(plan: Plan, program: str) -> None:
    """Check that this machine, or a file of the job, has a program.

    Args:
        plan: The program to run, with its options.
        program: A name on the ``PATH`` of the replicas, or a path; a relative path is one in the
            job's folder.

    Raises:
        SpecError: There is no such program, or it is not executable.
    """
    try:
        found = _found(plan, program)
    except (OSError, ValueError):  # such as a name that is too long
        found = False
    if found:
        return
    if "/" not in program:
        message = f"there is no program {short(program)} on this machine: PATH does not have it."
        hint = "Install it, or write its path in %command. On a cluster %image has to contain it."
    elif program.startswith("/"):
        message = f"there is no program {short(program)} on this machine."
        hint = "Correct the path in %command; the file has to be executable."
    else:
        message = f"there is no program {short(program)} in the job's folder."
        hint = "Deliver it with %files; the file has to be executable (chmod +x)."
    raise SpecError(message, hint, directive="command", word=program)


def check_beside(plan: Plan, python: str, base: str = "") -> None:
    """Check that the replicas find the programs of a launcher, such as mpirun.

    Args:
        plan: The program to run, with its options.
        python: The replicas' interpreter; packages put such programs beside it.
        base: The interpreter whose packages ``python`` has too, if there is another.

    Raises:
        EnvironmentFault: One of them is missing.
    """
    if not isinstance(plan.framework, Launching):
        return
    path = beside((python, base), _path(plan))
    for program in plan.framework.programs:
        if shutil.which(program, path=path) is None:
            package = plan.framework.requirement
            raise EnvironmentFault(
                f"there is no {program} beside {base or python}, and none on PATH.",
                f"Install it: {interpreter.install_words(base or python, package)}. Or let the job "
                f"do that: %packages={package}.",
            )


def beside(pythons: Sequence[str], path: str) -> str:
    """Return a ``PATH`` that begins with the folders of interpreters.

    Args:
        pythons: The interpreters; "" counts as none.
        path: The rest of it.
    """
    folders = [os.path.dirname(one) for one in pythons]  # noqa: PTH120
    return os.pathsep.join(one for one in (*folders, path) if one)


def _path(plan: Plan) -> str:
    return dict(plan.spec.env).get("PATH", os.environ.get("PATH", os.defpath))


def _found(plan: Plan, program: str) -> bool:
    if "/" not in program:
        return shutil.which(program, path=_path(plan)) is not None
    if program.startswith("/"):
        return os.path.isfile(program) and os.access(program, os.X_OK)  # noqa: PTH113
    named = str(PurePosixPath(program))
    origins = [file.origin for file in plan.source.all() if file.path == named]
    return any(origin and os.access(origin, os.X_OK) for origin in origins)
