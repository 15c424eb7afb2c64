"""Keeps the files of ``%output`` in a pod after the program's end, until they are fetched.

This program runs in pods, with the standard library of Python 3.8: as ``run`` it is the parent of
the program in its container, and as ``keep`` or ``tell`` the only process of a container beside it,
a native sidecar. The kubelet sends that one SIGTERM when the program has ended; the pod, and with
it the job, ends with it. ``keep`` waits until the files are fetched, ``tell`` writes them to its
log, ``send`` to a bucket, ``push`` to a registry, and ``save`` to a claim. ``give`` writes them to
the log or to a bucket after a run in a warm replica (:mod:`.warm.agent`), whose container goes on.

The modules of this package are parts of one program: a pod gets them as one file
(:mod:`.keeper_program`), so no two of them define the same name.
"""

from __future__ import annotations

from ciao_kernel.delivery.output.output_keeper.copies import WITHOUT as WITHOUT
