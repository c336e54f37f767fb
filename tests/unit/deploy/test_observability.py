"""Alert rules and dashboard: they ask for what there is, each rule is tested, and each metric is shown."""

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from errata_kit.metrics import Metrics
from scripts import check_observability as check

TESTS = ("alerts_test.yaml", "alerts_day_test.yaml")
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not here; it comes with Debian's package prometheus")
ALERTS = {rule["alert"]: rule for rule in check.alerts()}


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run(
        [str(PROMTOOL), *map(str, arguments)], capture_output=True, text=True, timeout=100, check=False, cwd=check.FOLDER
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rules_and_dashboard_ask_only_for_what_a_service_has() -> None:
    assert list(check.faults()) == []


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("sum(rate(errata_runs[5m]))", "asks for errata_runs, which no service has"),
        ("errata_refusals_total > 0", "asks for errata_refusals_total, which no service has"),
        ('errata_runs_total{tenant="a"}', "asks for the label tenant of errata_runs_total"),
        ('errata_runs_total{outcome="ANSWERD"}', "outcome is never ANSWERD"),
        ('errata_judge_failures_total{reason!~"CANCELLED|BUDGET"}', "reason is never BUDGET"),
        ('rate(grpc_server_handled_total{grpc_method=~"Search|Find"}[5m])', "grpc_method is never Find"),
        ("sum by (principal) (errata_runs_total)", "groups by principal, which is no label"),
    ],
)
def test_what_nobody_has_is_found(monkeypatch: pytest.MonkeyPatch, expression: str, fault: str) -> None:
    monkeypatch.setattr(check, "queries", lambda: (check.Query("it", expression),))
    assert [found for found in check.faults() if fault in found], list(check.faults())


def test_names_are_read_from_expressions() -> None:
    expression = (
        'sum by (a, le) (rate(errata_x_total{y="z_total", w=~"v.+"}[5m] offset 1h)) / on (b) group_left (c) up > bool 0.1 '
        "and min_over_time(sum(errata_w)[30m:1m]) unless errata_v == 2"
    )
    assert check.metrics_of(expression) == {"errata_x_total", "up", "errata_w", "errata_v"}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_is_wrong_and_where_to_read_on(name: str) -> None:
    rule = ALERTS[name]
    assert re.fullmatch(r"Errata[A-Z]\w+", name)
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{name.lower()}"
    assert len(rule["annotations"]["summary"]) < 100
    assert rule["annotations"]["description"].endswith(".")


def test_the_operating_guide_has_a_section_for_each_alert() -> None:
    guide = (check.ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^#{2,4} (Errata\w+)$", guide, re.MULTILINE)) == set(ALERTS)


def test_each_alert_is_expected_to_fire_by_a_case() -> None:
    texts = [(check.FOLDER / name).read_text(encoding="utf-8") for name in TESTS]
    for name in ALERTS:
        assert any(f'ALERTS{{alertname="{name}", alertstate="firing", ' in text for text in texts), name


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", "alerts.yaml")


@needs_promtool
@pytest.mark.parametrize("file", TESTS)
def test_promtool_sees_each_rule_fire_when_it_should_and_only_then(file: str) -> None:
    assert "SUCCESS" in promtool("test", "rules", file)


def failures(tmp_path: Path, changed: Callable[[str], str]) -> str:
    """What promtool says when the conditions of all alerts are changed in the same way."""
    rules = [{**rule, "expr": changed(rule["expr"])} for rule in ALERTS.values()]
    groups = {"groups": [{"name": "changed", "rules": rules}]}
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(groups, width=1000), encoding="utf-8")
    for file in TESTS:
        shutil.copy(check.FOLDER / file, tmp_path)
    command = [str(PROMTOOL), "test", "rules", *TESTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path)
    assert done.returncode == 1
    return done.stdout + done.stderr


@needs_promtool
def test_a_rule_that_never_fires_would_be_noticed(tmp_path: Path) -> None:
    said = failures(tmp_path, lambda _: "vector(0) > 1")
    missed = re.findall(r"exp: .*\n\s+got: nil", said)
    assert {name for name in ALERTS if any(f'"{name}"' in line for line in missed)} == set(ALERTS)


@needs_promtool
def test_a_rule_that_always_fires_would_be_noticed(tmp_path: Path) -> None:
    said = failures(tmp_path, loosened)
    # Without an expectation, or with fewer than what came.
    wrong = [
        (expected, got)
        for expected, got in re.findall(r"exp: (.*)\n\s+got: (.*)", said)
        if got.count("{") > expected.count("{")
    ]
    found = {name for name in ALERTS for expected, got in wrong if got.count(f'"{name}"') > expected.count(f'"{name}"')}
    assert found == set(ALERTS)


def loosened(expression: str) -> str:
    """A condition that holds whenever its series are there."""
    expression = re.sub(r">=? [\d.]+(?! \*)", "> -1", expression)
    expression = re.sub(r"> 5 \*", "> -1 *", expression)
    expression = re.sub(r"< \d+ \* \d+", "< 1e12", expression).replace("== 0", ">= 0")
    expression = expression.replace("absent(", "max by (service) (").replace("unless on (model)", "or on (model)")
    return expression.replace("> sum by (model) (errata_model_requests_in_flight)", "> -1").replace(
        "(errata_certificate_expiry_seconds > -1)", "errata_certificate_expiry_seconds"
    )


@needs_promtool
def test_promtool_parses_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    queries = check.panel_queries()
    rules = [{"record": f"panel:{number}", "expr": query.expression} for number, query in enumerate(queries)]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")
    assert f"{len(queries)} rules found" in promtool("check", "rules", file)


def test_every_metric_is_on_the_dashboard() -> None:
    shown = frozenset[str]().union(*(check.metrics_of(query.expression) for query in check.panel_queries()))
    families = {family.name: family.type for family in Metrics().registry.collect() if not family.name.startswith("process_")}
    missing = {name for name in families if not any(series.startswith(name) for series in shown)}
    assert missing == set()
    assert len(families) > 30


def test_the_dashboard_is_whole() -> None:
    panels = check.panels()
    ids = Counter(panel["id"] for panel in panels)
    assert set(ids.values()) == {1}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert panel["description"], panel["title"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
        for source in (panel["datasource"], *(target["datasource"] for target in panel["targets"])):
            assert source == {"type": "prometheus", "uid": "${datasource}"}
    titles = Counter(panel["title"] for panel in panels)
    assert [title for title, number in titles.items() if number > 1 and title != "Calls"] == []


def test_panels_do_not_overlap() -> None:
    cells: Counter[tuple[int, int]] = Counter()
    for panel in check.panels():
        place = panel["gridPos"]
        cells.update(
            (x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])
        )
    assert max(cells.values()) == 1
