"""LangGraph's checkpoints: the operational state of runs, apart from what people query.

Each checkpoint carries the fence of the lease under which it was written, in its metadata. A replica that has lost a run may
still write one; whoever goes on with the run takes the newest checkpoint of the highest fence, so that one never counts.
"""

import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import is_dataclass
from enum import Enum
from typing import Any, Final, get_args, get_type_hints

import aiosqlite
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool
from sqlalchemy.engine import URL

from services.orchestrator.runs.run import Lease
from services.orchestrator.runs.store.database import STALLED, checkpoint_file, is_sqlite, libpq_url

FENCE: Final = "fence"
_POOL_SIZE: Final = 4


class Checkpoints:
    """The saver that graphs are compiled with, and where to go on with a run."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        self.saver = saver

    async def config(self, lease: Lease, recursion_limit: int) -> tuple[RunnableConfig, bool]:
        """How to invoke a graph for a run, and whether there is a checkpoint to go on from."""
        config = RunnableConfig(
            recursion_limit=recursion_limit, configurable={"thread_id": lease.run_id}, metadata={FENCE: lease.fence}
        )
        if lease.fence == 1:
            return config, False
        found = [saved async for saved in self.saver.alist(RunnableConfig(configurable={"thread_id": lease.run_id}))]
        if not found:
            return config, False
        best = max(found, key=_rank)
        if best is not found[0]:
            # The newest one is of a replica that had lost the run: go on from before it.
            config["configurable"]["checkpoint_id"] = best.checkpoint["id"]
        return config, True

    async def forget(self, run_ids: Iterable[str]) -> None:
        """Delete the checkpoints of runs that have ended."""
        for run_id in run_ids:
            await self.saver.adelete_thread(run_id)


def _rank(saved: CheckpointTuple) -> tuple[int, str]:
    fence = saved.metadata.get(FENCE, 0)
    return (fence if isinstance(fence, int) else 0, saved.checkpoint["id"])


def classes_in(*roots: type) -> frozenset[type]:
    """The dataclasses and enumerations that values of these dataclasses are made of, the roots included."""
    found: set[type] = set()
    waiting: list[Any] = list(roots)
    while waiting:
        kind = waiting.pop()
        waiting.extend(get_args(kind))
        if isinstance(kind, type) and kind not in found and (is_dataclass(kind) or issubclass(kind, Enum)):
            found.add(kind)
            waiting.extend(get_type_hints(kind).values())
    return frozenset(found)


@contextlib.asynccontextmanager
async def open_checkpoints(url: URL, kinds: Iterable[type]) -> AsyncIterator[Checkpoints]:
    """Checkpoints in the database of the runs, or in a file beside theirs. kinds: the classes that states are made of.

    Nothing else is ever built from what is stored: a class that is not named comes back as plain values.
    """
    serde = JsonPlusSerializer(allowed_msgpack_modules=[(kind.__module__, kind.__qualname__) for kind in kinds])
    if is_sqlite(url):
        async with aiosqlite.connect(checkpoint_file(url)) as connection:
            # The trace is the record; a checkpoint that a power failure takes only costs steps that are repeated from it.
            await connection.execute("PRAGMA synchronous=NORMAL")
            saver = AsyncSqliteSaver(connection, serde=serde)
            await saver.setup()
            yield Checkpoints(saver)
        return
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row, "options": STALLED}
    pool: AsyncConnectionPool[AsyncConnection[Any]] = AsyncConnectionPool(
        libpq_url(url), kwargs=options, min_size=1, max_size=_POOL_SIZE, open=False
    )
    async with pool:
        yield Checkpoints(AsyncPostgresSaver(pool, serde=serde))


async def prepare_checkpoints(url: URL) -> None:
    """Make or update the checkpoints' own tables on PostgreSQL."""
    async with AsyncPostgresSaver.from_conn_string(libpq_url(url)) as saver:
        await saver.setup()
