"""Corrections of generated answers: whatever the rules or a model want, only failing sentences change, and code proves it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from errata_kit.edits import apply_edits, prove
from errata_kit.errors import ModelOutputInvalid, ModelRefused, ModelTruncated
from errata_kit.grades import Claim, Evidence, Verdict
from errata_kit.llm.chat import ChatRequest, Completion, M, StreamEvent
from errata_kit.llm.prompts import PromptLibrary
from errata_kit.passages import Passage, Span
from errata_kit.text.sentences import Sentence, byte_span, split_sentences
from errata_kit.usage import ModelCall
from services.generator.drafting.drafts import said
from services.generator.drafting.touching import touched_units
from services.generator.offline import OfflineProvider
from services.generator.openai import OpenAIProvider
from services.generator.provider import MAX_TEXT_BYTES, Correction, Provider, Written

QUESTION = "How long are files kept in the archive?"
PASSAGES = (
    Passage("kept", "Files are kept in the archive for 30 days. The archive then deletes them.", title="Retention"),
    Passage("size", "The archive holds 900 files at most. Größere Archive gibt es nicht.", title="Size"),
    Passage("other", "Runs are stored in SQLite."),
)
PROMPTS = PromptLibrary.load("services.generator")
SENTENCES = st.sampled_from(
    [
        "Files are kept for 90 days. [1]",
        "Größere Archive  gibt es nicht. [2]",
        "The archive holds 12 files.[2]",
        "However, it is *fast*. [1][3]",
        "Set `archive.maxAge` to change that. [7]",
        "Es heißt „Archiv“ — 文件保留三十天。",
        "See e.g. the docs of Jan. Foo",
        "They use etc.",
        "no capital here. [1, 2]",
        "Short title",
        "It deletes 🗃️ them\nover two lines, later.",
        "**Bold** words! Really?",
        "Options are these: [1]",
    ]
)
ITEMS = st.lists(SENTENCES, min_size=1, max_size=3).map(" ".join)


@st.composite
def blocks(draw: st.DrawFn) -> str:
    kind = draw(
        st.sampled_from(["paragraph", "paragraph", "list", "numbers", "table", "code", "heading", "lead", "rule", "quote"])
    )
    items = draw(st.lists(ITEMS, min_size=1, max_size=3))
    flat = [item.replace("\n", " ") for item in items]
    match kind:
        case "list":
            return "\n".join(f"{draw(st.sampled_from(['- ', '* ', '  - ']))}{item}" for item in items)
        case "numbers":
            return "\n".join(f"{number}. {item}" for number, item in enumerate(items, start=1))
        case "table":
            return "\n".join(["| a | b |", "|---|---|", *(f"| {item} | x |" for item in flat)])
        case "code":
            return f"{draw(st.sampled_from(['```', '~~~bash', '  ```']))}\nerrata --magic\n\n# no heading\n" + draw(
                st.sampled_from(["```", "~~~", "  ```", ""])
            )
        case "heading":
            return f"{draw(st.sampled_from(['#', '##', '###']))} {flat[0]}"
        case "lead":
            return f"{flat[0]} These are the options:"
        case "rule":
            return "---"
        case "quote":
            return "\n".join(f"> {item}" for item in flat)
    return draw(st.sampled_from([" ", "\n", "  "])).join(items)


@st.composite
def answers(draw: st.DrawFn) -> str:
    parts = draw(st.lists(blocks(), min_size=1, max_size=5))
    text = draw(st.sampled_from(["", "\n", "  "])) + parts[0]
    for part in parts[1:]:
        text += draw(st.sampled_from(["\n\n", "\n\n", "\n", "\n\n\n\n", "\n \n"])) + part
    text += draw(st.sampled_from(["", "\n", " \n\n"]))
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


@st.composite
def corrections(draw: st.DrawFn) -> Correction:
    answer = draw(answers())
    units = split_sentences(answer)
    places = draw(st.lists(st.sampled_from(range(len(units))), min_size=1, max_size=4, unique=True)) if units else []
    claims = [draw(claims_about(answer, units[place], number)) for number, place in enumerate(places, start=1)]
    return Correction(QUESTION, answer, PASSAGES, tuple(claims), draw(st.sampled_from(["", "Remove it."])))


@st.composite
def claims_about(draw: st.DrawFn, answer: str, unit: Sentence, number: int) -> Claim:
    """A claim on a unit, or on a part of it."""
    start = draw(st.integers(unit.start, unit.end - 1))
    end = draw(st.integers(start + 1, unit.end))
    if draw(st.booleans()) or not answer[start:end].strip():
        start, end = unit.start, unit.end
    quotes = [
        Evidence("kept", "Files are kept in the archive for 30 days.", Span(0, 42)),
        Evidence("size", "Größere Archive gibt es nicht.", Span(0, 1)),
        Evidence("size", "files at most", Span(0, 1)),
    ]
    verdict = draw(st.sampled_from([Verdict.UNSUPPORTED, Verdict.CONTRADICTED]))
    evidence = (draw(st.sampled_from(quotes)),) if verdict is Verdict.CONTRADICTED else ()
    span = Span(*byte_span(answer, start, end))
    why = draw(st.sampled_from(["", "No passage says so."]))
    return Claim(f"c{number}", answer[start:end], span, verdict, 0.0, evidence, why)


@dataclass
class Scripted:
    """A model that gives what is drawn."""

    data: st.DataObject
    answer: str
    asked: int = 0
    name: str = "scripted"

    async def complete(self, request: ChatRequest, schema: type[M]) -> Completion[M]:
        self.asked += 1
        usage = ModelCall("scripted", request.operation, request.prompt.version, 10, 0, 5)
        failure = self.data.draw(st.sampled_from([None] * 9 + [ModelOutputInvalid, ModelRefused, ModelTruncated]))
        if failure is not None:
            error = failure("drawn")
            error.model_calls = (usage,)
            raise error
        edits = self.data.draw(
            st.lists(st.fixed_dictionaries({"number": st.integers(-1, 6), "replacement": self.words()}), max_size=6)
        )
        return Completion(schema.model_validate({"edits": edits}), usage)

    def words(self) -> st.SearchStrategy[str]:
        own = [unit.text for unit in split_sentences(self.answer)] or ["x"]
        hostile = [
            "",
            "  \n",
            "```\nopen",
            "# Heading",
            "- one\n- two",
            "One.\n\nTwo.",
            "x" * MAX_TEXT_BYTES,
            "[9]",
            "| a | b |",
            self.answer,
        ]
        good = [
            "Files are kept in the archive for 30 days. [1]",
            "```\nerrata up\n```",
            "It is etc.",
            "1. one",
            "- It holds 900. [2]",
            "a\nb [9]",
        ]
        return st.one_of(st.sampled_from(good), st.sampled_from(hostile), st.sampled_from(own), SENTENCES, st.text(max_size=30))

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        raise AssertionError("a correction is no stream of the model")
        yield


def refined(provider: Provider, correction: Correction) -> tuple[str, Written]:
    """The deltas' text, and the whole."""

    async def run() -> tuple[str, Written]:
        deltas, whole = "", None
        async for piece in provider.refine(correction):
            assert whole is None, "the whole comes last"
            if isinstance(piece, str):
                deltas += piece
            else:
                whole = piece
        assert whole is not None
        return deltas, whole

    return asyncio.run(run())


