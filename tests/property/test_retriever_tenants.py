"""Whatever two tenants do in turn, each sees what it would see alone: by a model of two separate dicts, and byte for byte."""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from errata.corpus.v1 import filter_pb2
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from errata_kit.errors import CollectionNotFound, InvalidFields
from services.retriever.index.base import PassageIndex
from services.retriever.index.edge import EdgeIndex
from services.retriever.index.qdrant_server import QdrantServerIndex
from tests.harness.qdrant_server import QdrantTestServer, in_memory
from tests.harness.tenants import MODES, Caller, all_of, any_of, none_of, servicer, where

TENANTS: Final = ("default", "acme")
COLLECTIONS: Final = ("notes", "default")
DOCUMENTS: Final = ("a", "b", "c")
Metadata = Mapping[str, str]
Filter = filter_pb2.MetadataFilter
# What a caller may ask for to get beyond its own, and what it means where there is nothing beyond.
FILTERS: Final[list[tuple[Filter | None, Callable[[Metadata], bool]]]] = [
    (None, lambda data: True),
    (where("metadata.tenant", equals="acme"), lambda data: data.get("tenant") == "acme"),
    (where("metadata.tenant", equals="default"), lambda data: data.get("tenant") == "default"),
    (where("metadata.tenant", exists=False), lambda data: "tenant" not in data),
    (none_of(where("metadata.tenant", equals="acme")), lambda data: data.get("tenant") != "acme"),
    (none_of(where("metadata.tenant", exists=True)), lambda data: "tenant" not in data),
    (none_of(none_of(where("has_code", equals="false"))), lambda data: True),
    (any_of(where("metadata.tenant", exists=True), where("metadata.tenant", exists=False)), lambda data: True),
    (any_of(none_of(where("document_id", equals="x")), where("metadata.tenant", equals="acme")), lambda data: True),
    (all_of(), lambda data: True),
]


@dataclass(frozen=True, slots=True)
class Step:
    """One call of one tenant. `number` makes texts differ, and chooses mode and filter."""

    tenant: str
    kind: str
    collection: str
    document: str
    number: int


@dataclass(slots=True)
class Alone:
    """What a tenant has, by collection and document: text and metadata. `token` is the page token it was given last."""

    held: dict[str, dict[str, tuple[str, Metadata]]] = field(default_factory=dict)
    token: str = ""


KINDS: Final = (
    "ingest",
    "ingest",
    "ingest",
    "search",
    "search",
    "delete",
    "documents",
    "collections",
    "drop",
    "token",
    "reach",
)
STEPS: Final = st.lists(
    st.builds(
        Step,
        st.sampled_from(TENANTS),
        st.sampled_from(KINDS),
        st.sampled_from(COLLECTIONS),
        st.sampled_from(DOCUMENTS),
        st.integers(0, 29),
    ),
    min_size=6,
    max_size=16,
)


