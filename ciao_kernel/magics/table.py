"""The table of all directives that a header may contain.

Parsing, completion, Shift-Tab help, the options of ``ciao run`` and the tables in README and docs
all use this table. A new directive needs one entry here, and one field in
:class:`~ciao_kernel.model.JobSpec`.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ciao_kernel.magics import numeric_types, value_types
from ciao_kernel.magics.directive import Directive as Directive
from ciao_kernel.magics.directive import Scope as Scope
from ciao_kernel.magics.directives import (
    cell_lines,
    cluster,
    event_folder,
    images,
    inputs,
    on_error,
    outputs,
    plots,
    serving,
    surviving,
    usage_columns,
    volumes,
    warm,
)
from ciao_kernel.magics.spelling import key
from ciao_kernel.model import CleanPolicy, DryRun, Runner

_MENTIONED = re.compile(r"%([A-Za-z][\w-]*)")


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the plug-ins, for the choices in the table; made by the registry."""

    frameworks: Mapping[str, tuple[str, ...]]
    """Roles by framework."""
    builders: tuple[str, ...]
    backends: tuple[str, ...]
    any_language: frozenset[str] = frozenset()
    """Frameworks whose programs need not be Python."""


class Table:
    """The directives; lookup ignores case and dashes."""

    def __init__(self, entries: Iterable[Directive], names: Names) -> None:
        self.entries = tuple(entries)
        self.names = names
        self._by_key = {key(entry.name): entry for entry in self.entries}
        self._by_key |= {key(one.option_word): one for one in self.entries if one.option_word}

    def find(self, name: str) -> Directive | None:
        """Return the directive with a name, or None."""
        return self._by_key.get(key(name))

    def nearest(self, name: str) -> str | None:
        """Return the nearest name, for a suggestion, or None; a common beginning counts most."""
        wanted = key(name)

        def likeness(other: str) -> float:
            ratio = difflib.SequenceMatcher(None, other, wanted).ratio()
            same = itertools.takewhile(
                lambda pair: pair[0] == pair[1], zip(wanted, other, strict=False)
            )
            return ratio + len(list(same)) / (2 * max(len(wanted), len(other)))

        close = difflib.get_close_matches(wanted, self._by_key, n=5, cutoff=0.6)
        return self._by_key[max(close, key=likeness)].name if close else None

    def as_options(self, text: str) -> str:
        """Replace directives in a sentence by options; ``%ciao`` is unchanged."""

        def spelt(match: re.Match[str]) -> str:
            entry = self.find(match[1])
            return entry.option if entry else match[0]

        return _MENTIONED.sub(spelt, text)

    def roles(self, framework: str) -> tuple[str, ...]:
        """Return the roles of a framework; all roles if the name is unknown."""
        every = tuple(e.field for e in self.entries if e.scope is Scope.ROLE)
        return self.names.frameworks.get(framework, every)

    def frameworks(self, role: str) -> tuple[str, ...]:
        """Return the frameworks that have a role."""
        return tuple(name for name, roles in self.names.frameworks.items() if role in roles)


def build(names: Names) -> Table:
    """Return the table for the installed plug-ins."""
    return Table(_entries(names), names)


def _choice(names: Iterable[str], convert: Any = str) -> value_types.Choice:
    fixed = tuple(names)
    return value_types.Choice(lambda: fixed, convert)


_ROLES = {
    "chief": "Number of chiefs (0 or 1): the replica that leads and ends a TensorFlow job.",
    "master": "Number of masters: rank 0 (always 1), or TensorFlow's old name for chief.",
    "ps": "Number of parameter servers. They never end by themselves; the job's end stops them.",
    "worker": "Number of workers.",
    "evaluator": "Number of evaluators: they watch the checkpoints and are not part of training.",
    "launcher": "Number of launchers (always 1): the replica that runs mpirun.",
}


