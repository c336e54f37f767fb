"""A correction edits what failed and nothing else, which the orchestrator makes sure of itself."""

from __future__ import annotations

import pytest
from errata.grading.v1 import grading_pb2

from tests.harness.services import scripted
from tests.harness.traces import ask, end, failed_trace, outcome, payloads, reason, steps, trace_of
from tests.harness.verdicts import below_of, check_verdicts, edit, grade_of

FOUR = "The first is so. [1] Größe und 保存 is so. [1] The third is wrong. [1] The fourth is so. [1]"
GOOD = "The first is so. [1] The second is so. [1] The third is so. [1] The fourth is so. [1]"
MENDED = "The first is so. [1] Größe und 保存 is so. [1] The fourth is so. [1]"


WRONG = "The third is wrong. [1] "
Edits = tuple[grading_pb2.AnswerEdit, ...]


def saying_something_else(made: grading_pb2.AnswerEdit) -> grading_pb2.AnswerEdit:
    made.before = made.before.replace("third", "fifth")
    return made


UNPROVEN: dict[str, tuple[str, Edits]] = {
    "a supported sentence": (MENDED.replace("first", "1st"), (edit(FOUR, "first", "1st"), edit(FOUR, WRONG, ""))),
    "the end of a supported sentence": (FOUR.replace(f" [1] {WRONG}", " "), (edit(FOUR, f" [1] {WRONG}", " "),)),
    "another text": (f"{MENDED} More.", (edit(FOUR, WRONG, ""),)),
    "no edits": (MENDED, ()),
    "edits that say something else": (MENDED, (saying_something_else(edit(FOUR, WRONG, "")),)),
    "edits out of order": (
        FOUR.replace(WRONG, "So it is. "),
        (edit(FOUR, "is wrong. [1] ", "it is. "), edit(FOUR, "The third ", "So ")),
    ),
}


@pytest.mark.parametrize("what", UNPROVEN)
async def test_a_correction_that_is_not_proven_is_not_released(what: str) -> None:
    text, edits = UNPROVEN[what]
    below = below_of(FOUR, text, paid=True)
    below.generator.paid = True
    below.judge.answers = [grade_of(FOUR), grade_of(GOOD)]
    below.generator.edits = edits
    async with scripted(below) as served:
        events, failure = await failed_trace(ask(served))
    assert outcome(events) == "FAILED" and failure.reason == reason(end(events).error) == "MODEL_OUTPUT_INVALID"
    assert not end(events).HasField("answer") and len(below.judge.answer_requests) == 1
    assert "answer_refined" not in steps(events)
    # It was paid for, and is on the account.
    assert [call.operation for call in end(events).usage.model_calls].count("refine_answer") == 1


@pytest.mark.parametrize("size", [0, 2])
async def test_a_correction_says_what_changed_and_the_rest_is_not_graded_again(size: int) -> None:
    below = below_of(FOUR, MENDED)
    made = below.generator.edits = [edit(FOUR, WRONG, "")]
    async with scripted(below, segment_sentences=size) as served:
        events = await trace_of(ask(served))
    assert outcome(events) == "ANSWERED_AFTER_REFINEMENT" and end(events).answer.text == MENDED
    [refined] = payloads(events, "answer_refined")
    assert list(refined.edits) == made and refined.previous_text == FOUR and list(refined.corrected_claim_ids) == ["c3"]
    first, second = below.judge.answer_requests
    assert list(second.known_claims) == [claim for claim in grade_of(FOUR).claims if claim.claim_id != "c3"]
    assert len(first.known_claims) == (4 if size else 0)
    check_verdicts(events)
