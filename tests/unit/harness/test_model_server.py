"""The model double itself: its wire format, its rules, its journal and its speed."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, ConfigDict, Field

from tests.harness.model_faults import COMPLETION_FAULTS, HTTP_FAULTS, SCRIPTS, TRANSPORT_FAULTS
from tests.harness.model_responder import material_of
from tests.harness.model_rules import ChatRequest as ParsedChat
from tests.harness.model_rules import Endpoint, Fault, Message, Reply, Rule, TokenCounts, overlapping
from tests.harness.model_schema import instance_of
from tests.harness.model_server import ModelServer, with_latency


class Evidence(BaseModel):
    model_config = ConfigDict(extra="forbid")
    passage_id: str
    quote: str = Field(min_length=1)


class Claim(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str
    verdict: str = Field(json_schema_extra={"enum": ["CONTRADICTED", "UNSUPPORTED", "SUPPORTED"]})
    evidence: list[Evidence]


class AnswerGrade(BaseModel):
    model_config = ConfigDict(extra="forbid")
    claims: list[Claim]
    suggestion: str | None


class Odd(BaseModel):
    model_config = ConfigDict(extra="forbid")
    level: int = Field(ge=3, le=5)
    share: float = Field(gt=0, lt=1)
    names: list[str] = Field(min_length=2)
    code: str = Field(min_length=4, max_length=6)
    nested: Evidence
    maybe: Evidence | None


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=5, trust_env=False) as client:
        yield client


def chat(text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": text}], **more}


def structured(model: type[BaseModel], text: str) -> dict[str, Any]:
    schema = {"name": model.__name__, "schema": model.model_json_schema(), "strict": True}
    return chat(text, response_format={"type": "json_schema", "json_schema": schema})


async def ask(http: httpx.AsyncClient, server: ModelServer, body: dict[str, Any]) -> httpx.Response:
    return await http.post(f"{server.base_url}/chat/completions", json=body)


def events(response: httpx.Response) -> list[Any]:
    lines = [line[6:] for line in response.text.split("\n\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


async def test_a_completion_carries_content_usage_and_model(http: httpx.AsyncClient) -> None:
    async with ModelServer([Rule(Reply("hi there", usage=TokenCounts(10, 3, 4)))]) as server:
        body = (await ask(http, server, chat())).json()
    assert body["choices"][0]["message"]["content"] == "hi there"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
    assert body["model"] == "gpt-4o-mini"


async def test_a_stream_sends_tokens_then_usage_then_done(http: httpx.AsyncClient) -> None:
    wanted = chat(stream=True, stream_options={"include_usage": True})
    async with ModelServer([Rule(Reply("one two  three"))]) as server:
        sent = events(await ask(http, server, wanted))
    deltas = [event["choices"][0]["delta"].get("content", "") for event in sent[:-2]]
    assert "".join(deltas) == "one two  three" and len(deltas) == 5
    assert sent[-2]["choices"] == [] and sent[-2]["usage"]["total_tokens"] > 0
    assert sent[-1] == "[DONE]"


async def test_rules_match_in_order_and_run_out(http: httpx.AsyncClient) -> None:
    rules = [
        Rule(Reply("other model"), model="gpt-4o"),
        Rule(Reply("first"), contains="needle", times=1),
        Rule(Reply("second"), matches=r"need\w+"),
        Rule(Reply("by schema"), schema="Odd"),
        Rule(Reply("streams only"), stream=True),
    ]
    async with ModelServer(rules) as server:
        contents = []
        needle, by_schema = chat("a needle"), structured(Odd, "x")
        for body in (needle, needle, by_schema, chat("nothing", model="gpt-4o")):
            answer = (await ask(http, server, body)).json()
            contents.append(answer["choices"][0]["message"]["content"])
        await ask(http, server, chat("nothing of that"))
        assert contents == ["first", "second", "by schema", "other model"]
        assert [exchange.rule for exchange in server.journal][-1] == "default"


async def test_an_unknown_schema_gets_a_valid_instance(http: httpx.AsyncClient) -> None:
    async with ModelServer() as server:
        body = (await ask(http, server, structured(Odd, "anything"))).json()
    odd = Odd.model_validate_json(body["choices"][0]["message"]["content"])
    assert odd.level == 3 and len(odd.names) == 2 and odd.maybe is None
    assert instance_of(Odd.model_json_schema(), {"level": 1.0})["level"] == 5


async def test_the_default_responder_finds_the_claim_without_a_source(http: httpx.AsyncClient) -> None:
    prompt = (
        "<<<passage p7 | ab12>>>\nThe cache keeps entries for ten minutes.\n<<<end passage p7 | ab12>>>\n"
        "<<<answer | ab12>>>\nThe cache keeps entries ten minutes [1]. Penguins configure lasers.\n"
        "<<<end answer | ab12>>>"
    )
    async with ModelServer() as server:
        body = (await ask(http, server, structured(AnswerGrade, prompt))).json()
    grade = AnswerGrade.model_validate_json(body["choices"][0]["message"]["content"])
    assert [claim.verdict for claim in grade.claims] == ["SUPPORTED", "UNSUPPORTED"]
    assert grade.claims[0].evidence[0].passage_id == "p7"
    assert "Penguins" in (grade.suggestion or "")


async def test_text_without_a_schema_cites_the_passages(http: httpx.AsyncClient) -> None:
    prompt = (
        "<<<question | 1>>>\nHow long are cache entries kept?\n<<<end question | 1>>>\n"
        "<<<passage a | 1>>>\nApples are red.\n<<<end passage a | 1>>>\n"
        "<<<passage b | 1>>>\nCache entries are kept ten minutes.\n<<<end passage b | 1>>>"
    )
    async with ModelServer() as server:
        body = (await ask(http, server, chat(prompt))).json()
    assert body["choices"][0]["message"]["content"].startswith("Cache entries are kept ten minutes. [2]")
    material = material_of(ParsedChat("m", (Message("user", prompt),)))
    assert [passage_id for passage_id, _ in material.passages] == ["a", "b"]


async def test_embeddings_are_unit_vectors_in_both_encodings(http: httpx.AsyncClient) -> None:
    wanted = {"model": "e", "input": ["red apple", "red apples", "red apple"], "dimensions": 64}
    async with ModelServer() as server:
        url = f"{server.base_url}/embeddings"
        plain = (await http.post(url, json=wanted)).json()
        packed = (await http.post(url, json={**wanted, "encoding_format": "base64"})).json()
        missing = await http.post(url, json={"model": "e"})
    rows = [row["embedding"] for row in plain["data"]]
    assert rows[0] == rows[2] != rows[1] and len(rows[0]) == 64
    assert sum(number * number for number in rows[0]) == pytest.approx(1, abs=1e-6)
    unpacked = struct.unpack("<64f", base64.b64decode(packed["data"][0]["embedding"]))
    assert list(unpacked) == pytest.approx(rows[0])
    assert plain["usage"]["total_tokens"] > 0 and missing.status_code == 400


async def test_the_journal_tells_who_closed(http: httpx.AsyncClient) -> None:
    async with ModelServer([Rule(Reply(fault=Fault.HANG), times=1)]) as server:
        call = asyncio.create_task(ask(http, server, chat()))
        hung = await server.wait_for(lambda exchange: exchange.open)
        call.cancel()
        gone = await server.wait_for(lambda exchange: exchange.closed_by_client, timeout=1)
        await ask(http, server, chat())
        with pytest.raises(TimeoutError):
            await server.wait_for(lambda exchange: exchange.rule == "never", timeout=0.01)
        assert gone is hung and gone.finished is not None
        assert [exchange.closed_by_client for exchange in server.calls()] == [True, False]
        assert not server.calls(Endpoint.EMBEDDINGS)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", sorted({**HTTP_FAULTS, **TRANSPORT_FAULTS, **COMPLETION_FAULTS}))
async def test_every_fault_leaves_the_server_ready(http: httpx.AsyncClient, name: str, streamed: bool) -> None:
    reply = {**HTTP_FAULTS, **TRANSPORT_FAULTS, **COMPLETION_FAULTS}[name]
    async with ModelServer([Rule(reply, times=1)]) as server:
        try:
            async with asyncio.timeout(0.3):
                answer: httpx.Response | None = await ask(http, server, chat(stream=streamed))
        except (TimeoutError, httpx.HTTPError):
            answer = None
        if name in HTTP_FAULTS:
            assert answer is not None and answer.status_code == reply.status and "error" in answer.json()
        if name.startswith(("close", "hang")):
            assert answer is None
        assert (await ask(http, server, chat())).status_code == 200


async def test_token_timing_is_kept(http: httpx.AsyncClient) -> None:
    reply = Reply("a b c d e", first_token_delay=0.05, tokens_per_second=100)
    async with ModelServer([Rule(reply)]) as server:
        for streamed in (False, True):
            started = time.monotonic()
            await ask(http, server, chat(stream=streamed))
            assert 0.09 <= time.monotonic() - started < 0.5


async def test_malformed_requests_and_unknown_paths_are_refused(http: httpx.AsyncClient) -> None:
    async with ModelServer() as server:
        bad = await http.post(f"{server.base_url}/chat/completions", content=b"{")
        no_messages = await http.post(f"{server.base_url}/chat/completions", json={})
        lost = await http.get(f"{server.base_url}/elsewhere")
        models = await http.get(f"{server.base_url}/models")
        assert [bad.status_code, no_messages.status_code, lost.status_code] == [400, 400, 404]
        assert models.json()["data"] and not server.journal


async def test_latency_overlaps_over_connections(http: httpx.AsyncClient) -> None:
    slow = with_latency(lambda _: Reply("x"), 0.1)
    async with ModelServer(default=slow) as server:
        await asyncio.gather(*(ask(http, server, chat()) for _ in range(8)))
        assert overlapping(server.journal) == 8


async def test_answers_two_thousand_calls_a_second() -> None:
    body = json.dumps(chat()).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body

    async def caller(port: int, calls: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(calls):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
        writer.close()
        await writer.wait_closed()

    async with ModelServer([Rule(Reply("ok"))]) as server:
        port = int(server.base_url.split(":")[2].split("/")[0])
        started = time.process_time()
        await asyncio.gather(*(caller(port, 250) for _ in range(8)))
        # CPU time of client and server together, so that a busy machine does not fail the test.
        assert 2000 / (time.process_time() - started) >= 2000


async def test_runs_as_a_process(http: httpx.AsyncClient) -> None:
    import sys

    command = [sys.executable, "-m", "tests.harness.model_server", "--script", "flaky"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        statuses = [(await http.post(f"{url}/chat/completions", json=chat())).status_code for _ in range(2)]
        with pytest.raises(httpx.HTTPError):
            await http.post(f"{url}/chat/completions", json=chat())
        answered = await http.post(f"{url}/chat/completions", json=chat())
    finally:
        process.terminate()
        await process.communicate()
    assert statuses == [429, 503] and answered.status_code == 200


@pytest.mark.parametrize("name", sorted(SCRIPTS))
async def test_every_script_answers_or_fails_on_purpose(name: str) -> None:
    assert all(isinstance(rule, Rule) for rule in SCRIPTS[name]())
