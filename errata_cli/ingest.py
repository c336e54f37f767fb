"""`errata ingest`."""

import asyncio
import glob
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from errata.retriever.v1 import retriever_service_pb2 as pb2
from errata.retriever.v1 import retriever_service_pb2_grpc as pb2_grpc
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from errata_cli.connecting import connect
from errata_cli.listing import all_documents
from errata_cli.terminal import ExitCode, UsageError, errors, output, printable, run_command
from errata_kit.rpc.channels import reading, sending

# What a folder is searched for. A file that is named, or that a glob finds, is taken whatever its suffix.
SUFFIXES: Final = frozenset({".md", ".markdown", ".mdx", ".rst", ".txt"})
_MAX_DOCUMENT_BYTES: Final = 4 * 1024 * 1024
_DELETE_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class Source:
    """A file and the id of its document."""

    path: Path
    document_id: str


@dataclass(frozen=True, slots=True)
class Sources:
    """The files found, how many of other types were passed over, and the id prefixes of the folders."""

    files: tuple[Source, ...]
    passed_over: int
    prefixes: tuple[str, ...]


@dataclass(slots=True)
class Tally:
    """What has happened so far."""

    documents: int = 0
    chunks: int = 0
    embedded: int = 0
    unchanged: int = 0
    deleted: int = 0
    removed: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


def run(paths: tuple[str, ...], collection: str, sync: bool, target: str) -> int:
    """Ingest; exit code 1 when a file failed."""
    return run_command(_ingest(paths, collection, sync, target), "retriever", target)


def find_sources(paths: tuple[str, ...]) -> Sources:
    """The files behind folders, files and globs. Raises UsageError for a path that is nothing of these.

    A document's id is its file's path relative to the current folder; for a folder elsewhere, and for the current folder
    itself, the folder's name and the path below it. It does not depend on whether the folder or the file was named.
    """
    files: dict[Path, Source] = {}
    prefixes: list[str] = []
    passed_over = 0
    for argument in paths:
        path = Path(argument)
        if path.is_dir():
            base = _folder_id(path)
            prefixes.append(f"{base}/")
            for found in _walk(path):
                if found.suffix.lower() in SUFFIXES:
                    files.setdefault(found.resolve(), Source(found, f"{base}/{found.relative_to(path).as_posix()}"))
                else:
                    passed_over += 1
            continue
        matches = [path] if path.is_file() else sorted(Path(name) for name in glob.glob(argument, recursive=True))
        chosen = [match for match in matches if match.is_file()]
        if not chosen:
            raise UsageError(f"{argument}: there is no such file or folder, and it matches none as a pattern")
        for match in chosen:
            files.setdefault(match.resolve(), Source(match, f"{_folder_id(match.parent)}/{match.name}".removeprefix("./")))
    return Sources(tuple(files.values()), passed_over, tuple(prefixes))


def _folder_id(folder: Path) -> str:
    resolved = folder.resolve()
    here = Path.cwd()
    if resolved != here and resolved.is_relative_to(here):
        return resolved.relative_to(here).as_posix()
    return resolved.name


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path


async def _ingest(paths: tuple[str, ...], collection: str, sync: bool, target: str) -> int:
    sources = find_sources(paths)
    if sync and not sources.prefixes:
        raise UsageError("--sync compares folders; name at least one folder")
    started = time.monotonic()
    tally = Tally()
    console = output()
    channel = connect(target)
    try:
        stub = pb2_grpc.RetrieverServiceStub(channel)
        if sources.files:
            await _send(stub, sources, collection, tally)
        if sync:
            await _remove_vanished(stub, sources, collection, tally)
    finally:
        await channel.close()
    for name, why in tally.failed:
        errors().print(printable(f"failed  {name}: {why}"), markup=False)
    _summarise(console, tally, sources, collection, time.monotonic() - started)
    return ExitCode.FAILED if tally.failed else ExitCode.OK


async def _send(stub: pb2_grpc.RetrieverServiceStub, sources: Sources, collection: str, tally: Tally) -> None:
    names = {source.document_id: str(source.path) for source in sources.files}
    console = errors()
    with _progress(console) as progress:
        bar = progress.add_task("Ingesting", total=len(sources.files))

        async def requests() -> AsyncIterator[pb2.IngestDocumentsRequest]:
            for source in sources.files:
                try:
                    content = await asyncio.to_thread(_read, source.path)
                except (OSError, ValueError) as error:
                    tally.failed.append((str(source.path), _why(error)))
                    progress.advance(bar)
                    continue
                document = pb2.Document(
                    document_id=source.document_id, content=content, source_uri=source.path.resolve().as_uri()
                )
                yield pb2.IngestDocumentsRequest(collection=collection, document=document)

        async with reading(sending(stub.IngestDocuments, requests())) as replies:
            async for reply in replies:
                _count(tally, reply, names)
                progress.update(bar, advance=1, description=f"Ingesting ({tally.embedded} chunks embedded)")


def _read(path: Path) -> bytes:
    size = path.stat().st_size
    if size > _MAX_DOCUMENT_BYTES:
        raise ValueError(f"is {size} bytes; a document may have at most {_MAX_DOCUMENT_BYTES}")
    return path.read_bytes()


def _why(error: Exception) -> str:
    return str(error.strerror).lower() if isinstance(error, OSError) else str(error)


def _count(tally: Tally, reply: pb2.IngestDocumentsResponse, names: dict[str, str]) -> None:
    if reply.WhichOneof("result") == "error":
        tally.failed.append((names.get(reply.document_id, reply.document_id), reply.error.message))
        return
    tally.documents += 1
    tally.chunks += reply.ingested.chunks
    tally.embedded += reply.ingested.chunks_embedded
    tally.unchanged += reply.ingested.chunks_unchanged
    tally.deleted += reply.ingested.chunks_deleted


async def _remove_vanished(stub: pb2_grpc.RetrieverServiceStub, sources: Sources, collection: str, tally: Tally) -> None:
    present = {source.document_id for source in sources.files}
    vanished: list[str] = []
    for prefix in sources.prefixes:
        async for item in all_documents(stub, collection, prefix):
            if item.document_id not in present:
                vanished.append(item.document_id)
    for start in range(0, len(vanished), _DELETE_BATCH):
        batch = vanished[start : start + _DELETE_BATCH]
        reply = await stub.DeleteDocuments(pb2.DeleteDocumentsRequest(collection=collection, document_ids=batch))
        tally.removed += len(reply.deleted_document_ids)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _summarise(console: Console, tally: Tally, sources: Sources, collection: str, seconds: float) -> None:
    parts = [
        f"{tally.documents} documents in {collection}",
        f"{tally.chunks} chunks: {tally.embedded} embedded, {tally.unchanged} unchanged, {tally.deleted} deleted",
    ]
    if tally.removed:
        parts.append(f"{tally.removed} vanished documents removed")
    if tally.failed:
        parts.append(f"{len(tally.failed)} files failed")
    if sources.passed_over:
        parts.append(f"{sources.passed_over} files of other types passed over")
    console.print("; ".join(parts) + f" ({seconds:.1f} s)", markup=False)
