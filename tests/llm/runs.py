"""A run of the suite over gRPC, with what the model server said during it."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import grpc
from errata.errors.v1 import errors_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as pb2_grpc
from errata.orchestrator.v1 import trace_pb2
from errata.usage.v1 import usage_pb2

from tests.llm.conftest import ModelSuite
from tests.llm.relay import Exchange

RUN_SECONDS: Final = 500.0


@dataclass(frozen=True, slots=True)
class Run:
    """Events with the time of their arrival (`time.monotonic`), the status of the call, and the exchanges behind them."""

    events: tuple[tuple[float, trace_pb2.TraceEvent], ...]
    code: grpc.StatusCode
    exchanges: tuple[Exchange, ...]

    @property
    def finished(self) -> trace_pb2.RunFinished:
        """The terminal event, of which there is exactly one, at the end."""
        kinds = [event.WhichOneof("payload") for _, event in self.events]
        assert kinds.count("run_finished") == 1, kinds
        assert kinds[-1] == "run_finished", kinds
        return self.events[-1][1].run_finished

    def payloads(self, kind: str) -> list[Any]:
        """The payloads of one kind, in order."""
        return [getattr(event, kind) for _, event in self.events if event.WhichOneof("payload") == kind]

    def arrival(self, kind: str) -> float:
        """When the first payload of a kind arrived."""
        return next(moment for moment, event in self.events if event.WhichOneof("payload") == kind)

    def objects(self) -> Iterator[dict[str, Any]]:
        """Every JSON object in what the model wrote to a schema, inner ones too."""
        for exchange in self.exchanges:
            if exchange.schema and exchange.finish_reason == "stop":
                yield from _objects(json.loads(exchange.text))

    def paired(self) -> list[tuple[usage_pb2.ModelCall, Exchange]]:
        """Each model call of the run with the one exchange that it was: the same kind and the same tokens."""
        left, pairs = list(self.exchanges), []
        for call in self.finished.usage.model_calls:
            tokens = (call.input_tokens, call.cached_input_tokens, call.output_tokens)
            found = next((item for item in left if _tokens(item) == tokens), None)
            assert found is not None, f"{call} is none of {[_tokens(item) for item in left]}"
            left.remove(found)
            pairs.append((call, found))
        assert not left, f"{len(left)} requests are in no record"
        return pairs


class Following:
    """Reads a stream to its end in a thread."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.events: list[tuple[float, trace_pb2.TraceEvent]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(grpc.RpcError):
            for reply in self.call:
                self.events.append((time.monotonic(), reply.event))

    def code(self, seconds: float = RUN_SECONDS) -> grpc.StatusCode:
        """The status at the end."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"no end within {seconds} s"
        return self.call.code()  # type: ignore[no-any-return]  # the stub is untyped


def reason_name(number: int) -> str:
    """The name of an error's reason."""
    return str(errors_pb2.ErrorReason.Name(number))


def run(model_suite: ModelSuite, request: pb2.AskRequest | pb2.ComposeRequest) -> Run:
    """Make a run and follow it to its end."""
    first = len(model_suite.relay.exchanges)
    with model_suite.suite.channel("orchestrator") as channel:
        stub = pb2_grpc.OrchestratorServiceStub(channel)
        start = stub.Ask if isinstance(request, pb2.AskRequest) else stub.Compose
        following = Following(start(request, timeout=RUN_SECONDS))
        code = following.code()
    return Run(tuple(following.events), code, tuple(model_suite.relay.exchanges[first:]))


def ask(model_suite: ModelSuite, question: str, draft: str = "") -> pb2.AskRequest:
    """A question that costs little: one document is graded, any score is good enough, and only a draft is corrected, once."""
    limits = trace_pb2.AnswerSettings(top_k=1, relevance_threshold=0, max_retrievals=1, max_refinements=1 if draft else 0)
    return pb2.AskRequest(question=question, collection=model_suite.collection, draft_answer=draft, settings=limits)


def _tokens(exchange: Exchange) -> tuple[int, int, int] | None:
    counted = exchange.tokens
    return (counted.prompt, counted.cached, counted.completion) if counted else None


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(inner)
