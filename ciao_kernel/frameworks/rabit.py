"""The call of a program inside XGBoost's collective, which is named Rabit.

XGBoost connects the processes of a job only through a tracker, and only if the program opens a
communicator with its address: without that, each process trains a model of its own, and says
nothing. The program here does both, so that a plain ``xgb.train(params, xgb.DMatrix(shard))``
trains one model (xgboost.readthedocs.io, "Distributed Training"; xgboost/tracker.py and
collective.py, since 2.1).
"""

from __future__ import annotations

import ast

from ciao_kernel.delivery.name_wait import WAIT_FOR_NAME
from ciao_kernel.frameworks import in_process

_OPENS = frozenset({"CommunicatorContext", "RabitTracker"})
_MANAGED = frozenset({"dask", "spark"})
"""Modules of xgboost that connect processes by themselves."""

CALLER = in_process.Caller(
    in_process.LEAVE
    + """
import socket, time, types, warnings

program, *arguments = sys.argv[1:]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])

"""
    + WAIT_FOR_NAME
    + """
def connect():
    import xgboost
    from xgboost import collective
    tracker = None
    if rank == 0:
        from xgboost.tracker import RabitTracker
        # The tracker takes the family of its sockets from this address.
        every = "::" if wait_for_name(host, 60) == socket.AF_INET6 else "0.0.0.0"
        listen = host if host.startswith("127.") else every
        tracker = RabitTracker(n_workers=world, host_ip=listen, port=port, sortby="task")
        tracker.start()
    else:
        wait_for_name(host, 300)
    # The tracker sorts by the text of these names: each rank is RANK then.
    context = collective.CommunicatorContext(
        dmlc_tracker_uri=host, dmlc_tracker_port=port, dmlc_task_id=f"{rank:05d}", dmlc_retry=60)
    with warnings.catch_warnings(), xgboost.config_context(verbosity=0):
        warnings.simplefilter("ignore")  # one for each attempt, until the tracker answers
        context.__enter__()
    return tracker, context

"""
    + in_process.RUN_TO_CODE
    + """
own = sys.modules["__main__"]  # kept: Python would empty it
tracker, context = connect()
if code := run():
    leave(code, vars(sys.modules["__main__"]))
context.__exit__(None, None, None)
if tracker:
    try:
        tracker.wait_for(60)  # the others end before the replica that decides
    except Exception:
        pass
"""
)
"""The program of each replica; it reads MASTER_*, RANK and WORLD_SIZE.

After a failure nothing waits for the others, and Python does not take XGBoost apart: with a
communicator that is open, that ends in a segmentation fault."""


def connects_itself(code: bytes) -> bool:
    """Return whether a program opens a communicator by itself, and must not get a second one.

    It may read its rank from ``xgboost.collective`` without that.

    Args:
        code: The program's text.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return False  # Python reports it
    return any(map(_connects, ast.walk(tree)))


def _connects(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(one.name == f"xgboost.{part}" for one in names for part in _MANAGED)
        case ast.ImportFrom(module="xgboost", names=names):
            return any(one.name in _MANAGED for one in names)
        case ast.ImportFrom(module="xgboost.collective" | "xgboost.tracker", names=names):
            return any(one.name in {*_OPENS, "init", "*"} for one in names)
        case ast.ImportFrom(module=str(module)):
            return any(module.startswith(f"xgboost.{part}") for part in _MANAGED)
        case ast.Attribute(value=ast.Name(id="collective"), attr="init"):
            return True
        case ast.Attribute(value=ast.Attribute(attr="collective"), attr="init"):
            return True
        case ast.Attribute(attr=name):
            return name in _OPENS
    return False
