"""ErrataClient: one object for the four services."""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from dataclasses import astuple, dataclass
from typing import Any, Final, Literal, Self

import grpc
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as pb2_grpc
from errata.orchestrator.v1 import trace_pb2

from errata_client.calls import RUN_SECONDS, Caller, Retries, all_pages
from errata_client.credentials import Credentials, may_travel
from errata_client.following import Beginning, Following, RunEvents
from errata_client.generator import Generator
from errata_client.judge import Judge
from errata_client.results import Answer, Composition
from errata_client.retriever import Retriever
from errata_kit.errors import ErrataError
from errata_kit.rpc.channels import open_channel
from errata_kit.rpc.tls import TlsFiles

_DEFAULT_RETRIES: Final = Retries()
Decision = Literal["approve", "reject", "revise"]
_DECISIONS: Final[dict[str, trace_pb2.ApprovalDecision]] = {
    "approve": trace_pb2.APPROVAL_DECISION_APPROVE,
    "reject": trace_pb2.APPROVAL_DECISION_REJECT,
    "revise": trace_pb2.APPROVAL_DECISION_REVISE,
}


@dataclass(frozen=True, slots=True)
class Targets:
    """Where the services are, as gRPC targets: host:port, or dns:///name:port for several replicas.

    A client needs those of the services that it calls; most call the orchestrator, and the retriever to bring documents.
    """

    orchestrator: str = "127.0.0.1:50051"
    retriever: str = "127.0.0.1:50052"
    judge: str = "127.0.0.1:50053"
    generator: str = "127.0.0.1:50054"


