"""The openai provider of the generator: a language model behind an OpenAI-compatible API."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from errata_kit.calls import remaining_seconds
from errata_kit.drafts import Criterion, DraftIssue
from errata_kit.errors import ModelOutputInvalid
from errata_kit.grades import Claim
from errata_kit.llm.chat import ChatModel, ChatRequest, ModelOutput, StreamEnd
from errata_kit.llm.prompts import PromptLibrary, RenderedPrompt, fence, nonce_for
from errata_kit.passages import Answer, Citation, Draft, Passage
from services.generator.drafting.drafts import CitedText, read_citations, without_stray_markers
from services.generator.provider import (
    MAX_TEXT_BYTES,
    Correction,
    Query,
    Revision,
    WritingTask,
    Written,
    WrittenDraft,
    refusal,
)
from services.generator.refining import Refiner

# What the prompts ask for when the passages hold no answer. Held back from the stream until it can't be that any more.
NO_ANSWER: Final = "NO_ANSWER"
# Stands in a prompt where there is nothing of a kind.
_NONE: Final = "none"
# How long a draft is, about: what a budget must have left for it.
_DRAFT_TOKENS: Final = 1500


class BroadenedQueryOutput(ModelOutput):
    """The model's proposal."""

    query: str


class OpenAIProvider:
    """Writes with a language model. What it cites is checked; marks that stand for no passage are taken out."""

    def __init__(self, model: ChatModel, prompts: PromptLibrary) -> None:
        self._model = model
        self._prompts = prompts
        self._refiner = Refiner(model, prompts)

    async def broaden(self, question: str, current: str, tried: tuple[str, ...]) -> Query:
        """Ask for a broader query."""
        nonce = nonce_for(question)
        queries = "\n".join(fence(f"query {number}", query, nonce) for number, query in enumerate((*tried, current), start=1))
        prompt = self._prompts["broaden_query"].render({"question": fence("question", question, nonce), "queries": queries})
        request = ChatRequest("broaden_query", prompt, timeout_seconds=remaining_seconds())
        completion = await self._model.complete(request, BroadenedQueryOutput)
        return Query(completion.value.query[:8000], (completion.usage,))

    async def answer(self, question: str, passages: tuple[Passage, ...]) -> AsyncGenerator[str | Written, None]:
        """Stream an answer from the passages."""
        nonce = _nonce(question, passages)
        prompt = self._prompts["generate_answer"].render(
            {"question": fence("question", question, nonce), "passages": _shown(passages, nonce)}
        )
        async with contextlib.aclosing(self._written("generate_answer", prompt, passages)) as pieces:
            async for piece in pieces:
                yield piece

    async def refine(self, correction: Correction) -> AsyncGenerator[str | Written, None]:
        """The answer with its failing sentences corrected or left out; nothing of it is told before it is proven."""
        written = await self._refiner.refine(correction)
        if not written.answer.refusal:
            for piece in CitedText(written.answer.text).pieces():
                yield piece
        yield written

    async def write(self, task: WritingTask) -> AsyncGenerator[str | WrittenDraft, None]:
        """Stream a draft for the task."""
        nonce = _nonce(task.task, task.passages)
        prompt = self._prompts["write_draft"].render(
            {
                "task": fence("task", task.task, nonce),
                "passages": _shown(task.passages, nonce) or _NONE,
                "criteria": _criteria(task.criteria, nonce),
            }
        )
        async with contextlib.aclosing(self._drafted("write_draft", prompt, task.passages)) as pieces:
            async for piece in pieces:
                yield piece

    async def revise(self, revision: Revision) -> AsyncGenerator[str | WrittenDraft, None]:
        """Stream the draft with what was found wanting changed."""
        nonce = _nonce(revision.task, revision.passages)
        prompt = self._prompts["revise_draft"].render(
            {
                "task": fence("task", revision.task, nonce),
                "draft": fence("draft", revision.draft, nonce),
                "passages": _shown(revision.passages, nonce) or _NONE,
                "criteria": _criteria(revision.criteria, nonce),
                "feedback": fence("feedback", revision.feedback or _NONE, nonce),
                "failing": _failing(revision.failing_claims, nonce) or _NONE,
                "issues": _issues(revision.issues, nonce) or _NONE,
                "suggestions": _numbered("suggestion", revision.suggestions, nonce) or _NONE,
            }
        )
        async with contextlib.aclosing(self._drafted("revise_draft", prompt, revision.passages)) as pieces:
            async for piece in pieces:
                yield piece

    async def _drafted(
        self, operation: str, prompt: RenderedPrompt, passages: tuple[Passage, ...]
    ) -> AsyncGenerator[str | WrittenDraft, None]:
        seconds = remaining_seconds()
        request = ChatRequest(operation, prompt, timeout_seconds=seconds, expected_output_tokens=_DRAFT_TOKENS)
        async with contextlib.aclosing(self._model.stream(request)) as events:
            async for event in events:
                if isinstance(event, StreamEnd):
                    text, citations = _checked(event, passages)
                    if not text:
                        raise _unusable("empty", event)
                    yield WrittenDraft(Draft(text, citations, self._model.name), (event.usage,))
                    return
                yield event.text

    async def _written(
        self, operation: str, prompt: RenderedPrompt, passages: tuple[Passage, ...]
    ) -> AsyncGenerator[str | Written, None]:
        request = ChatRequest(operation, prompt, timeout_seconds=remaining_seconds())
        held = ""
        sent = False
        async with contextlib.aclosing(self._model.stream(request)) as events:
            async for event in events:
                if isinstance(event, StreamEnd):
                    yield self._whole(event, passages)
                    return
                held += event.text
                if sent or not NO_ANSWER.startswith(held.strip()[: len(NO_ANSWER)]):
                    sent = True
                    yield held
                    held = ""

    def _whole(self, end: StreamEnd, passages: tuple[Passage, ...]) -> Written:
        text, citations = _checked(end, passages)
        if not text or text.startswith(NO_ANSWER):
            return Written(refusal(self._model.name), (end.usage,))
        return Written(Answer(text, citations, self._model.name), (end.usage,))


