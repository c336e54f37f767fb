"""The deterministic guard.

Details of an answer that no passage has, and what the nearest sentence of a passage says otherwise. It lowers verdicts,
and never raises one.
"""

from services.judge.guard.check import find_ungrounded
from services.judge.guard.lowering import lower

__all__ = ["find_ungrounded", "lower"]
