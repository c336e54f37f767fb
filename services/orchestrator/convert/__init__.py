"""The orchestrator's messages as domain values, and back: requests in, traces and histories out."""
