"""`python -m services.judge`: settings, dependencies, serve."""

from errata_kit.rpc.server import run_service
from errata_kit.settings import load_settings
from services.judge.server import build
from services.judge.settings import JudgeSettings


def main() -> None:
    """Run the judge until it is told to stop."""
    settings = load_settings(JudgeSettings, "JUDGE_")
    run_service(lambda: build(settings), "judge", settings)


if __name__ == "__main__":
    main()
