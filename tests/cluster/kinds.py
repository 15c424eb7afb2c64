"""The kinds of objects that an API server has, and the words for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tests.cluster.errors import ClusterError


@dataclass(frozen=True)
class Kind:
    """One kind of objects in one version.

    Args:
        group: of its API; "" is the core's.
        version: of the group.
        name: as manifests have it, such as `Pod`.
        plural: as addresses have it, such as `pods`.
        namespaced: whether its objects are in namespaces.
        singular: such as `pod`.
        short: further words, such as `po`.
    """

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool
    singular: str = ""
    short: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """Return the group and version as manifests have them."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str, *names: str) -> str:
        """Return the address of all objects, of one by its name, or of a part of that one."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        where = ["namespaces", namespace] if self.namespaced and namespace else []
        return "/".join([root, *(quote(word, safe="") for word in (*where, self.plural, *names))])


class Kinds:
    """All kinds of a server, those first that it prefers.

    Args:
        known: in the server's order.
    """

    def __init__(self, known: Iterable[Kind]) -> None:
        self._known = list(known)

    def named(self, word: str) -> Kind | None:
        """Return the kind that `kubectl get` means by a word, such as `po`, `tfjobs.kubeflow.org`.

        Short words come last: a kind's own name is not taken by another's short one.
        """
        name, _, rest = word.lower().partition(".")
        where = [k for k in self._known if rest in ("", k.group, f"{k.version}.{k.group}")]
        for kind in where:
            if name in (kind.plural, kind.singular, kind.name.lower()):
                return kind
        return next((kind for kind in where if name in kind.short), None)

    def of(self, manifest: dict[str, Any]) -> Kind | None:
        """Return the kind of a manifest."""
        wanted = manifest.get("apiVersion"), manifest.get("kind")
        return next((k for k in self._known if (k.api_version, k.name) == wanted), None)


def discovered(*answers: dict[str, Any]) -> Kinds:
    """Return what a server says of itself at `/api` and `/apis`.

    Raises:
        ClusterError: it is older than Kubernetes 1.26 and tells of each group alone.
    """
    found = []
    for answer in answers:
        if answer.get("kind") != "APIGroupDiscoveryList":
            raise ClusterError("the API server does not tell all its kinds at once")
        for group in answer["items"]:
            for version in group["versions"]:
                for one in version.get("resources", ()):
                    found.append(
                        Kind(
                            group["metadata"].get("name", ""),
                            version["version"],
                            one["responseKind"]["kind"],
                            one["resource"],
                            one["scope"] == "Namespaced",
                            one.get("singularResource", ""),
                            tuple(one.get("shortNames", ())),
                        )
                    )
    return Kinds(found)


@dataclass(frozen=True)
class Asked:
    """What is asked for: one object by its name, or all of some kinds that selectors let through.

    Args:
        words: for kinds.
        name: of the one object.
        selectors: such as `labelSelector`, as the API names them.
    """

    words: tuple[str, ...]
    name: str
    selectors: dict[str, str]


_SELECTORS = {
    "-l": "labelSelector",
    "--selector": "labelSelector",
    "--field-selector": "fieldSelector",
}


def asked(what: Sequence[str]) -> Asked | None:
    """Read the arguments of `kubectl get`; None if they have what only kubectl can do."""
    words, selectors, rest = [], {}, list(what)
    while rest:
        word = rest.pop(0)
        flag, sign, value = word.partition("=")
        if flag in _SELECTORS and (sign or rest):
            selectors[_SELECTORS[flag]] = value if sign else rest.pop(0)
        elif word.startswith("-"):
            return None
        else:
            words.append(word)
    if len(words) != 1:
        return None
    kinds, _, name = words[0].partition("/")
    if name and ("," in kinds or "," in name or selectors):
        return None
    return Asked(tuple(kinds.split(",")), name, selectors)
