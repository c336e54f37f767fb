"""`python -m services.orchestrator`: settings, dependencies, serve. With `migrate`: bring the database up to date and end."""

import asyncio
import sys

from errata_kit.settings import load_settings
from services.orchestrator.settings import OrchestratorSettings


def main() -> None:
    """Run the orchestrator until it is told to stop."""
    settings = load_settings(OrchestratorSettings, "ORCHESTRATOR_")
    if sys.argv[1:] == ["migrate"]:
        _migrate(settings)
        return
    # Imported only now: a migration needs neither gRPC nor the workflows.
    from errata_kit.rpc.server import run_service
    from services.orchestrator.server import build

    run_service(lambda: build(settings), "orchestrator", settings)


def _migrate(settings: OrchestratorSettings) -> None:
    from services.orchestrator.opening import bring_up_to_date

    try:
        sentence = asyncio.run(bring_up_to_date(settings))
    except Exception as error:
        cause = getattr(error, "orig", None) or error
        sys.stderr.write(f"errata: The database can't be migrated: {str(cause).strip().splitlines()[0][:300]}\n")
        raise SystemExit(1) from None
    sys.stdout.write(f"{sentence}\n")


if __name__ == "__main__":
    main()
