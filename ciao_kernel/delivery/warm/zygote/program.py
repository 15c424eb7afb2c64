"""The program of a run, in a fork."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import random
import sys
import types
from typing import Any

from ciao_kernel.delivery.warm.zygote.ending import code_of, leave
from ciao_kernel.delivery.warm.zygote.learned_names import leave_names
from ciao_kernel.delivery.warm.zygote.marked_lines import mark_lines
from ciao_kernel.delivery.warm.zygote.rank_sign import show_rank

_passed: set[int] = set()


def run(ask: dict[str, Any]) -> None:
    """Run a program as ``python cell.py`` does, in this process.

    Args:
        ask: The program, its folder, its arguments and its variables.
    """
    with contextlib.suppress(OSError):
        os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    if ask["oom"]:
        # Out of memory, the kernel kills the program, and not the agent.
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    os.environ.pop("CIAO_WARM", None)
    os.environ.update(ask["variables"])
    folder = ask["folder"]
    os.chdir(folder)
    # Half a line is shown at once, as before the fork to this process (site_start.py).
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    if ask["marked"]:
        mark_lines()
        show_rank(os.environ.get("LOCAL_RANK", ""))
    _renew_random_state()
    path = os.path.join(folder, ask["program"])
    sys.argv = [path, *ask["arguments"]]
    if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
        del sys.path[0]
    sys.path.insert(0, os.path.dirname(path))
    importlib.invalidate_caches()
    _forget_hidden(os.path.dirname(path))
    if ask["learned"]:
        known = set(sys.modules)
        atexit.register(lambda: leave_names(ask["learned"], known))  # first, so it runs last
    if ask["results"]:
        _return_values(ask["results"])
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=__builtins__, __spec__=None, __package__=None)
    sys.modules["__main__"] = main
    if not os.environ.get("PYTHONBREAKPOINT"):
        sys.breakpointhook = _pass_over
    leave(_execute(path, main.__dict__), main.__dict__)


def _forget_hidden(folder: str) -> None:
    """Forget installed modules that were imported ahead and that files beside the program hide."""
    for entry in os.listdir(folder):
        name, end = os.path.splitext(entry)
        if end != ".py" and not os.path.isfile(os.path.join(folder, entry, "__init__.py")):
            continue
        known = getattr(sys.modules.get(name), "__file__", None) or ""
        if "-packages" in known and not known.startswith(os.path.join(folder, "")):
            for one in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
                del sys.modules[one]


def _return_values(variables: dict[str, str]) -> None:
    """Let the writer of ``%output``, which is beside the agent, write at the program's end."""
    os.environ.update(variables)
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), ".ciao")
    sys.path.insert(0, here)
    writer = importlib.import_module("ciao_result_writer")
    sys.path.remove(here)
    writer.register(here)


def _pass_over(*_: Any, **__: Any) -> None:
    """Take the place of breakpoint(): warm replicas have no debugger, and no input."""
    line = sys._getframe(1).f_lineno
    text = f"breakpoint() at line {line} is passed over: leave %warm out to debug.\n"
    if line not in _passed:  # it may be in a loop
        _passed.add(line)
        sys.stderr.write(text)
        sys.stderr.flush()


def _execute(path: str, names: dict[str, Any]) -> int:
    """Run the program; return its exit code."""
    try:
        with open(path, "rb") as source:
            code = compile(source.read(), path, "exec", dont_inherit=True)
        exec(code, names)
    except BaseException as error:
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        return code_of(error.with_traceback(trace))  # without the frame of this function
    return 0


def _renew_random_state() -> None:
    """Give the fork random numbers of its own: generators that were made by an import are equal."""
    random.seed()
    with contextlib.suppress(Exception):
        sys.modules["numpy"].random.seed()
    with contextlib.suppress(Exception):
        sys.modules["torch"].default_generator.seed()
