"""What a compose run knows. Everything here can be checkpointed: frozen values, no connections."""

from typing import Annotated, TypedDict

from pydantic import Field
from pydantic.dataclasses import dataclass

from errata_kit.bounds import UnitScore
from errata_kit.drafts import DEFAULT_CRITERIA, DEFAULT_OVERALL_THRESHOLD, Criteria, DraftReview, Shortfall
from errata_kit.filter_json import JsonFilter
from errata_kit.grades import AnswerGrade, PassageGrade
from errata_kit.passages import Draft, Passage
from errata_kit.search import SearchMode


@dataclass(frozen=True, slots=True)
class ComposeSettings:
    """The limits of a run. The proto's ComposeSettings says what each means."""

    overall_threshold: UnitScore = DEFAULT_OVERALL_THRESHOLD
    max_revisions: Annotated[int, Field(ge=0, le=10)] = 3
    top_k: Annotated[int, Field(ge=1, le=100)] = 10
    relevance_threshold: UnitScore = 0.50
    faithfulness_threshold: UnitScore = 0.80
    search_mode: SearchMode = SearchMode.DEFAULT


@dataclass(frozen=True, slots=True)
class ComposeRequest:
    """What is to be written. collection: empty when the draft rests on no documents. draft: one from elsewhere, or empty."""

    task: str
    collection: str = ""
    settings: ComposeSettings = ComposeSettings()
    criteria: Criteria = DEFAULT_CRITERIA
    draft: str = ""
    filter: JsonFilter = None
    require_approval: bool = False


@dataclass(frozen=True, slots=True)
class GradedPassage:
    """A passage with its grade."""

    passage: Passage
    grade: PassageGrade


@dataclass(frozen=True, slots=True)
class ReviewedDraft:
    """A draft with everything that was found about it. revision counts from 0; shortfalls include faithfulness."""

    revision: int
    draft: Draft
    review: DraftReview
    faithfulness: AnswerGrade | None
    shortfalls: tuple[Shortfall, ...]


@dataclass(frozen=True, slots=True)
class ComposeState:
    """The state of the graph.

    searched are the queries so far; found waits to be graded; missed did not pass; passages are those that passed, in the order
    in which a draft cites them: what a later search finds comes behind.
    draft waits for its review. Only drafts from `since` on can be the best: what a person sent back is not offered again.
    decision is the person's last one, and feedback what it said; both are taken up by the node that follows.
    """

    request: ComposeRequest
    searched: tuple[str, ...] = ()
    found: tuple[Passage, ...] = ()
    passages: tuple[Passage, ...] = ()
    missed: tuple[GradedPassage, ...] = ()
    draft: Draft | None = None
    reviewed: tuple[ReviewedDraft, ...] = ()
    since: int = 0
    approvals: int = 0
    decision: str = ""
    feedback: str = ""

    @property
    def revisions(self) -> int:
        """Revisions made and reviewed so far."""
        return max(0, len(self.reviewed) - 1)


class ComposeUpdate(TypedDict, total=False):
    """What a node changes."""

    searched: tuple[str, ...]
    found: tuple[Passage, ...]
    passages: tuple[Passage, ...]
    missed: tuple[GradedPassage, ...]
    draft: Draft | None
    reviewed: tuple[ReviewedDraft, ...]
    since: int
    approvals: int
    decision: str
    feedback: str
