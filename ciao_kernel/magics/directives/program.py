"""Directives for the program: the name of its job, its variables, arguments, command and files."""

from __future__ import annotations

from ciao_kernel.magics import value_types
from ciao_kernel.magics.directive import Directive


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
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
            of_pods=True,
        ),
        Directive(
            "args",
            "args",
            value_types.Words(),
            "Arguments of the program: sys.argv[1:].",
            "%args=--epochs 3 --lr 0.1",
            repeatable=True,
            of_pods=True,
        ),
        Directive(
            "command",
            "command",
            value_types.CommandLine(),
            "Command of a program in any language, for custom; {cell} is the file of the cell.",
            "%command=Rscript {cell} --epochs 3",
            of_pods=True,
        ),
        Directive(
            "files",
            "files",
            value_types.Words("paths, quoted as in a shell", value_types.Suggestions.FILES),
            "Files and folders next to your code to deliver to the replicas; data/*.csv "
            "works. !name delivers also what is excluded or refused otherwise, such as a link that "
            "leads out of the folder.",
            "%files=data/train.csv conf/",
            repeatable=True,
        ),
    ]
