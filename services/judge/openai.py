"""The openai provider of the judge: a language model behind an OpenAI-compatible API, with structured output."""

from typing import Annotated, Final

from pydantic import Field

from errata_kit.calls import remaining_seconds
from errata_kit.drafts import Criterion
from errata_kit.errors import ModelOutputInvalid
from errata_kit.grades import PassageGrade, Verdict
from errata_kit.llm.chat import ChatModel, ChatRequest, ModelOutput
from errata_kit.llm.prompts import PromptLibrary, fence, new_nonce
from errata_kit.passages import Passage
from services.judge.claims.splitting import ClaimText
from services.judge.claims.verdicts import CheckedClaim, Quote
from services.judge.provider import CheckedClaims, GradedPassage, ReviewedDraft
from services.judge.review.output import DraftReviewOutput, reviewed

# How long answers are, about: what a budget must have left for them.
_TOKENS_A_GRADE: Final = 120
_TOKENS_A_CLAIM: Final = 80
_TOKENS_A_CRITERION: Final = 200


class PassageGradeOutput(ModelOutput):
    """What the model says about a passage. The reasoning comes first, so that the score follows from it."""

    reasoning: str
    score: Annotated[float, Field(ge=0, le=1)]
    relevant: bool


class QuoteOutput(ModelOutput):
    """Words from a passage, which is named by its number."""

    passage: int
    quote: str


class ClaimVerdictOutput(ModelOutput):
    """What the model says about one numbered claim."""

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

    async def grade_passage(self, question: str, passage: Passage) -> GradedPassage:
        """Ask for a grade of one passage."""
        nonce = new_nonce()
        prompt = self._prompts["grade_passage"].render(
            {"question": fence("question", question, nonce), "passage": fence("passage 1", passage.under_headings(), nonce)}
        )
        request = ChatRequest(
            "grade_passage", prompt, timeout_seconds=remaining_seconds(), expected_output_tokens=_TOKENS_A_GRADE
        )
        completion = await self._model.complete(request, PassageGradeOutput)
        output = completion.value
        grade = PassageGrade(output.score, output.relevant, output.reasoning[:2000])
        return GradedPassage(grade, (completion.usage,))

    async def check_claims(self, question: str, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> CheckedClaims:
        """Ask for a verdict on every claim, in one call."""
        nonce = new_nonce()
        prompt = self._prompts["check_claims"].render(
            {
                "question": fence("question", question, nonce),
                "passages": _fenced(passages, nonce),
                "claims": "\n".join(
                    fence(f"claim {number}", claim.text, nonce) for number, claim in enumerate(claims, start=1)
                ),
            }
        )
        request = ChatRequest(
            "check_claims", prompt, timeout_seconds=remaining_seconds(), expected_output_tokens=_TOKENS_A_CLAIM * len(claims)
        )
        completion = await self._model.complete(request, ClaimVerdictsOutput)
        by_number = {verdict.number: verdict for verdict in completion.value.verdicts}
        if sorted(verdict.number for verdict in completion.value.verdicts) != list(range(1, len(claims) + 1)):
            # A claim without a verdict, or with two, is not judged; guessing one would be a verdict of our own.
            error = ModelOutputInvalid(metadata={"cause": "claims_without_verdict"})
            error.model_calls = (completion.usage,)
            raise error
        checked = tuple(_checked(claim, by_number[number], passages) for number, claim in enumerate(claims, start=1))
        return CheckedClaims(checked, (completion.usage,))

    async def review_draft(
        self, task: str, draft: str, criteria: tuple[Criterion, ...], passages: tuple[Passage, ...]
    ) -> ReviewedDraft:
        """Ask for a score by every criterion, in one call."""
        nonce = new_nonce()
        numbered = (
            fence(f"criterion {number}", f"{criterion.name}: {criterion.description}", nonce)
            for number, criterion in enumerate(criteria, start=1)
        )
        prompt = self._prompts["review_draft"].render(
            {
                "task": fence("task", task, nonce),
                "criteria": "\n".join(numbered),
                "passages": _fenced(passages, nonce) or "There are no passages.",
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


def _fenced(passages: tuple[Passage, ...], nonce: str) -> str:
    """The passages, numbered from 1."""
    return "\n".join(
        fence(f"passage {number}", passage.under_headings(), nonce) for number, passage in enumerate(passages, start=1)
    )


def _checked(claim: ClaimText, output: ClaimVerdictOutput, passages: tuple[Passage, ...]) -> CheckedClaim:
    # A number that names no passage is dropped like a quote that is in none.
    quotes = tuple(
        Quote(passages[item.passage - 1].passage_id, item.quote)
        for item in output.evidence
        if 1 <= item.passage <= len(passages)
    )
    return CheckedClaim(claim.text, claim.start, claim.end, output.verdict, None, quotes, output.explanation[:2000])
