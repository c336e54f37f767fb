"""What tests of durable runs stand on: replicas over the real judge and generator, the model double below them, and runs that
go through every step of their workflow.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import grpc
from errata.corpus.v1 import passage_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as pb2_grpc
from errata.orchestrator.v1 import trace_pb2
from errata.retriever.v1 import retriever_service_pb2 as retriever_pb2
from errata.retriever.v1 import retriever_service_pb2_grpc as retriever_grpc

from errata_kit.metrics import Metrics
from errata_kit.rpc.server import Service, run_service
from services.orchestrator.opening import bring_up_to_date
from services.orchestrator.settings import OrchestratorSettings
from services.retriever.settings import RetrieverSettings
from tests.harness.model_responder import Material, material_of, respond
from tests.harness.model_rules import ChatRequest, Exchange, Fault, Reply
from tests.harness.model_server import ModelServer
from tests.harness.postgres import PostgresServer
from tests.harness.replicas import Nursery, Plan, Replica
from tests.harness.services import generator, judge, passage, plain_settings, serving

LEASE_SECONDS: Final = 2.0
CALL_SECONDS: Final = 30.0
_ANSWERS_TO: Final = {
    "p1": "The moon goes around the earth.",
    "p2": "Bread is baked in an oven.",
    "p3": "Tidepool will keep the backup of a volume as long as 30 days.",
    "p4": "Tidepool can keep the backup of a volume for long in a second place.",
}
# The mark makes its claims those of one run: verdicts on equal ones are not paid twice.
_BAD_ANSWER: Final = (
    "Tidepool will keep the backup of a volume as long as 30 days in case {mark}. [1] "
    "Zebras dance in the garden every friday in case {mark}. [1]"
)
_MARK: Final = re.compile(r"\bq[0-9a-f]{10}\b")
_BAD_DRAFT: Final = "Zebras dance in the garden every friday."
_OPERATIONS: Final = {
    "PassageGradesOutput": "grade_passage",
    "BroadenedQueryOutput": "broaden_query",
    "ClaimVerdictsOutput": "check_claims",
    "DraftReviewOutput": "review_draft",
    "SentenceEditsOutput": "refine_answer",
}

ANSWER_STEPS: Final = (
    "run_started",
    "passages_retrieved",
    "passage_graded",
    "passage_graded",
    "query_broadened",
    "passages_retrieved",
    "passage_graded",
    "passage_graded",
    "answer_drafted",
    "claim_checked",
    "claim_checked",
    "answer_graded",
    "answer_refined",
    "claim_checked",
    "answer_graded",
    "run_finished",
)
COMPOSE_STEPS: Final = (
    "run_started",
    "passages_retrieved",
    "passage_graded",
    "passage_graded",
    "passage_graded",
    "draft_written",
    "draft_reviewed",
    "passages_retrieved",
    "passage_graded",
    "draft_revised",
    "draft_reviewed",
    "approval_requested",
    "approval_decided",
    "passages_retrieved",
    "passage_graded",
    "draft_revised",
    "draft_reviewed",
    "approval_requested",
    "approval_decided",
    "run_finished",
)
DECISIONS: Final = {1: trace_pb2.APPROVAL_DECISION_REVISE, 2: trace_pb2.APPROVAL_DECISION_APPROVE}
"""What the person says to each request of a compose run."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The model does not answer the first call of this operation, or only after some seconds.

    about: words of the prompt; midway: it stops in the middle of its words.
    """

    operation: str
    about: str = ""
    midway: bool = False
    seconds: float | None = None


@dataclass
class Desk:
    """The double's answers. Calls of a run are known by its mark; first texts hold a claim that nothing supports.

    long_texts: the marks of runs whose first answer is very long.
    """

    holds: dict[str, Hold] = field(default_factory=dict)
    long_texts: set[str] = field(default_factory=set)

    def respond(self, request: ChatRequest) -> Reply:
        """What the model says."""
        operation = operation_of(request)
        bad = {"generate_answer": _BAD_ANSWER, "write_draft": _BAD_DRAFT}.get(operation)
        if bad and (named := _MARK.search(request.text)):
            bad = bad.replace("{mark}", named[0])
        reply = Reply(bad) if bad else respond(request)
        if operation == "generate_answer" and any(mark in request.text for mark in self.long_texts):
            reply = Reply(f"{_ANSWERS_TO['p3'][:-1]}{' and then as long as another day' * 1900}. [1]")
        for mark, hold in self.holds.items():
            if mark in request.text and operation == hold.operation and hold.about in request.text:
                del self.holds[mark]
                if hold.seconds is not None:
                    return replace(reply, first_token_delay=hold.seconds)
                return replace(reply, fault=Fault.HANG_MID_BODY if hold.midway else Fault.HANG)
        return reply


@dataclass
class Library(retriever_grpc.RetrieverServiceServicer):
    """Finds nothing of use for a question about a version, and the right passages for a broader query."""

    holds: dict[str, asyncio.Event] = field(default_factory=dict)
    searches: list[str] = field(default_factory=list)

    async def Search(self, request: retriever_pb2.SearchRequest, context: Any) -> retriever_pb2.SearchResponse:  # noqa: N802
        self.searches.append(request.query)
        for mark, reached in list(self.holds.items()):
            if mark in request.query:
                del self.holds[mark]
                reached.set()
                await asyncio.Event().wait()
        ids = ("p1", "p2") if "2.1" in request.query else ("p3", "p4", "p1")
        found = [retriever_pb2.ScoredPassage(passage=_passage(item), score=1 / (1 + n)) for n, item in enumerate(ids)]
        return retriever_pb2.SearchResponse(passages=found, mode="SEARCH_MODE_SPARSE")


def operation_of(request: ChatRequest) -> str:
    """Which of the prompts it is."""
    if request.schema is not None:
        return _OPERATIONS[request.schema_name or ""]
    material = material_of(request)
    if material.revises:
        return "revise_draft"
    return "write_draft" if material.criteria else "generate_answer"


@dataclass
class Cluster:
    """Replicas on one database, over one judge, generator and retriever, which live in the test's own process."""

    nursery: Nursery
    model: ModelServer
    desk: Desk
    library: Library
    variables: Mapping[str, str]
    lease: float = LEASE_SECONDS
    _stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    _channels: dict[str, grpc.aio.Channel] = field(default_factory=dict)

    async def start(self, plan: Plan | None = None, **variables: str) -> Replica:
        """Start a replica; variables go on top of those that all have."""
        return await self.nursery.start({**self.variables, **variables}, plan)

    def stub(self, served: Replica) -> Any:
        """A client of one replica, without retries."""
        if served.target not in self._channels:
            options = [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
            self._channels[served.target] = grpc.aio.insecure_channel(served.target, options=options)
        return pb2_grpc.OrchestratorServiceStub(self._channels[served.target])

    async def asked(self, mark: str, operation: str) -> Exchange:
        """The first call of this operation for a run, once it has been made."""

        def is_it(call: Exchange) -> bool:
            request = call.request
            return isinstance(request, ChatRequest) and mark in request.text and operation_of(request) == operation

        return await self.model.wait_for(is_it, CALL_SECONDS)

    def calls(self, mark: str) -> list[Exchange]:
        """The model calls for a run, in the order of their arrival."""
        return [call for call in self.model.calls() if mark in call.request.text]

    def keys(self, mark: str) -> Counter[tuple[str, Material]]:
        """How often each different call was made for a run. Prompts that differ in their fences only are the same."""
        requests = [call.request for call in self.calls(mark)]
        return Counter((operation_of(item), material_of(item)) for item in requests if isinstance(item, ChatRequest))

    async def aclose(self) -> None:
        """Close the channels."""
        for channel in self._channels.values():
            await channel.close(None)


@contextlib.asynccontextmanager
async def cluster(nursery: Nursery, database: Mapping[str, str]) -> AsyncIterator[Cluster]:
    """Everything below the replicas, inside the block. database: the variables that name it."""
    desk, library = Desk(), Library()
    async with contextlib.AsyncExitStack() as stack:
        model = await stack.enter_async_context(ModelServer(default=desk.respond))
        below = {
            # It remembers verdicts, as it does by default: a run that is taken up does not pay for them again.
            "judge": await stack.enter_async_context(
                judge(model, timeout_seconds=CALL_SECONDS, batch_size=1, cache_entries=10_000)
            ),
            "generator": await stack.enter_async_context(generator(model, timeout_seconds=CALL_SECONDS)),
            "retriever": await stack.enter_async_context(serving(_retriever(library), plain_settings(), lambda _: None)),
        }
        targets = {f"ORCHESTRATOR_{name.upper()}_TARGET": served.target for name, served in below.items()}
        variables = {**database, **targets, "ORCHESTRATOR_LEASE_SECONDS": str(LEASE_SECONDS), "ERRATA_DRAIN_PAUSE_SECONDS": "0"}
        made = Cluster(nursery, model, desk, library, variables)
        stack.push_async_callback(made.aclose)
        yield made


@contextlib.contextmanager
def migrated(folder: Path, server: PostgresServer | None = None) -> Iterator[dict[str, str]]:
    """A new database, as variables: on the server, brought up to date, or else SQLite files in the folder."""
    if server is None:
        yield {"ERRATA_DATA_DIR": str(folder)}
        return
    with server.database() as url:
        settings: dict[str, Any] = {"database_url": url, "data_dir": folder}
        asyncio.run(bring_up_to_date(OrchestratorSettings(**settings)))
        yield {"ERRATA_DATABASE_URL": url, "ERRATA_DATA_DIR": str(folder)}


# --- runs -------------------------------------------------------------------------------------------------------------


def new_mark() -> str:
    """A word that the prompts of one run have and those of no other."""
    return f"q{uuid.uuid4().hex[:10]}"


def start_run(stub: Any, workflow: str, mark: str, request_id: str = "", seconds: float = CALL_SECONDS) -> Any:
    """Call Ask or Compose for a run that goes through every step and goes on when its caller leaves. The mark is who asks."""
    reach: dict[str, Any] = {"timeout": seconds, "metadata": (("errata-principal", mark),)}
    if workflow == "answer":
        asked = pb2.AskRequest(question=question(mark), on_disconnect="ON_DISCONNECT_CONTINUE", request_id=request_id)
        return stub.Ask(asked, **reach)
    task = f"Write how long tidepool can keep the backup of a volume, in case {mark}."
    request = pb2.ComposeRequest(task=task, collection="default", require_approval=True, on_disconnect="ON_DISCONNECT_CONTINUE")
    return stub.Compose(request, **reach)


def question(mark: str) -> str:
    """A question that needs a broader query."""
    return f"How long does tidepool 2.1 keep the backup of a volume in case {mark}?"


async def run_id_of(stub: Any, mark: str) -> str:
    """The run that a mark asked for, once it is stored."""
    async with asyncio.timeout(CALL_SECONDS):
        while not (listed := await stub.ListRuns(pb2.ListRunsRequest(principal=mark))).runs:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    [run] = listed.runs
    return str(run.run_id)


async def until(condition: Callable[[], Any], what: str, seconds: float = CALL_SECONDS) -> None:
    """Return once the condition holds; fail after this long."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - what it looks at tells nobody
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {seconds} s: {what}") from None


async def read(call: Any, seen: list[trace_pb2.TraceEvent]) -> None:
    """Collect the events of a stream until it ends, however it ends."""
    with contextlib.suppress(grpc.aio.AioRpcError):
        async for reply in call:
            seen.append(reply.event)


async def watch(stub: Any, run_id: str, decide: Callable[[int], Awaitable[None]] | None = None) -> list[trace_pb2.TraceEvent]:
    """The whole trace of a run, which must end well. decide: told about each request for a decision."""
    events = []
    async for reply in stub.WatchRun(pb2.WatchRunRequest(run_id=run_id), timeout=CALL_SECONDS):
        events.append(reply.event)
        if decide is not None and reply.event.WhichOneof("payload") == "approval_requested":
            await decide(reply.event.approval_requested.approval)
    return events


async def decide(stub: Any, run: tuple[str, str], approval: int, seconds: float = CALL_SECONDS) -> Any:
    """Hand over what the person says to a request. run: its id and its mark; seconds: the time for the call."""
    run_id, mark = run
    feedback = f"Say where it is kept in case {mark}." if DECISIONS[approval] == trace_pb2.APPROVAL_DECISION_REVISE else ""
    request = pb2.ResumeRunRequest(run_id=run_id, approval=approval, decision=DECISIONS[approval], feedback=feedback)
    return await stub.ResumeRun(request, timeout=seconds)


def stored_steps(events: Sequence[trace_pb2.TraceEvent]) -> list[str]:
    """The kinds of the stored events, changes of hands left out, and verdicts that a run told again because it had them made
    again: nothing rests on them.
    """
    stored = [event for event in events if event.sequence]
    kinds: list[str] = []
    told: set[tuple[int, str]] = set()
    for event in stored:
        kind = str(event.WhichOneof("payload"))
        verdict = (event.claim_checked.refinement, event.claim_checked.claim.text)
        if kind == "run_resumed" or (kind == "claim_checked" and verdict in told):
            continue
        told |= {verdict} if kind == "claim_checked" else set()
        kinds.append(kind)
    return kinds


def each_recorded_once(described: pb2.GetRunResponse, different: int) -> bool:
    """Whether a run has each of its different calls on record, and none twice.

    A call that the judge finished although the replica that had asked is dead is on record as saved: its answer was there when
    the run was taken up. Verdicts on claims that a later draft repeats are saved as well, without a call of their own.
    """
    made, saved = len(described.usage.model_calls), len(described.usage.saved_calls)
    return made <= different <= made + saved


def resumptions(events: Sequence[trace_pb2.TraceEvent]) -> list[trace_pb2.TraceEvent]:
    """The changes of hands."""
    return [event for event in events if event.WhichOneof("payload") == "run_resumed"]


def time_of(event: trace_pb2.TraceEvent) -> float:
    """When it was recorded, in seconds since 1970."""
    return event.create_time.ToNanoseconds() / 1e9


def _passage(passage_id: str) -> passage_pb2.Passage:
    return passage(passage_id, _ANSWERS_TO[passage_id])


def _retriever(library: Library) -> Service:
    return Service(
        name="retriever",
        port=0,
        metrics_port=0,
        proto_name="errata.retriever.v1.RetrieverService",
        register=lambda server: retriever_grpc.add_RetrieverServiceServicer_to_server(library, server),
        metrics=Metrics(),
    )


def main() -> None:
    """Run the retriever as a process of its own, for a test that kills it."""
    settings = RetrieverSettings()  # type: ignore[call-arg]  # the environment gives the values

    async def build() -> Service:
        return replace(_retriever(Library()), port=settings.port)

    run_service(build, "retriever", settings)
