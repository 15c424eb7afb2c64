"""The call of a program in a process that has begun with something else, as Python would call it.

The programs of :mod:`.jax_rank`, :mod:`.rabit` and :mod:`.mpi_rank` contain it, and each is a
:class:`Caller`. Their ``run`` calls one of the two functions, so that exactly two frames stand
before those of the program in its tracebacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ciao_kernel.delivery.warm import zygote

LEAVE = Path(zygote.__file__).with_name("ending.py").read_text(encoding="utf-8")
"""Begin of a program that ends by itself: the functions of
:mod:`~ciao_kernel.delivery.warm.zygote.ending`. It has an import from ``__future__``, so it is
first."""
RUN = """\
__name__ = "ciao_rank"

def run_module(name, *rest):
    from importlib import util
    if not getattr(sys.flags, "safe_path", False):  # since Python 3.11
        sys.path[0] = os.getcwd()
    spec = util.find_spec(name)
    if spec and spec.submodule_search_locations is not None:  # a package
        spec = util.find_spec(name + ".__main__")
    if spec is None:
        sys.exit("there is no module " + name)
    main = types.ModuleType("__main__")
    main.__spec__, main.__package__, main.__loader__ = spec, spec.parent, spec.loader
    main.__file__, main.__builtins__ = spec.origin, __builtins__
    sys.modules["__main__"] = main
    sys.argv[:] = [spec.origin, *rest]
    exec(spec.loader.get_code(spec.name), main.__dict__)

def run_file():
    main = types.ModuleType("__main__")
    main.__file__, main.__builtins__ = program, __builtins__
    sys.modules["__main__"] = main
    sys.argv[:] = [program, *arguments]
    folder = os.path.dirname(program)
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder
    with open(program, "rb") as file:
        code = compile(file.read(), program, "exec", dont_inherit=True)
    exec(code, main.__dict__)
"""
"""Needs ``program`` and ``arguments``: the path of the program, or ``-m``, and the words behind it.

Both become the module ``__main__``, as Python does it, and stay it until the process ends: what
runs then finds the values of the program there. runpy would put the old module back.

The name is for :mod:`~ciao_kernel.delivery.inspection.debugger` and
:mod:`~ciao_kernel.delivery.inspection.stack_handler`, which pass over the frames of this text."""

RUN_TO_CODE = (
    RUN
    + """
def run():
    # Returns the exit code with which Python would end.
    try:
        run_module(*arguments) if program == "-m" else run_file()
    except BaseException as error:
        error.__traceback__ = error.__traceback__.tb_next.tb_next  # without this program's frames
        return code_of(error)
    return 0
"""
)
"""The same with a ``run`` that shows an error and returns the exit code; it needs :data:`LEAVE`."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A program that calls the user's one in its own process.

    Args:
        text: Its text: an image has no ciao.
    """

    text: str

    def command(
        self, python: str, program: Sequence[str], arguments: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Return the command of a replica or a rank.

        Args:
            python: Its interpreter.
            program: The user's program: its path, or ``-m`` and the name of a module.
            arguments: The arguments of that program.
        """
        return (python, "-u", "-c", self.text, *program, *arguments)
