"""The call of a program in a process that has begun with something else, as Python would call it.

The programs of :mod:`.rabit` and :mod:`.mpi_rank` contain it. Their ``run`` calls one of the two
functions, so that exactly two frames stand before those of the program in its tracebacks.
"""

from __future__ import annotations

RUN = """\
def run_module(name, *rest):
    from importlib import util
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
    if not getattr(sys.flags, "safe_path", False):  # since Python 3.11
        sys.path[0] = folder
    with open(program, "rb") as file:
        code = compile(file.read(), program, "exec")
    exec(code, main.__dict__)
"""
"""Needs ``program`` and ``arguments``: the path of the program, or ``-m``, and the words behind it.

Both become the module ``__main__``, as Python does it, and stay it until the process ends: what
runs then finds the values of the program there. runpy would put the old module back."""
