"""The compose workflow as a compiled graph, and as something that the run engine can drive."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer
from langsmith import tracing_context
from pydantic import TypeAdapter

from errata_kit.errors import ErrataError
from errata_kit.passages import Passage
from services.orchestrator.runs.checkpoints import Checkpoints
from services.orchestrator.runs.events import (
    ApprovalRequested,
    DraftReviewed,
    DraftRevised,
    DraftWritten,
    Failure,
    NearestMiss,
    Outcome,
    PassagesRetrieved,
    Refusal,
    RunFinished,
    RunStarted,
    TraceEvent,
    outcome_of,
)
from services.orchestrator.runs.run import RunOptions
from services.orchestrator.runs.trace import RunTrace
from services.orchestrator.workflows.compose import nodes, policy
from services.orchestrator.workflows.compose.nodes import ComposeContext
from services.orchestrator.workflows.compose.state import ComposeRequest, ComposeState, ReviewedDraft
from services.orchestrator.workflows.ports import Generator, Judge, Retriever
from services.orchestrator.workflows.steps import step

_REQUEST: Final = TypeAdapter(ComposeRequest)
ComposeGraph = CompiledStateGraph[ComposeState, ComposeContext, ComposeState, ComposeState]


def build_graph(checkpointer: Checkpointer = None) -> ComposeGraph:
    """Compile the graph. Nodes do the work; every choice between edges is a function of policy.py."""
    graph = StateGraph(ComposeState, context_schema=ComposeContext)
    graph.add_node("retrieve", step(nodes.retrieve))
    graph.add_node("grade_passages", step(nodes.grade_passages))
    graph.add_node("write", step(nodes.write))
    graph.add_node("review", step(nodes.review))
    graph.add_node("revise", step(nodes.revise))
    graph.add_node("approve", nodes.approve)
    graph.add_node("finish", nodes.finish)
    graph.add_conditional_edges(START, policy.at_start, ["retrieve", "write"])
    graph.add_edge("retrieve", "grade_passages")
    graph.add_conditional_edges("grade_passages", policy.after_grading, ["write", "revise", "finish"])
    graph.add_edge("write", "review")
    graph.add_conditional_edges("review", policy.after_review, ["retrieve", "revise", "approve", "finish"])
    graph.add_edge("revise", "review")
    graph.add_conditional_edges("approve", policy.after_approval, ["retrieve", "revise", "finish"])
    graph.add_edge("finish", END)
    return graph.compile(checkpointer=checkpointer)


class ComposeWorkflow:
    """Writes one text a run."""

    name: Final = "compose"

    def __init__(self, retriever: Retriever, judge: Judge, generator: Generator, checkpoints: Checkpoints) -> None:
        self._retriever = retriever
        self._judge = judge
        self._generator = generator
        self._checkpoints = checkpoints
        self._graph = build_graph(checkpoints.saver)

    def dump(self, request: ComposeRequest) -> str:
        """The request as JSON."""
        return _REQUEST.dump_json(request, exclude_defaults=True).decode()

    def load(self, stored: str) -> ComposeRequest:
        """The request from its JSON."""
        return _REQUEST.validate_json(stored)

    def started(self, request: ComposeRequest, options: RunOptions) -> RunStarted:
        """The first event of a run."""
        return RunStarted(
            self.name,
            request.task,
            request.collection,
            request.settings,
            bool(request.draft),
            criteria=request.criteria,
            require_approval=request.require_approval,
            principal=options.principal,
            max_cost_micros=options.budget.max_cost_micros,
            max_tokens=options.budget.max_tokens,
        )

    async def run(self, request: ComposeRequest, trace: RunTrace) -> RunFinished | ApprovalRequested:
        """Go through the graph and return the terminal event, or what the run waits for. Raises what a step raised."""
        context = ComposeContext(self._retriever, self._judge, self._generator, trace)
        config, known = await self._checkpoints.config(trace.lease, policy.recursion_limit(request.settings))
        start = None if known else ComposeState(request=request)
        # Whatever the environment says: tasks and drafts are not for a tracing service outside.
        with tracing_context(enabled=False):
            values: Mapping[str, Any] = await self._graph.ainvoke(start, config, context=context)
        waits = "__interrupt__" in values
        state = ComposeState(**{name: value for name, value in values.items() if name != "__interrupt__"})
        return waiting(state) if waits else finished(state)

    def broken_off(self, request: ComposeRequest, trace: RunTrace, error: ErrataError) -> RunFinished:
        """The terminal event of a run that ended early, with the best draft so far. It is not approved."""
        return broken_off(request, trace.events, error)


def waiting(state: ComposeState) -> ApprovalRequested:
    """What a person is asked."""
    shown = policy.best(state.reviewed, state.since)
    return ApprovalRequested(state.approvals + 1, shown.revision, shown.draft, shown.review.overall_score)


def finished(state: ComposeState) -> RunFinished:
    """The terminal event of a run that reached the end of the graph."""
    outcome = policy.outcome(state)
    if outcome is Outcome.REFUSED_NO_EVIDENCE:
        misses = tuple(NearestMiss(item.passage, item.grade) for item in state.missed)
        return RunFinished(outcome=outcome, refusal=Refusal(state.searched, misses), retrievals=len(state.searched))
    shown = policy.best(state.reviewed, state.since)
    return RunFinished(
        outcome=outcome,
        draft=shown.draft,
        review=shown.review,
        approved=outcome is Outcome.APPROVED,
        shortfalls=shown.shortfalls,
        cited_passages=_cited(shown, state.passages),
        faithfulness_score=None if shown.faithfulness is None else shown.faithfulness.faithfulness_score,
        retrievals=len(state.searched),
        revisions=state.revisions,
        best_revision=shown.revision,
    )


def broken_off(request: ComposeRequest, stored: Sequence[TraceEvent], error: ErrataError) -> RunFinished:
    """What the recorded steps of a run amount to when an error ends it: the best reviewed draft, else the first one."""
    payloads = [event.payload for event in stored]
    drafts = {
        payload.revision if isinstance(payload, DraftRevised) else 0: payload.draft
        for payload in payloads
        if isinstance(payload, DraftWritten | DraftRevised)
    }
    reviewed = tuple(
        ReviewedDraft(payload.revision, drafts[payload.revision], payload.review, payload.faithfulness, payload.shortfalls)
        for payload in payloads
        if isinstance(payload, DraftReviewed)
    )
    # As in the state: what a person sent back is not offered again, once there is something else.
    since = max((item.revision for item in payloads if isinstance(item, DraftRevised) and item.feedback), default=0)
    shown = policy.best(reviewed, since if since < len(reviewed) else 0) if reviewed else None
    retrieved = [passage for payload in payloads if isinstance(payload, PassagesRetrieved) for passage in payload.passages]
    found = {passage.passage_id: passage for passage in retrieved}
    faithfulness = None if shown is None else shown.faithfulness
    return RunFinished(
        outcome=outcome_of(error),
        error=Failure(error.why, error.message, dict(error.metadata)),
        draft=drafts.get(0) if shown is None else shown.draft,
        review=None if shown is None else shown.review,
        shortfalls=() if shown is None else shown.shortfalls,
        cited_passages=() if shown is None else _cited(shown, tuple(found.values())),
        faithfulness_score=None if faithfulness is None else faithfulness.faithfulness_score,
        retrievals=sum(isinstance(payload, PassagesRetrieved) for payload in payloads),
        revisions=sum(isinstance(payload, DraftRevised) for payload in payloads),
        best_revision=0 if shown is None else shown.revision,
    )


def _cited(shown: ReviewedDraft, passages: Sequence[Passage]) -> tuple[Passage, ...]:
    cited = {citation.passage_id for citation in shown.draft.citations}
    return tuple(passage for passage in passages if passage.passage_id in cited)
