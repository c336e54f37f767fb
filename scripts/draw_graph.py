"""Draws the compiled answer graph as a Mermaid picture into docs/workflows.md; with --check, fails when it differs."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from services.orchestrator.workflows.answer.picture import picture, replace_picture  # noqa: E402

PAGE = ROOT / "docs" / "workflows.md"


def main() -> int:
    """Write the picture, or compare it."""
    text = PAGE.read_text(encoding="utf-8")
    drawn = replace_picture(text, picture())
    if "--check" in sys.argv[1:]:
        if drawn != text:
            sys.stderr.write("docs/workflows.md shows another graph; run `make docs`\n")
        return int(drawn != text)
    PAGE.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
