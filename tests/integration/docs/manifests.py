"""Checks a manifest by the Kubernetes client's own models: no field that they do not know."""

from __future__ import annotations

import re
from typing import Any

from kubernetes import client

VERSIONS = frozenset({"v1", "apps/v1", "rbac.authorization.k8s.io/v1"})
"""Of which the client has models."""


def check(document: Any, place: str) -> None:
    """Check an object of Kubernetes; YAML without an apiVersion is right as it is."""
    if not isinstance(document, dict) or "apiVersion" not in document:
        return
    version = document["apiVersion"]
    assert version in VERSIONS, f"{place}: the apiVersion {version} is not known here"
    kind = f"V1{document['kind']}"
    assert hasattr(client, kind), f"{place}: there is no kind {document['kind']}"
    assert document["metadata"]["name"], place
    _fields(document, kind, place)


def _fields(value: Any, kind: str, place: str) -> None:
    """Compare an object, and those in it, with the model of its kind."""
    if found := re.fullmatch(r"[Ll]ist\[(.*)\]", kind):
        for one in value:
            _fields(one, found[1], place)
    elif found := re.fullmatch(r"[Dd]ict\[\w+, (.*)\]", kind):
        for one in value.values():
            _fields(one, found[1], place)
    elif model := getattr(client, kind, None):
        types = {model.attribute_map[name]: of for name, of in model.openapi_types.items()}
        assert isinstance(value, dict), f"{place}: {value!r} is no {kind}"
        for name, one in value.items():
            assert name in types, f"{place}: a {kind} has no {name}"
            _fields(one, types[name], place)
