"""What writes: a language model, or rules. Everything around it is the same for both."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final, Protocol

from errata_kit.bounds import KIB
from errata_kit.drafts import Criterion, DraftIssue
from errata_kit.edits import Edit, RejectedEdit
from errata_kit.grades import Claim
from errata_kit.passages import Answer, Draft, Passage
from errata_kit.usage import ModelCall

REFUSAL_TEXT: Final = "The passages do not answer this question."
MAX_TEXT_BYTES: Final = 64 * KIB
"""The contract's bound of an answer and of a draft, in UTF-8."""


@dataclass(frozen=True, slots=True)
class Query:
    """A proposal for the next search query; empty when the provider has none."""

    text: str
    model_calls: tuple[ModelCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """The end of a stream of text. Its citations are checked already.

    edits: of a correction, what changed; they are proven to lead from the answer before to this one. rejected: what was not
    let through.
    """

    answer: Answer
    model_calls: tuple[ModelCall, ...] = ()
    edits: tuple[Edit, ...] = ()
    rejected: tuple[RejectedEdit, ...] = ()


@dataclass(frozen=True, slots=True)
class Correction:
    """An answer, which of its claims failed, and what the judge suggests."""

    question: str
    answer: str
    passages: tuple[Passage, ...]
    failing: tuple[Claim, ...]
    suggestion: str


@dataclass(frozen=True, slots=True)
class WritingTask:
    """What is to be written, from which passages, and what it will be measured by."""

    task: str
    passages: tuple[Passage, ...]
    criteria: tuple[Criterion, ...]


@dataclass(frozen=True, slots=True)
class Revision:
    """A draft, and what a review, failing claims and a person found wanting. feedback goes before everything else."""

    task: str
    draft: str
    passages: tuple[Passage, ...] = ()
    criteria: tuple[Criterion, ...] = ()
    issues: tuple[DraftIssue, ...] = ()
    suggestions: tuple[str, ...] = ()
    failing_claims: tuple[Claim, ...] = ()
    feedback: str = ""


@dataclass(frozen=True, slots=True)
class WrittenDraft:
    """The end of a stream of a draft's text. Its citations are checked already; its text is never blank."""

    draft: Draft
    model_calls: tuple[ModelCall, ...] = ()


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

    def write(self, task: WritingTask) -> AsyncGenerator[str | WrittenDraft, None]:
        """Deltas, then the whole draft, at most MAX_TEXT_BYTES. With passages it rests on them alone."""
        ...

    def revise(self, revision: Revision) -> AsyncGenerator[str | WrittenDraft, None]:
        """Deltas, then the whole revised draft, at most MAX_TEXT_BYTES."""
        ...


def refusal(model: str) -> Answer:
    """The fixed text of a refusal."""
    return Answer(text=REFUSAL_TEXT, model=model, refusal=True)
