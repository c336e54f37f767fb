"""Writes of many runs in one transaction: while one is being committed, the next ones gather.

Each write of a run carries its lease's fence, which the transaction checks under a lock. So a replica that has lost a run
can't write to it, however late it wakes up.
"""

import asyncio
import contextlib
import datetime
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Table, and_, bindparam, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from errata_kit.calls import stop_task
from errata_kit.errors import ServiceUnavailable
from errata_kit.logs import get_logger
from services.orchestrator.runs.events import TraceEvent
from services.orchestrator.runs.run import Lease, LeaseLost
from services.orchestrator.runs.store import codec
from services.orchestrator.runs.store.database import WRITES, now_epoch
from services.orchestrator.runs.store.tables import evaluations, model_usage, principals, prompt_versions, run_events, runs

CHANNEL: Final = "errata_runs"
"""PostgreSQL notifications. The payload is the id of a run that has news; empty when a run is free to be taken up."""
CANCEL_MARK: Final = "!"
"""Stands before the id of a run that is to be cancelled."""
_MOST_AT_ONCE: Final = 256
# A run's own steps take milliseconds at least, and with a model seconds: so much can be waited for company.
_GATHERING_A_RUN: Final = 0.0005
_LONGEST_GATHERING: Final = 0.02
_PAUSES: Final = (0.05, 0.2, 0.5, 1.0, 2.0)

_log = get_logger("errata.store")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Creation:
    """A run to be stored with its first event. limit: seconds until its deadline; ttl: seconds of its first lease."""

    row: dict[str, Any]
    event: TraceEvent
    limit: float
    ttl: float
    usage: tuple[dict[str, Any], ...] = ()

    @property
    def run_id(self) -> str:
        """Whose it is."""
        return self.event.run_id


@dataclass(frozen=True, slots=True)
class Append:
    """Events of one run with the model calls behind them. changes: columns of its row, last_sequence among them."""

    lease: Lease
    events: tuple[TraceEvent, ...]
    usage: tuple[dict[str, Any], ...]
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        """Whose it is."""
        return self.lease.run_id


