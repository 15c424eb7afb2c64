"""The fields of Kubeflow Trainer's kinds in each release, and what of an object they lack.

``python -m tests.helpers.trainer_crds`` reads the CRDs from the modules that Go's proxy has, and
writes what matters of them: fields, required ones, the keys of lists, sizes. Most releases share
most of it, so each part is written once, and named by its digest.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

VERSIONS = ("2.0.0", "2.0.1", "2.1.0", "2.2.0", "2.2.1", "2.3.0")
KINDS = {
    "TrainJob": "trainjobs",
    "TrainingRuntime": "trainingruntimes",
    "ClusterTrainingRuntime": "clustertrainingruntimes",
}
FILE = Path(__file__).with_name("trainer_crds.json")
_FREE = "x-kubernetes-preserve-unknown-fields"
_KEYS = "x-kubernetes-list-map-keys"
_KEPT = ("type", "required", "maxItems", "minimum", "enum", _FREE, _KEYS)
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list, tuple),
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "number": (int, float),
}


class Release:
    """The kinds of one release.

    Args:
        version: One of :data:`VERSIONS`.
    """

    def __init__(self, version: str) -> None:
        found = json.loads(FILE.read_text())
        self._roots: dict[str, Any] = found["releases"][version]
        self._parts: dict[str, Any] = found["parts"]

    def has(self, kind: str, *path: str) -> bool:
        """Return whether a kind has a field."""
        node = self._node(self._roots[kind])
        for name in path:
            node = self._node(node.get("items", node))
            if name not in node.get("properties", {}):
                return False
            node = self._node(node["properties"][name])
        return True

    def pruned(self, item: dict[str, Any]) -> dict[str, Any]:
        """Return an object as the server keeps it: without the fields that its kind lacks."""
        spec = self._kept(item["spec"], self._node(self._roots[item["kind"]]))
        return {**item, "spec": spec}

    def wrong(self, item: dict[str, Any]) -> list[str]:
        """Return why a server would refuse an object, or what it would lose of it."""
        return list(self._wrong(item["spec"], self._node(self._roots[item["kind"]]), "spec"))

    def _node(self, node: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._parts[node] if isinstance(node, str) else node
        return found

    def _kept(self, value: Any, node: dict[str, Any]) -> Any:
        if isinstance(value, dict) and "properties" in node:
            known = node["properties"]
            return {k: self._kept(v, self._node(known[k])) for k, v in value.items() if k in known}
        if isinstance(value, list) and "items" in node:
            return [self._kept(one, self._node(node["items"])) for one in value]
        return value

    def _wrong(self, value: Any, node: dict[str, Any], at: str) -> Iterator[str]:
        expected = _TYPES.get(node.get("type", ""), (object,))
        if not isinstance(value, expected) or (isinstance(value, bool) and expected == (int,)):
            yield f"{at}: {value!r} is no {node['type']}"
            return
        if "enum" in node and value not in node["enum"]:
            yield f"{at}: {value!r} is none of {node['enum']}"
        if "minimum" in node and value < node["minimum"]:
            yield f"{at}: {value!r} is too small"
        if isinstance(value, dict):
            yield from self._wrong_fields(value, node, at)
        elif isinstance(value, (list, tuple)):
            yield from self._wrong_items(value, node, at)

    def _wrong_fields(self, value: dict[str, Any], node: dict[str, Any], at: str) -> Iterator[str]:
        for name in node.get("required", ()):
            if name not in value:
                yield f"{at}.{name} is missing"
        known = node.get("properties", {})
        for name, one in value.items():
            if name in known:
                yield from self._wrong(one, self._node(known[name]), f"{at}.{name}")
            elif "additionalProperties" in node:
                yield from self._wrong(
                    one, self._node(node["additionalProperties"]), f"{at}.{name}"
                )
            elif not node.get(_FREE) and known:
                yield f"{at}.{name} is unknown"

    def _wrong_items(self, value: Any, node: dict[str, Any], at: str) -> Iterator[str]:
        if len(value) > node.get("maxItems", len(value)):
            yield f"{at} has {len(value)} items"
        if keys := node.get(_KEYS):
            names = [tuple(str(one.get(key)) for key in keys) for one in value]
            if len(set(names)) < len(names):
                yield f"{at} has the same key twice: {names}"
        for number, one in enumerate(value):
            yield from self._wrong(one, self._node(node.get("items", {})), f"{at}[{number}]")


def _shortened(schema: dict[str, Any], parts: dict[str, Any]) -> Any:
    """Return the name of a part of a schema, or the part itself if it is small."""
    found = {name: schema[name] for name in _KEPT if name in schema}
    if "properties" in schema:
        own = schema["properties"].items()
        found["properties"] = {name: _shortened(one, parts) for name, one in own}
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            found[name] = _shortened(schema[name], parts)
    text = json.dumps(found, sort_keys=True)
    if len(text) < 60:
        return found
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    parts[digest] = found
    return digest


def main() -> None:
    """Write the file anew."""
    parts: dict[str, Any] = {}
    releases: dict[str, dict[str, Any]] = {}
    for version in VERSIONS:
        module = f"github.com/kubeflow/trainer/v2@v{version}"
        done = subprocess.run(
            ["go", "mod", "download", "-json", module], check=True, capture_output=True, cwd="/"
        )
        folder = Path(json.loads(done.stdout)["Dir"]) / "manifests" / "base" / "crds"
        for kind, plural in KINDS.items():
            crd = yaml.safe_load((folder / f"trainer.kubeflow.org_{plural}.yaml").read_text())
            (served,) = crd["spec"]["versions"]
            schema = served["schema"]["openAPIV3Schema"]["properties"]["spec"]
            releases.setdefault(version, {})[kind] = _shortened(schema, parts)
    FILE.write_text(json.dumps({"releases": releases, "parts": parts}, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