def check(correction: Correction, deltas: str, whole: Written) -> None:
    """What holds for every correction."""
    before = correction.answer
    units = split_sentences(before)
    failing = {place for claim in correction.failing for place in touched_units(before, units, claim)}
    after = apply_edits(before, whole.edits)
    ids = {claim.claim_id for claim in correction.failing}
    assert {claim_id for edit in whole.edits for claim_id in edit.claim_ids} == ids
    assert all(edit.reason for edit in whole.edits)
    # What is nobody's claim may go without one: headings and lead-ins of nothing.
    bare = [edit for edit in whole.edits if not edit.claim_ids]
    assert all(not edit.after.strip() for edit in bare)
    spared = []
    for place, unit in enumerate(units):
        span = Span(*byte_span(before, unit.start, unit.end))
        orphan = any(edit.span.start <= span.start and span.end <= edit.span.end for edit in bare)
        if place not in failing and orphan:
            assert unit.kind == "heading" or ":" in unit.text
        elif place not in failing:
            spared.append((unit, span))
    prove(before, after, whole.edits, [span for _, span in spared])
    if whole.answer.refusal:
        assert deltas == ""
    else:
        assert whole.answer.text == after == deltas and after.strip()
    left = Counter(said(unit.text) for unit in split_sentences(after))
    for place in failing:
        words = said(units[place].text)
        spared_too = sum(words in said(unit.text) for unit, _ in spared)
        assert not words or left[words] <= spared_too, "what failed stands there still"
    if any(character.isalnum() for edit in whole.edits for character in edit.after):
        # Where words were put in, what stays is cut into the same sentences as before, too.
        found = iter(split_sentences(after))
        assert all(any(unit.text == other.text for other in found) for unit, _ in spared)


@settings(max_examples=100, deadline=None)
@given(correction=corrections())
def test_rules_change_nothing_but_what_failed(correction: Correction) -> None:
    deltas, whole = refined(OfflineProvider(None), correction)
    check(correction, deltas, whole)
    assert not whole.rejected and not whole.model_calls


@settings(max_examples=100, deadline=None)
@given(correction=corrections(), data=st.data())
def test_a_model_changes_nothing_but_what_failed(correction: Correction, data: st.DataObject) -> None:
    model = Scripted(data, correction.answer)
    deltas, whole = refined(OpenAIProvider(model, PROMPTS), correction)
    check(correction, deltas, whole)
    assert 1 <= model.asked <= 2 or not correction.failing
    assert len(whole.model_calls) == model.asked
