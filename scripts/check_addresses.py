"""Fails when a committed file holds the address of a package index or a path of somebody's machine."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Written in parts, so that this file does not find itself.
PATTERNS = {
    "an address of a package index": re.compile(
        r"(--(extra-)?index"
        r"-url|--find"
        r"-links|files\.python"
        r"hosted|py"
        r"pi\.org|\"resolved\": *\"http"
        r"|registry *= *\{ *registry|url *= *\"https?://[^\"]*\.(whl|tar\.gz))"
    ),
    "a path of a machine": re.compile(r"(?<![\w./-])/(home|Users|root|work)/[a-z]"),
}


def main() -> int:
    """Search every file that git tracks, and every new one that it does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    found = 0
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if not path.is_file():
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
            for what, pattern in PATTERNS.items():
                if pattern.search(line):
                    sys.stderr.write(f"{name}:{number}: {what}: {line.strip()[:120]}\n")
                    found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
