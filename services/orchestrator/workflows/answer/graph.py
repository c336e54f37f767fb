"""The answer workflow as a compiled graph, and as something that the run engine can drive."""

from collections.abc import Mapping
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer
from langsmith import tracing_context

from errata_kit.grades import Verdict
from errata_kit.passages import Answer, Passage
from services.orchestrator.runs.events import NearestMiss, Outcome, Refusal, RunFinished, RunStarted
from services.orchestrator.workflows.answer import nodes, policy
from services.orchestrator.workflows.answer.nodes import AnswerContext, Emit
from services.orchestrator.workflows.answer.ports import Generator, Judge, Retriever
from services.orchestrator.workflows.answer.state import AnswerRequest, AnswerState

NO_EVIDENCE_TEXT: Final = "The documents do not answer this question."
UNFAITHFUL_TEXT: Final = "No answer could be given that the documents support."

AnswerGraph = CompiledStateGraph[AnswerState, AnswerContext, AnswerState, AnswerState]


def build_graph(checkpointer: Checkpointer = None) -> AnswerGraph:
    """Compile the graph. Nodes do the work; every choice between edges is a function of policy.py."""
    graph = StateGraph(AnswerState, context_schema=AnswerContext)
    graph.add_node("retrieve", nodes.retrieve)
    graph.add_node("grade_passages", nodes.grade_passages)
    graph.add_node("broaden_query", nodes.broaden_query)
    graph.add_node("generate", nodes.generate)
    graph.add_node("grade_answer", nodes.grade_answer)
    graph.add_node("refine_answer", nodes.refine_answer)
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

    def __init__(self, retriever: Retriever, judge: Judge, generator: Generator, checkpointer: Checkpointer = None) -> None:
        self._retriever = retriever
        self._judge = judge
        self._generator = generator
        self._graph = build_graph(checkpointer)

    def started(self, request: AnswerRequest) -> RunStarted:
        """The first event of a run."""
        return RunStarted(self.name, request.question, request.collection, request.settings, bool(request.draft_answer))

    async def run(self, run_id: str, request: AnswerRequest, emit: Emit) -> RunFinished:
        """Go through the graph and return the terminal event. Raises what a step raised."""
        context = AnswerContext(self._retriever, self._judge, self._generator, emit)
        config = RunnableConfig(recursion_limit=policy.recursion_limit(request.settings), configurable={"thread_id": run_id})
        start = AnswerState(request=request, query=request.question)
        # Whatever the environment says: questions and passages are not for a tracing service outside.
        with tracing_context(enabled=False):
            values: Mapping[str, Any] = await self._graph.ainvoke(start, config, context=context)
        return finished(AnswerState(**values))


def finished(state: AnswerState) -> RunFinished:
    """The terminal event of a run that reached the end of the graph."""
    outcome = policy.outcome(state)
    score = None if state.grade is None else state.grade.faithfulness_score
    released = outcome in {Outcome.ANSWERED, Outcome.ANSWERED_AFTER_REFINEMENT}
    return RunFinished(
        outcome=outcome,
        answer=state.answer if released else Answer(text=_refusal_text(outcome), refusal=True),
        cited_passages=_cited(state) if released else (),
        faithfulness_score=score,
        refusal=None if released else _refusal(state, outcome),
        retrievals=state.retrievals,
        refinements=state.refinements,
        model_calls=state.model_calls,
    )


def _refusal_text(outcome: Outcome) -> str:
    return NO_EVIDENCE_TEXT if outcome is Outcome.REFUSED_NO_EVIDENCE else UNFAITHFUL_TEXT


def _refusal(state: AnswerState, outcome: Outcome) -> Refusal:
    misses = tuple(NearestMiss(graded.passage, graded.grade) for graded in policy.nearest_misses(state))
    if outcome is not Outcome.REFUSED_UNFAITHFUL or state.grade is None:
        return Refusal(state.queries, misses)
    failing = policy.failing_claims(state.grade, state.request.settings)
    rejected = "" if state.answer is None or state.answer.refusal else state.answer.text
    return Refusal(state.queries, misses, failing, rejected)


def _cited(state: AnswerState) -> tuple[Passage, ...]:
    # An answer from elsewhere cites nothing of ours: there the evidence of its claims stands in.
    cited = {citation.passage_id for citation in state.answer.citations} if state.answer else set()
    if not cited and state.grade is not None:
        supported = (claim for claim in state.grade.claims if claim.verdict is Verdict.SUPPORTED)
        cited = {evidence.passage_id for claim in supported for evidence in claim.evidence}
    return tuple(graded.passage for graded in policy.used_passages(state) if graded.passage.passage_id in cited)
