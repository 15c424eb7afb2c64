"""The report that torchrun writes about a failed process, in the words of torch 2.15."""

from __future__ import annotations

_LIB = "/site/torch/distributed"
_AGENT = f"""\
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "{_LIB}/run.py", line 1142, in <module>
    main()
  File "{_LIB}/elastic/multiprocessing/errors/__init__.py", line 384, in wrapper
    result = f(*args, **kwargs)
             ^^^^^^^^^^^^^^^^^^
  File "{_LIB}/run.py", line 1138, in main
    run(args)
"""


def report(rank: int, code: int = 1) -> str:
    """Return the report of one process: a few dozen lines."""
    return f"""\
E1124 23:21:28.593000 17 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: \
{code}) local_rank: 0 (pid: 42) of binary: /usr/bin/python
{_AGENT}  File "{_LIB}/launcher/api.py", line 386, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
/jobs/mnist/work/ciao_cell.py FAILED
------------------------------------------------------------
Failures:
[1]:
  rank      : 7 (local_rank: 7)
  exitcode  : -15 (pid: 41)  (SIGTERM)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-24_23:21:28
  host      : localhost
  rank      : {rank} (local_rank: 0)
  exitcode  : {code} (pid: 42)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


KILLED = report(0, -9)
STOPPED = f"""\
W1124 23:23:13.292000 30392 torch/distributed/elastic/agent/server/api.py:752] Received 15 death \
signal, shutting down workers
W1124 23:23:13.293000 30392 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process \
31370 closing signal SIGTERM
{_AGENT}torch.distributed.elastic.multiprocessing.api.SignalException: Process 30392 got signal: 15
"""
"""What torchrun of a replica writes that is stopped since another one failed."""
