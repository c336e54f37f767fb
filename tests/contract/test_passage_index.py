"""What every implementation of `PassageIndex` must do: one suite for all of them."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from errata_kit.access.principals import DEFAULT_TENANT
from errata_kit.errors import CollectionNotFound, EmbeddingMismatch, InvalidFields
from errata_kit.search import Exists, SearchMode
from services.retriever.index.base import DocumentSummary, EmbeddedPassage, EmbeddingSpace, PassageIndex, SearchQuery
from services.retriever.index.payload import fingerprint
from services.retriever.tenancy import CollectionRef
from tests.harness.passages import SPACE, SPARSE, collection, embedded, fresh_collection, hybrid, passage


@pytest_asyncio.fixture(params=[DEFAULT_TENANT, "acme"])
async def ref(request: pytest.FixtureRequest, index: PassageIndex) -> AsyncIterator[CollectionRef]:
    async with fresh_collection(index, request.param) as made:
        yield made


async def test_a_stored_passage_comes_back_as_it_was(index: PassageIndex, ref: CollectionRef) -> None:
    stored = passage("a", "Ports are ünïcode\n\n```sh\nrun\n```", 2, {"lang": "en", "a.b-c_d": "x"}, code=True)
    await index.upsert(ref, [embedded(stored)])
    found = await index.search(ref, hybrid("ports"))
    assert [item.passage for item in found] == [stored]
    assert 0 < found[0].score <= 1
    assert await index.stored_chunks(ref, "a") == {stored.chunk.chunk_id: fingerprint(stored)}


async def test_ensuring_a_collection_twice_keeps_what_is_in_it(index: PassageIndex, ref: CollectionRef) -> None:
    await index.upsert(ref, [embedded(passage("a", "one"))])
    info = await index.ensure_collection(ref, SPACE)
    assert (info.name, info.embedding, info.documents, info.passages) == (ref.name, SPACE, 1, 1)
    assert await index.embedding_space(ref) == SPACE


@pytest.mark.parametrize("other", [EmbeddingSpace("other", 4), EmbeddingSpace("test-model", 8)])
async def test_another_embedding_is_a_mismatch(index: PassageIndex, ref: CollectionRef, other: EmbeddingSpace) -> None:
    with pytest.raises(EmbeddingMismatch) as caught:
        await index.ensure_collection(ref, other)
    assert caught.value.metadata["collection"] == ref.name


@pytest.mark.parametrize("bad", ["", "Upper", "-a", "a/b", "..", "a" * 64, "é", "a\n"])
async def test_an_impossible_collection_name_is_invalid(index: PassageIndex, bad: str) -> None:
    with pytest.raises(InvalidFields, match="collection"):
        await index.ensure_collection(collection(bad), SPACE)
    with pytest.raises(InvalidFields, match="tenant"):
        await index.ensure_collection(collection("c", bad), SPACE)


@pytest.mark.parametrize("tenant", [DEFAULT_TENANT, "acme"])
async def test_a_collection_that_is_missing_is_not_found(index: PassageIndex, tenant: str) -> None:
    gone = collection(f"gone-{uuid.uuid4().hex[:8]}", tenant)
    calls = [
        index.embedding_space(gone),
        index.delete_collection(gone),
        index.stored_chunks(gone, "a"),
        index.upsert(gone, [embedded(passage("a", "x"))]),
        index.update(gone, [passage("a", "x")]),
        index.delete_chunks(gone, [str(uuid.uuid4())]),
        index.delete_documents(gone, ["a"]),
        index.delete_documents(gone, []),
        index.list_documents(gone),
        index.search(gone, hybrid("x")),
    ]
    for call in calls:
        with pytest.raises(CollectionNotFound) as caught:
            await call
        assert caught.value.metadata == {"collection": gone.name}
        assert gone.physical not in {caught.value.message, *caught.value.metadata.values()} or gone.physical == gone.name


async def test_a_deleted_collection_can_be_made_anew_with_another_embedding(index: PassageIndex, ref: CollectionRef) -> None:
    await index.upsert(ref, [embedded(passage("a", "x"))])
    await index.delete_collection(ref)
    with pytest.raises(CollectionNotFound):
        await index.search(ref, hybrid("x"))
    info = await index.ensure_collection(ref, EmbeddingSpace("other", 2))
    assert (info.documents, info.passages, info.embedding.dimensions) == (0, 0, 2)


async def test_upserting_again_replaces(index: PassageIndex, ref: CollectionRef) -> None:
    first = passage("a", "x", metadata={"v": "1"})
    await index.upsert(ref, [embedded(first)])
    await index.upsert(ref, [embedded(replace(first, metadata={"v": "2"}))])
    found = await index.search(ref, hybrid("x"))
    assert [item.passage.metadata for item in found] == [{"v": "2"}]


async def test_an_update_changes_what_is_said_and_keeps_the_vectors(index: PassageIndex, ref: CollectionRef) -> None:
    near, far = passage("near", "alpha"), passage("far", "beta")
    await index.upsert(ref, [embedded(near), embedded(far, (0.0, 1.0, 0.0, 0.0))])
    moved = replace(far, chunk=replace(far.chunk, start_line=70, end_line=71), metadata={"new": "yes"})
    await index.update(ref, [moved])
    query = SearchQuery(SearchMode.DENSE, 1, (0.0, 1.0, 0.0, 0.0))
    assert [item.passage for item in await index.search(ref, query)] == [moved]
    query = SearchQuery(SearchMode.SPARSE, 1, sparse=SPARSE.query("beta"))
    assert [item.passage for item in await index.search(ref, query)] == [moved]
    everywhere = SearchQuery(SearchMode.DENSE, 9, (1.0, 1.0, 0.0, 0.0), filter=Exists("metadata.new"))
    assert [item.passage for item in await index.search(ref, everywhere)] == [moved]


async def test_chunks_and_documents_are_deleted(index: PassageIndex, ref: CollectionRef) -> None:
    items = [passage(f"d{n % 3}", f"release {n}", n) for n in range(9)]
    await index.upsert(ref, [embedded(item) for item in items])
    await index.delete_chunks(ref, [items[0].chunk.chunk_id, str(uuid.uuid4())])
    assert len(await index.stored_chunks(ref, "d0")) == 2
    assert await index.delete_documents(ref, ["d1", "d2", "never"]) == {"d1", "d2"}
    assert await index.stored_chunks(ref, "d1") == {}
    assert [info.passages for info in await index.list_collections(ref.tenant) if info.name == ref.name] == [2]


async def test_many_passages_of_a_document_are_all_listed(index: PassageIndex, ref: CollectionRef) -> None:
    items = [passage("big", f"release {n}", n) for n in range(2300)]
    await index.upsert(ref, [embedded(item) for item in items])
    assert len(await index.stored_chunks(ref, "big")) == 2300
    page = await index.list_documents(ref)
    assert [(doc.document_id, doc.passages) for doc in page.documents] == [("big", 2300)]


async def test_documents_are_paged_in_the_order_of_their_ids(index: PassageIndex, ref: CollectionRef) -> None:
    names = sorted(f"doc {n:02}/é" for n in range(23))
    items = [passage(doc, f"{doc} {part}", part, {"n": doc}) for doc in reversed(names) for part in range(3)]
    await index.upsert(ref, [embedded(item) for item in items])
    seen: list[DocumentSummary] = []
    after: str | None = ""
    while after is not None:
        page = await index.list_documents(ref, after, 5)
        assert 1 <= len(page.documents) <= 5
        seen.extend(page.documents)
        after = page.next_after
    assert [doc.document_id for doc in seen] == names
    assert {doc.passages for doc in seen} == {3}
    assert seen[0].title == f"Title of {names[0]}"
    assert seen[0].metadata == {"n": names[0]}
    assert (await index.list_documents(ref, names[-1])).documents == ()


async def test_each_mode_uses_its_own_ranking_and_hybrid_both(index: PassageIndex, ref: CollectionRef) -> None:
    words = passage("words", "quorum replication settings")
    meaning = passage("meaning", "how copies agree")
    noise = [passage(f"n{n}", f"unrelated text {n}") for n in range(20)]
    await index.upsert(
        ref,
        [
            embedded(words, (0.0, 0.0, 1.0, 0.0)),
            embedded(meaning, (1.0, 0.0, 0.0, 0.0)),
            *(embedded(item, (0.0, 1.0, 0.0, 0.1)) for item in noise),
        ],
    )
    query = hybrid("quorum replication", top_k=2)
    dense = await index.search(ref, replace(query, mode=SearchMode.DENSE))
    sparse = await index.search(ref, replace(query, mode=SearchMode.SPARSE))
    both = await index.search(ref, query)
    assert dense[0].passage == meaning
    assert [item.passage for item in sparse] == [words]
    assert {item.passage.chunk.document_id for item in both} == {"words", "meaning"}
    for found in (dense, sparse, both):
        assert all(0 <= item.score <= 1 for item in found)
        assert [item.score for item in found] == sorted((item.score for item in found), reverse=True)


async def test_equal_scores_come_in_the_order_of_their_ids(index: PassageIndex, ref: CollectionRef) -> None:
    items = [passage(f"d{n}", "the same words") for n in range(12)]
    await index.upsert(ref, [embedded(item) for item in items])
    ids = sorted(item.chunk.chunk_id for item in items)
    for mode in (SearchMode.DENSE, SearchMode.SPARSE):
        query = SearchQuery(mode, 7, (1.0, 0.0, 0.0, 0.0), SPARSE.query("words"))
        for _ in range(3):
            assert [item.passage.chunk.chunk_id for item in await index.search(ref, query)] == ids[:7]


async def test_a_query_of_stop_words_is_answered_by_the_dense_ranking(index: PassageIndex, ref: CollectionRef) -> None:
    await index.upsert(ref, [embedded(passage("a", "text"))])
    assert len(await index.search(ref, hybrid("the of and"))) == 1
    assert await index.search(ref, SearchQuery(SearchMode.SPARSE, 5, sparse=SPARSE.query("the of"))) == []


async def test_a_sparse_only_collection_answers_hybrid_and_refuses_dense(index: PassageIndex) -> None:
    ref = collection(f"sparse-{uuid.uuid4().hex[:8]}")
    await index.ensure_collection(ref, EmbeddingSpace("none", 0))
    item = passage("a", "replication factor")
    await index.upsert(ref, [EmbeddedPassage(item, (), SPARSE.passage(item.chunk.text))])
    query = SearchQuery(SearchMode.HYBRID, 5, sparse=SPARSE.query("replication"))
    assert [found.passage for found in await index.search(ref, query)] == [item]
    with pytest.raises(InvalidFields):
        await index.search(ref, SearchQuery(SearchMode.DENSE, 5, (1.0, 0.0)))
    await index.delete_collection(ref)


async def test_top_k_is_bounded_and_kept(index: PassageIndex, ref: CollectionRef) -> None:
    await index.upsert(ref, [embedded(passage(f"d{n}", f"release {n}", n)) for n in range(130)])
    for top_k in (1, 100):
        assert len(await index.search(ref, hybrid("release", top_k=top_k))) == top_k
    for top_k in (0, 101):
        with pytest.raises(InvalidFields):
            hybrid("release", top_k=top_k)


async def test_a_query_of_the_wrong_size_is_invalid(index: PassageIndex, ref: CollectionRef) -> None:
    with pytest.raises(InvalidFields):
        await index.search(ref, hybrid("x", dense=(1.0, 0.0)))


async def test_closing_twice_is_allowed(index: PassageIndex) -> None:
    await index.close()
    await index.close()


async def test_a_metadata_key_that_no_filter_can_name_is_stored_all_the_same(index: PassageIndex, ref: CollectionRef) -> None:
    odd = passage("a", "text", metadata={'quo"te': "1", "": "2", "spa ce": "3"})
    await index.upsert(ref, [embedded(odd)])
    assert [item.passage for item in await index.search(ref, hybrid("text"))] == [odd]


async def test_two_ensure_at_once_make_one_collection(index: PassageIndex) -> None:
    ref = collection(f"race-{uuid.uuid4().hex[:8]}")
    infos = await asyncio.gather(*(index.ensure_collection(ref, SPACE) for _ in range(4)))
    assert {info.name for info in infos} == {ref.name}
    await index.delete_collection(ref)
