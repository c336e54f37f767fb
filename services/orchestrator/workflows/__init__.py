"""The workflows: one folder each, registered in services.orchestrator.__main__."""
