"""Stand-ins for what lies outside Errata, and ways to start the suite in tests."""
