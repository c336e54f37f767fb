"""The `errata` command."""
