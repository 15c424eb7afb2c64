"""The links ``/input`` and ``/output`` in a pod, for programs that expect these folders.

Other platforms mount data and results there. A mount would hide what an image has there itself, so
a replica makes a link, before its program: only if there is nothing of that name, and if the
program's user may write to ``/``. Nothing is ever made in the root folder of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping

from ciao_kernel.delivery import volume_variables
from ciao_kernel.delivery.output import results
from ciao_kernel.model import JobSpec, Source
from ciao_kernel.model.volume import overlap

EXECUTE = "import os, sys\nos.execvp(sys.argv[1], sys.argv[1:])\n"
"""Becomes the program, for a command that does nothing else after it has made the links."""
_VARIABLES = {"/input": volume_variables.VARIABLE, "/output": "CIAO_OUTPUT"}


def links(spec: JobSpec, workdir: str, source: Source) -> dict[str, str]:
    """Return the folder that each link leads to, by the link's path.

    Args:
        spec: The cell's header, as the replicas of a role see it.
        workdir: The program's folder.
        source: The program and its files.
    """
    if spec.warm is not None:
        return {}  # each run has folders of its own
    told = volume_variables.variables(spec, workdir, source)
    told |= results.output_folder(spec, workdir)
    return {
        link: told[name]
        for link, name in _VARIABLES.items()
        if name in told and not any(overlap(one.where, link) for one in spec.volumes)
    }


def make(wanted: Mapping[str, str]) -> str:
    """Return the lines of Python that make the links; "" if there are none.

    Args:
        wanted: The result of :func:`links`.
    """
    if not wanted:
        return ""
    return (
        "import os\n"
        f"for link, folder in {tuple(wanted.items())!r}:\n"
        "    try:\n"
        "        os.symlink(folder, link)\n"
        "    except OSError:\n"
        "        pass\n"
    )
