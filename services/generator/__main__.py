"""`python -m services.generator`: settings, dependencies, serve."""

from errata_kit.rpc.server import run_service
from errata_kit.settings import load_settings
from services.generator.server import build
from services.generator.settings import GeneratorSettings


def main() -> None:
    """Run the generator until it is told to stop."""
    settings = load_settings(GeneratorSettings, "GENERATOR_")
    run_service(lambda: build(settings), "generator", settings)


if __name__ == "__main__":
    main()
