"""The answer workflow as a compiled graph, and as something that the run engine can drive."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer
from langsmith import tracing_context
from pydantic import TypeAdapter

from errata_kit.errors import ErrataError
from errata_kit.grades import Verdict
from errata_kit.passages import Answer, Passage
from services.orchestrator.runs.checkpoints import Checkpoints
from services.orchestrator.runs.events import (
    AnswerDrafted,
    AnswerGraded,
    AnswerRefined,
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
from services.orchestrator.workflows.answer import nodes, policy
from services.orchestrator.workflows.answer.nodes import AnswerContext
from services.orchestrator.workflows.answer.state import AnswerRequest, AnswerState, SkippableStep
from services.orchestrator.workflows.faithfulness import failing_claims
from services.orchestrator.workflows.ports import Generator, Judge, Retriever
from services.orchestrator.workflows.steps import step

NO_EVIDENCE_TEXT: Final = "The documents do not answer this question."
NO_TIME_TEXT: Final = "In the time that was given, the documents showed no answer to this question."
UNFAITHFUL_TEXT: Final = "No answer could be given that the documents support."

_REQUEST: Final = TypeAdapter(AnswerRequest)
AnswerGraph = CompiledStateGraph[AnswerState, AnswerContext, AnswerState, AnswerState]


def build_graph(checkpointer: Checkpointer = None) -> AnswerGraph:
    """Compile the graph. Nodes do the work; every choice between edges is a function of policy.py."""
    graph = StateGraph(AnswerState, context_schema=AnswerContext)
    graph.add_node("retrieve", step(nodes.retrieve))
    graph.add_node("grade_passages", step(nodes.grade_passages))
    graph.add_node("broaden_query", step(nodes.broaden_query))
    graph.add_node("generate", step(nodes.generate))
    graph.add_node("grade_answer", step(nodes.grade_answer))
    graph.add_node("refine_answer", step(nodes.refine_answer))
    graph.add_node("finish", nodes.finish)
    graph.add_edge(START, "retrieve")
    graph.add_edge("retrieve", "grade_passages")
    graph.add_conditional_edges("grade_passages", policy.after_grading, ["generate", "broaden_query", "finish"])
    graph.add_conditional_edges("broaden_query", policy.after_broadening, ["retrieve", "generate", "finish"])
    graph.add_conditional_edges("generate", policy.after_generation, ["grade_answer", "finish"])
    graph.add_conditional_edges("grade_answer", policy.after_grading_answer, ["refine_answer", "finish"])
    graph.add_conditional_edges("refine_answer", policy.after_generation, ["grade_answer", "finish"])
    graph.add_edge("finish", END)
    return graph.compile(checkpointer=checkpointer)


class AnswerWorkflow:
    """Answers one question a run."""

    name: Final = "answer"

    def __init__(
        self,
        retriever: Retriever,
        judge: Judge,
        generator: Generator,
        checkpoints: Checkpoints,
        segment_sentences: int = 0,
    ) -> None:
        """segment_sentences: sentences that are checked together while the rest is written; 0 checks the whole at the end."""
        self._segment_sentences = segment_sentences
        self._retriever = retriever
        self._judge = judge
        self._generator = generator
        self._checkpoints = checkpoints
        self._graph = build_graph(checkpoints.saver)

    def dump(self, request: AnswerRequest) -> str:
        """The request as JSON."""
        return _REQUEST.dump_json(request, exclude_defaults=True).decode()

    def load(self, stored: str) -> AnswerRequest:
        """The request from its JSON."""
        return _REQUEST.validate_json(stored)

    def started(self, request: AnswerRequest, options: RunOptions) -> RunStarted:
        """The first event of a run."""
        return RunStarted(
            self.name,
            request.question,
            request.collection,
            request.settings,
            bool(request.draft_answer),
            principal=options.principal,
            max_cost_micros=options.budget.max_cost_micros,
            max_tokens=options.budget.max_tokens,
            verified_only=request.verified_only,
        )

    async def run(self, request: AnswerRequest, trace: RunTrace) -> RunFinished:
        """Go through the graph and return the terminal event. Raises what a step raised."""
        context = AnswerContext(self._retriever, self._judge, self._generator, trace, self._segment_sentences)
        config, known = await self._checkpoints.config(trace.lease, policy.recursion_limit(request.settings))
        start = None if known else AnswerState(request=request, query=request.question)
        # Whatever the environment says: questions and passages are not for a tracing service outside.
        with tracing_context(enabled=False):
            async with contextlib.aclosing(context):
                values: Mapping[str, Any] = await self._graph.ainvoke(start, config, context=context)
        return finished(AnswerState(**values))

    def broken_off(self, request: AnswerRequest, trace: RunTrace, error: ErrataError) -> RunFinished:
        """The terminal event of a run that ended early: what was tried, and the text that nobody has released."""
        return broken_off(trace.events, error)


def broken_off(stored: Sequence[TraceEvent], error: ErrataError) -> RunFinished:
    """What the recorded steps of a run amount to when an error ends it. An unreleased text is never an answer."""
    payloads = [event.payload for event in stored]
    queries = tuple(payload.query for payload in payloads if isinstance(payload, PassagesRetrieved))
    text, grade = "", None
    for payload in payloads:
        if isinstance(payload, AnswerDrafted | AnswerRefined):
            text, grade = ("" if payload.answer.refusal else payload.answer.text), None
        elif isinstance(payload, AnswerGraded):
            grade = payload.grade
    failing = () if grade is None else tuple(grade.claim(claim_id) for claim_id in grade.problematic_claim_ids)
    return RunFinished(
        outcome=outcome_of(error),
        faithfulness_score=None if grade is None else grade.faithfulness_score,
        refusal=Refusal(queries, (), failing, text) if text else None,
        error=Failure(error.why, error.message, dict(error.metadata)),
        retrievals=len(queries),
        refinements=sum(isinstance(payload, AnswerRefined) for payload in payloads),
    )


def finished(state: AnswerState) -> RunFinished:
    """The terminal event of a run that reached the end of the graph."""
    outcome = policy.outcome(state)
    score = None if state.grade is None else state.grade.faithfulness_score
    released = outcome in {Outcome.ANSWERED, Outcome.ANSWERED_AFTER_REFINEMENT}
    return RunFinished(
        outcome=outcome,
        answer=state.answer if released else Answer(text=_refusal_text(outcome, state.skipped), refusal=True),
        cited_passages=_cited(state) if released else (),
        faithfulness_score=score,
        refusal=None if released else _refusal(state, outcome),
        retrievals=state.retrievals,
        refinements=state.refinements,
    )


def _refusal_text(outcome: Outcome, skipped: SkippableStep | None) -> str:
    if outcome is not Outcome.REFUSED_NO_EVIDENCE:
        return UNFAITHFUL_TEXT
    # Whoever has not looked everywhere must not say that there is nothing.
    return NO_TIME_TEXT if skipped is SkippableStep.RETRIEVAL else NO_EVIDENCE_TEXT


def _refusal(state: AnswerState, outcome: Outcome) -> Refusal:
    misses = tuple(NearestMiss(graded.passage, graded.grade) for graded in policy.nearest_misses(state))
    if outcome is not Outcome.REFUSED_UNFAITHFUL or state.grade is None:
        return Refusal(state.queries, misses, skipped_step=state.skipped)
    failing = failing_claims(state.grade, state.request.settings.faithfulness_threshold)
    rejected = "" if state.answer is None or state.answer.refusal else state.answer.text
    return Refusal(state.queries, misses, failing, rejected, state.skipped)


def _cited(state: AnswerState) -> tuple[Passage, ...]:
    # An answer from elsewhere cites nothing of ours: there the evidence of its claims stands in.
    cited = {citation.passage_id for citation in state.answer.citations} if state.answer else set()
    if not cited and state.grade is not None:
        supported = (claim for claim in state.grade.claims if claim.verdict is Verdict.SUPPORTED)
        cited = {evidence.passage_id for claim in supported for evidence in claim.evidence}
    return tuple(graded.passage for graded in policy.used_passages(state) if graded.passage.passage_id in cited)