class Play:
    """Carries steps out on one index, and holds each answer against the model of its tenant."""

    def __init__(self, index: PassageIndex) -> None:
        served = servicer(index)
        self._callers = {tenant: Caller(served, tenant) for tenant in TENANTS}
        self._models = {tenant: Alone() for tenant in TENANTS}
        self.answers: dict[str, list[str]] = {tenant: [] for tenant in TENANTS}

    async def take(self, step: Step) -> None:
        model, caller = self._models[step.tenant], self._callers[step.tenant]
        needs = step.kind in {"search", "delete", "documents", "drop"}
        act: Callable[[Step, Caller, Alone], Awaitable[object]] = getattr(self, f"_{step.kind}")
        if needs and step.collection not in model.held:
            with pytest.raises(CollectionNotFound) as caught:
                await act(step, caller, model)
            assert caught.value.metadata == {"collection": step.collection}
            answer: object = caught.value.message
        else:
            answer = await act(step, caller, model)
        self.answers[step.tenant].append(f"{step}: {answer}")

    async def _ingest(self, step: Step, caller: Caller, model: Alone) -> object:
        text = f"Release {step.number % 4} in other words."
        metadata = [{}, {"tenant": step.tenant}, {"tenant": "acme"}, {"tenant": "default"}][step.number % 4]
        results = await caller.ingest(step.collection, {step.document: text}, metadata)
        model.held.setdefault(step.collection, {})[step.document] = (text, metadata)
        return results

    async def _search(self, step: Step, caller: Caller, model: Alone) -> object:
        filter_, meaning = FILTERS[step.number % len(FILTERS)]
        reply = await caller.search(step.collection, "release words", mode=MODES[step.number % 3], filter=filter_)
        found = {(item.passage.document_id, item.passage.text) for item in reply.passages}
        assert len(found) == len(reply.passages)
        held = model.held[step.collection]
        assert found == {(name, text) for name, (text, metadata) in held.items() if meaning(metadata)}, step
        return reply

    async def _delete(self, step: Step, caller: Caller, model: Alone) -> object:
        reply = await caller.delete(step.collection, *DOCUMENTS[: 1 + step.number % 3])
        asked, held = set(DOCUMENTS[: 1 + step.number % 3]), model.held[step.collection]
        assert set(reply.deleted_document_ids) == asked & held.keys()
        model.held[step.collection] = {name: item for name, item in held.items() if name not in asked}
        return reply

    async def _documents(self, step: Step, caller: Caller, model: Alone) -> object:
        reply = await caller.documents(step.collection, page_size=1 + step.number % 2)
        names = sorted(model.held[step.collection])
        assert [item.document_id for item in reply.documents] == names[: 1 + step.number % 2]
        model.token = reply.next_page_token or model.token
        return reply

    async def _collections(self, step: Step, caller: Caller, model: Alone) -> object:
        reply = await caller.collections()
        listed = [(item.name, item.documents) for item in reply.collections]
        assert listed == [(name, len(held)) for name, held in sorted(model.held.items())]
        return reply

    async def _drop(self, step: Step, caller: Caller, model: Alone) -> object:
        reply = await caller.delete_collection(step.collection)
        del model.held[step.collection]
        return reply

    async def _token(self, step: Step, caller: Caller, model: Alone) -> object:
        """Use the token that the other tenant was given last."""
        [other] = (item for tenant, item in self._models.items() if tenant != step.tenant)
        if other.token:
            with pytest.raises(InvalidFields, match="page_token"):
                await caller.documents(step.collection, page_token=other.token, page_size=1)
        return ""

    async def _reach(self, step: Step, caller: Caller, model: Alone) -> object:
        """Name what may be the other tenant's collection inside the engine, or the field that says whose a point is."""
        other = next(tenant for tenant in TENANTS if tenant != step.tenant)
        with pytest.raises(InvalidFields, match="collection"):
            await caller.search(f"{other}.{step.collection}", "release")
        with pytest.raises(InvalidFields, match="filter"):
            await caller.search(step.collection, "release", filter=where("tenant", equals=other))
        return ""


@asynccontextmanager
async def edge() -> AsyncIterator[PassageIndex]:
    with tempfile.TemporaryDirectory(dir=in_memory()) as folder:
        index = await EdgeIndex.open(Path(folder))
        yield index
        await index.close()


@asynccontextmanager
async def server() -> AsyncIterator[PassageIndex]:
    async with QdrantTestServer() as started:
        index = QdrantServerIndex.connect(started.url)
        yield index
        await index.close()


async def played(engine: Callable[[], AbstractAsyncContextManager[PassageIndex]], steps: list[Step]) -> Play:
    async with engine() as index:
        play = Play(index)
        for step in steps:
            await play.take(step)
    return play


@pytest.mark.parametrize("engine", [edge, server], ids=lambda engine: engine.__name__)
@settings(max_examples=8, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(steps=STEPS)
async def test_each_tenant_sees_what_it_would_see_alone(
    engine: Callable[[], AbstractAsyncContextManager[PassageIndex]], steps: list[Step]
) -> None:
    together = await played(engine, steps)
    for tenant in TENANTS:
        alone = await played(engine, [step for step in steps if step.tenant == tenant])
        assert together.answers[tenant] == alone.answers[tenant]
