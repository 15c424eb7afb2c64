"""Record of one job API: how its objects are found, read and judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ciao_kernel.backends.kubernetes.rights import Right
from ciao_kernel.model import Manifest, Replica


@dataclass(frozen=True, slots=True)
class Api:
    """One API that runs jobs on a cluster.

    All functions are pure. Objects may come from anybody and from any version of the server, so a
    field that is missing or has another type counts as unset.
    """

    name: str
    """The value of ``%api``, or the version of another operator's kind."""
    group: str
    version: str
    plurals: tuple[str, ...]
    """The kinds that the built-in frameworks use, as written in paths: ``tfjobs``. A kind that is
    known in another version too is named as for kubectl: ``mpijobs.v2beta1.kubeflow.org``."""
    controller: str
    """Who creates the pods of a job, as part of a sentence."""
    for_each_replica: Callable[[Manifest], tuple[str, ...]]
    """Returns the kinds of objects that the controller creates for each replica of a job, for
    quotas."""
    parents: Callable[[str, str], tuple[tuple[str, str], ...]]
    """Returns kind and name of the objects between a job and its pods, the nearest to the pods
    first: events about pods that cannot be created are theirs. Takes the job's name and a role.
    They are those that may exist: which ones do depends on more than the role."""
    job_label: str
    """Label of each pod with the name of its job."""
    failed: tuple[str, ...]
    """Conditions that tell that a job has failed, the earliest first."""
    succeeded: tuple[str, ...]
    """Conditions that tell that a job has succeeded, the earliest first."""
    given_up: tuple[str, ...]
    """Parts of messages about jobs that failed without a failed replica."""
    hopeless: tuple[str, ...]
    """Reasons of events about a job whose pods will never be created."""
    rights: tuple[Right, ...]
    """Rights that a job needs besides those of every job (:func:`.rights.needed`)."""
    missing: str
    """Reason for which the API may be missing on a cluster, as part of a sentence."""
    install: str
    """Remedy for that."""
    searches: Callable[[str, Replica], tuple[Mapping[str, str], ...]]
    """Returns labels that the pods of a replica may have, and few other pods, the most exact first;
    takes the job's name and the replica."""
    replica: Callable[[Manifest], Replica | None]
    """Returns the replica of a pod; None if the pod does not name it."""
    roles: Callable[[Manifest], Mapping[str, Manifest]]
    """Returns ``replicas``, ``restartPolicy`` and ``template`` of each role of a job, with the role
    as the kind spells it. The templates may be in another object (:mod:`.template_holder`)."""
    templates: Callable[[Manifest], Mapping[str, Manifest]]
    """Returns the pod templates of a job as parts of its object, each once."""
    policy: Callable[[Manifest], Manifest]
    """Returns the object with ``activeDeadlineSeconds``, ``backoffLimit``, ``suspend`` …"""
    restart_policy: Callable[[Manifest, str], str]
    """Returns the restart policy that alone decides what happens after a failure in a role of a
    job; "" if more than that decides. ``Never`` means: the failure fails the job."""
    needs_all_workers: Callable[[Manifest], bool]
    """Returns whether a job succeeds only with all its replicas that end by themselves."""
    identity: tuple[Manifest, ...] = ()
    """Variables by which a program knows its replica, from labels that the controller sets."""
    pod_names: Callable[[str, Replica], tuple[str, ...]] = lambda job, replica: ()
    """Returns the names that a replica's pod may have, as far as they follow from the job's: those
    of other APIs end with random characters."""
    policy_field: str = ""
    """The field of a job's spec with :attr:`policy`; "" if that is the spec itself."""
    makes_pod_groups: bool = True
    """Whether the controller makes the PodGroup by which a scheduler counts a job's pods."""
    replaces_disrupted: bool = False
    """Whether the controller can replace a pod that the cluster disrupts without a restart policy
    that says so: by a podFailurePolicy."""
    expires: bool = True
    """Whether a finished job is deleted after a time that its object names."""
    built_in: bool = False
    """Whether every cluster serves it."""
    as_submitted: Callable[[Manifest], Manifest] = dict
    """Returns a copy of the spec of a job, without what the server has added to it."""

    @property
    def path(self) -> str:
        """The path of the API: ``/apis/GROUP/VERSION``."""
        return f"/apis/{self.group}/{self.version}"

    def at(self, namespace: str, resource: str) -> str:
        """Return the path of all jobs of a kind.

        Args:
            namespace: Their namespace; "" means all namespaces.
            resource: One of :attr:`plurals`.
        """
        scope = f"/namespaces/{namespace}" if namespace else ""
        return f"{self.path}{scope}/{resource.partition('.')[0]}"

    def condition(self, holds: Mapping[str, Manifest], names: tuple[str, ...]) -> Manifest | None:
        """Return the first of some conditions that holds.

        Args:
            holds: The conditions of a job that are true, by type.
            names: :attr:`failed` or :attr:`succeeded`.
        """
        return next((holds[name] for name in names if name in holds), None)
