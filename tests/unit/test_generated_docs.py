"""The pages that are made from code show what the code says."""

import subprocess
import sys
from pathlib import Path

import pytest

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
