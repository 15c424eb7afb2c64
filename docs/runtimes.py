"""The ClusterTrainingRuntimes of deploy/trainer, from the frameworks that are built in.

``docs/generate.py`` writes them: one file for each framework, and the list of all.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from ciao_kernel.backends.kubernetes.manifests import shared_runtime
from ciao_kernel.session.plugin_registry import Registry

FOLDER = "deploy/trainer"
_LIST = "kustomization.yaml"
_HEAD = """\
# The runtime of ciao's {name} jobs for users who may not create TrainingRuntimes: README.md.
# python docs/generate.py writes this file.
"""
_LIST_HEAD = """\
# A runtime for each framework: README.md. python docs/generate.py writes this file.
"""


def files() -> dict[str, str]:
    """Return the files of the folder, by their names."""
    registry = Registry(third_party={})
    made = {}
    for name in sorted(registry.table.names.frameworks):
        runtime = shared_runtime.runtime(registry.framework(name))
        made[f"{name}.yaml"] = _HEAD.format(name=name) + yaml.safe_dump(runtime, sort_keys=False)
    made[_LIST] = _LIST_HEAD + yaml.safe_dump(
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": sorted(made),
        },
        sort_keys=False,
    )
    return made


def stale(root: Path) -> dict[Path, str]:
    """Return the files that are stale or missing, each with its correct text."""
    folder = root / FOLDER
    if not folder.exists():
        return {}
    found = {}
    for name, text in files().items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            found[path] = text
    return found
