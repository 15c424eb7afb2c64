"""Explains why a job failed: the replica, how it ended, its traceback, and a possible fix.

The session calls :func:`judge` once a job is over, with the ends of the replicas' logs, and before
it :func:`is_consequence`, to decide how long to wait for them.
"""

from ciao_kernel.session.failure.explanation import is_consequence
from ciao_kernel.session.failure.verdict import judge

__all__ = ["is_consequence", "judge"]
