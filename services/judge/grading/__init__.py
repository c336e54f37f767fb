"""Grading passages against a question."""
