"""Runs `buf breaking` against the last tag; without a tag there is nothing to break."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Compare protos/ with the newest tag that this commit descends from."""
    tag = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    if not tag:
        sys.stdout.write("buf breaking: no tag yet, nothing to compare with\n")
        return 0
    buf = Path(sys.executable).with_name("buf")
    return subprocess.run([buf, "breaking", "--against", f".git#tag={tag}"], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
