"""The pages that are made from code show what the code says."""

import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import yaml
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateTable

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("script", ["draw_graph.py", "write_settings.py"])
def test_the_page_is_up_to_date(script: str) -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "scripts" / script, "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def test_every_error_reason_has_a_line() -> None:
    from errata_kit.errors import Reason

    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert [reason.value for reason in Reason if f"`{reason.value}`" not in page] == []


def test_each_graph_has_its_own_picture() -> None:
    from services.orchestrator.workflows.picture import pictures, replace_pictures

    page = "a\n```mermaid\n%% one\nold\n```\nb\n```mermaid\n%% two\n```\nc"
    drawn = replace_pictures(page, {"one": "new", "two": "newer"})
    assert drawn == "a\n```mermaid\n%% one\nnew\n```\nb\n```mermaid\n%% two\nnewer\n```\nc"
    shown = pictures()
    assert "generate -.-> grade_answer" in shown["answer"]
    assert "review -.-> revise" in shown["compose"]
    assert shown["answer"] != shown["compose"]


@pytest.mark.parametrize(
    "page",
    [
        "```mermaid\n%% one\n```",
        "```mermaid\n%% one\n```\n```mermaid\n%% one\n```",
        "```mermaid\n%% one\n```\n```mermaid\n%% two\n```\n```mermaid\nflowchart TD\n```",
    ],
)
def test_a_page_that_lacks_a_picture_or_has_another_is_refused(page: str) -> None:
    from services.orchestrator.workflows.picture import replace_pictures

    with pytest.raises(ValueError, match="exactly one Mermaid block"):
        replace_pictures(page, {"one": "", "two": ""})


def test_the_queries_fit_the_tables() -> None:
    from services.orchestrator.runs.store.tables import metadata

    queries = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "runs.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(queries) >= 2
    with sqlite3.connect(":memory:") as database:
        for table in metadata.sorted_tables:
            database.execute(str(CreateTable(table).compile(dialect=sqlite.dialect())))
        for query in queries:
            database.execute(query).fetchall()
    database.close()


def test_every_event_and_table_has_a_line() -> None:
    from services.orchestrator.runs import events
    from services.orchestrator.runs.store.tables import metadata

    page = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    names = [*(kind.__name__ for kind in get_args(events.Payload)), *metadata.tables]
    assert [name for name in names if f"| `{name}` |" not in page] == []


def test_every_error_reason_has_an_entry_in_troubleshooting() -> None:
    from errata_kit.errors import Reason

    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    entries = re.findall(r"^### ([A-Z_]+)\n\n(.+)", page, re.MULTILINE)
    assert sorted(name for name, _ in entries) == sorted(reason.value for reason in Reason)
    assert min(len(text) for _, text in entries) > 20, "an entry says something"


def test_every_alert_has_an_entry_in_operations() -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "observability" / "alerts.yaml").read_text(encoding="utf-8"))
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule}
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert alerts
    assert set(re.findall(r"^### (Errata\w+)$", page, re.MULTILINE)) == alerts
