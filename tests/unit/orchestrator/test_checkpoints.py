"""Where a run goes on: the newest checkpoint of the highest fence, and nothing that a state is not made of."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from errata_kit.drafts import DraftReview
from errata_kit.grades import AnswerGrade, Verdict
from errata_kit.passages import Passage
from errata_kit.search import SearchMode
from services.orchestrator.runs.checkpoints import Checkpoints, classes_in, open_checkpoints
from services.orchestrator.runs.run import Lease
from services.orchestrator.runs.store.database import database_url
from services.orchestrator.workflows.answer.state import AnswerRequest, AnswerSettings, AnswerState
from services.orchestrator.workflows.compose.state import ComposeRequest, ComposeState, ReviewedDraft


@dataclass(frozen=True)
class Counting:
    """A state of one number."""

    count: int = 0


def counter(saver: Any) -> Any:
    """Two steps, each adding one."""
    graph = StateGraph(Counting)
    graph.add_node("first", lambda state: {"count": state.count + 1})
    graph.add_node("second", lambda state: {"count": state.count + 10})
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph.add_edge("second", END)
    return graph.compile(checkpointer=saver, interrupt_before=["second"])


def lease(fence: int) -> Lease:
    return Lease("run", f"replica {fence}", fence)


async def test_a_first_lease_starts_at_the_beginning() -> None:
    config, known = await Checkpoints(InMemorySaver()).config(lease(1), 12)
    assert not known and config["recursion_limit"] == 12
    assert config["configurable"] == {"thread_id": "run"} and config["metadata"] == {"fence": 1}


async def test_a_later_lease_without_a_checkpoint_starts_at_the_beginning_too() -> None:
    _, known = await Checkpoints(InMemorySaver()).config(lease(2), 12)
    assert not known


async def test_it_goes_on_from_the_last_checkpoint() -> None:
    checkpoints = Checkpoints(InMemorySaver())
    graph = counter(checkpoints.saver)
    config, _ = await checkpoints.config(lease(1), 12)
    await graph.ainvoke(Counting(), config)
    config, known = await checkpoints.config(lease(2), 12)
    assert known and "checkpoint_id" not in config["configurable"]
    assert await graph.ainvoke(None, config) == {"count": 11}


async def test_what_a_replica_wrote_after_it_had_lost_the_run_does_not_count() -> None:
    checkpoints = Checkpoints(InMemorySaver())
    graph = counter(checkpoints.saver)
    first, _ = await checkpoints.config(lease(1), 12)
    await graph.ainvoke(Counting(), first)
    second, _ = await checkpoints.config(lease(2), 12)
    await graph.aupdate_state(second, {"count": 100}, as_node="first")
    # The first one wakes up and goes on with what it has.
    await graph.aupdate_state(first, {"count": 7}, as_node="first")
    third, known = await checkpoints.config(lease(3), 12)
    assert known and "checkpoint_id" in third["configurable"]
    assert await graph.ainvoke(None, third) == {"count": 110}


async def test_forgotten_is_forgotten() -> None:
    checkpoints = Checkpoints(InMemorySaver())
    config, _ = await checkpoints.config(lease(1), 12)
    await counter(checkpoints.saver).ainvoke(Counting(), config)
    await checkpoints.forget(["run", "another"])
    assert not (await checkpoints.config(lease(2), 12))[1]


class Colour(StrEnum):
    """A choice."""

    RED = "red"


@dataclass(frozen=True)
class Inner:
    """Inside."""

    colour: Colour


@dataclass(frozen=True)
class Outer:
    """Outside, with what it holds in every way that states use."""

    inner: tuple[Inner, ...]
    other: Inner | None
    text: str


def test_the_classes_of_a_state_are_found_at_any_depth() -> None:
    assert classes_in(Outer) == {Outer, Inner, Colour}
    found = classes_in(AnswerState, ComposeState)
    assert {AnswerRequest, AnswerSettings, SearchMode, Passage, AnswerGrade, Verdict, ReviewedDraft, DraftReview} <= found


@pytest.mark.parametrize("known", [True, False])
async def test_only_classes_that_are_named_are_built_from_what_is_stored(known: bool, tmp_path: Path) -> None:
    kinds = classes_in(ComposeState) if known else ()
    state = ComposeRequest("t", "notes")
    async with open_checkpoints(database_url(None, tmp_path), kinds) as checkpoints:
        restored = checkpoints.saver.serde.loads_typed(checkpoints.saver.serde.dumps_typed(state))
    assert (restored == state) is known and isinstance(restored, ComposeRequest) is known


async def test_a_restart_finds_what_a_file_holds(tmp_path: Path) -> None:
    url = database_url(None, tmp_path)
    async with open_checkpoints(url, [Counting]) as checkpoints:
        config, _ = await checkpoints.config(lease(1), 12)
        await counter(checkpoints.saver).ainvoke(Counting(), RunnableConfig(**config))
    async with open_checkpoints(url, [Counting]) as checkpoints:
        config, known = await checkpoints.config(lease(2), 12)
        assert known and await counter(checkpoints.saver).ainvoke(None, config) == {"count": 11}
