"""The demo shows what it says it shows, with the documentation as it is now."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("demo")]


def test_each_scene_ends_as_announced(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "errata_cli", "demo", "--docs", "docs", "--data-dir", str(tmp_path / "demo")]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    _, at_once, broadened, refused, refined = shown.stdout.split("▶ run")
    assert "ANSWERED in" in at_once
    assert "↻ broadened" not in at_once
    assert "[1] docs/" in at_once

    before, after = broadened.split("↻ broadened", maxsplit=1)
    assert "✓" not in before
    assert "ANSWERED in" in after
    for noise in ("1.7.4", "langchain", "3.11"):
        assert noise not in after.splitlines()[0].split("(left out")[0]

    assert "REFUSED_NO_EVIDENCE" in refused
    assert refused.count("⌕ retrieved") == 3
    assert "tried" in refused
    assert "near" in refused

    assert "! guard: ERRATA_AUTO_COMPACT" in refined
    assert refined.index("✂ refined") < refined.index("ANSWERED_AFTER_REFINEMENT")
    assert refined.count("⚖ graded") == 2
    assert "errata up" in refined
