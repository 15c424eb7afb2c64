"""Runs programs of this machine, and turns their failures into errors one can read."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.errors import ClusterError


def run(
    argv: Sequence[str | Path],
    *,
    log: Path | None = None,
    text: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    hint: str = "",
    seconds: float | None = None,
) -> str:
    """Run a program to its end and return what it printed.

    Args:
        argv: the program and its arguments.
        log: a file for all its output; the end of it becomes part of the error.
        text: its standard input.
        env: its whole environment; this process's by default.
        cwd: its working directory.
        hint: how to mend a failure.
        seconds: how long it may take; a build may take as long as it needs.

    Raises:
        ClusterError: it is not there, takes too long, or its exit code is not 0.
    """
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words, input=text, capture_output=True, text=True, errors="replace",
            env=env, cwd=cwd, check=False, timeout=seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise ClusterError(f"`{' '.join(words)[:300]}` took longer than {seconds:.0f} s") from late
    except FileNotFoundError as missing:
        raise ClusterError(
            f"{words[0]} is not on this machine", hint or f"install the package with {words[0]}"
        ) from missing
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as file:
            file.write(f"$ {' '.join(words)}\n{done.stdout}{done.stderr}\n")
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()[-15:]
        where = f" (all of it: {log})" if log else ""
        raise ClusterError(
            f"`{' '.join(words)[:300]}` ended with {done.returncode}{where}:\n    "
            + "\n    ".join(said),
            hint,
        )
    return done.stdout
