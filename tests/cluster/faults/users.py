"""A user who may do some things in one namespace and nothing elsewhere, as a company gives it.

A service account with a Role. It signs in with a token that the API server issues, as `ciao` does
when it runs in a pod.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.errors import ClusterError
from tests.cluster.namespace import Namespace
from tests.cluster.rights import account, wait_until_may
from tests.cluster.waiting import until

_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Rule:
    """What is allowed.

    Args:
        resources: such as `pods/log`.
        verbs: such as `get`.
        groups: API groups; the core's by default.
    """

    resources: Sequence[str]
    verbs: Sequence[str]
    groups: Sequence[str] = ("",)

    def manifest(self) -> dict[str, list[str]]:
        """Return it as it stands in a Role."""
        return {
            "apiGroups": list(self.groups),
            "resources": list(self.resources),
            "verbs": list(self.verbs),
        }


class User:
    """A user of one namespace.

    Args:
        namespace: which goes with all of this.
        rules: what the user may do in it.
        name: of the service account, the Role and the RoleBinding.
    """

    def __init__(self, namespace: Namespace, *rules: Rule, name: str = "user") -> None:
        self.namespace = namespace
        self.name = name
        self._rules = rules
        self._tokens = self._changes = 0

    def create(self) -> None:
        """Create the account and its rights; they are in force when it returns."""
        meta, mark = {"name": self.name}, self._mark()
        self.namespace.create_objects(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "Role",
                "metadata": meta,
                "rules": [rule.manifest() for rule in (*self._rules, mark)],
            },
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "RoleBinding",
                "metadata": meta,
                "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": self.name},
                "subjects": [{"kind": "ServiceAccount", **meta}],
            },
        )
        self._wait_for(mark)

    def allow(self, *rules: Rule) -> None:
        """Replace all rights by these; none takes all away. They are in force when it returns."""
        mark = self._mark()
        patch = {"rules": [rule.manifest() for rule in (*rules, mark)]}
        self.namespace.cluster.api.patch(self.namespace.name, f"role/{self.name}", patch)
        self._wait_for(mark)

    def _mark(self) -> Rule:
        """A right to nothing that nobody has yet: once it counts, so does all of its Role."""
        self._changes += 1
        return Rule([f"mark-{self._changes}"], ["get"])

    def _wait_for(self, mark: Rule) -> None:
        namespace, user = self.namespace, account(self.namespace.name, self.name)
        given = [(verb, resource) for resource in mark.resources for verb in mark.verbs]
        wait_until_may(namespace.cluster, user, given, namespace.name)

    def token(self) -> Token:
        """Return a fresh token of the user."""
        self._tokens += 1
        return Token(self, f"{self.name}-token-{self._tokens}")


class Token:
    """A token that ends when it is told to.

    A clock cannot end it within a test: the API server issues none for less than ten minutes. So
    each is bound to an object of its own, an empty Secret, and is refused when that is deleted. The
    account could be deleted as well, but that would end all of its tokens and its rights too, and a
    test wants the user to come back with a fresh one.

    Args:
        user: whose.
        name: of the Secret that it is bound to.
    """

    def __init__(self, user: User, name: str) -> None:
        self._user, self._name, self._asked = user, name, 0
        namespace = user.namespace
        namespace.create_objects({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})
        self.text = namespace.cluster.api.token(namespace.name, user.name, name)

    def invalidate(self) -> None:
        """End it: the API server answers 401 from now on.

        A token that was used goes on for up to ten seconds: so long the API server remembers whom
        it believed. One that was not used is refused at once: it is known that the Secret has gone.
        """
        namespace = self._user.namespace
        namespace.cluster.api.delete(namespace.name, f"secret/{self._name}")
        until(lambda: not self._believed(), "the token to end", 30)

    def _believed(self) -> bool:
        """Tell whether somebody who comes with it for the first time would be let in.

        Asked for an audience more each time: the API server remembers a token's by all of them, so
        that it looks anew, and does not take the answer for the token's user.
        """
        self._asked += 1
        payload = self.text.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": self.text, "audiences": [*claims["aud"], f"asked-{self._asked}"]},
        }
        status = self._user.namespace.cluster.api.create("", review)["status"]
        return bool(status.get("authenticated"))

    def kubeconfig(self, file: Path, like: Path) -> Path:
        """Write a kubeconfig with this token, and return its path.

        Args:
            file: where.
            like: a kubeconfig with the cluster's address and authority.
        """
        content = kubeconfig(json.loads(like.read_text()), self.text, self._user.namespace.name)
        file.touch(mode=0o600)
        file.write_text(json.dumps(content, indent=2))
        return file


def kubeconfig(like: dict[str, Any], token: str, namespace: str) -> dict[str, Any]:
    """Return a kubeconfig like another, with a token in place of its credentials."""
    if not like.get("clusters"):
        raise ClusterError("the kubeconfig names no cluster")
    context = {"cluster": like["clusters"][0]["name"], "user": "user", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": like["clusters"][:1],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "user", "context": context}],
        "current-context": "user",
    }
