"""Explains why a job failed: the replica, how it ended, its traceback, and a possible fix.

The session calls :func:`.verdict.judge` when a cell ends, with the ends of the replicas' logs: its
job is over, or its failure is decided while other replicas still run. It calls
:func:`.explanation.is_consequence` before, to decide how long to wait for their last lines.
"""
