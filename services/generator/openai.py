"""The openai provider of the generator: a language model behind an OpenAI-compatible API."""

import contextlib
from collections.abc import AsyncGenerator
from typing import Final

from errata_kit.calls import remaining_seconds
from errata_kit.errors import ModelOutputInvalid
from errata_kit.llm.chat import ChatModel, ChatRequest, ModelOutput, StreamEnd
from errata_kit.llm.prompts import PromptLibrary, RenderedPrompt, fence, new_nonce
from errata_kit.passages import Answer, Passage
from services.generator.drafting.drafts import read_citations
from services.generator.drafting.refine import without_stray_markers
from services.generator.provider import Correction, Query, Written, refusal

# What the prompts ask for when the passages hold no answer. Held back from the stream until it can't be that any more.
NO_ANSWER: Final = "NO_ANSWER"
# The contract's bound of an answer.
MAX_ANSWER_BYTES: Final = 64 * 1024


class BroadenedQueryOutput(ModelOutput):
    """The model's proposal."""

    query: str


class OpenAIProvider:
    """Writes with a language model. What it cites is checked; marks that stand for no passage are taken out."""

    def __init__(self, model: ChatModel, prompts: PromptLibrary) -> None:
        self._model = model
        self._prompts = prompts

    async def broaden(self, question: str, current: str, tried: tuple[str, ...]) -> Query:
        """Ask for a broader query."""
        nonce = new_nonce()
        queries = "\n".join(fence(f"query {number}", query, nonce) for number, query in enumerate((*tried, current), start=1))
        prompt = self._prompts["broaden_query"].render({"question": fence("question", question, nonce), "queries": queries})
        request = ChatRequest("broaden_query", prompt, timeout_seconds=remaining_seconds())
        completion = await self._model.complete(request, BroadenedQueryOutput)
        return Query(completion.value.query[:8000], (completion.usage,))

    async def answer(self, question: str, passages: tuple[Passage, ...]) -> AsyncGenerator[str | Written, None]:
        """Stream an answer from the passages."""
        nonce = new_nonce()
        prompt = self._prompts["generate_answer"].render(
            {"question": fence("question", question, nonce), "passages": _shown(passages, nonce)}
        )
        async with contextlib.aclosing(self._written("generate_answer", prompt, passages)) as pieces:
            async for piece in pieces:
                yield piece

    async def refine(self, correction: Correction) -> AsyncGenerator[str | Written, None]:
        """Stream the answer with its failing claims corrected or left out."""
        nonce = new_nonce()
        failing = "\n".join(
            fence(f"claim {claim.claim_id}", f"{claim.text}\nWhy it fails: {claim.explanation}", nonce)
            for claim in correction.failing
        )
        prompt = self._prompts["refine_answer"].render(
            {
                "question": fence("question", correction.question, nonce),
                "passages": _shown(correction.passages, nonce),
                "answer": fence("answer", correction.answer, nonce),
                "failing": failing,
                "suggestion": fence("suggestion", correction.suggestion or "none", nonce),
            }
        )
        async with contextlib.aclosing(self._written("refine_answer", prompt, correction.passages)) as pieces:
            async for piece in pieces:
                yield piece

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
        text = without_stray_markers(end.text.strip(), len(passages)).strip()
        if not text or text.startswith(NO_ANSWER):
            return Written(refusal(self._model.name), (end.usage,))
        if len(text.encode()) > MAX_ANSWER_BYTES:
            error = ModelOutputInvalid(metadata={"cause": "too_long"})
            error.model_calls = (end.usage,)
            raise error
        citations = read_citations(text, tuple(passage.passage_id for passage in passages))
        return Written(Answer(text, citations, self._model.name), (end.usage,))


def _shown(passages: tuple[Passage, ...], nonce: str) -> str:
    return "\n".join(
        fence(f"passage {number}", passage.under_headings(), nonce) for number, passage in enumerate(passages, start=1)
    )