def _checked(end: StreamEnd, passages: tuple[Passage, ...]) -> tuple[str, tuple[Citation, ...]]:
    """The text without marks that stand for no passage, and its citations. Raises ModelOutputInvalid when it is too long."""
    text = without_stray_markers(end.text.strip(), len(passages)).strip()
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise _unusable("too_long", end)
    return text, read_citations(text, tuple(passage.passage_id for passage in passages))


def _unusable(cause: str, end: StreamEnd) -> ModelOutputInvalid:
    error = ModelOutputInvalid(metadata={"cause": cause})
    error.model_calls = (end.usage,)
    return error


def _nonce(task: str, passages: tuple[Passage, ...]) -> str:
    """For the fences of everything that is written for one task from some passages: its prompts begin alike."""
    return nonce_for(task, *(passage.under_headings() for passage in passages))


def _shown(passages: tuple[Passage, ...], nonce: str) -> str:
    return "\n".join(
        fence(f"passage {number}", passage.under_headings(), nonce) for number, passage in enumerate(passages, start=1)
    )


def _failing(claims: tuple[Claim, ...], nonce: str) -> str:
    # By their places and not by their ids: those come from the caller, and a label stands outside of what it encloses.
    return _numbered("claim", [f"{claim.text}\nWhy it fails: {claim.explanation}" for claim in claims], nonce)


def _criteria(criteria: tuple[Criterion, ...], nonce: str) -> str:
    described = [f"{item.name}: {item.description}" if item.description else item.name for item in criteria]
    return _numbered("criterion", described, nonce) or _NONE


def _issues(issues: tuple[DraftIssue, ...], nonce: str) -> str:
    texts = [
        f"{issue.severity.value} ({issue.criterion}): {issue.description}"
        + (f"\nIt stands here: {issue.quote}" if issue.quote else "")
        for issue in issues
    ]
    return _numbered("issue", texts, nonce)


def _numbered(label: str, texts: Sequence[str], nonce: str) -> str:
    return "\n".join(fence(f"{label} {number}", text, nonce) for number, text in enumerate(texts, start=1))
