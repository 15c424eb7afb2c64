"""Rights of a user in a namespace, and the Role that would grant missing rights."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
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
    """One verb on one kind of object, or on one object alone."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    object_name: str = ""
    """The one object that it is for, such as the Secret of ``%pushSecret``; "" means all."""

    @property
    def name(self) -> str:
        """The resource as a Role spells it: ``pods/log``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def __str__(self) -> str:
        text = f"{self.verb} {self.name}" + (f".{self.group}" if self.group else "")
        return f'{text} "{self.object_name}"' if self.object_name else text


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
    objects = _list(rule.get("resourceNames"))
    return (
        holds("verbs", right.verb)
        and holds("apiGroups", right.group)
        and holds("resources", right.name, whole)
        and (not objects or right.object_name in objects)
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
    if right.object_name:
        asked["name"] = right.object_name
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


async def role(client: Client, namespace: str, rights: Sequence[Right]) -> str:
    """Return the Role that grants these rights and its RoleBinding to this user, as YAML.

    ``kubectl apply`` replaces the rules and subjects of an object. So a Role of other rights, or
    for another user, has another name: each that is applied adds to the earlier ones.
    """
    import yaml

    verbs: dict[tuple[str, str, str], list[str]] = {}
    for right in rights:
        verbs.setdefault((right.group, right.name, right.object_name), []).append(right.verb)
    user = await _user(client)
    meta = {"name": f"ciao-more-{_digest(user, rights)}", "namespace": namespace}
    items: list[Manifest] = [
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": [
                {
                    "apiGroups": [group],
                    "resources": [name],
                    **({"resourceNames": [only]} if only else {}),
                    "verbs": found,
                }
                for (group, name, only), found in verbs.items()
            ],
        }
    ]
    if user:
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


def _digest(user: str, rights: Iterable[Right]) -> str:
    # A service account is a user too: its name has the prefix system:serviceaccount.
    text = "\n".join([user, *sorted(map(str, rights))])
    return hashlib.sha256(text.encode()).hexdigest()[:10]


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
