"""Which connections the network policies of a rendered target let through, by the rules of NetworkPolicy v1."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.unit.deploy.pods import Rendered

OWN_NAMESPACE = {"kubernetes.io/metadata.name": "errata"}


@dataclass(frozen=True)
class Peer:
    """A pod: its labels, and those of its namespace."""

    labels: Mapping[str, str]
    namespace: Mapping[str, str] = field(default_factory=lambda: OWN_NAMESPACE)

    @property
    def inside(self) -> bool:
        """Whether it is in the namespace of the target."""
        return self.namespace.items() >= OWN_NAMESPACE.items()


def open_between(target: Rendered, source: Peer, to: Peer, port: int) -> bool:
    """Whether TCP from a pod to another is let through at both ends."""
    leaves = not source.inside or any(_names(rule, "to", to, port) for rule in _rules(target, source, "Egress"))
    enters = not to.inside or any(_names(rule, "from", source, port) for rule in _rules(target, to, "Ingress"))
    return leaves and enters


def open_to_address(target: Rendered, source: Peer, address: str, port: int) -> bool:
    """Whether TCP from a pod to an address outside the cluster is let through."""
    for rule in _rules(target, source, "Egress"):
        blocks = [peer["ipBlock"] for peer in rule.get("to", []) if "ipBlock" in peer]
        if _has_port(rule, port) and any(_in_block(block, address) for block in blocks):
            return True
    return False


def _rules(target: Rendered, pod: Peer, direction: str) -> list[dict[str, Any]]:
    chosen = [
        policy["spec"]
        for policy in target.of("NetworkPolicy").values()
        if _selects(policy["spec"]["podSelector"], pod.labels) and direction in policy["spec"]["policyTypes"]
    ]
    if not chosen:
        raise AssertionError(f"no policy restricts {direction} of {pod.labels}")
    return [rule for spec in chosen for rule in spec.get(direction.lower()) or []]


def _names(rule: dict[str, Any], side: str, peer: Peer, port: int) -> bool:
    return _has_port(rule, port) and any(_is(entry, peer) for entry in rule[side])


def _is(entry: dict[str, Any], peer: Peer) -> bool:
    if "ipBlock" in entry:
        return False
    if "namespaceSelector" in entry:
        return _selects(entry["namespaceSelector"], peer.namespace) and _selects(entry.get("podSelector", {}), peer.labels)
    return peer.inside and _selects(entry["podSelector"], peer.labels)


def _has_port(rule: dict[str, Any], port: int) -> bool:
    return any(item["port"] == port and item.get("protocol", "TCP") == "TCP" for item in rule["ports"])


def _selects(selector: dict[str, Any], labels: Mapping[str, str]) -> bool:
    wanted: dict[str, str] = selector.get("matchLabels", {})
    if not wanted.items() <= labels.items():
        return False
    for expression in selector.get("matchExpressions", []):
        assert expression["operator"] == "In"
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return True


def _in_block(block: dict[str, Any], address: str) -> bool:
    ip = ipaddress.ip_address(address)
    excluded = any(ip in ipaddress.ip_network(net) for net in block.get("except", []))
    return ip in ipaddress.ip_network(block["cidr"]) and not excluded
