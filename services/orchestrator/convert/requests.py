"""Requests as domain values. The contract's bounds are enforced here."""

import copy
import datetime
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from errata.orchestrator.v1 import orchestrator_service_pb2 as service_pb2
from errata.orchestrator.v1 import trace_pb2
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import AfterValidator, Field

from errata_kit.access.principals import ANYBODY, Principal
from errata_kit.bounds import (
    DEFAULT_COLLECTION,
    KIB,
    Bounded,
    CollectionName,
    Name,
    NoNul,
    PageSize,
    Question,
    invalid,
    utf8_at_most,
    validated,
)
from errata_kit.drafts import DEFAULT_CRITERIA, Criteria
from errata_kit.rpc import convert, convert_drafts
from errata_kit.search import Filter, SearchMode
from services.orchestrator.runs import events
from services.orchestrator.runs.run import Budget, RunOptions, RunQuery, RunState
from services.orchestrator.workflows.answer.state import AnswerRequest, AnswerSettings
from services.orchestrator.workflows.compose.state import ComposeRequest, ComposeSettings


def _empty_or_not_blank(text: str) -> str:
    if text and not text.strip():
        raise ValueError("must not be only white space")
    return text


OptionalText = Annotated[str, AfterValidator(_empty_or_not_blank), utf8_at_most(64 * KIB)]
Limit = Annotated[int, Field(ge=1, le=2**53)] | None
RunId = Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]


class _Started(Bounded):
    """What Ask and Compose have in common."""

    request_id: Name
    max_cost_micros: Limit
    max_tokens: Limit
    principal: Name
    on_disconnect: str


class _Ask(_Started):
    question: Question
    collection: CollectionName
    settings: AnswerSettings
    draft_answer: OptionalText
    search_mode: SearchMode
    filter: Filter | None


class _Compose(_Started):
    task: Question
    collection: CollectionName | None
    settings: ComposeSettings
    criteria: Criteria
    draft: OptionalText
    search_mode: SearchMode
    filter: Filter | None
    require_approval: bool


class _RunName(Bounded):
    run_id: RunId
    after_sequence: Annotated[int, Field(ge=0)] = 0


class _Decision(Bounded):
    run_id: RunId
    approval: Annotated[int, Field(ge=0)]
    decision: str
    feedback: Annotated[str, NoNul, utf8_at_most(8 * KIB)]
    principal: Name


class _Listing(Bounded):
    page_size: PageSize
    page_token: Annotated[str, utf8_at_most(KIB)]
    state: str
    outcome: str
    workflow: Annotated[str, NoNul, utf8_at_most(64)]
    principal: Name
    create_time_from: datetime.datetime | None
    create_time_before: datetime.datetime | None


def ask_from(
    message: service_pb2.AskRequest, principal: Principal = ANYBODY, seconds: float | None = None
) -> tuple[AnswerRequest, RunOptions]:
    """What was asked, and how to run it. seconds: until the caller's deadline. Raises InvalidFields."""
    asked = validated(
        _Ask,
        {
            **_started_values(message, principal),
            "question": message.question,
            "collection": message.collection or DEFAULT_COLLECTION,
            "settings": _settings(message.settings),
            "draft_answer": message.draft_answer,
        },
        {
            "search_mode": lambda: convert.mode_from(message.settings.search_mode, "settings.search_mode"),
            "filter": lambda: convert.filter_from(message.filter),
            "on_disconnect": lambda: _on_disconnect(message.on_disconnect),
        },
    )
    request = AnswerRequest(
        question=asked.question,
        collection=asked.collection,
        settings=replace(asked.settings, search_mode=asked.search_mode),
        draft_answer=asked.draft_answer,
        filter=asked.filter,
        verified_only=message.verified_only,
    )
    return request, _options(asked, message, principal, seconds)


def compose_from(
    message: service_pb2.ComposeRequest, principal: Principal = ANYBODY, seconds: float | None = None
) -> tuple[ComposeRequest, RunOptions]:
    """What is to be written, and how to run it. seconds: until the caller's deadline. Raises InvalidFields."""
    asked = validated(
        _Compose,
        {
            **_started_values(message, principal),
            "task": message.task,
            "collection": message.collection or None,
            "settings": _settings(message.settings),
            "criteria": convert_drafts.criteria_values(message.criteria),
            "draft": message.draft,
            "require_approval": message.require_approval,
        },
        {
            "search_mode": lambda: convert.mode_from(message.settings.search_mode, "settings.search_mode"),
            "filter": lambda: _compose_filter(message),
            "on_disconnect": lambda: _on_disconnect(message.on_disconnect),
        },
    )
    request = ComposeRequest(
        task=asked.task,
        collection=asked.collection or "",
        settings=replace(asked.settings, search_mode=asked.search_mode),
        criteria=asked.criteria or DEFAULT_CRITERIA,
        draft=asked.draft,
        filter=asked.filter,
        require_approval=asked.require_approval,
    )
    return request, _options(asked, message, principal, seconds)


def cancels_on_disconnect(value: service_pb2.OnDisconnect) -> bool:
    """Whether a run ends when its caller goes away."""
    return value != service_pb2.ON_DISCONNECT_CONTINUE