def _entries(names: Names) -> list[Directive]:
    texts = dict(_ROLES)
    for role in (role for roles in names.frameworks.values() for role in roles):
        texts.setdefault(role, f"Number of replicas of the role {role}.")
    roles = [
        Directive(role, role, numeric_types.Count(), text, f"%{role}=1", Scope.ROLE)
        for role, text in texts.items()
    ]
    return [
        Directive(
            "framework",
            "framework",
            _choice(names.frameworks),
            "The training framework. It makes the cell a job.",
            "%framework=tensorflow",
        ),
        *roles,
        Directive(
            "cpu",
            "cpu",
            numeric_types.Cpus(),
            "Processors for each replica: a limit on a cluster, only checked on this machine.",
            "%worker=2;%cpu=2",
            Scope.RESOURCE,
        ),
        Directive(
            "memory",
            "memory",
            numeric_types.Memory(),
            "Memory for each replica: a limit on a cluster, only checked on this machine.",
            "%worker=2;%memory=4Gi",
            Scope.RESOURCE,
        ),
        Directive(
            "gpu",
            "gpu",
            numeric_types.GpuCount(),
            "GPUs for each replica; on this machine they are assigned with CUDA_VISIBLE_DEVICES.",
            "%worker=2;%gpu=1",
            Scope.RESOURCE,
        ),
        Directive(
            "name",
            "name",
            value_types.JobName(),
            "Name of the job. For a second run, a number is appended.",
            "%name=mnist",
            default="the framework's name and five letters",
        ),
        Directive(
            "envvar",
            "env",
            value_types.Pairs(),
            "Environment variables for every replica. For secrets on a cluster: %envsecret.",
            "%envvar=EPOCHS=3 MODE='very fast'",
            repeatable=True,
        ),
        Directive(
            "args",
            "args",
            value_types.Words(),
            "Arguments of the program: sys.argv[1:].",
            "%args=--epochs 3 --lr 0.1",
            repeatable=True,
        ),
        Directive(
            "command",
            "command",
            value_types.CommandLine(),
            "Command of a program in any language, for custom; {cell} is the file of the cell.",
            "%command=Rscript {cell} --epochs 3",
        ),
        Directive(
            "files",
            "files",
            value_types.Words("paths, quoted as in a shell", value_types.Suggestions.FILES),
            "Files and folders in the notebook's folder to deliver to the replicas; data/*.csv "
            "works. !name delivers also what is excluded or refused otherwise, such as a link that "
            "leads out of the folder.",
            "%files=data/train.csv conf/",
            repeatable=True,
        ),
        *inputs.directives(),
        *outputs.directives(),
        *volumes.directives(),
        *surviving.directives(),
        *serving.directives(),
        Directive(
            "runner",
            "runner",
            _choice((r.value for r in Runner), Runner),
            "Launcher of the program; auto is torchrun for PyTorch, XGBoost's tracker, or python.",
            "%runner=python",
            default="auto",
        ),
        Directive(
            "nprocPerNode",
            "nproc_per_node",
            numeric_types.Count(1, 128),
            "Processes that torchrun starts in a replica.",
            "%nprocPerNode=2",
            default="1 per GPU of the replica, 1 without GPUs",
        ),
        Directive(
            "slots",
            "slots",
            numeric_types.Count(1, 128),
            "Ranks that mpirun starts in a worker, for mpi.",
            "%slots=2",
            default="1",
        ),
        Directive(
            "min",
            "min_workers",
            numeric_types.Count(1),
            "Makes a PyTorch job elastic: the fewest workers with which it goes on after a loss.",
            "%worker=3;%min=2",
            default="1 with %max",
        ),
        Directive(
            "max",
            "max_workers",
            numeric_types.Count(1),
            "Makes a PyTorch job elastic: the most workers, if it is scaled up on a cluster.",
            "%worker=3;%max=4",
            default="%worker with %min",
        ),
        Directive(
            "python",
            "python",
            value_types.Word(
                "the path or the name of a Python interpreter", value_types.Suggestions.INTERPRETERS
            ),
            "Interpreter of the replicas, on this machine or in their image.",
            "%python=~/envs/tf/bin/python",
            default="the kernel's own; in an image python3",
        ),
        Directive(
            "backend",
            "backend",
            _choice(("auto", *names.backends)),
            "Backend that runs the job.",
            "%backend=local",
            default="auto",
        ),
        Directive(
            "builder",
            "builder",
            _choice(("auto", *names.builders)),
            "Builder that delivers the code to the replicas.",
            "%builder=folder",
            default="auto",
        ),
        Directive(
            "cleanPolicy",
            "clean_policy",
            _choice((p.value for p in CleanPolicy), CleanPolicy),
            "Cleanup after the job: replicas that still run, all (also its folder), or nothing.",
            "%cleanPolicy=all",
            default="running",
        ),
        Directive(
            "deadline",
            "deadline",
            numeric_types.Duration(),
            "Maximum run time; a job that runs longer fails.",
            "%deadline=2h30m",
        ),
        *cluster.directives(),
        *images.directives(),
        Directive(
            "detach",
            "detach",
            value_types.Flag(),
            "Start the job and return at once; `%ciao attach NAME` follows it.",
            "%detach",
        ),
        Directive(
            "follow",
            "follow",
            value_types.Words("roles or replicas", value_types.Suggestions.REPLICAS),
            "Show only the lines of these roles or replicas.",
            "%follow=worker-0 chief",
            default="all replicas",
            repeatable=True,
        ),
        *warm.directives(),
        *cell_lines.directives(),
        *plots.directives(),
        *event_folder.directives(),
        *usage_columns.directives(),
        Directive(
            "inspect",
            "inspect",
            _choice(("on", "off")),
            "Whether `%ciao stacks NAME` and breakpoint() can look into the replicas.",
            "%inspect=off",
            default="the setting inspect, which is on",
        ),
        *on_error.directives(),
        Directive(
            "dryrun",
            "dryrun",
            value_types.Flag((DryRun.SERVER.value,), DryRun),
            "Show what would run or be created, and run nothing; =server asks the cluster too.",
            "%dryrun",
        ),
    ]
