"""Rights of a user in a namespace, and the Role that would grant missing rights."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ciao_kernel.backends.kubernetes.object_fields import mapping
from ciao_kernel.errors import Refused
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.model import Manifest

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubject"
_NO_REVIEW = (403, 404)
_GROUP = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one kind of object."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""

    @property
    def name(self) -> str:
        """The resource as a Role spells it: ``pods/log``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def __str__(self) -> str:
        return f"{self.verb} {self.name}" + (f".{self.group}" if self.group else "")


CLAIM = tuple(Right(verb, "configmaps") for verb in ("patch", "delete"))
"""Optional rights: with them a job's source is created before the job, which then claims it."""
SWEEP = (Right("list", "configmaps"), *CLAIM)
"""Optional rights: with them a kernel settles the sources that a killed kernel left unowned."""


def needed(plural: str, group: str) -> tuple[Right, ...]:
    """Return the rights that a job needs: submit, follow or stop uses each verb."""
    return (
        *(Right(verb, plural, group) for verb in ("create", "get", "list", "watch", "delete")),
        *(Right(verb, "configmaps") for verb in ("create", "get")),
        *(Right(verb, "pods") for verb in ("get", "list", "watch")),
        Right("get", "pods", subresource="log"),
    )


async def allowed(client: Client, namespace: str, *wanted: Right) -> list[bool]:
    """Return for each right whether this user has it.

    One review lists what RBAC grants, and is kept for some minutes. If others decide too, such as
    a cloud's webhook, the list is incomplete: then each right is checked separately.

    Raises:
        Refused, ClusterFault: The server does not accept the credentials, or does not answer.
    """
    body: Object = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    try:
        review = await client.known(f"{_REVIEWS}rulesreviews", body)
        status = mapping(review.get("status"))
    except Refused as error:
        if error.code not in _NO_REVIEW:
            raise
        status = {"incomplete": True}
    rules = [mapping(rule) for rule in _list(status.get("resourceRules"))]
    listed = [any(_grants(rule, right) for rule in rules) for right in wanted]
    if all(listed) or not status.get("incomplete", True):
        return listed
    open_ones = [right for right, may in zip(wanted, listed, strict=True) if not may]
    asked = await asyncio.gather(*(_ask(client, namespace, right) for right in open_ones))
    found = dict(zip(open_ones, asked, strict=True))
    return [found.get(right, True) for right in wanted]


def _grants(rule: Object, right: Right) -> bool:
    def holds(key: str, *names: str) -> bool:
        return any(name in _list(rule.get(key)) for name in ("*", *names))

    whole = f"*/{right.subresource}" if right.subresource else right.name
    return (
        holds("verbs", right.verb)
        and holds("apiGroups", right.group)
        and holds("resources", right.name, whole)
        and not rule.get("resourceNames")
    )


async def _ask(client: Client, namespace: str, right: Right) -> bool:
    asked: Manifest = {
        "namespace": namespace,
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
    }
    if right.subresource:
        asked["subresource"] = right.subresource
    body: Object = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    try:
        review = await client.known(f"{_REVIEWS}accessreviews", body)
    except Refused as error:
        if error.code not in _NO_REVIEW:
            raise
        return True  # the user may not ask: the next request will show it
    return bool(mapping(review.get("status")).get("allowed"))


async def role(client: Client, namespace: str, rights: Iterable[Right]) -> str:
    """Return the Role that grants these rights and its RoleBinding to this user, as YAML."""
    import yaml

    verbs: dict[tuple[str, str], list[str]] = {}
    for right in rights:
        verbs.setdefault((right.group, right.name), []).append(right.verb)
    meta = {"name": "ciao-user-more", "namespace": namespace}
    items: list[Manifest] = [
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": [
                {"apiGroups": [group], "resources": [name], "verbs": found}
                for (group, name), found in verbs.items()
            ],
        }
    ]
    if user := await _user(client):
        items.append(
            {
                "apiVersion": f"{_GROUP}/v1",
                "kind": "RoleBinding",
                "metadata": meta,
                "roleRef": {"apiGroup": _GROUP, "kind": "Role", "name": meta["name"]},
                "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": user}],
            }
        )
    return "---\n".join(
        yaml.safe_dump(item, sort_keys=False, default_flow_style=None, width=1000).replace(
            "['']", '[""]'
        )
        for item in items
    )


async def _user(client: Client) -> str:
    """Return this user's name from the server; "" if it gives none (before Kubernetes 1.28)."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        review = await client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
    except Refused:
        return ""
    return str(mapping(mapping(review.get("status")).get("userInfo")).get("username") or "")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
