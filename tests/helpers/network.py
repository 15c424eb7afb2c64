"""What NetworkPolicies allow, by their own text: for clusters whose network enforces none.

tests/e2e/policies compares it with what a network does that enforces them.

A connection needs the permission of both ends: out of the pod that opens it, and into the one that
takes it. A pod that no policy selects for a direction is open in that direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import yaml

Policy = dict[str, Any]


@dataclass(frozen=True)
class Pod:
    """One end of a connection.

    Args:
        labels: Of the pod.
        namespace: Its name.
        around: Labels of the namespace; that of its name need not be among them.
        ip: Its address; "" is in no block of addresses.
    """

    labels: Mapping[str, str]
    namespace: str
    around: Mapping[str, str] = field(default_factory=dict)
    ip: str = ""


@dataclass(frozen=True)
class Host:
    """One end of a connection that is no pod."""

    ip: str


End = Pod | Host


def read(*files: Path, namespace: str) -> list[Policy]:
    """The policies of some files, as they are in a namespace; other objects are left out."""
    found = [one for file in files for one in yaml.safe_load_all(file.read_text())]
    return [
        {**one, "metadata": {**one["metadata"], "namespace": namespace}}
        for one in found
        if one["kind"] == "NetworkPolicy"
    ]


def connects(
    policies: Sequence[Policy], start: End, end: End, port: int, protocol: str = "TCP"
) -> bool:
    """Whether one end may open a connection to a port of the other."""
    way = port, protocol
    return _passes(policies, start, end, "Egress", way) and _passes(
        policies, end, start, "Ingress", way
    )


def _passes(
    policies: Iterable[Policy], own: End, other: End, direction: str, way: tuple[int, str]
) -> bool:
    """Whether the policies of one end let a connection pass."""
    if isinstance(own, Host):
        return True
    mine = [one for one in policies if direction in _types(one) and _selected(one, own)]
    rules = [
        (one["metadata"]["namespace"], rule)
        for one in mine
        for rule in one["spec"].get(direction.lower()) or ()
    ]
    return not mine or any(_rule(rule, home, other, direction, way) for home, rule in rules)


def _types(policy: Policy) -> Sequence[str]:
    spec = policy["spec"]
    usual = ["Ingress", *(["Egress"] if "egress" in spec else [])]
    return spec.get("policyTypes") or usual


def _selected(policy: Policy, pod: Pod) -> bool:
    return policy["metadata"]["namespace"] == pod.namespace and matches(
        policy["spec"].get("podSelector") or {}, pod.labels
    )


def _rule(
    rule: Mapping[str, Any], home: str, other: End, direction: str, way: tuple[int, str]
) -> bool:
    peers = rule.get("from" if direction == "Ingress" else "to")
    ports = rule.get("ports")
    return (not peers or any(_peer(one, home, other) for one in peers)) and (
        not ports or any(_port(one, *way) for one in ports)
    )


def _peer(peer: Mapping[str, Any], home: str, other: End) -> bool:
    if block := peer.get("ipBlock"):
        return bool(other.ip) and _within(block, other.ip)
    if isinstance(other, Host):
        return False
    if "namespaceSelector" in peer:
        around = {"kubernetes.io/metadata.name": other.namespace, **other.around}
        if not matches(peer["namespaceSelector"] or {}, around):
            return False
    elif other.namespace != home:
        return False
    return matches(peer.get("podSelector") or {}, other.labels)


def _within(block: Mapping[str, Any], ip: str) -> bool:
    found = ip_address(ip)
    return found in ip_network(block["cidr"]) and not any(
        found in ip_network(one) for one in block.get("except") or ()
    )


def _port(port: Mapping[str, Any], number: int, protocol: str) -> bool:
    if port.get("protocol", "TCP") != protocol:
        return False
    first = port.get("port")
    return first is None or first <= number <= port.get("endPort", first)


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a selector of Kubernetes selects labels.

    Raises:
        KeyError: It has an operator that Kubernetes does not.
    """
    tests = {
        "In": lambda key, values: labels.get(key) in values,
        "NotIn": lambda key, values: labels.get(key) not in values,
        "Exists": lambda key, _: key in labels,
        "DoesNotExist": lambda key, _: key not in labels,
    }
    exact = (selector.get("matchLabels") or {}).items()
    return exact <= labels.items() and all(
        tests[one["operator"]](one["key"], one.get("values") or ())
        for one in selector.get("matchExpressions") or ()
    )
