"""The framework of a job whose replicas run the agent, and what %warm asks of that of its runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ciao_kernel.errors import SpecError
from ciao_kernel.model import Address, Artifact, JobSpec, Manifest, Replica, RestartPolicy
from ciao_kernel.model.cluster_spec import SuccessPolicy
from ciao_kernel.plugins import Forkable, Framework, JobManifest, OperatorKind


class WarmFramework:
    """A framework whose replicas start the agent instead of the program.

    Args:
        inner: The framework of the programs.
    """

    def __init__(self, inner: Framework) -> None:
        self._inner = inner
        self.name = inner.name
        self.roles = inner.roles
        self.endless = inner.endless
        self.package = inner.package
        self.requirement = inner.requirement
        self.image = inner.image

    def complete(self, spec: JobSpec) -> JobSpec:
        """Return the spec unchanged: it was completed before."""
        return spec

    def decider(self, spec: JobSpec) -> Replica | None:
        """Return the replica that decides: all agents end together."""
        return self._inner.decider(spec)

    def needs_package(self, spec: JobSpec) -> bool:
        """Return False: the agent needs only Python."""
        return False

    def command(self, spec: JobSpec, artifact: Artifact) -> tuple[str, ...]:
        """Return the command of the agent."""
        return (artifact.python, "-u", artifact.program)

    def environment(
        self, spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address]
    ) -> dict[str, str]:
        """Return the variables of the framework; those of a run replace them."""
        return self._inner.environment(spec, replica, addresses)


class WarmOperatorFramework(WarmFramework):
    """A warm framework whose programs have a kind of the training operator."""

    def __init__(self, inner: Framework) -> None:
        super().__init__(inner)
        assert isinstance(inner, OperatorKind)
        self._kind: OperatorKind = inner

    def manifest(self, spec: JobSpec, pods: Mapping[str, Manifest]) -> JobManifest:
        """Return the job of the framework's kind."""
        return self._kind.manifest(spec, pods)


def warm(inner: Framework) -> WarmFramework:
    """Return the framework of a warm job."""
    return WarmOperatorFramework(inner) if isinstance(inner, OperatorKind) else WarmFramework(inner)


def check(spec: JobSpec, framework: Framework, *, forkable: Collection[str], deletes: bool) -> None:
    """Refuse what cannot be combined with ``%warm``.

    Args:
        spec: The cell's header.
        framework: Its framework.
        forkable: Names of all frameworks that are :class:`Forkable`.
        deletes: Whether the job is removed after its end.

    Raises:
        SpecError: A sentence about the first such thing.
    """
    if not isinstance(framework, Forkable):
        raise SpecError(
            f"%warm does not work with {framework.name}, whose programs cannot be forked.",
            f"Leave %warm out; it works with {', '.join(sorted(forkable))}.",
            directive="warm",
        )
    restarts = spec.cluster.restart_policy not in (None, RestartPolicy.NEVER)
    reasons = {
        "detach": (spec.detach, "a detached job has no cell that could use its replicas again"),
        "serve": (bool(spec.serve), "only programs end with a run, and a server does not"),
        "min": (spec.min_workers is not None, "the number of warm replicas does not change"),
        "max": (spec.max_workers is not None, "the number of warm replicas does not change"),
        "restartPolicy": (restarts, "a warm run is not restarted"),
        "retries": (bool(spec.retries), "a warm run is not restarted"),
        "backoffLimit": (spec.cluster.backoff_limit is not None, "a warm run is not restarted"),
        "tensorboard": (
            spec.tensorboard is not None,
            "event files are those of a job, not of a run",
        ),
        "cleanPolicy": (
            spec.clean_policy is not None and str(spec.clean_policy) != "running",
            "the replicas of a warm job stay after each run",
        ),
    }
    for name, (given, why) in reasons.items():
        if given:
            raise SpecError(
                f"%{name} cannot be combined with %warm: {why}.",
                "Leave one of them out.",
                directive=name,
            )
    if deletes:
        raise SpecError(
            "%warm keeps the replicas, and the setting cleanPolicy=all removes the job.",
            "Write %cleanPolicy=running.",
            directive="warm",
        )


def deciders(
    framework: Framework, spec: JobSpec, *, here: bool
) -> tuple[Replica | None, frozenset[str]]:
    """Return who decides about the success of a run, as about that of a cold job.

    Args:
        framework: The framework of the program.
        spec: The cell's header.
        here: Whether the replicas are on this machine, where ``%successPolicy`` has no meaning.

    Returns:
        The replica, or None if all decide; and the roles that nobody waits for.
    """
    decider, endless = framework.decider(spec), frozenset(framework.endless)
    by_all = spec.cluster.success_policy is SuccessPolicy.ALL_WORKERS and not here
    if by_all and decider is not None and decider.role == "worker":
        return None, endless | {"evaluator"}
    return decider, endless
