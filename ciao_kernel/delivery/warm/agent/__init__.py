"""The agent of a warm replica: reads commands, and runs one program after the other.

It runs in the replica instead of the program, with the replica's Python (3.9 or newer) and the
standard library only. It starts a zygote (:mod:`.zygote`), which imports the
framework once and is forked for each run. The processes of a run write directly to the output of
the replica; the agent adds marker lines, by which readers tell the runs apart (``marks.py``).

Commands are lines of JSON: ``run``, ``stop``, ``ping`` and ``bye``. Nobody has to be alive for the
agent to end: it ends by itself if no run begins for a time, or if the kernel is silent.

The modules of this package are parts of one program: a replica gets them as one file
(``agent_program.py``), so no two of them define the same name.
"""
