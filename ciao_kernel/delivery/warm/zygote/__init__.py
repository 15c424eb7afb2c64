"""The zygote of a warm replica: imports modules once, and is forked for each run of a program.

It imports, and computes nothing: a thread of the framework would not exist in the forks, and the
first operation there would wait for it. After its imports it therefore reports whether a fork is
safe. A fork becomes what ``python cell.py`` would be: a fresh ``__main__``, fresh random state, the
folder of its run, no input.

It runs in replicas, with Python 3.9 or newer and the standard library only. The modules of this
package are parts of one program: a replica gets them as one file (:mod:`.zygote_program`), so no
two of them define the same name.
"""
