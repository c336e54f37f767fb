"""Draws the compiled graphs as Mermaid pictures into docs/workflows.md; with --check, fails when they differ."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from services.orchestrator.workflows.picture import pictures, replace_pictures  # noqa: E402

PAGE = ROOT / "docs" / "workflows.md"


def main() -> int:
    """Write the pictures, or compare them."""
    text = PAGE.read_text(encoding="utf-8")
    drawn = replace_pictures(text, pictures())
    if "--check" in sys.argv[1:]:
        if drawn != text:
            sys.stderr.write("docs/workflows.md shows other graphs; run `make docs`\n")
        return int(drawn != text)
    PAGE.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
