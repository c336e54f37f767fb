"""What a request of the chat client carries: a schema in few words, and the same headers whichever way it is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum

import pytest

from errata_kit.llm.chat import ModelOutput
from tests.contract.model_clients import chat_model, collect, request
from tests.harness.model_rules import ChatRequest, Reply, Rule
from tests.harness.model_server import ModelServer

# What differs by nature, and what the library tells its makers about its own ways of sending.
OF_ONE_KIND = {"content-length", "x-stainless-retry-count", "x-stainless-async"}


class Severity(StrEnum):
    """How bad, for those who read the code."""

    MINOR = "MINOR"
    MAJOR = "MAJOR"


class Place(ModelOutput):
    """Where, for those who read the code."""

    line: int


class Issue(ModelOutput):
    """One issue, for those who read the code."""

    title: str
    description: str
    severity: Severity
    start: Place
    end: Place


class Issues(ModelOutput):
    """Every issue, for those who read the code."""

    issues: list[Issue]


class Chapter(ModelOutput):
    """A part of a whole, for those who read the code."""

    title: str
    parts: list[Chapter]


async def sent_for(schema: type[ModelOutput], answer: dict[str, object]) -> Mapping[str, object]:
    """The schema that is sent for a class, which an answer fits."""
    async with ModelServer([Rule(Reply(json.dumps(answer)))]) as server, chat_model(server) as model:
        completion = await model.complete(request(), schema)
        asked = server.journal[0].request
    assert completion.value == schema.model_validate(answer)
    assert isinstance(asked, ChatRequest) and asked.schema is not None
    assert asked.raw["response_format"]["type"] == "json_schema"
    assert asked.raw["response_format"]["json_schema"]["strict"] is True
    return asked.schema


async def test_a_schema_is_sent_in_few_words_with_every_property() -> None:
    issue = {
        "title": "Typo",
        "description": "A letter is missing.",
        "severity": "MINOR",
        "start": {"line": 1},
        "end": {"line": 2},
    }
    place = {"$ref": "#/$defs/Place"}
    properties = {
        "title": {"type": "string"},
        "description": {"type": "string"},
        "severity": {"enum": ["MINOR", "MAJOR"], "type": "string"},
        "start": place,
        "end": place,
    }
    assert await sent_for(Issues, {"issues": [issue]}) == {
        "$defs": {"Place": closed({"line": {"type": "integer"}})},
        **closed({"issues": {"type": "array", "items": closed(properties)}}),
    }


async def test_a_schema_that_holds_itself_keeps_its_definition() -> None:
    part = {"title": {"type": "string"}, "parts": {"type": "array", "items": {"$ref": "#/$defs/Chapter"}}}
    sent = await sent_for(Chapter, {"title": "All", "parts": [{"title": "One", "parts": []}]})
    definitions = sent["$defs"]
    assert isinstance(definitions, dict) and definitions["Chapter"] == closed(part)


def closed(properties: dict[str, object]) -> dict[str, object]:
    """An object with these properties and no other, as strict output wants it."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


async def test_a_whole_answer_is_asked_for_with_the_headers_of_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-house")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-house")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "x-gateway: north")
    answer = Rule(Reply('{"issues": []}'))
    async with ModelServer([answer]) as server, chat_model(server, api_key="sk-house") as model:
        await model.complete(request(), Issues)
        await collect(model, request(), [])
        whole, streamed = (
            {name: value for name, value in exchange.headers.items() if name not in OF_ONE_KIND} for exchange in server.journal
        )
    assert whole == streamed
    assert whole["authorization"] == "Bearer sk-house"
    assert whole["openai-organization"] == "org-house" and whole["openai-project"] == "proj-house"
    assert whole["x-gateway"] == "north" and whole["content-type"] == "application/json"
    assert whole["accept-encoding"] == "identity"


async def test_a_header_of_ones_own_stands_for_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Basic aG91c2U=")
    async with ModelServer([Rule(Reply('{"issues": []}'))]) as server, chat_model(server) as model:
        await model.complete(request(), Issues)
        await collect(model, request(), [])
        sent = [exchange.headers["authorization"] for exchange in server.journal]
    assert sent == ["Basic aG91c2U="] * 2
