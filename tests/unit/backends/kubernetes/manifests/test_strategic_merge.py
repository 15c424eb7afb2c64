"""Merging a patch into a pod template, with the results of ``kubectl patch --local``.

kubectl puts new items of a list first; here they come last, behind the program's container.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.manifests.strategic_merge import merged

POD: Any = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "containers": [
            {"name": "main", "env": [{"name": "A", "value": "1"}], "args": ["x", "y"]},
            {"name": "helper"},
        ],
        "tolerations": [{"key": "gpu"}],
        "nodeSelector": {"disk": "ssd"},
    },
}


@pytest.mark.parametrize(
    ("patch", "path", "result"),
    [
        ({"metadata": {"labels": {"b": "2"}}}, "metadata.labels", {"a": "1", "b": "2"}),
        ({"metadata": {"labels": {"a": None}}}, "metadata.labels", {}),
        ({"spec": {"nodeSelector": {"$patch": "replace", "gpu": "yes"}}}, "spec.nodeSelector",
         {"gpu": "yes"}),
        ({"spec": {"nodeSelector": {"$patch": "delete"}}}, "spec.nodeSelector", {}),
        # A list without a key is replaced.
        ({"spec": {"tolerations": [{"key": "spot"}]}}, "spec.tolerations", [{"key": "spot"}]),
        ({"spec": {"containers": [{"name": "main", "args": ["z"]}]}}, "spec.containers.0.args",
         ["z"]),
        ({"spec": {"containers": [{"name": "main", "env": [{"name": "B", "value": "2"}]}]}},
         "spec.containers.0.env", [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]),
        ({"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "2"}]}]}},
         "spec.containers.0.env", [{"name": "A", "value": "2"}]),
        ({"spec": {"containers": [{"name": "helper", "$patch": "delete"}]}}, "spec.containers",
         [{"name": "main", "env": [{"name": "A", "value": "1"}], "args": ["x", "y"]}]),
        ({"spec": {"containers": [{"$patch": "replace"}, {"name": "new"}]}}, "spec.containers",
         [{"name": "new"}]),
        ({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}, "spec.volumes",
         [{"name": "v", "emptyDir": {}}]),
        ({"spec": {"hostNetwork": True}}, "spec.hostNetwork", True),
    ],
)  # fmt: skip
def test_a_patch_gives_what_kubectl_gives(patch: Any, path: str, result: Any) -> None:
    before = copy.deepcopy(POD)
    found = merged(POD, patch)
    for key in path.split("."):
        found = found[int(key)] if key.isdecimal() else found[key]
    assert found == result
    assert before == POD


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"spec": {"containers": [{"image": "x"}]}}, r"spec.containers\[0\]: it has no name"),
        ({"spec": {"containers": ["x"]}}, r"spec.containers\[0\]: it has no name"),
        ({"spec": {"$patch": "merge"}}, r"spec: \$patch is 'merge', not delete or replace"),
        ({"spec": {"$setElementOrder/containers": []}}, r"only \$patch is understood"),
    ],
)
def test_what_is_no_patch_names_its_place(patch: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        merged(POD, patch)
