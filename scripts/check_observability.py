"""Fails when the alert rules or the dashboard ask for a metric, a label or a value of a label that no service has."""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client import Gauge

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "gen"))

from errata_kit.errors import Reason  # noqa: E402
from errata_kit.grades import FindingKind, Verdict  # noqa: E402
from errata_kit.metrics import Metrics  # noqa: E402
from services.orchestrator.runs.events import Outcome  # noqa: E402

FOLDER: Final = ROOT / "deploy" / "observability"
# Prometheus puts these on every series that it scrapes, or on buckets.
_SCRAPED: Final = frozenset({"job", "instance", "le"})
_FROM_PROMETHEUS: Final = frozenset({"up"})
_GRPC_CODES: Final = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
_SERVICES: Final = ("orchestrator", "retriever", "judge", "generator")
_TEXT: Final = re.compile(r'"[^"]*"')
_MATCHER: Final = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_SELECTOR: Final = re.compile(r"\b([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")
_GROUPING: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_RANGE: Final = re.compile(r"\[[^\]]*\]|\boffset\s+\w+")
_NAME: Final = re.compile(r"\b[a-zA-Z_:][\w:]*\b(?!\s*\()")
_WORDS: Final = frozenset({"and", "or", "unless", "by", "on", "without", "ignoring", "group_left", "group_right", "bool"})


@dataclass(frozen=True, slots=True)
class Query:
    """An expression in PromQL, and what asks for it."""

    source: str
    expression: str


def queries() -> tuple[Query, ...]:
    """Every expression of the alert rules and of the dashboard's panels."""
    return (*alert_queries(), *panel_queries())


def alerts() -> tuple[Mapping[str, Any], ...]:
    """The alert rules as they stand in the file."""
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return tuple(rule for group in groups for rule in group["rules"])


def panels() -> tuple[Mapping[str, Any], ...]:
    """The panels of the dashboard, rows left out."""
    board = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    return tuple(panel for panel in board["panels"] if panel["type"] != "row")


def alert_queries() -> tuple[Query, ...]:
    """The conditions of the alerts."""
    return tuple(Query(rule["alert"], rule["expr"]) for rule in alerts())


def panel_queries() -> tuple[Query, ...]:
    """The dashboard's expressions, with a range in place of the variable that Grafana fills in."""
    return tuple(
        Query(panel["title"], target["expr"].replace("$__rate_interval", "5m"))
        for panel in panels()
        for target in panel["targets"]
    )


def metrics_of(expression: str) -> frozenset[str]:
    """The names of series that an expression asks for."""
    bare = _GROUPING.sub(" ", _RANGE.sub(" ", re.sub(r"\{[^}]*\}", " ", _TEXT.sub(" ", expression))))
    return frozenset(name for name in _NAME.findall(bare) if name not in _WORDS)


def series_of(metrics: Metrics) -> dict[str, frozenset[str]]:
    """Every name of a series that the registry can have, with its labels."""
    known: dict[str, frozenset[str]] = {}
    for collector, names in metrics.registry._collector_to_names.items():
        labels = frozenset(getattr(collector, "_labelnames", ()))
        # A counter's or histogram's own name is none of a series.
        known.update((name, labels) for name in names if isinstance(collector, Gauge) or name != names[0])
    for family in metrics.registry.collect():
        known.update((sample.name, frozenset(sample.labels)) for sample in family.samples if sample.name not in known)
    return known


def faults() -> Iterator[str]:
    """One sentence for each thing that no service has."""
    known = series_of(Metrics())
    for query in queries():
        for name in sorted(metrics_of(query.expression) - known.keys() - _FROM_PROMETHEUS):
            yield f"{query.source} asks for {name}, which no service has"
        for name, matchers in _SELECTOR.findall(query.expression):
            for label, _, value in _MATCHER.findall(matchers):
                if label not in known.get(name, frozenset()) | _SCRAPED:
                    yield f"{query.source} asks for the label {label} of {name}, which has none"
                yield from (f"{query.source}: {fault}" for fault in _value_faults(label, value))
        labels = frozenset[str]().union(*known.values()) | _SCRAPED
        for listed in _GROUPING.findall(query.expression):
            for label in filter(None, re.split(r"[\s,]+", listed)):
                if label not in labels:
                    yield f"{query.source} groups by {label}, which is no label"


def _value_faults(label: str, value: str) -> Iterator[str]:
    known = _values().get(label)
    for alternative in value.split("|") if known is not None else ():
        if not any(re.fullmatch(alternative, each) for each in known or ()):
            yield f"{label} is never {alternative}"


def _values() -> Mapping[str, tuple[str, ...]]:
    reasons = tuple(Reason)
    return {
        "outcome": tuple(Outcome),
        "reason": reasons,
        "result": ("ok", "relevant", "irrelevant", "hit", "miss", *reasons),
        "verdict": tuple(Verdict),
        "kind": (*FindingKind, "input", "cached_input", "output"),
        "grpc_code": _GRPC_CODES,
        "grpc_method": _methods(),
        "grpc_service": tuple(f"errata.{name}.v1.{name.title()}Service" for name in _SERVICES),
        "service": _SERVICES,
        "workflow": ("answer", "compose"),
    }


def _methods() -> tuple[str, ...]:
    protos = (ROOT / "protos").rglob("*_service.proto")
    return tuple(name for proto in protos for name in re.findall(r"^\s*rpc (\w+)\(", proto.read_text(), re.MULTILINE))


def main() -> int:
    """Say what is wrong; 1 if anything is."""
    found = list(faults())
    sys.stderr.write("".join(f"{fault}\n" for fault in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
