"""`errata documents` and `errata collections`."""

import contextlib
from collections.abc import AsyncIterator, Sequence

from errata.retriever.v1 import retriever_service_pb2 as pb2
from errata.retriever.v1 import retriever_service_pb2_grpc as pb2_grpc
from rich.console import Console
from rich.table import Table
from rich.text import Text

from errata_cli.connecting import connect
from errata_cli.terminal import ExitCode, errors, output, printable, run_command
from errata_kit.bounds import MAX_PAGE_SIZE


def documents(collection: str, prefix: str, delete: tuple[str, ...], target: str) -> int:
    """List documents, or delete some."""
    command = _delete_documents(collection, delete, target) if delete else _documents(collection, prefix, target)
    return run_command(command, "retriever", target)


def collections(delete: str, target: str) -> int:
    """List collections, or delete one."""
    return run_command(_delete_collection(delete, target) if delete else _collections(target), "retriever", target)


async def _documents(collection: str, prefix: str, target: str) -> int:
    async with _retriever(target) as stub:
        found = [item async for item in all_documents(stub, collection, prefix)]
    rows = [(item.document_id, item.title, str(item.chunks)) for item in found]
    _show(output(), ("document", "title", "chunks"), rows)
    return ExitCode.OK


async def all_documents(stub: pb2_grpc.RetrieverServiceStub, collection: str, prefix: str) -> AsyncIterator[pb2.DocumentInfo]:
    """Every document whose id starts with prefix, page by page."""
    token = ""
    while True:
        request = pb2.ListDocumentsRequest(
            collection=collection, document_id_prefix=prefix, page_size=MAX_PAGE_SIZE, page_token=token
        )
        page = await stub.ListDocuments(request)
        for item in page.documents:
            yield item
        token = page.next_page_token
        if not token:
            return


async def _collections(target: str) -> int:
    rows: list[tuple[str, ...]] = []
    token = ""
    async with _retriever(target) as stub:
        while True:
            page = await stub.ListCollections(pb2.ListCollectionsRequest(page_size=MAX_PAGE_SIZE, page_token=token))
            rows += [
                (item.name, str(item.documents), str(item.chunks), item.embedding_model or "none") for item in page.collections
            ]
            token = page.next_page_token
            if not token:
                break
    _show(output(), ("collection", "documents", "chunks", "embedding model"), rows)
    return ExitCode.OK


@contextlib.asynccontextmanager
async def _retriever(target: str) -> AsyncIterator[pb2_grpc.RetrieverServiceStub]:
    channel = connect(target)
    try:
        yield pb2_grpc.RetrieverServiceStub(channel)
    finally:
        await channel.close()


async def _delete_documents(collection: str, ids: tuple[str, ...], target: str) -> int:
    async with _retriever(target) as stub:
        reply = await stub.DeleteDocuments(pb2.DeleteDocumentsRequest(collection=collection, document_ids=ids))
    for document_id in reply.deleted_document_ids:
        output().print(f"deleted  {document_id}", markup=False)
    for document_id in reply.unknown_document_ids:
        errors().print(f"unknown  {document_id}", markup=False)
    return ExitCode.FAILED if reply.unknown_document_ids else ExitCode.OK


async def _delete_collection(name: str, target: str) -> int:
    async with _retriever(target) as stub:
        await stub.DeleteCollection(pb2.DeleteCollectionRequest(collection=name))
    output().print(f"deleted  {name}", markup=False)
    return ExitCode.OK


def _show(console: Console, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    if not console.is_terminal:
        # Tabs, so that cut and awk work.
        for row in rows:
            # Rich would turn the tabs into blanks.
            console.file.write("\t".join(map(printable, row)) + "\n")
        return
    table = Table(*columns, box=None, header_style="bold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table if rows else "nothing yet")
