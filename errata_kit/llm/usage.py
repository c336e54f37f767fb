"""What model calls consume: tokens, money and time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from errata_kit.usage import ModelCall

CHARACTERS_PER_TOKEN = 4.3
"""For English prose and Markdown with the tokenizers of GPT-4o."""


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Tokens of one call. `cached_input` is the part of `input` that the provider had in its cache."""

    input: int = 0
    cached_input: int = 0
    output: int = 0
    estimated: bool = False


UsageRecorder: TypeAlias = Callable[[ModelCall], None]
"""Takes the usage of every call once, of failed and cancelled ones too; must not block or raise."""


QueueRecorder: TypeAlias = Callable[[str, int, int], None]
"""Takes a model's name, and how many requests more, or less, wait for a slot and are under way; must not block or raise."""


def ignore_usage(usage: ModelCall) -> None:
    """The recorder for those who read usage from results and errors only."""


def ignore_queue(model: str, waiting: int, in_flight: int) -> None:
    """The recorder for those who watch no queue."""


def estimate_tokens(characters: int) -> int:
    """Tokens of a text by its length; at least 1 unless it is empty."""
    return max(1, round(characters / CHARACTERS_PER_TOKEN)) if characters else 0
