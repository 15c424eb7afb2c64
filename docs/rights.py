"""The Roles of deploy/rbac and the tables of their rules, from the rights that the code asks for.

``docs/generate.py`` writes them. The kinds are those of the built-in frameworks. Each right of a
Role has a row in the table of the README, and each row a right: otherwise nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ciao_kernel.backends.kubernetes import rights
from ciao_kernel.backends.kubernetes.apis import JOB, OPERATOR_V1, TRAINER, Api
from ciao_kernel.backends.kubernetes.rights import Right
from ciao_kernel.magics.help import directive_help
from ciao_kernel.model import JobSpec
from ciao_kernel.plugins import OperatorKind
from ciao_kernel.session.plugin_registry import Registry

FOLDER = "deploy/rbac"
SHARED = replace(TRAINER, rights=())
"""TrainJobs that use a runtime of the cluster, deploy/trainer."""
ROLES = {
    "role.yaml": OPERATOR_V1,
    "jobs-role.yaml": JOB,
    "trainer-role.yaml": TRAINER,
    "trainer-shared-role.yaml": SHARED,
}
"""What a user needs for the jobs of an API."""
README = f"{FOLDER}/README.md"
_KIND = "the job"
"""Stands for the kinds of jobs in :data:`_ROWS`."""
_OPTIONAL = (
    Right("list", "events"),
    Right("list", "resourcequotas"),
    Right("list", "limitranges"),
    Right("get", "namespaces"),
    *rights.SWEEP,
)
_PURPOSES = {
    _KIND: "The jobs themselves: submit, follow, list, stop.",
    "services": "The host names of a job's replicas. The Service is deleted with the job.",
    "trainingruntimes": "The runtime of each job, with its pods. It is deleted with the job.",
    "configmaps": "The cell's source. The job owns the ConfigMap, so that it is deleted with "
    "the job.",
    "pods": "The replicas' states.",
    "pods/log": "Their logs.",
}
_OTHER_PURPOSES = {
    "job": {
        "configmaps": "The cell's source and the replicas' variables. The job owns the ConfigMaps."
    },
    "trainer": {
        "configmaps": "The cell's source and the replicas' variables, which exist before the job. "
        "The job owns them."
    },
}
_OPTIONAL_PURPOSES = {
    "events": "The reason if a replica waits.",
    "resourcequotas": "Check that the whole job fits, before anything of it exists.",
    "namespaces": "Only this namespace: its level of Pod Security, and whether it is being "
    "deleted.",
    "configmaps": "The source comes before its job, so that a killed kernel leaves no job that "
    "waits for it.",
}


@dataclass(frozen=True)
class Row:
    """One row of a table: some verbs on a resource, their feature, and what is without them."""

    resource: str
    verbs: str
    feature: str
    without: str = "the same"


_ROWS = {
    "v1": (
        Row(_KIND, "create", "A cell starts a job.", "The cell is refused with a message."),
        Row(
            _KIND,
            "get",
            "Finding a job by its name: `attach`, `logs`, a `%name` that is taken.",
        ),
        Row(_KIND, "list, watch", "Following: the job's condition ends the cell. `ciao jobs`."),
        Row(_KIND, "delete", "The stop button, `ciao delete`."),
        Row("configmaps", "create", "A ConfigMap delivers the cell's source."),
        Row("configmaps", "get", "Check whether a ConfigMap exists after a lost answer."),
        Row(
            "pods",
            "get",
            "`ciao logs`. With `onShutdown=delete`, the kernel's own pod as the owner of its jobs.",
        ),
        Row("pods", "list, watch", "The replicas' states, and the reasons for waiting."),
        Row("pods/log", "get", "The replicas' lines."),
        Row(
            "events",
            "list",
            "The reason for a missing or waiting pod: quota, Pod Security, volumes.",
            'The table shows only "Pending" and the status of the pods.',
        ),
        Row(
            "resourcequotas",
            "list",
            "A job that does not fit into a quota is refused as a whole.",
            "The pods that fit start and wait for the others; the job's events show the reason.",
        ),
        Row(
            "limitranges",
            "list",
            "The check of quotas counts what the namespace adds to containers without requests.",
            "These containers count as zero; the rest is as without `resourcequotas`. Replicas "
            "without `%cpu` get no request from the setting `cpuRequest`, and a LimitRange may "
            "refuse the container that keeps files of `%output`.",
        ),
        Row(
            "configmaps",
            "patch, delete",
            "The ConfigMap is created before the job, which then becomes its owner. If the job is "
            "refused, the ConfigMap is deleted. A try of `%retries` is written down before the "
            "last one is deleted.",
            "The job is created first. If the kernel is killed before the next request, the pods "
            "wait and hold their GPUs, until the next kernel of the user removes the job. A kernel "
            "that is killed between two tries loses the job.",
        ),
        Row(
            "configmaps",
            "list",
            "A kernel's first job in the namespace looks for ConfigMaps that a killed kernel of "
            "the same user left without an owner: their job becomes the owner, or they are "
            "deleted.",
            "Such ConfigMaps stay. They hold no GPU. Leave this verb out if users of the namespace "
            "must not read the code of others.",
        ),
        Row(
            "namespaces",
            "get",
            "In a Role it applies only to this namespace. If Pod Security enforces `restricted`, "
            "pods get the required fields. A namespace that is being deleted is refused.",
            "The operator's pods are refused; the job's events show the reason.",
        ),
    ),
    "job": (
        Row(_KIND, "create", "A cell starts a job.", "The cell is refused with a message."),
        Row(_KIND, "get, list, watch, delete", "As for `tfjobs`."),
        Row("services", "create", "The replicas find each other by name."),
        Row(
            "services",
            "get",
            "Check whether the Service exists after a lost answer, and that it is deleted with its "
            "job.",
        ),
    ),
    "trainer": (
        Row(
            _KIND,
            "create",
            "A cell starts a job.",
            "The cell is refused with a message; with `%api=auto` it runs as an Indexed Job.",
        ),
        Row(_KIND, "get, list, watch, delete", "As for `tfjobs`."),
        Row(
            "trainingruntimes",
            "create",
            "The pods of the job, which end at the first failure.",
            "The job uses a [runtime of the cluster](../trainer/README.md) where that is possible; "
            "otherwise as for `trainjobs`: create.",
        ),
        Row(
            "trainingruntimes",
            "get",
            "The image and the resources that `ciao describe` shows, and the check that the "
            "runtime is deleted with its job.",
            "the same",
        ),
        Row(
            "configmaps",
            "patch, delete",
            "Trainer accepts a job only after its runtime, so the ConfigMaps exist before it too.",
            "the same",
        ),
    ),
}


def kinds(api: Api) -> tuple[str, ...]:
    """Return the kinds of an API that the built-in frameworks use, as a Role names them."""
    if api.name != "v1":
        return api.plurals
    registry = Registry(third_party={})
    pod: dict[str, object] = {"metadata": {}, "spec": {"containers": [{}]}}
    found = []
    for name in registry.table.names.frameworks:
        framework = registry.framework(name)
        if isinstance(framework, OperatorKind):
            spec = framework.complete(JobSpec(name))
            pods = {group.role: pod for group in spec.groups}
            found.append(framework.manifest(spec, pods).plural)
    return tuple(found)


def role(api: Api, text: str) -> str:
    """Return a Role's file with the rules that its API needs; the lines before them stay.

    Args:
        api: The API.
        text: The file.
    """
    head, mark, _ = text.partition("\nrules:\n")
    purposes = {**_PURPOSES, **_OTHER_PURPOSES.get(api.name, {})}
    lines = [line for part in _required(api) for line in _rule(purposes[part[0]], part[1])]
    also = "README.md describes the effect of each rule."
    first = f"Optional from here on, as in role.yaml; {also}"
    if api.name == "v1":
        first = f"Optional from here on; {also}"
    lines.append(f"  # {first}")
    for resource, own in _optional(api):
        purpose = _OPTIONAL_PURPOSES.get(resource, "") if api.name == "v1" else ""
        lines += _rule(purpose, own)
    return head + mark + "\n".join(lines) + "\n"


def table(api: Api) -> str:
    """Return the table of the rules of an API; that of others has what differs.

    Raises:
        AssertionError: A right has no row, or a row no right.
    """
    base = _ROWS["v1"]
    rows = _ROWS[api.name]
    every = rows if api.name == "v1" else (*rows, *(one for one in base if one.resource != _KIND))
    told = {(one.resource, verb) for one in every for verb in one.verbs.split(", ")}
    parts = [*_required(api), *_optional(api)]
    known = {
        (_KIND if one.resource in kinds(api) else one.name, one.verb)
        for _, own in parts
        for one in own
    }
    assert told == known, f"rows and rights of {api.name} differ: {told ^ known}"
    cells = [("rule", "feature", "without it")]
    before = ""
    for one in rows:
        name = "…" if one.resource == before else _spelled(api, one.resource)
        sign = " " if one.resource == before else ": "
        before = one.resource
        cells.append((f"{name}{sign}{one.verbs}", one.feature, one.without))
    return directive_help._table(cells)


def _spelled(api: Api, resource: str) -> str:
    names = kinds(api) if resource == _KIND else (resource,)
    text = ", ".join(f"`{name}`" for name in names)
    group = next((one.group for one in _all(api) if one.name in names), "")
    return f"{text} of `{group}`" if group and api.name != "v1" else text


def _all(api: Api) -> tuple[Right, ...]:
    every = [right for kind in kinds(api) for right in rights.needed(kind, api.group)]
    return tuple(dict.fromkeys((*every, *api.rights)))


def _required(api: Api) -> Iterator[tuple[str, list[Right]]]:
    """Yield the rights without which no cell runs, by their resource: jobs and their own first."""
    every = _all(api)
    own = [one for one in every if one.group == api.group]
    yield _KIND, [one for one in own if one.resource in kinds(api)]
    rest = [one for one in own if one.resource not in kinds(api)]
    # Names before the source: pods of Indexed Jobs have no other.
    rest += [one for one in api.rights if one not in rest and one.resource == "services"]
    rest += [one for one in every if one not in own and one not in rest]
    yield from _by_resource(rest)


def _optional(api: Api) -> Iterator[tuple[str, list[Right]]]:
    left = [one for one in _OPTIONAL if one not in _all(api)]
    # One rule for both, as they are one feature.
    merged = ("resourcequotas", "limitranges")
    for resource, own in _by_resource(left):
        if resource == merged[0]:
            yield resource, [one for one in left if one.resource in merged]
        elif resource not in merged:
            yield resource, own


def _by_resource(found: Iterable[Right]) -> Iterator[tuple[str, list[Right]]]:
    groups: dict[str, list[Right]] = {}
    for one in found:
        groups.setdefault(one.name, []).append(one)
    yield from groups.items()


def _rule(purpose: str, own: list[Right]) -> list[str]:
    def unique(words: Iterable[str]) -> str:
        return ", ".join(dict.fromkeys(words))

    group = own[0].group or '""'
    lines = [f"  # {purpose}"] if purpose else []
    return [
        *lines,
        f"  - apiGroups: [{group}]",
        f"    resources: [{unique(one.name for one in own)}]",
        f"    verbs: [{unique(one.verb for one in own)}]",
    ]


def stale(root: Path) -> dict[Path, str]:
    """Return the Roles whose rules are stale, each with its correct text."""
    found = {}
    for name, api in ROLES.items():
        path = root / FOLDER / name
        if not path.exists():
            continue
        text = path.read_text(encoding="utf-8")
        if (wanted := role(api, text)) != text:
            found[path] = wanted
    return found
