"""Reads of the run store: runs, pages of runs, their events, grades and model calls."""

import datetime
from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, Select, exists, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from errata_kit.errors import RunNotFound
from errata_kit.paging import after_of, page_token
from errata_kit.usage import ModelCall
from services.orchestrator.runs.events import Outcome, TraceEvent
from services.orchestrator.runs.run import Evaluation, Run, RunPage, RunQuery, RunState, UsageTotals, totals_of
from services.orchestrator.runs.store import codec
from services.orchestrator.runs.store.tables import evaluations, model_usage, run_events, runs

_COLUMNS = (
    runs.c.run_id,
    runs.c.workflow,
    runs.c.question,
    runs.c.collection,
    runs.c.create_time,
    runs.c.principal,
    runs.c.state,
    runs.c.outcome,
    runs.c.finish_time,
    runs.c.last_sequence,
    runs.c.approved,
    runs.c.score,
    runs.c.corrections,
    runs.c.takeovers,
    runs.c.approval,
)


def of_tenant(tenant: str, run_id: str) -> ColumnElement[bool]:
    """The condition that a run is this one, and the tenant's."""
    return (runs.c.run_id == run_id) & (runs.c.tenant == tenant)


async def get_run(connection: AsyncConnection, tenant: str, run_id: str) -> Run:
    """The tenant's run; RunNotFound without."""
    row = (await connection.execute(select(*_COLUMNS).where(of_tenant(tenant, run_id)))).mappings().first()
    if row is None:
        raise RunNotFound(run_id)
    return run_of(row, totals_of(await get_calls(connection, run_id)))


async def get_events(connection: AsyncConnection, run_id: str, after: int, most: int) -> tuple[TraceEvent, ...]:
    """The next stored events behind a sequence number, in order."""
    rows = await connection.execute(_events_behind(run_id, after, most))
    return tuple(codec.event_of(run_id, *row) for row in rows)


async def get_events_of(connection: AsyncConnection, tenant: str, run_id: str, after: int, most: int) -> tuple[TraceEvent, ...]:
    """The same of a tenant's run; none when the run is another tenant's."""
    rows = await connection.execute(_events_behind(run_id, after, most).where(exists().where(of_tenant(tenant, run_id))))
    return tuple(codec.event_of(run_id, *row) for row in rows)


async def get_calls(connection: AsyncConnection, run_id: str) -> tuple[ModelCall, ...]:
    """The model calls, in the order in which they ended."""
    query = select(model_usage).where(model_usage.c.run_id == run_id).order_by(model_usage.c.position)
    return tuple(codec.call_of(row) for row in (await connection.execute(query)).mappings())


async def get_calls_of(connection: AsyncConnection, tenant: str, run_id: str) -> tuple[ModelCall, ...]:
    """The same of a tenant's run; none when the run is another tenant's."""
    query = select(model_usage).where(model_usage.c.run_id == run_id, exists().where(of_tenant(tenant, run_id)))
    rows = await connection.execute(query.order_by(model_usage.c.position))
    return tuple(codec.call_of(row) for row in rows.mappings())


async def get_evaluations(connection: AsyncConnection, tenant: str, run_id: str) -> tuple[Evaluation, ...]:
    """Every grade of a tenant's run, in the order of the trace."""
    query = select(evaluations).where(evaluations.c.run_id == run_id, exists().where(of_tenant(tenant, run_id)))
    rows = await connection.execute(query.order_by(evaluations.c.sequence, evaluations.c.position))
    names = Evaluation.__dataclass_fields__
    return tuple(Evaluation(**{name: row[name] for name in names}) for row in rows.mappings())


async def list_runs(connection: AsyncConnection, query: RunQuery) -> RunPage:
    """A page of runs, newest first. Ids are UUIDv7, so their order is the order of time."""
    before = after_of(query.page_token, query.fingerprint())
    statement = _selected(query).order_by(runs.c.run_id.desc()).limit(query.page_size + 1)
    if before:
        statement = statement.where(runs.c.run_id < before)
    rows = (await connection.execute(statement)).mappings().all()
    page = rows[: query.page_size]
    totals = await _totals(connection, [row["run_id"] for row in page])
    listed = tuple(run_of(row, totals.get(row["run_id"], UsageTotals())) for row in page)
    more = len(rows) > query.page_size
    return RunPage(listed, page_token(query.fingerprint(), listed[-1].run_id) if more else "")


async def tokens_since(connection: AsyncConnection, moment: datetime.datetime) -> dict[tuple[str, str], int]:
    """Tokens of runs that started at or after a time, by tenant and principal."""
    spent = func.sum(model_usage.c.input_tokens + model_usage.c.output_tokens)
    query = select(runs.c.tenant, runs.c.principal, spent).join_from(runs, model_usage).where(~model_usage.c.saved)
    # A UUIDv7 begins with its milliseconds, so that the primary key finds them.
    first = f"{int(moment.timestamp() * 1000):012x}"
    rows = await connection.execute(
        query.where(runs.c.run_id >= f"{first[:8]}-{first[8:]}").group_by(runs.c.tenant, runs.c.principal)
    )
    return {(tenant, principal): int(tokens) for tenant, principal, tokens in rows}


def run_of(row: RowMapping, totals: UsageTotals) -> Run:
    """The run of a row."""
    return Run(
        run_id=row["run_id"],
        workflow=row["workflow"],
        question=row["question"],
        collection=row["collection"],
        create_time=row["create_time"],
        principal=row["principal"],
        state=RunState(row["state"]),
        outcome=Outcome(row["outcome"]) if row["outcome"] else None,
        finish_time=row["finish_time"],
        last_sequence=row["last_sequence"],
        approved=row["approved"],
        score=row["score"],
        corrections=row["corrections"],
        takeovers=row["takeovers"],
        approval=row["approval"],
        totals=totals,
    )


def _events_behind(run_id: str, after: int, most: int) -> Select[Any]:
    columns = (run_events.c.sequence, run_events.c.type, run_events.c.create_time, run_events.c.payload)
    query = select(*columns).where(run_events.c.run_id == run_id, run_events.c.sequence > after)
    return query.order_by(run_events.c.sequence).limit(most)


def _selected(query: RunQuery) -> Select[Any]:
    statement = select(*_COLUMNS).where(runs.c.tenant == query.tenant)
    if query.state is not None:
        statement = statement.where(runs.c.state == query.state.value)
    if query.outcome is not None:
        statement = statement.where(runs.c.outcome == query.outcome.value)
    if query.workflow:
        statement = statement.where(runs.c.workflow == query.workflow)
    if query.principal:
        statement = statement.where(runs.c.principal == query.principal)
    if query.created_from is not None:
        statement = statement.where(runs.c.create_time >= query.created_from)
    if query.created_before is not None:
        statement = statement.where(runs.c.create_time < query.created_before)
    return statement


async def _totals(connection: AsyncConnection, run_ids: Iterable[str]) -> dict[str, UsageTotals]:
    calls: dict[str, list[ModelCall]] = {}
    query = select(model_usage).where(model_usage.c.run_id.in_(list(run_ids)))
    for row in (await connection.execute(query)).mappings():
        calls.setdefault(row["run_id"], []).append(codec.call_of(row))
    return {run_id: totals_of(of_run) for run_id, of_run in calls.items()}
