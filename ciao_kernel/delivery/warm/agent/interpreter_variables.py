"""The variables of a new interpreter in the replica."""

from __future__ import annotations

import os


def interpreter_variables(given: dict[str, str], defaults: dict[str, str]) -> dict[str, str]:
    """Return the variables of a new interpreter; ciao's folder stays first in PYTHONPATH.

    Args:
        given: Variables of a run. They replace those of the replica.
        defaults: Variables of a run that the replica may have already.
    """
    merged = {**defaults, **os.environ, **given}
    merged.pop("CIAO_WARM", None)
    first = os.environ.get("PYTHONPATH", "").split(os.pathsep)[0]
    if "PYTHONPATH" in given and os.path.basename(first) == ".ciao":
        merged["PYTHONPATH"] = os.pathsep.join([first, given["PYTHONPATH"]])
    return merged
