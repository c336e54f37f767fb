"""`python -m services.retriever`: settings, dependencies, serve."""

from errata_kit.rpc.server import run_service
from errata_kit.settings import load_settings
from services.retriever.server import build
from services.retriever.settings import RetrieverSettings


def main() -> None:
    """Run the retriever until it is told to stop."""
    settings = load_settings(RetrieverSettings, "RETRIEVER_")
    run_service(lambda: build(settings), "retriever", settings)


if __name__ == "__main__":
    main()
