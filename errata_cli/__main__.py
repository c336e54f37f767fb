"""`errata`: start the suite, put documents in, ask questions."""

from errata_cli.app import app


def main() -> None:
    """Run the command line."""
    app(prog_name="errata")


if __name__ == "__main__":
    main()
