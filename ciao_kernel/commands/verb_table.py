"""The table of verbs, in the order of ``ciao --help``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: its help, and what its callers do around it. They do not ask for its name."""

    help: str
    """Here and not in the verb's module, so that `ciao --help` and Tab answer quickly."""
    needs_settings: bool = True
    """False if it works even with an invalid settings file, and helps to repair it."""
    takes_command: bool = False
    """True if the words behind ``--`` are those of a program, which keep their own ``--``."""
    reports_left_running: bool = False
    """True if it asks backends: then the first cell also reports jobs of earlier kernels."""
    lists_all_jobs: bool = False
    """True if it lists those jobs itself."""
    is_logged: bool = True
    """False if its own record would be the last line that it shows."""


VERBS = {
    "run": Verb(
        "run a Python file as a job; its header consists of comments such as #%worker=2",
        takes_command=True,
        reports_left_running=True,
    ),
    "jobs": Verb("list all jobs, oldest first", lists_all_jobs=True),
    "describe": Verb("show all details of a job", reports_left_running=True),
    "logs": Verb(
        "show the output of a job's replicas; -f follows it to the end of the job",
        reports_left_running=True,
    ),
    "attach": Verb(
        "follow a job from its first line to its end; an interrupt leaves it running",
        reports_left_running=True,
    ),
    "rerun": Verb("start a job again from the same source and header, under the next name"),
    "stacks": Verb("show where the processes of a running job stand, if it hangs or is slow"),
    "debug": Verb("open a prompt of pdb in a replica: debug NAME/worker-1; a running one stops"),
    "top": Verb("show the memory, processors and GPUs that the replicas of a running job use now"),
    "tensorboard": Verb("show event files of jobs in TensorBoard, while they run and afterwards"),
    "profile": Verb("show where a running job spends its time, and which replica is the slow one"),
    "delete": Verb(
        "stop jobs, and remove their folders with all files in them", reports_left_running=True
    ),
    "suspend": Verb("take the pods of a job away for a while; it keeps its name and its source"),
    "resume": Verb("start a suspended job again"),
    "warm": Verb("list the replicas that this kernel keeps for the next run (%warm)"),
    "exec": Verb(
        "run a command in a replica: exec NAME/worker-0 -- nvidia-smi",
        takes_command=True,
        reports_left_running=True,
    ),
    "fetch": Verb("fetch files of a job's replicas now: fetch NAME model/ log.csv"),
    "cp": Verb("copy files from a replica, or to it: cp NAME/worker-0:log.csv here.csv"),
    "config": Verb(
        "show all settings, or change some: ciao config key=value", needs_settings=False
    ),
    "doctor": Verb(
        "check Python, packages, kernelspec, settings and access to a cluster", needs_settings=False
    ),
    "log": Verb("show the last lines of ciao's own log", needs_settings=False, is_logged=False),
    "magics": Verb("list the directives, or explain one", needs_settings=False),
    "install": Verb(
        "register the kernel with Jupyter (pip install does it for its own environment)",
        needs_settings=False,
    ),
    "uninstall": Verb("remove the kernel from Jupyter", needs_settings=False),
}
