"""The objects that one submission creates, whatever the API of its job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ciao_kernel.backends.kubernetes.apis import template_holder
from ciao_kernel.model import Manifest


@dataclass(frozen=True, slots=True)
class Shared:
    """The runtime that a job would have of its own if it did not use one of the cluster."""

    sketch: Manifest
    written: Callable[[Manifest], Manifest]
    """Returns the spec of the TrainJob that changes the cluster's runtime to a sketch; raises
    SpecError for a change that it has no field for."""

    def spec(self) -> Manifest:
        """Return the spec of the TrainJob."""
        return self.written(self.sketch)


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects that one submission creates: the job, and the objects beside it."""

    beside: tuple[Manifest, ...]
    job: Manifest
    path: str
    """API path of the namespace's jobs of this kind."""
    secured: bool = False
    """True if the pods need no privileges, as :func:`.pod_security.secured` makes them."""
    shared: Shared | None = None
    """Of a TrainJob that uses a runtime of the cluster."""

    @property
    def holder(self) -> Manifest:
        """The object with the pod templates: the job, or the runtime of a TrainJob."""
        return self.shared.sketch if self.shared else template_holder.among(self.job, self.beside)

    def with_holder(self, body: Manifest) -> Objects:
        """Return the objects with another holder of the pod templates.

        Raises:
            SpecError: A runtime of the cluster does not allow that.
        """
        if self.shared:
            shared = replace(self.shared, sketch=body)
            return replace(self, job={**self.job, "spec": shared.spec()}, shared=shared)
        if self.holder is self.job:
            return replace(self, job=body)
        beside = (body if one is self.holder else one for one in self.beside)
        return replace(self, beside=tuple(beside))
