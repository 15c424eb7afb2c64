"""Containers that cannot start again, although their pod lives on for an injected container."""

from __future__ import annotations

from typing import Any

import pytest

from ciao_kernel.kube.instances import over, seen


def pod(policy: str, code: int, **container: Any) -> dict[str, Any]:
    """A pod whose program has ended, and whose proxy runs on."""
    ended = {"name": "program", "state": {"terminated": {"exitCode": code}}}
    proxy = {"name": "proxy", "state": {"running": {}}}
    return {
        "metadata": {"name": "p"},
        "spec": {
            "restartPolicy": policy,
            "containers": [{"name": "proxy"}, {"name": "program", **container}],
        },
        "status": {"phase": "Running", "containerStatuses": [proxy, ended]},
    }


@pytest.mark.parametrize(
    ("policy", "code", "ends"),
    [
        ("Never", 0, True),
        ("Never", 1, True),
        ("OnFailure", 0, True),
        ("OnFailure", 1, False),
        ("Always", 0, False),
    ],
)
def test_the_policy_and_the_exit_code_tell_whether_a_program_starts_again(
    policy: str, code: int, ends: bool
) -> None:
    assert over(pod(policy, code), "program") is ends


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_rules_of_the_container_may_start_it_again(policy: str) -> None:
    assert not over(pod(policy, 0, restartPolicyRules=[{"action": "Restart"}]), "program")
    assert not over(pod(policy, 0, restartPolicy="Always"), "program")


@pytest.mark.parametrize("value", [None, -1.5, "x", [], ["x"], {}, {"x": 1}, [{"name": "c"}]])
@pytest.mark.parametrize(
    "place",
    [
        "metadata",
        "spec",
        "spec containers",
        "status",
        "status containerStatuses",
        "status containerStatuses 0 state",
        "status containerStatuses 0 state terminated",
        "status containerStatuses 0 lastState",
        "status containerStatuses 0 restartCount",
    ],
)
def test_a_field_of_another_type_counts_as_unset(place: str, value: Any) -> None:
    ended = {"name": "c", "state": {"terminated": {"exitCode": 0}}, "lastState": {}}
    found: Any = {
        "metadata": {},
        "spec": {"restartPolicy": "OnFailure", "containers": [{"name": "c"}]},
        "status": {"containerStatuses": [ended]},
    }
    at = found
    *path, last = place.split()
    for word in path:
        at = at[int(word) if word.isdecimal() else word]
    at[last] = value
    over(found, "c")
    seen(found, "c")
