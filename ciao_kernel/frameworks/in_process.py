"""The call of a program in a process that has begun with something else, as Python would call it.

The programs of :mod:`.rabit` and :mod:`.mpi_rank` contain it. Their ``run`` calls one of the two
functions, so that exactly two frames stand before those of the program in its tracebacks.
"""

from __future__ import annotations

RUN = """\
def run_module(name, *rest):
    import runpy
    sys.argv[1:] = rest
    runpy.run_module(name, run_name="__main__", alter_sys=True)

def run_file():
    main = types.ModuleType("__main__")
    main.__file__, main.__builtins__ = program, __builtins__
    sys.modules["__main__"] = main
    sys.argv[:] = [program, *arguments]
    folder = os.path.dirname(program)
    if not sys.flags.safe_path:
        sys.path[0] = folder
    with open(program, "rb") as file:
        code = compile(file.read(), program, "exec")
    exec(code, main.__dict__)
"""
"""Needs ``program`` and ``arguments``: the path of the program, or ``-m``, and the words behind it.

A file becomes the module ``__main__``, as Python does it; a module of a package is run by runpy."""
