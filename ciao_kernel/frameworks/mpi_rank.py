"""The call of a program in each rank of an MPI job.

Two things differ from plain Python. Streams are buffered by line: several ranks write to one pipe,
which keeps a line together only if it is one write (see :mod:`.torchrun`). And an error ends the
job: Python would call ``MPI_Finalize`` at its end, which waits for ranks that wait for this one
(mpi4py.readthedocs.io, "mpi4py.run").
"""

from __future__ import annotations

from ciao_kernel.frameworks import in_process

CALLER = in_process.Caller(
    """\
import os, sys, types

program, *arguments = sys.argv[1:]
for stream in (sys.stdout, sys.stderr):
    try:
        stream.reconfigure(line_buffering=True, write_through=False)
    except Exception:
        pass  # somebody has replaced it
for name, known in (
    ("RANK", ("OMPI_COMM_WORLD_RANK", "PMI_RANK")),
    ("WORLD_SIZE", ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")),
    ("LOCAL_RANK", ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")),
):
    for one in known:
        if one in os.environ and not (name == "LOCAL_RANK" and "LOCAL_WORLD_SIZE" in os.environ):
            os.environ[name] = os.environ[one]
site = os.environ.get("CIAO_SITE")  # in a pod, where mpirun passes no PYTHONPATH on
if site and "ciao_result_writer" not in sys.modules:
    sys.path.insert(0, site)
    try:
        import ciao_result_writer  # only with %output
        ciao_result_writer.start(site)
    except ImportError:
        pass
    sys.path.remove(site)
if site and "ciao_stack_handler" not in sys.modules:
    sys.path.insert(0, site)
    try:
        import ciao_stack_handler
        ciao_stack_handler.start(site)
        import ciao_debugger
        ciao_debugger.start(site)
        import ciao_post_mortem  # only with %onError=debug
        ciao_post_mortem.start(site)
    except ImportError:
        pass
    sys.path.remove(site)

"""
    + in_process.RUN
    + """
def abort(status):
    if "mpi4py.MPI" in sys.modules:
        from mpi4py.run import set_abort_status
        set_abort_status(status)  # at the end of Python, after what the program has registered

def run():
    try:
        run_module(*arguments) if program == "-m" else run_file()
    except SystemExit as end:
        if end.code:
            abort(end.code if isinstance(end.code, int) else 1)
        raise
    except BaseException as error:
        error.__traceback__ = error.__traceback__.tb_next.tb_next  # without this program's frames
        abort(1)  # first: a hook of the program may fail
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)

def check():
    MPI = sys.modules.get("mpi4py.MPI")
    if MPI and MPI.Is_initialized() and not MPI.Is_finalized():
        size, asked = MPI.COMM_WORLD.Get_size(), int(os.environ.get("WORLD_SIZE", 1))
        if size != asked and MPI.Comm.Get_parent() == MPI.COMM_NULL:
            sys.stderr.write(f"mpirun started {asked} ranks, but mpi4py connected {size}: "
                             "they belong to different MPI libraries.\\n")
            sys.exit(1)

own = sys.modules["__main__"]  # kept: Python would empty it
run()
check()
"""
)
"""The program of each rank."""
