"""The orchestrator: the state machines. It holds no prompt, no model client and no vector code."""
