"""The openai provider of the judge: a language model behind an OpenAI-compatible API, with structured output."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Final

from pydantic import Field

from errata_kit.calls import remaining_seconds
from errata_kit.drafts import Criterion
from errata_kit.errors import ModelOutputInvalid
from errata_kit.grades import PassageGrade, Verdict
from errata_kit.llm.chat import ChatModel, ChatRequest, ModelOutput
from errata_kit.llm.prompts import PromptLibrary, fence, new_nonce, nonce_for
from errata_kit.passages import Passage
from errata_kit.text.evidence_set import EvidenceSets
from errata_kit.usage import ModelCall
from services.judge.claims.splitting import ClaimText
from services.judge.claims.verdicts import CheckedClaim, Quote
from services.judge.off_loop import off_loop
from services.judge.provider import CheckedClaims, GradedPassage, ReviewedDraft
from services.judge.review.output import DraftReviewOutput, reviewed

# How long answers are, about: what a budget must have left for them.
_TOKENS_A_GRADE: Final = 70
_TOKENS_A_CLAIM: Final = 80
_TOKENS_A_CRITERION: Final = 200


class PassageGradeOutput(ModelOutput):
    """What the model says about one numbered passage. The reasoning comes first, so that the score follows from it."""

    number: int
    reasoning: str
    score: Annotated[float, Field(ge=0, le=1)]
    relevant: bool


class PassageGradesOutput(ModelOutput):
    """One grade a passage."""

    grades: list[PassageGradeOutput]


class QuoteOutput(ModelOutput):
    """Words from a passage, which is named by its number."""

    passage: int
    quote: str


class ClaimVerdictOutput(ModelOutput):
    """What the model says about one numbered claim. It writes the fields in this order, so that the verdict follows from what
    it has found.
    """

    number: int
    explanation: str
    evidence: list[QuoteOutput]
    verdict: Verdict


class ClaimVerdictsOutput(ModelOutput):
    """One verdict a claim."""

    verdicts: list[ClaimVerdictOutput]


class OpenAIProvider:
    """Judges with a language model. Claims are split in code, so that their places in the answer are known."""

    def __init__(self, model: ChatModel, prompts: PromptLibrary) -> None:
        self._model = model
        self._prompts = prompts

    @property
    def model(self) -> str:
        """The name in records."""
        return self._model.name

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of the prompts."""
        return self._prompts.versions

    async def grade_passages(self, question: str, passages: tuple[Passage, ...]) -> tuple[GradedPassage, ...]:
        """Ask for a grade of each passage, in one call."""
        texts = [passage.under_headings() for passage in passages]
        nonce = nonce_for(question, *texts)
        prompt = self._prompts["grade_passage"].render(
            {"question": fence("question", question, nonce), "passages": _fenced("passage", enumerate(texts, start=1), nonce)}
        )
        request = ChatRequest(
            "grade_passage",
            prompt,
            timeout_seconds=remaining_seconds(),
            expected_output_tokens=_TOKENS_A_GRADE * len(passages),
        )
        completion = await self._model.complete(request, PassageGradesOutput)
        outputs = sorted(completion.value.grades, key=lambda output: output.number)
        _check_numbers([output.number for output in outputs], len(passages), "passages_without_grade", completion.usage)
        grades = (PassageGrade(output.score, output.relevant, output.reasoning[:2000]) for output in outputs)
        return tuple(GradedPassage(grade, () if place else (completion.usage,)) for place, grade in enumerate(grades))

    async def check_claims(self, question: str, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> CheckedClaims:
        """Ask for a verdict on every claim, in one call that shows the passages of their evidence sets."""
        size = sum(len(passage.text) for passage in passages) + sum(len(claim.text) for claim in claims)
        sets = await off_loop(size, self.evidence_sets, claims, passages)
        shown = {place + 1: passages[place] for place in sorted(set().union(*sets))}
        texts = {number: passage.under_headings() for number, passage in shown.items()}
        # Neither of the claims nor of their sets: so the segments of one answer begin with the same words, as far as they show
        # the same passages.
        nonce = nonce_for(question, *(passage.under_headings() for passage in passages))
        prompt = self._prompts["check_claims"].render(
            {
                "question": fence("question", question, nonce),
                "passages": _fenced("passage", texts.items(), nonce),
                "claims": "\n".join(_claim_parts(claims, nonce)),
            }
        )
        request = ChatRequest(
            "check_claims", prompt, timeout_seconds=remaining_seconds(), expected_output_tokens=_TOKENS_A_CLAIM * len(claims)
        )
        completion = await self._model.complete(request, ClaimVerdictsOutput)
        outputs = sorted(completion.value.verdicts, key=lambda output: output.number)
        _check_numbers([output.number for output in outputs], len(claims), "claims_without_verdict", completion.usage)
        checked = tuple(_checked(claim, output, shown) for claim, output in zip(claims, outputs, strict=True))
        return CheckedClaims(checked, (completion.usage,))

    def evidence_sets(self, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> tuple[tuple[int, ...], ...]:
        """The passages that have a claim's words, and those that its sentence cites."""
        sets = EvidenceSets([passage.under_headings() for passage in passages])
        return tuple(sets.of(claim.text, [number - 1 for number in claim.cited]) for claim in claims)

    async def review_draft(
        self, task: str, draft: str, criteria: tuple[Criterion, ...], passages: tuple[Passage, ...]
    ) -> ReviewedDraft:
        """Ask for a score by every criterion, in one call."""
        nonce = new_nonce()
        described = (f"{criterion.name}: {criterion.description}" for criterion in criteria)
        sources = (passage.under_headings() for passage in passages)
        prompt = self._prompts["review_draft"].render(
            {
                "task": fence("task", task, nonce),
                "criteria": _fenced("criterion", enumerate(described, start=1), nonce),
                "passages": _fenced("passage", enumerate(sources, start=1), nonce) or "There are no passages.",
                "draft": fence("draft", draft, nonce),
            }
        )
        request = ChatRequest(
            "review_draft",
            prompt,
            timeout_seconds=remaining_seconds(),
            expected_output_tokens=_TOKENS_A_CRITERION * (len(criteria) + 1),
        )
        completion = await self._model.complete(request, DraftReviewOutput)
        return reviewed(completion.value, criteria, completion.usage)


def _fenced(label: str, numbered: Iterable[tuple[int, str]], nonce: str) -> str:
    return "\n".join(fence(f"{label} {number}", text, nonce) for number, text in numbered)


def _claim_parts(claims: Iterable[ClaimText], nonce: str) -> Iterator[str]:
    for number, claim in enumerate(claims, start=1):
        if claim.before:
            # The label says all there is to say, and only where it is needed: a rule in the prompt is paid for in every call.
            yield fence(f"context of claim {number}", claim.before, nonce)
        yield fence(f"claim {number}", claim.text, nonce)


def _check_numbers(numbers: Sequence[int], expected: int, cause: str, usage: ModelCall) -> None:
    if list(numbers) != list(range(1, expected + 1)):
        # One that is left out, or has two judgements, is not judged; guessing one would be a judgement of our own.
        error = ModelOutputInvalid(metadata={"cause": cause})
        error.model_calls = (replace(usage, error=error.reason),)
        raise error


def _checked(claim: ClaimText, output: ClaimVerdictOutput, shown: Mapping[int, Passage]) -> CheckedClaim:
    # A number that names no passage is dropped like a quote that is in none.
    quotes = tuple(Quote(shown[item.passage].passage_id, item.quote) for item in output.evidence if item.passage in shown)
    return CheckedClaim(claim.text, claim.start, claim.end, output.verdict, None, quotes, output.explanation[:2000])
