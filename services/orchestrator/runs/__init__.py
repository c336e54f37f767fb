"""Runs: what they record, where that is kept, and the engine that drives them."""
