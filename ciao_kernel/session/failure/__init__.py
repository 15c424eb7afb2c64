"""Explains why a job failed: the replica, how it ended, its traceback, and a possible fix.

The session calls :func:`judge` once a job is over, with the ends of the replicas' logs.
"""

from ciao_kernel.session.failure.verdict import judge

__all__ = ["judge"]
