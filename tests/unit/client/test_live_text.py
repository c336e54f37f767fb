"""Which parts of a text are a draft, verified or taken back, told from a run's events."""

from typing import Any

from errata.grading.v1 import grading_pb2
from errata.orchestrator.v1 import trace_pb2

from errata_client import LiveText, TextState


def live(*payloads: Any) -> LiveText:
    text = LiveText()
    for payload in payloads:
        text.take(trace_pb2.TraceEvent(**payload))
    return text


def delta(text: str, segment: int = 0, attempt: int = 0, refinement: int = 0) -> dict[str, Any]:
    return {"answer_delta": trace_pb2.AnswerDelta(text=text, segment=segment, attempt=attempt, refinement=refinement)}


def checked(segment: int, passed: bool = True, remaining: int = 0, attempt: int = 0) -> dict[str, Any]:
    claim = grading_pb2.Claim(claim_id="c1", text="claim")
    event = trace_pb2.ClaimChecked(segment=segment, claim=claim, passed=passed, remaining=remaining, attempt=attempt)
    return {"claim_checked": event}


def graded(passed: bool) -> dict[str, Any]:
    return {"answer_graded": trace_pb2.AnswerGraded(passed=passed)}


def refined(text: str) -> dict[str, Any]:
    return {"answer_refined": trace_pb2.AnswerRefined(answer={"text": text})}


def finished(outcome: str, text: str) -> dict[str, Any]:
    return {"run_finished": trace_pb2.RunFinished(outcome=f"OUTCOME_{outcome}", answer={"text": text})}


def states(text: LiveText) -> list[tuple[str, str]]:
    return [(part.text, part.state.value) for part in text.parts]


def test_a_segment_is_a_draft_until_its_last_claim_has_passed() -> None:
    written = [delta("One. ", 1), delta("Two. ", 1), delta("Three.", 2)]
    assert states(live(*written)) == [("One. Two. ", "draft"), ("Three.", "draft")]
    assert states(live(*written, checked(1, remaining=1))) == [("One. Two. ", "draft"), ("Three.", "draft")]
    both = [checked(1, remaining=1), checked(1)]
    assert states(live(*written, *both)) == [("One. Two. ", "verified"), ("Three.", "draft")]


def test_one_failed_claim_takes_its_segment_back_whatever_comes_behind_it() -> None:
    text = live(delta("One. Two. ", 1), delta("Three.", 2), checked(1, passed=False, remaining=1), checked(1), checked(2))
    assert states(text) == [("One. Two. ", "retracted"), ("Three.", "verified")]
    after = live(delta("One. ", 1), checked(1, passed=False), graded(False), refined("Two."))
    assert states(after) == [("Two.", "draft")]
    assert states(live(delta("One. ", 1), refined("Two."), graded(True))) == [("Two.", "verified")]


def test_an_attempt_that_broke_off_is_forgotten_with_its_verdicts() -> None:
    again = [delta("Lost. ", 1), delta("One. ", 1, attempt=1), checked(1, passed=False), checked(1, attempt=0)]
    assert states(live(*again)) == [("One. ", "draft")]


def test_a_text_without_segments_is_decided_by_its_grade() -> None:
    assert states(live(delta("One. "), delta("Two."))) == [("One. Two.", "draft")]
    drafted = {"answer_drafted": trace_pb2.AnswerDrafted(answer={"text": "One."})}
    assert states(live(drafted, graded(True))) == [("One.", "verified")]
    assert states(live(drafted, graded(False))) == [("One.", "retracted")]


def test_the_end_says_what_was_released() -> None:
    drafted = [delta("One. ", 1), checked(1)]
    assert states(live(*drafted, finished("ANSWERED", "One."))) == [("One.", "verified")]
    assert states(live(*drafted, finished("REFUSED_UNFAITHFUL", "No answer."))) == [("One. ", "retracted")]
    assert live(finished("REFUSED_NO_EVIDENCE", "Nothing.")).parts == ()
    assert live(delta("One. ", 1)).parts[0].state is TextState.DRAFT
