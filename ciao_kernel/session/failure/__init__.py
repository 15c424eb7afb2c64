"""Why a job failed: which replica, how it ended, its traceback, and what may mend it.

The session calls :func:`judge` once a job is over, with the ends of the replicas' logs.
"""

from ciao_kernel.session.failure.verdict import judge

__all__ = ["judge"]
