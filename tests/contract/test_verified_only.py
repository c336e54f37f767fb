"""verified_only: what was not verified is nowhere in the caller's stream, and what was comes as soon as it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from errata.grading.v1 import grading_pb2
from errata.judge.v1 import judge_service_pb2 as judge_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2

from errata_kit.errors import ModelOutputInvalid
from tests.harness.services import CALL_SECONDS, Below, Served, scripted
from tests.harness.traces import Fails, ask, cancel_run, end, outcome, payloads, steps, trace_of, until, watch
from tests.harness.verdicts import below_of, checked, delta_text, edit, grade_of

ZEBRAS = "Zebras are wrong in 保存 (Größe 4711.7)."
TEXT = f"The first is so. [1] The second is so. [1] {ZEBRAS} [1] The fourth is so. [1] The fifth is so. [1]"
MENDED = "The first is so. [1] The second is so. [1] The fourth is so. [1] The fifth is so. [1]"
# What a reader could tell the sentence by, even in part.
TRACES = ("Zebras", "wrong in", "保存", "Größe", "4711.7")


def mending() -> Below:
    below = below_of(TEXT, MENDED)
    below.generator.edits = [edit(TEXT, f"{ZEBRAS} [1] ", "")]
    return below


def held(served: Served, **fields: Any) -> Any:
    """Ask for verified text only. One sentence in five that is not supported is too much."""
    return ask(served, verified_only=True, faithfulness_threshold=0.9, **fields)


def texts(events: list[trace_pb2.TraceEvent]) -> bytes:
    """Everything that the stream carried, as it went over the wire."""
    return b"\n".join(event.SerializeToString() for event in events)


def assert_nothing_of_it(events: list[trace_pb2.TraceEvent], *words: str) -> None:
    wire = texts(events)
    assert [word for word in words or TRACES if word.encode() in wire] == []


@pytest.mark.parametrize("size", [1, 2, 4, 100])
@pytest.mark.parametrize("mended", [True, False])
async def test_no_byte_of_a_sentence_that_failed_is_sent(size: int, mended: bool) -> None:
    below = mending() if mended else below_of(TEXT, TEXT)
    below.generator.edits = below.generator.edits or []
    low = grade_of(TEXT)
    low.refinement_suggestion = f"Remove: {ZEBRAS}"
    low.findings.add(
        kind="FINDING_KIND_NUMBER", text="4711.7", span=low.claims[2].span, claim_id="c3", explanation="4711.7 is in none"
    )
    if mended:
        # What could not be checked stays, but for what the guard finds in it.
        low.claims[2].verdict = grading_pb2.VERDICT_UNVERIFIABLE
    for claim in low.claims:
        claim.explanation = f"It says: {claim.text}"
    below.judge.answers = [low, below.judge.answers[1]]
    async with scripted(below, segment_sentences=size) as served:
        events = await trace_of(held(served))
        whole = await watch(served, events[0].run_id)
        again = await watched_verified(served, events[0].run_id)
    assert outcome(events) == ("ANSWERED_AFTER_REFINEMENT" if mended else "REFUSED_UNFAITHFUL")
    assert_nothing_of_it(events)
    assert_nothing_of_it(again)
    # Who watches the same run sees everything.
    assert ZEBRAS.encode() in texts(whole) and payloads(whole, "answer_drafted")[0].answer.text == TEXT
    assert ZEBRAS in payloads(whole, "answer_refined")[0].previous_text
    assert steps(whole) == steps(events)
    if mended:
        assert end(events).answer.text == MENDED


async def watched_verified(served: Served, run_id: str) -> list[trace_pb2.TraceEvent]:
    call = served.stub.WatchRun(pb2.WatchRunRequest(run_id=run_id, verified_only=True), timeout=CALL_SECONDS)
    return [reply.event async for reply in call]


async def test_what_passed_comes_in_order_and_as_soon_as_it_has() -> None:
    below = mending()
    last_first = Backwards(5)
    below.judge.before_segment = last_first
    async with scripted(below, segment_sentences=1) as served:
        events = await trace_of(held(served))
    deltas = payloads(events, "answer_delta")
    assert [delta.segment for delta in deltas] == [1, 2, 4, 5]
    assert [delta.text.strip() for delta in deltas] == MENDED.replace(" The", "|The").split("|")
    assert {delta.refinement for delta in deltas} == {0}
    # A segment is shown once it is checked, and the one that failed keeps its place.
    kinds = [event.WhichOneof("payload") for event in events]
    for delta in deltas:
        shown = next(place for place, event in enumerate(events) if event.answer_delta == delta)
        told = [place for place, event in enumerate(events) if event.claim_checked.segment == delta.segment]
        assert max(told) < shown < kinds.index("answer_graded")
    assert last_first.order != sorted(last_first.order)


class Backwards:
    """Lets calls go on in the opposite order of their arrival, as far as so many come at once."""

    def __init__(self, calls: int) -> None:
        self._left = calls
        self._number = 0
        self.order: list[int] = []

    async def __call__(self) -> None:
        self._number += 1
        number = self._number
        await asyncio.sleep(0.02 * max(1, self._left - number))
        self.order.append(number)


async def test_a_verified_segment_is_shown_while_the_rest_is_written() -> None:
    below = mending()
    words = 0
    release = asyncio.Event()

    async def between() -> None:
        nonlocal words
        words += 1
        if words == 8:
            await release.wait()

    below.generator.between = between
    async with scripted(below, segment_sentences=1) as served:
        call = held(served)
        events = await until(call, "answer_delta")
        assert events[-1].answer_delta.text == "The first is so. [1] " and "answer_drafted" not in steps(events)
        release.set()
        await until(call, "run_finished")


async def test_a_live_watcher_sees_what_the_caller_sees() -> None:
    below = mending()
    reached, release = asyncio.Event(), asyncio.Event()

    async def before() -> None:
        reached.set()
        await release.wait()

    below.generator.before = before
    async with scripted(below, segment_sentences=1) as served:
        asked = held(served)
        run_id = (await asked.read()).event.run_id
        await asyncio.wait_for(reached.wait(), 5)
        watching = asyncio.create_task(watched_verified(served, run_id))
        plain = asyncio.create_task(watch(served, run_id))
        await asyncio.sleep(0.05)
        release.set()
        seen, everything = await asyncio.wait_for(asyncio.gather(watching, plain), 10)
    assert_nothing_of_it(seen)
    assert delta_text(seen) == delta_text(everything) != ""
    assert ZEBRAS.encode() in texts(everything)


async def test_without_segments_no_draft_is_shown_at_all() -> None:
    below = mending()
    async with scripted(below, segment_sentences=0) as served:
        events = await trace_of(held(served))
    assert not payloads(events, "answer_delta") and end(events).answer.text == MENDED
    assert_nothing_of_it(events)


async def test_with_a_budget_no_draft_is_shown_at_all() -> None:
    below = mending()
    async with scripted(below, segment_sentences=1) as served:
        events = await trace_of(held(served, max_tokens=1_000_000))
    assert not payloads(events, "answer_delta") and outcome(events) == "ANSWERED_AFTER_REFINEMENT"
    assert_nothing_of_it(events)


async def test_what_could_not_be_checked_is_not_shown() -> None:
    below = below_of(TEXT)
    below.judge.before_segment = Fails(lambda: ModelOutputInvalid("nonsense"), 100)
    async with scripted(below, segment_sentences=1) as served:
        events = await trace_of(held(served, max_refinements=0))
    assert not payloads(events, "answer_delta") and outcome(events) == "REFUSED_UNFAITHFUL"
    assert_nothing_of_it(events)


async def test_a_finding_outside_of_all_claims_holds_a_segment_back() -> None:
    def finding(segment: str) -> judge_pb2.CheckClaimsResponse:
        reply = checked(segment)
        if "Zebras" in segment:
            del reply.claims[:]
            reply.findings.add(kind="FINDING_KIND_NUMBER", text="4711.7", span={"end": 2}, explanation="none")
        return reply

    below = below_of(TEXT)
    below.judge.segments = finding
    async with scripted(below, segment_sentences=1) as served:
        events = await trace_of(held(served, max_refinements=0))
    assert_nothing_of_it(events)
    assert [delta.segment for delta in payloads(events, "answer_delta")] == [1, 2, 4, 5]


@pytest.mark.parametrize("how", ["cancelled", "the deadline", "the judge"])
async def test_a_run_that_is_broken_off_shows_no_draft(how: str) -> None:
    below = below_of(TEXT)
    reached = asyncio.Event()

    async def never() -> None:
        reached.set()
        if how == "the judge":
            raise ModelOutputInvalid("nonsense")
        await asyncio.Event().wait()

    below.judge.before_answer = never
    async with scripted(below, segment_sentences=1, run_timeout_seconds=1.5 if how == "the deadline" else 20.0) as served:
        call = held(served)
        events = await until(call, "answer_drafted")
        await asyncio.wait_for(reached.wait(), 5)
        if how == "cancelled":
            await cancel_run(served, events[0].run_id)
        events += await until(call, "run_finished")
        whole = await watch(served, events[0].run_id)
    assert end(whole).refusal.rejected_answer == TEXT
    assert_nothing_of_it(events)


async def test_a_supplied_draft_is_held_back_as_well() -> None:
    below = mending()
    async with scripted(below, segment_sentences=1) as served:
        call = held(served, draft_answer=TEXT)
        events = await trace_of(call)
    assert outcome(events) == "ANSWERED_AFTER_REFINEMENT"
    assert_nothing_of_it(events)
