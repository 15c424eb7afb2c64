"""Any program in any language: the command of the cell, with the cell's text as its input."""

from __future__ import annotations

from collections.abc import Mapping

from ciao_kernel.errors import SpecError
from ciao_kernel.frameworks import ranks, refusals
from ciao_kernel.frameworks.replicas import (
    at_least_one_worker,
    needs_no_package,
    no_decider,
)
from ciao_kernel.model import (
    Address,
    Artifact,
    JobSpec,
    Replica,
    Runner,
    SuccessPolicy,
)

CELL = "{cell}"
"""Part of ``%command`` that becomes the path of the cell's file."""
_JOB = "a custom job"
_EXAMPLE = "%command=Rscript {cell}"


class Custom:
    """``%framework=custom``, for programs that need not be Python.

    The training operator has no kind for it: on a cluster its jobs are TrainJobs or Indexed Jobs,
    whose image the cell or the settings name.
    """

    name = "custom"
    roles = ("worker",)
    endless: frozenset[str] = frozenset()
    package = ""
    requirement = ""
    image = ""

    decider = staticmethod(no_decider)
    needs_package = staticmethod(needs_no_package)

    def complete(self, spec: JobSpec) -> JobSpec:
        """Check the options; a header without workers means one."""
        if not spec.command:
            raise SpecError(
                f"{_JOB} needs the command of its program.",
                f"Add %command, for example {_EXAMPLE}.",
                directive="framework",
            )
        if CELL in spec.command[0]:
            raise SpecError(
                "%command has no program: the file {cell} cannot run by itself.",
                f"Name the program that reads the file, for example {_EXAMPLE}.",
                directive="command",
            )
        refusals.check_launcher(spec, _JOB)
        refusals.check_success_policy(spec, _JOB, SuccessPolicy.ALL_WORKERS, "all its workers do")
        _check_python(spec)
        return at_least_one_worker(spec)

    def executable(self, spec: JobSpec) -> str:
        """Return the first word of ``%command``."""
        return spec.command[0]

    def command(self, spec: JobSpec, artifact: Artifact) -> tuple[str, ...]:
        """Return the words of ``%command`` with the path of the cell's file."""
        return (*(word.replace(CELL, artifact.program) for word in spec.command), *spec.args)

    def environment(
        self, spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address]
    ) -> dict[str, str]:
        """Return the rank, the number of replicas and their hosts."""
        return ranks.variables(replica, addresses)


def _check_python(spec: JobSpec) -> None:
    """Refuse directives that only a Python program can use.

    Raises:
        SpecError: The header has one of them.
    """
    given = {
        "runner": spec.runner not in (None, Runner.AUTO),
        "python": spec.python is not None,
        "input": bool(spec.inputs),
        "output": bool(spec.output_names),
        "packages": bool(spec.build.packages),
        "requirements": bool(spec.build.requirements),
        "condaEnv": bool(spec.build.conda_env),
        "s2iBuilder": bool(spec.build.s2i_builder),
    }
    for directive, found in given.items():
        if found:
            raise SpecError(
                f"%{directive} is for programs in Python, but this is {_JOB}.",
                f"Leave out %{directive}; or run Python with %framework=python.",
                directive=directive,
            )