class ErrataClient:
    """A client of Errata, open inside an `async with` block.

        async with ErrataClient("dns:///errata-orchestrator:50051", credentials=ApiKey(key), tls=Tls(ca=path)) as errata:
            answer = await errata.answer("How long is a backup kept?")

    target: the orchestrator's, or the Targets of several services; channels connect on their first call. credentials: None
    where the services take every caller. They are shown over TLS only, unless every target is on loopback or plaintext says
    that something else, such as a mesh, encrypts the way. tls: PEM files, read again when they change; without ca the public
    authorities are trusted, and without cert and key the client shows no certificate. Use a client from one event loop, by as
    many tasks as you like.

    Messages are those of the contract, typed by the generated stubs: a second set of classes would have to be kept equal to
    them by hand, and would hide fields that a newer service sends. Only the end of a run is given a class of its own.

    Every call has a deadline (`timeout`, in seconds), and every failure is an ErrataError with its reason in `why`.
    """

    def __init__(
        self,
        target: str | Targets = Targets(),
        *,
        credentials: Credentials | None = None,
        tls: TlsFiles | None = None,
        retries: Retries = _DEFAULT_RETRIES,
        plaintext: bool = False,
    ) -> None:
        """Raises ValueError for credentials that would leave this machine unencrypted. The first call raises StartFailed for
        TLS files that are no good.
        """
        self._targets = Targets(target, "", "", "") if isinstance(target, str) else target
        used = [name for name in astuple(self._targets) if name]
        if tls is None and not plaintext and not may_travel(credentials, used):
            raise ValueError("credentials would be sent unencrypted: give tls, or plaintext=True if the way is encrypted")
        self._credentials = credentials
        self._tls = tls
        self._retries = retries
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._following: set[Following] = set()
        self._closed = True

    async def __aenter__(self) -> Self:
        self._closed = False
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Leave the runs that are still read, which cancels those that were started here, and close the channels."""
        self._closed = True
        await asyncio.gather(*(following.leave() for following in self._following))
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()

    @property
    def retriever(self) -> Retriever:
        """Documents in, passages out."""
        return Retriever(self._caller("retriever"), self._channel("retriever"))

    @property
    def judge(self) -> Judge:
        """Grades without a run."""
        return Judge(self._caller("judge"), self._channel("judge"))

    @property
    def generator(self) -> Generator:
        """Texts without a run."""
        return Generator(self._caller("generator"), self._channel("generator"))

    def ask(
        self,
        question: str | pb2.AskRequest,
        *,
        collection: str = "",
        settings: trace_pb2.AnswerSettings | None = None,
        request_id: str = "",
        keep_going: bool = False,
        timeout: float = RUN_SECONDS,
    ) -> RunEvents:
        """Answer a question, and follow the run.

        question: or a whole AskRequest, for a filter, a draft answer or a budget; then the other fields stand in it.
        request_id: makes the start idempotent; one is made up when there is none, so that a start is safely repeated.
        keep_going: leaving early, or the deadline, does not cancel the run; on_disconnect CONTINUE in a request says the same.
        With on_disconnect CANCEL a lost connection is not taken up again, and the server cancels the run.
        """
        request = pb2.AskRequest()
        if isinstance(question, pb2.AskRequest):
            request.CopyFrom(question)
        else:
            request.MergeFrom(pb2.AskRequest(question=question, collection=collection, settings=settings))
        return self._start(self._stub().Ask, request, request_id, keep_going, timeout)

    async def answer(
        self,
        question: str | pb2.AskRequest,
        *,
        collection: str = "",
        settings: trace_pb2.AnswerSettings | None = None,
        request_id: str = "",
        keep_going: bool = False,
        timeout: float = RUN_SECONDS,
    ) -> Answer:
        """The answer to a question, or the refusal; arguments as for `ask`.

        Raises:
            ErrataError: the run failed, was cancelled, ran out of time or could not be started; metadata has its run_id.
        """
        events = self.ask(
            question,
            collection=collection,
            settings=settings,
            request_id=request_id,
            keep_going=keep_going,
            timeout=timeout,
        )
        finished = await _end(events)
        return Answer.of(events.run_id, finished)

    def compose(
        self,
        task: str | pb2.ComposeRequest,
        *,
        collection: str = "",
        require_approval: bool = False,
        request_id: str = "",
        keep_going: bool = False,
        timeout: float = RUN_SECONDS,
    ) -> RunEvents:
        """Write a text, have it reviewed and revised, and follow the run.

        task: or a whole ComposeRequest, for criteria, limits, a draft or a budget; then the other fields stand in it. Leaving
        a run that waits for a person's decision does not cancel it. The other arguments are those of `ask`.
        """
        request = pb2.ComposeRequest()
        if isinstance(task, pb2.ComposeRequest):
            request.CopyFrom(task)
        else:
            request.MergeFrom(pb2.ComposeRequest(task=task, collection=collection, require_approval=require_approval))
        return self._start(self._stub().Compose, request, request_id, keep_going, timeout)

    async def composition(
        self,
        task: str | pb2.ComposeRequest,
        *,
        collection: str = "",
        request_id: str = "",
        keep_going: bool = False,
        timeout: float = RUN_SECONDS,
    ) -> Composition:
        """The text for a task, approved or not; arguments as for `compose`.

        Raises:
            ErrataError: the run failed, was cancelled, ran out of time or could not be started; metadata has its run_id.
        """
        events = self.compose(task, collection=collection, request_id=request_id, keep_going=keep_going, timeout=timeout)
        finished = await _end(events)
        return Composition.of(events.run_id, finished)

    def watch_run(self, run_id: str, *, after: int = 0, verified_only: bool = False, timeout: float = RUN_SECONDS) -> RunEvents:
        """Replay the events of a run behind a sequence number, and follow it to its end. Leaving it cancels nothing.

        verified_only: without the words of drafts and of claims that did not pass.
        """
        request = pb2.WatchRunRequest(run_id=run_id, after_sequence=after, verified_only=verified_only)
        return self._follow(Beginning(self._stub().WatchRun, request), timeout)

    async def get_run(
        self,
        run_id: str,
        *,
        trace: bool = True,
        timeout: float | None = None,
    ) -> pb2.GetRunResponse:
        """A run with its end, its grades and its costs; with trace, its events, too."""
        request = pb2.GetRunRequest(run_id=run_id, without_trace=not trace)
        reply: pb2.GetRunResponse = await self._caller("orchestrator").unary(self._stub().GetRun, request, timeout)
        return reply

    def list_runs(
        self, query: pb2.ListRunsRequest | None = None, *, limit: int | None = None, timeout: float | None = None
    ) -> AsyncGenerator[pb2.Run, None]:
        """Runs, newest first; at most limit. query: which ones. timeout: for each page."""
        request = query or pb2.ListRunsRequest()
        return all_pages(self._caller("orchestrator"), self._stub().ListRuns, request, "runs", limit, timeout)

    async def cancel_run(self, run_id: str, *, timeout: float | None = None) -> pb2.Run:
        """Stop a run, and return it once it has ended. One that has ended stays as it is."""
        reply = await self._caller("orchestrator").unary(self._stub().CancelRun, pb2.CancelRunRequest(run_id=run_id), timeout)
        run: pb2.Run = reply.run
        return run

    async def resume_run(
        self,
        run_id: str,
        decision: Decision,
        *,
        feedback: str = "",
        approval: int = 0,
        timeout: float | None = None,
    ) -> pb2.Run:
        """Hand over a person's decision on the draft that a run waits with; the run goes on at once.

        feedback: what is to be changed, needed for "revise". approval: which request is answered, as in ApprovalRequested, so
        that nobody decides on a draft that came later; 0 for the one that waits.
        """
        request = pb2.ResumeRunRequest(run_id=run_id, approval=approval, decision=_DECISIONS[decision], feedback=feedback)
        reply = await self._caller("orchestrator").unary(self._stub().ResumeRun, request, timeout)
        run: pb2.Run = reply.run
        return run

    def _start(
        self, method: Any, request: pb2.AskRequest | pb2.ComposeRequest, request_id: str, keep_going: bool, seconds: float
    ) -> RunEvents:
        request.request_id = request_id or request.request_id or str(uuid.uuid4())
        wish = request.on_disconnect
        # A dropped network looks to the server like a caller that has gone: the run has to outlive it to be taken up again.
        request.on_disconnect = wish or pb2.ON_DISCONNECT_CONTINUE
        cancels = not keep_going and wish != pb2.ON_DISCONNECT_CONTINUE
        return self._follow(Beginning(method, request, cancels, wish != pb2.ON_DISCONNECT_CANCEL), seconds)

    def _follow(self, beginning: Beginning, seconds: float) -> RunEvents:
        following = Following(self._caller("orchestrator"), self._stub(), beginning, seconds)
        return RunEvents(following, following.events(self._following.add, self._following.discard))

    def _stub(self) -> Any:
        return pb2_grpc.OrchestratorServiceStub(self._channel("orchestrator"))

    def _caller(self, service: str) -> Caller:
        return Caller(service, self._credentials, self._retries)

    def _channel(self, service: str) -> grpc.aio.Channel:
        if self._closed:
            raise RuntimeError("the client is used outside its async with block")
        target: str = getattr(self._targets, service)
        if not target:
            raise ValueError(f"the client was not told where the {service} is: give it Targets({service}=…)")
        if service not in self._channels:
            self._channels[service] = open_channel(target, self._tls)
        return self._channels[service]


async def _end(events: RunEvents) -> trace_pb2.RunFinished:
    async with events:
        async for _ in events:
            pass
    if events.finished is None:
        raise ErrataError("The run's events ended before the run did", metadata={"run_id": events.run_id})
    return events.finished
