"""The objects beside a job that its pods need: ConfigMaps, their hosts' Service, a runtime.

A deletion waits for them, and a next try is made of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ciao_kernel.backends.kubernetes.apis import TRAINER, template_holder, trainer
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.model import Job, Manifest


@dataclass(frozen=True, slots=True, order=True)
class Beside:
    """An object beside a job; the job may own it or not."""

    path: str
    api_version: str
    kind: str
    of_controller: bool = False
    """Whether the controller of the job's API made it, not ciao."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.path.rpartition("/")[2]


def of(job: Job, item: Manifest | None, holder: Manifest | None) -> tuple[Beside, ...]:
    """Return what is beside a job, by its pod templates.

    Args:
        job: Its name and namespace.
        item: The job's object; None if it is not known.
        holder: The object that has its pod templates; None if it is not known.
    """
    found, core = set[Beside](), f"/api/v1/namespaces/{job.place}"
    for template in template_holder.pod_templates(holder).values() if holder else ():
        for volume in many(template, "spec", "volumes"):
            if name := get(volume, "configMap", "name"):
                found.add(Beside(f"{core}/configmaps/{name}", "v1", "ConfigMap"))
        if name := get(template, "spec", "subdomain"):
            found.add(Beside(f"{core}/services/{name}", "v1", "Service"))
    if item and trainer.is_object(item):
        if runtime := template_holder.path(item, job.place):
            version = f"{TRAINER.group}/{TRAINER.version}"
            found.add(Beside(runtime, version, trainer.RUNTIME))
        snapshot = f"{core}/configmaps/{job.name}-{trainer.SNAPSHOT}"
        found.add(Beside(snapshot, "v1", "ConfigMap", of_controller=True))
    return tuple(sorted(found))
