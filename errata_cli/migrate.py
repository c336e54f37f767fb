"""`errata migrate`."""

import subprocess
import sys

from errata_cli.terminal import ExitCode


def run() -> int:
    """Let the orchestrator bring its database up to date, in a process of its own: the command line knows no database."""
    code = subprocess.run([sys.executable, "-m", "services.orchestrator", "migrate"], check=False).returncode
    # Ended by a signal.
    return ExitCode.FAILED if code < 0 else code
