"""`python -m services.orchestrator`: settings, dependencies, serve."""

from errata_kit.rpc.server import run_service
from errata_kit.settings import load_settings
from services.orchestrator.server import build
from services.orchestrator.settings import OrchestratorSettings


def main() -> None:
    """Run the orchestrator until it is told to stop."""
    settings = load_settings(OrchestratorSettings, "ORCHESTRATOR_")
    run_service(lambda: build(settings), "orchestrator", settings)


if __name__ == "__main__":
    main()
