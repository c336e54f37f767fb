"""Corrects an answer with a language model: one structured call for its failing sentences alone, a second one for those of
which the first gave nothing that could be let through.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from errata_kit.calls import remaining_seconds
from errata_kit.edits import RejectedEdit
from errata_kit.errors import (
    ErrataError,
    ModelContextExceeded,
    ModelFiltered,
    ModelOutputInvalid,
    ModelRefused,
    ModelTruncated,
)
from errata_kit.llm.chat import ChatModel, ChatRequest, Completion, ModelOutput
from errata_kit.llm.prompts import Prompt, PromptLibrary, RenderedPrompt, fence, nonce_for
from errata_kit.passages import Answer
from errata_kit.usage import ModelCall
from services.generator.drafting.asking import needed_passages, shown_answer, told_sentence
from services.generator.drafting.drafts import cited
from services.generator.drafting.proposals import Ledger, Proposal, Rejection
from services.generator.drafting.surgery import Corrected, Surgery, answers, says_something
from services.generator.provider import Correction, Written, refusal

# A model that says these can't make the edits, however often it is asked. Everything else is an outage, and ends the run.
_CANNOT: Final = (ModelOutputInvalid, ModelRefused, ModelTruncated, ModelFiltered, ModelContextExceeded)
_ROUNDS: Final = 2
# How many tokens an edit has, about.
_EDIT_TOKENS: Final = 60
_LONGEST_SHOWN: Final = 400
_MOST_SHOWN: Final = 20


class SentenceEditOutput(ModelOutput):
    """What is to stand in the place of a numbered sentence; empty to remove it."""

    number: int
    replacement: str


class SentenceEditsOutput(ModelOutput):
    """One edit a sentence."""

    edits: list[SentenceEditOutput]


class Refiner:
    """Corrects answers. What the model gives is proven to touch the failing sentences only."""

    def __init__(self, model: ChatModel, prompts: PromptLibrary) -> None:
        self._model = model
        self._prompts = prompts

    async def refine(self, correction: Correction) -> Written:
        """The corrected answer, its edits, and what was not let through.

        A sentence for which the model gives nothing that fits, in two calls, is removed. So is every one when it refuses, is
        cut off, or gives no valid output.

        Raises:
            ModelError: it can't be reached, or can't be asked now. What was paid for before is in its model_calls, too.
        """
        # All of this is CPU work, about a millisecond for most answers and a second for a hostile one.
        work = await asyncio.to_thread(_Work, correction, self._prompts["refine_answer"])
        calls: list[ModelCall] = []
        stopped: tuple[RejectedEdit, ...] = ()
        while work.done is None:
            try:
                completion = await self._ask(work, calls)
            except _CANNOT as error:
                calls += error.model_calls
                stopped = (RejectedEdit("", f"The model gave no edits: {error.reason.value}."),)
                await asyncio.to_thread(work.finish)
            else:
                calls.append(completion.usage)
                await asyncio.to_thread(work.take, completion.value, last=len(calls) == _ROUNDS)
        text = cited(work.done.text, correction.passages)
        answer = Answer(text.text, text.citations, self._model.name) if work.answers else refusal(self._model.name)
        return Written(answer, tuple(calls), work.done.edits, (*work.ledger.told(), *stopped))

    async def _ask(self, work: "_Work", calls: Sequence[ModelCall]) -> Completion[SentenceEditsOutput]:
        tokens = _EDIT_TOKENS * (len(work.ledger.outstanding) + 1)
        request = ChatRequest("refine_answer", work.prompt(), remaining_seconds(), expected_output_tokens=tokens)
        try:
            return await self._model.complete(request, SentenceEditsOutput)
        except _CANNOT:
            raise
        except ErrataError as error:
            error.model_calls = (*calls, *error.model_calls)
            raise


class _Work:
    """One correction under way: what is shown to the model, and what has become of its edits. Blocking.

    Both calls begin alike, so that the provider has the second one's beginning ready.
    """

    def __init__(self, correction: Correction, prompt: Prompt) -> None:
        self._correction = correction
        self._prompt = prompt
        surgery = Surgery(correction.answer, correction.failing)
        self.ledger = Ledger(surgery, len(correction.passages))
        self.done: Corrected | None = None if surgery.failing else Corrected(correction.answer, ())
        self.answers = not surgery.failing
        passages = correction.passages
        needed = {place + 1: passages[place].under_headings() for place in needed_passages(surgery, passages)}
        self._nonce = nonce_for(correction.question, *needed.values())
        self._constant = {
            "passages": self._fenced("passage", needed),
            "question": fence("question", correction.question, self._nonce),
            "answer": fence("answer", shown_answer(surgery), self._nonce),
        }
        items = enumerate(surgery.failing.values(), start=1)
        self._sentences = {number: told_sentence(item, passages, correction.suggestion) for number, item in items}

    def prompt(self) -> RenderedPrompt:
        """What asks for the outstanding sentences, and says what was wanted for them before and not let through."""
        wanted = self.ledger.outstanding
        sentences = self._fenced("sentence", {number: self._sentences[number] for number in wanted})
        refused = [item for item in self.ledger.rejected if item.proposal.number in wanted][:_MOST_SHOWN]
        if refused:
            told = (fence(f"rejected {item.proposal.number}", _told(item), self._nonce) for item in refused)
            sentences = "\n".join((sentences, "\nThese edits were rejected. Give others:\n", *told))
        return self._prompt.render({**self._constant, "sentences": sentences})

    def take(self, output: SentenceEditsOutput, last: bool) -> None:
        """Let through what can be. Finished when nothing is outstanding, or when this was the last call."""
        self.ledger.take([Proposal(edit.number, edit.replacement) for edit in output.edits])
        if last or not self.ledger.outstanding:
            self.finish()

    def finish(self) -> None:
        """Remove what is outstanding.

        The rest answers the question when a model put words in. When sentences only went, the question's own words must be
        left, if they were there before.
        """
        self.done = done = self.ledger.finished()
        asked = self._correction.question
        replaced = any(character.isalnum() for edit in done.edits for character in edit.after)
        left = replaced or answers(asked, done.text) or not answers(asked, self._correction.answer)
        self.answers = left and says_something(done.text)

    def _fenced(self, label: str, texts: Mapping[int, str]) -> str:
        return "\n".join(fence(f"{label} {number}", text, self._nonce) for number, text in texts.items())


def _told(item: Rejection) -> str:
    words = item.proposal.words
    shown = words if len(words) <= _LONGEST_SHOWN else f"{words[:_LONGEST_SHOWN]}…"
    return f"{shown}\n\nWhy it was rejected: {item.reason}"
