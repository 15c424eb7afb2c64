"""The objects of an API server in memory: what requests do to them, and what they answer.

Unit tests ask it without a network, integration tests serve it on the loopback. It knows nothing
of a kind, apart from the garbage collector's rule: what a deleted object owned is deleted too.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from ciao_kernel.backends.kubernetes.object_fields import many
from ciao_kernel.backends.kubernetes.states import status

Object = dict[str, Any]
Answer = tuple[int, Object]
EVERYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
KINDS = ("tfjobs", "pytorchjobs", "jaxjobs", "xgboostjobs", "paddlejobs", "mpijobs")


class ApiObjects:
    """The objects by their path.

    Args:
        rules: what the user may do: rules of a SelfSubjectRulesReview.
        created: what the server notes as the creation of each object, in seconds of the epoch.
    """

    def __init__(self, *rules: Object, created: float = 0.0) -> None:
        self.rules = list(rules) or [EVERYTHING]
        self.created = created
        self.objects: dict[str, Object] = {}
        self._uids = itertools.count(1)

    def names(self) -> list[str]:
        """Kinds and names of all objects: ``tfjobs/mnist``."""
        return sorted("/".join(path.split("/")[-2:]) for path in self.objects)

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Object | None
    ) -> Answer:
        """Do what a request asks for, and return the status and the body of its answer."""
        kind = path.rpartition("/")[2]
        if kind.endswith("reviews"):
            review = {"resourceRules": self.rules, "incomplete": False}
            return 201, {**(body or {}), "status": review}
        if path == "/apis/kubeflow.org/v1":
            return 200, {"resources": [{"name": one} for one in KINDS]}
        if method == "POST":
            return self._create(path, query, body or {})
        if path in self.objects:
            return self._one(method, path, body or {})
        if method == "GET" and kind in (*KINDS, "jobs", "configmaps", "pods", "resourcequotas"):
            return 200, {"items": self._list(path, query.get("labelSelector", ""))}
        return failure(404, "NotFound", f"{path} not found")

    def _create(self, path: str, query: Mapping[str, str], body: Object) -> Answer:
        at = f"{path}/{body['metadata']['name']}"
        if at in self.objects:
            return failure(409, "AlreadyExists", f"{at} already exists")
        stamp = status.text(self.created)
        meta = {**body["metadata"], "uid": f"uid-{next(self._uids)}", "creationTimestamp": stamp}
        made = {**body, "metadata": meta}
        if not query.get("dryRun"):
            self.objects[at] = made
        return 201, made

    def _one(self, method: str, path: str, body: Object) -> Answer:
        item = self.objects[path]
        asked = body.get("preconditions", body.get("metadata", {})).get("uid")
        if asked not in (None, item["metadata"]["uid"]):
            return failure(409, "Conflict", "Precondition failed: UID in precondition")
        if method == "PATCH":
            self.objects[path] = item = _merged(item, body)
        if method == "DELETE":
            self._delete(path)
        return 200, item

    def _delete(self, path: str) -> None:
        uid = self.objects.pop(path)["metadata"]["uid"]
        for other, item in list(self.objects.items()):
            owners = many(item, "metadata", "ownerReferences")
            if any(one.get("uid") == uid for one in owners) and other in self.objects:
                self._delete(other)

    def _list(self, path: str, selector: str) -> list[Object]:
        def chosen(item: Object) -> bool:
            labels = item["metadata"].get("labels", {})
            for term in filter(None, selector.split(",")):
                name, equals, value = term.partition("=")
                if name not in labels or (equals and labels[name] != value):
                    return False
            return True

        return [
            item
            for at, item in self.objects.items()
            if at.rpartition("/")[0] == path and chosen(item)
        ]


def failure(code: int, reason: str, message: str) -> Answer:
    """Return an answer that refuses."""
    return code, {"kind": "Status", "code": code, "reason": reason, "message": message}


def _merged(item: Object, change: Object) -> Object:
    """Apply a merge patch (RFC 7386)."""
    found = dict(item)
    for key, value in change.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            found[key] = _merged(found.get(key) or {}, value)
        else:
            found[key] = value
    return found