def run_name_from(run_id: str, after_sequence: int = 0) -> tuple[str, int]:
    """A run's id and where to go on. Raises InvalidFields."""
    named = validated(_RunName, {"run_id": run_id.lower(), "after_sequence": after_sequence})
    return named.run_id, named.after_sequence


def decision_from(message: service_pb2.ResumeRunRequest, principal: Principal) -> tuple[str, events.ApprovalDecided]:
    """A run's id and the decision about it. Raises InvalidFields."""
    given = validated(
        _Decision,
        {
            "run_id": message.run_id.lower(),
            "approval": message.approval,
            "feedback": message.feedback,
            "principal": principal.name,
        },
        {"decision": lambda: _decision(message.decision)},
    )
    decision = events.ApprovalDecision(given.decision)
    if decision is events.ApprovalDecision.REVISE and not given.feedback.strip():
        raise invalid("feedback", "must say what is to be changed")
    return given.run_id, events.ApprovalDecided(given.approval, decision, given.feedback, given.principal)


def run_query_from(message: service_pb2.ListRunsRequest, tenant: str) -> RunQuery:
    """Which runs of a tenant to list. Raises InvalidFields."""
    listing = validated(
        _Listing,
        {
            "page_size": message.page_size,
            "page_token": message.page_token,
            "workflow": message.workflow,
            "principal": message.principal,
        },
        {
            "state": lambda: _enum_name(service_pb2.RunState, message.state, "state", "RUN_STATE_"),
            "outcome": lambda: _enum_name(trace_pb2.Outcome, message.outcome, "outcome", "OUTCOME_"),
            "create_time_from": lambda: _moment(message, "create_time_from"),
            "create_time_before": lambda: _moment(message, "create_time_before"),
        },
    )
    return RunQuery(
        tenant=tenant,
        page_size=listing.page_size,
        page_token=listing.page_token,
        state=RunState(listing.state) if listing.state else None,
        outcome=events.Outcome(listing.outcome) if listing.outcome else None,
        workflow=listing.workflow,
        principal=listing.principal,
        created_from=listing.create_time_from,
        created_before=listing.create_time_before,
    )


def _started_values(message: service_pb2.AskRequest | service_pb2.ComposeRequest, principal: Principal) -> Mapping[str, Any]:
    return {
        "request_id": message.request_id,
        "max_cost_micros": message.max_cost_micros if message.HasField("max_cost_micros") else None,
        "max_tokens": message.max_tokens if message.HasField("max_tokens") else None,
        "principal": principal.name,
    }


def _options(
    asked: _Started,
    message: service_pb2.AskRequest | service_pb2.ComposeRequest,
    principal: Principal,
    seconds: float | None,
) -> RunOptions:
    return RunOptions(
        principal=asked.principal,
        request_id=asked.request_id,
        request_hash=_hash(message),
        budget=Budget(asked.max_cost_micros, asked.max_tokens),
        # A run that goes on without its caller is not bound by the caller's deadline either.
        seconds=seconds if cancels_on_disconnect(message.on_disconnect) else None,
        tenant=principal.tenant,
    )


def _hash(message: service_pb2.AskRequest | service_pb2.ComposeRequest) -> str:
    # What becomes of the run when a caller leaves is that caller's own affair: somebody may come back with another wish.
    same = copy.deepcopy(message)
    same.ClearField("on_disconnect")
    # The name parts an Ask from a Compose. Within one build, deterministic serialization gives equal bytes for equal messages.
    body = type(message).__name__.encode() + b" " + same.SerializeToString(deterministic=True)
    return hashlib.sha256(body).hexdigest()


def _settings(message: Message) -> dict[str, Any]:
    return {field.name: value for field, value in message.ListFields() if field.name != "search_mode"}


def _compose_filter(message: service_pb2.ComposeRequest) -> Filter | None:
    selection = convert.filter_from(message.filter)
    if selection is not None and not message.collection:
        raise invalid("filter", "needs a collection")
    return selection


def _on_disconnect(value: service_pb2.OnDisconnect) -> str:
    return _enum_name(service_pb2.OnDisconnect, value, "on_disconnect", "ON_DISCONNECT_")


def _decision(value: trace_pb2.ApprovalDecision) -> str:
    name = _enum_name(trace_pb2.ApprovalDecision, value, "decision", "APPROVAL_DECISION_")
    if not name:
        raise invalid("decision", "must be APPROVE, REJECT or REVISE")
    return name


def _moment(message: service_pb2.ListRunsRequest, field: str) -> datetime.datetime | None:
    if not message.HasField(field):
        return None
    moment: Timestamp = getattr(message, field)
    try:
        return moment.ToDatetime(datetime.UTC)
    except (ValueError, OverflowError):
        raise invalid(field, "is not a time between the years 1 and 9999") from None


def _enum_name(enum: Any, value: int, field: str, prefix: str) -> str:
    """The name without its prefix; empty for unspecified. Raises InvalidFields for a number that the enum lacks."""
    try:
        name = str(enum.Name(value)).removeprefix(prefix)
    except ValueError:
        raise invalid(field, "is not a value of its enum") from None
    return "" if name == "UNSPECIFIED" else name
