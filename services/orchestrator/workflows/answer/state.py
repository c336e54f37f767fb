"""What an answer run knows. Everything here can be checkpointed: frozen values, no connections."""

from enum import StrEnum
from typing import Annotated, TypedDict

from pydantic import Field
from pydantic.dataclasses import dataclass

from errata_kit.bounds import UnitScore
from errata_kit.filter_json import JsonFilter
from errata_kit.grades import AnswerGrade, PassageGrade
from errata_kit.passages import Answer, Passage
from errata_kit.search import SearchMode


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """The limits of a run. The proto's AnswerSettings says what each means."""

    top_k: Annotated[int, Field(ge=1, le=100)] = 5
    relevance_threshold: UnitScore = 0.75
    min_relevant: Annotated[int, Field(ge=1, le=100)] = 1
    max_retrievals: Annotated[int, Field(ge=1, le=10)] = 3
    faithfulness_threshold: UnitScore = 0.80
    max_refinements: Annotated[int, Field(ge=0, le=5)] = 1
    search_mode: SearchMode = SearchMode.DEFAULT


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """What was asked. draft_answer is an answer from elsewhere; empty means that one is to be generated.

    verified_only: no text is shown before its claims have passed.
    """

    question: str
    collection: str
    settings: AnswerSettings = AnswerSettings()
    draft_answer: str = ""
    filter: JsonFilter = None
    verified_only: bool = False


@dataclass(frozen=True, slots=True)
class GradedPassage:
    """A passage with its grade, and the retrieval that found it."""

    passage: Passage
    grade: PassageGrade
    retrieval: int


class SkippableStep(StrEnum):
    """What a run leaves out when its time would not suffice."""

    RETRIEVAL = "retrieval"
    REFINEMENT = "refinement"


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds that work of this run has taken, by the wall clock; 0 for what is not done yet, or was done by another replica.

    retrieval: the last search with the grading of what it found. grading: the last check of the answer.
    """

    retrieval: float = 0.0
    generation: float = 0.0
    grading: float = 0.0


@dataclass(frozen=True, slots=True)
class AnswerState:
    """The state of the graph. request never changes; query is what is searched next.

    skipped: what was left out for want of time.
    """

    request: AnswerRequest
    query: str
    queries: tuple[str, ...] = ()
    pending: tuple[Passage, ...] = ()
    graded: tuple[GradedPassage, ...] = ()
    exhausted: bool = False
    answer: Answer | None = None
    grade: AnswerGrade | None = None
    refinements: int = 0
    took: Took = Took()
    skipped: SkippableStep | None = None

    @property
    def retrievals(self) -> int:
        """Retrievals made so far."""
        return len(self.queries)


class AnswerUpdate(TypedDict, total=False):
    """What a node changes."""

    query: str
    queries: tuple[str, ...]
    pending: tuple[Passage, ...]
    graded: tuple[GradedPassage, ...]
    exhausted: bool
    answer: Answer | None
    grade: AnswerGrade | None
    refinements: int
    took: Took
    skipped: SkippableStep | None
