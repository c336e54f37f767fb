"""What writes: a language model, or rules. Everything around it is the same for both."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final, Protocol

from errata_kit.grades import Claim
from errata_kit.passages import Answer, Passage
from errata_kit.usage import ModelCall

REFUSAL_TEXT: Final = "The passages do not answer this question."


@dataclass(frozen=True, slots=True)
class Query:
    """A proposal for the next search query; empty when the provider has none."""

    text: str
    model_calls: tuple[ModelCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """The end of a stream of text. Its citations are checked already."""

    answer: Answer
    model_calls: tuple[ModelCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Correction:
    """An answer, which of its claims failed, and what the judge suggests."""

    question: str
    answer: str
    passages: tuple[Passage, ...]
    failing: tuple[Claim, ...]
    suggestion: str


class Provider(Protocol):
    """Writes. Raises an ErrataError for what it can't write."""

    async def broaden(self, question: str, current: str, tried: tuple[str, ...]) -> Query:
        """A broader query. The caller makes sure that it is new."""
        ...

    def answer(self, question: str, passages: tuple[Passage, ...]) -> AsyncGenerator[str | Written, None]:
        """Deltas, then the whole. There is at least one passage."""
        ...

    def refine(self, correction: Correction) -> AsyncGenerator[str | Written, None]:
        """Deltas, then the whole corrected answer."""
        ...


def refusal(model: str) -> Answer:
    """The fixed text of a refusal."""
    return Answer(text=REFUSAL_TEXT, model=model, refusal=True)