class GroupWriter:
    """One writer a process. Create it inside a running event loop."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._waiting: list[tuple[Creation | Append, asyncio.Future[bool]]] = []
        self._arrived = asyncio.Event()
        self._task = asyncio.create_task(self._work(), name="store-writer")
        self._insert = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert
        # Kept open: asking the pool for one, and giving it back, would cost as much as the writing.
        self._connection: AsyncConnection | None = None
        self._writing: dict[str, float] = {}
        self._seen_principals: set[tuple[str, str]] = set()
        self._seen_prompts: set[tuple[str, str]] = set()

    async def write(self, operation: Creation | Append) -> bool:
        """Store it and return True; False for a creation whose request_id is taken.

        Raises:
            LeaseLost: the lease's fence is no longer that of the run.
            ServiceUnavailable: the database can't be reached.
        """
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((operation, done))
        self._arrived.set()
        return await done

    async def aclose(self) -> None:
        """Stop. What waits is not written."""
        await stop_task(self._task)
        for _, done in self._waiting:
            done.cancel()
        await self._disconnect()

    async def _work(self) -> None:
        while True:
            await self._arrived.wait()
            batch, self._waiting = self._waiting[:_MOST_AT_ONCE], self._waiting[_MOST_AT_ONCE:]
            if not self._waiting:
                self._arrived.clear()
            if pause := self._pause(batch):
                # Many runs write: in a moment there will be more for the same transaction. A lone run never waits.
                await asyncio.sleep(pause)
                room = _MOST_AT_ONCE - len(batch)
                batch, self._waiting = [*batch, *self._waiting[:room]], self._waiting[room:]
                if not self._waiting:
                    self._arrived.clear()
            # Somebody who gave up waiting may have given up the run, too; the fence decides, not we.
            try:
                await self._write_all(batch)
            except Exception as error:
                _log.exception("store_broke")
                _fail((done for _, done in batch), error)

    async def _write_all(self, batch: list[tuple[Creation | Append, asyncio.Future[bool]]]) -> None:
        try:
            results = await self._committed([operation for operation, _ in batch])
        except ServiceUnavailable as error:
            _fail((done for _, done in batch), error)
            return
        except SQLAlchemyError:
            if len(batch) == 1:
                raise
            # One of them is at fault, and the others must not suffer.
            for single in batch:
                await self._write_all([single])
            return
        for (_, done), result in zip(batch, results, strict=True):
            if done.done():
                continue
            if isinstance(result, BaseException):
                done.set_exception(result)
            else:
                done.set_result(result)

    async def _committed(self, operations: list[Creation | Append]) -> list[bool | LeaseLost]:
        async def attempt() -> list[bool | LeaseLost]:
            if self._connection is None:
                self._connection = await self._engine.execution_options(**{WRITES: True}).connect()
            try:
                async with self._connection.begin():
                    return await self._apply(self._connection, operations)
            except BaseException:
                # What was seen in a transaction that did not come to its end may not be stored.
                self._seen_principals.clear()
                self._seen_prompts.clear()
                await self._disconnect()
                raise

        return await persistent(attempt)

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError, OSError):
                await connection.invalidate()
                await connection.close()

    def _pause(self, batch: Sequence[tuple[Creation | Append, asyncio.Future[bool]]]) -> float:
        """How long to gather: longer, the more runs have written within the last second."""
        now = time.monotonic()
        for operation, _ in batch:
            self._writing[operation.run_id] = now
        self._writing = {run_id: last for run_id, last in self._writing.items() if now - last < 1.0}
        others = len(self._writing) - 1
        return min(_LONGEST_GATHERING, others * _GATHERING_A_RUN) if len(batch) < _MOST_AT_ONCE else 0.0

    async def _apply(self, connection: AsyncConnection, operations: list[Creation | Append]) -> list[bool | LeaseLost]:
        appends = [operation for operation in operations if isinstance(operation, Append)]
        held = await self._held(connection, [append.lease for append in appends])
        created = {id(item): await self._create(connection, item) for item in operations if isinstance(item, Creation)}
        results: list[bool | LeaseLost] = []
        accepted: list[Creation | Append] = []
        for operation in operations:
            if isinstance(operation, Creation):
                results.append(created[id(operation)])
            else:
                results.append(True if operation.lease in held else LeaseLost(operation.lease.run_id))
            if results[-1] is True:
                accepted.append(operation)
        await self._store(connection, accepted)
        return results

    async def _held(self, connection: AsyncConnection, leases: Sequence[Lease]) -> set[Lease]:
        if not leases:
            return set()
        ids = {lease.run_id for lease in leases}
        query = select(runs.c.run_id, runs.c.lease_owner, runs.c.fence).where(runs.c.run_id.in_(ids)).order_by(runs.c.run_id)
        rows = await connection.execute(query.with_for_update())
        return {Lease(row.run_id, row.lease_owner or "", row.fence) for row in rows}

    async def _create(self, connection: AsyncConnection, creation: Creation) -> bool:
        tenant, principal = creation.row["tenant"], creation.row["principal"]
        if principal and (tenant, principal) not in self._seen_principals:
            row = {"tenant": tenant, "principal": principal, "first_seen": creation.event.create_time}
            await self._insert_new(connection, principals, [row])
            self._seen_principals.add((tenant, principal))
        statement = self._insert(runs).values(
            deadline=now_epoch() + bindparam("limit"), lease_expires=now_epoch() + bindparam("ttl")
        )
        values = {**creation.row, "limit": creation.limit, "ttl": creation.ttl}
        # The row's primary key is fresh, so that a conflict is one of the request_id, or our own row from an attempt before.
        # SQLAlchemy asks the driver for an INSERT's row count only when told to, and says -1 otherwise.
        inserting = statement.on_conflict_do_nothing().execution_options(preserve_rowcount=True)
        done = await connection.execute(inserting, values)
        if done.rowcount:
            return True
        found = await connection.execute(select(runs.c.run_id).where(runs.c.run_id == creation.row["run_id"]))
        return found.first() is not None

    async def _store(self, connection: AsyncConnection, accepted: list[Creation | Append]) -> None:
        stored = [event for item in accepted for event in (item.events if isinstance(item, Append) else (item.event,))]
        calls = [row for item in accepted for row in item.usage]
        await self._insert_new(connection, run_events, [codec.event_row(event) for event in stored])
        await self._insert_new(connection, evaluations, [row for event in stored for row in codec.evaluation_rows(event)])
        await self._insert_new(connection, model_usage, calls)
        await self._note_prompts(connection, calls)
        changed = [item for item in accepted if isinstance(item, Append) and item.changes]
        await _update_runs(connection, changed)
        if self._engine.dialect.name == "postgresql" and stored:
            await notify(connection, {event.run_id for event in stored})

    async def _note_prompts(self, connection: AsyncConnection, calls: list[dict[str, Any]]) -> None:
        used = {(row["operation"], row["prompt_version"]) for row in calls if row["prompt_version"]}
        now = datetime.datetime.now(datetime.UTC)
        new = sorted(used - self._seen_prompts)
        rows = [{"operation": operation, "version": version, "first_seen": now} for operation, version in new]
        await self._insert_new(connection, prompt_versions, rows)
        self._seen_prompts.update(new)

    async def _insert_new(self, connection: AsyncConnection, table: Table, rows: list[dict[str, Any]]) -> None:
        # What is there already was put there by us: an attempt before was committed, and its answer was lost.
        if rows:
            await connection.execute(self._insert(table).on_conflict_do_nothing(), rows)


async def _update_runs(connection: AsyncConnection, appends: list[Append]) -> None:
    # Statements are cached by their columns, and those are few sets: a step, an end, a wait.
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for item in appends:
        groups.setdefault(tuple(item.changes), []).append({"of_run": item.lease.run_id, **item.changes})
    for columns, rows in groups.items():
        values: dict[str, Any] = {column: bindparam(column) for column in columns}
        await connection.execute(update(runs).where(runs.c.run_id == bindparam("of_run")).values(values), rows)


async def notify(connection: AsyncConnection, run_ids: Iterable[str]) -> None:
    """Tell every replica, at the commit, that something is new about these runs."""
    await connection.execute(select(func.pg_notify(CHANNEL, func.unnest(postgresql.array(sorted(run_ids))))))


def same_lease(lease: Lease) -> ColumnElement[bool]:
    """The condition that a run is still held under this lease."""
    return and_(runs.c.run_id == lease.run_id, runs.c.lease_owner == lease.owner, runs.c.fence == lease.fence)


def writing(engine: AsyncEngine) -> AbstractAsyncContextManager[AsyncConnection]:
    """A connection in a transaction that writes; committed at the end of the block."""
    return engine.execution_options(**{WRITES: True}).begin()


async def persistent(attempt: Callable[[], Awaitable[T]]) -> T:
    """Try again while the database can't be reached, for about four seconds; then ServiceUnavailable."""
    for pause in (*_PAUSES, None):
        try:
            return await attempt()
        except IntegrityError:
            raise
        except (DBAPIError, OSError) as error:
            if isinstance(error, DBAPIError) and not _may_pass(error):
                raise
            if pause is None:
                message = "The database of the runs can't be reached"
                raise ServiceUnavailable(message, metadata={"service": "database"}, detail=str(error)[:500]) from error
            await asyncio.sleep(pause)
    raise AssertionError("the last round raises")


def _may_pass(error: DBAPIError) -> bool:
    # Class names of the DB API: OperationalError is a lost connection, a locked file, a full disk or a deadlock.
    return error.connection_invalidated or type(error).__name__ in {"OperationalError", "InterfaceError"}


def _fail(waiting: Iterable[asyncio.Future[bool]], error: Exception) -> None:
    for done in waiting:
        if not done.done():
            done.set_exception(error)
