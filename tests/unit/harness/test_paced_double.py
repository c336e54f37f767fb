"""The double that bench/claims.py measures with: its pace, its prompt cache, its judgement, and the texts it is asked about."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from bench.paced import BEYOND_THE_PASSAGES, SENTENCES, Pace, PacedModel, tokens
from bench.subjects import PASSAGES, Subject, subject
from errata_kit.llm.prompts import fence
from services.judge.openai import ClaimVerdictsOutput
from tests.harness.model_rules import ChatRequest, Message, Reply

NONCE = "0123456789abcdef"
AT_ONCE = Pace(0.0, {"judge": 60.0, "writer": 40.0})


def asked(text: str, model: str = "judge", schema: dict[str, Any] | None = None, **more: Any) -> ChatRequest:
    """A request with one message."""
    name = None if schema is None else "ClaimVerdictsOutput"
    return ChatRequest(model, (Message("user", text),), schema_name=name, schema=schema, **more)


def about(chosen: Subject, *more: str) -> str:
    """The prompt of an answer."""
    passages = (fence(f"passage {number}", text, NONCE) for number, text in enumerate(chosen.passages, start=1))
    return "\n".join([fence("question", chosen.question, NONCE), *passages, *more])


def cached(model: PacedModel, request: ChatRequest) -> int:
    """What the reply says of the cache."""
    usage = model(request).usage
    assert usage is not None
    return usage.cached


def verdicts(chosen: Subject, *claims: str) -> list[str]:
    """What the double thinks of claims."""
    fenced = (fence(f"claim {number}", claim, NONCE) for number, claim in enumerate(claims, start=1))
    reply = PacedModel()(asked(about(chosen, *fenced), schema=ClaimVerdictsOutput.model_json_schema()))
    return [item["verdict"] for item in json.loads(reply.content)["verdicts"]]


def sentences(answer: str) -> list[str]:
    """The sentences of an answer, citations left out."""
    return [part.strip() for part in re.split(r"(?<=\.)\s+", re.sub(r" \[\d\]", "", answer))]


def drafted(chosen: Subject, *more: str) -> Reply:
    """What the double writes."""
    return PacedModel(AT_ONCE)(asked(about(chosen, *more), "writer", stream=True))


def test_a_structured_answer_takes_its_first_token_and_then_the_models_pace() -> None:
    model = PacedModel(Pace(0.4, {"judge": 60.0}))
    reply = model(asked(about(subject(1, beyond=False), fence("claim 1", "It rains.", NONCE)), schema={"type": "string"}))
    assert reply.first_token_delay == pytest.approx(0.4 + tokens(reply.content) / 60.0)
    assert reply.tokens_per_second is None


def test_a_stream_comes_at_the_models_pace_whatever_its_pieces_are() -> None:
    reply = drafted(subject(1, beyond=False))
    assert reply.tokens_per_second is not None
    # The server sends words, and one event before them.
    events = len(reply.content.split()) + 1
    assert events / reply.tokens_per_second == pytest.approx(tokens(reply.content) / 40.0)


@pytest.mark.parametrize(("shared", "known"), [(1023, 0), (1024, 1024), (1151, 1024), (1152, 1152), (2000, 1920)])
def test_the_cache_knows_long_beginnings_in_steps(shared: int, known: int) -> None:
    model = PacedModel(AT_ONCE)
    beginning = "word" * shared
    assert cached(model, asked(f"{beginning}and one")) == 0
    assert cached(model, asked(f"{beginning}but two")) == known


def test_the_cache_is_of_one_model_and_knows_what_was_read_only() -> None:
    model, slow = PacedModel(AT_ONCE), PacedModel(Pace(60.0, {}))
    prompt = "word" * 2000
    assert [cached(model, asked(prompt, name)) for name in ("judge", "writer", "judge")] == [0, 0, 1920]
    assert [cached(slow, asked(prompt)) for _ in range(2)] == [0, 0]


def test_a_schema_is_sent_too() -> None:
    usage = PacedModel()(asked("word", schema={"type": "string"})).usage
    assert usage is not None
    assert usage.prompt == tokens('{"type":"string"}\nword')


@pytest.mark.parametrize("number", range(20))
def test_a_draft_invents_only_what_is_asked_beyond_the_passages(number: int) -> None:
    plain, beyond = subject(number, beyond=False), subject(number, beyond=True)
    assert BEYOND_THE_PASSAGES in beyond.question
    faithful, invented = sentences(drafted(plain).content), sentences(drafted(beyond).content)
    assert len(faithful) == len(invented) == SENTENCES
    assert verdicts(plain, *faithful) == ["SUPPORTED"] * SENTENCES
    assert sorted(verdicts(beyond, *invented)) == ["SUPPORTED"] * (SENTENCES - 1) + ["UNSUPPORTED"]


def test_a_draft_stays_with_a_passage_or_alternates() -> None:
    prompt = asked(about(subject(4, beyond=False)), "writer", stream=True)
    staying, alternating = (re.findall(r"\[(\d)\]", PacedModel(None, way)(prompt).content) for way in (False, True))
    assert "".join(staying) == "11223345"
    assert "".join(alternating) == "12345123"


def test_an_answer_is_written_again_without_what_failed() -> None:
    chosen = subject(3, beyond=True)
    before = drafted(chosen).content
    claims = sentences(before)
    failed = claims[verdicts(chosen, *claims).index("UNSUPPORTED")]
    told = fence("claim 1", f"{failed}\nWhy it fails: no passage says it.", NONCE)
    after = sentences(drafted(chosen, fence("answer", before, NONCE), told).content)
    assert len(after) == SENTENCES
    assert [old for old, new in zip(claims, after, strict=True) if old != new] == [failed]
    assert verdicts(chosen, *after) == ["SUPPORTED"] * SENTENCES


def test_no_two_subjects_have_a_text_in_common() -> None:
    many = [subject(number, beyond=number % 2 == 0) for number in range(60)]
    texts = [text for chosen in many for text in (chosen.question, *chosen.passages)]
    assert len(set(texts)) == len(texts) == 60 * (PASSAGES + 1)
    # The retriever makes one passage of a text up to 800 characters.
    assert all(650 <= len(text) <= 800 for chosen in many for text in chosen.passages)
