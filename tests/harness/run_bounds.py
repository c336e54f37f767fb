"""The orchestrator's requests at their bounds and beyond."""

from __future__ import annotations

from typing import Any

from errata.grading.v1 import grading_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from google.protobuf.timestamp_pb2 import Timestamp

from tests.harness.bounds import (
    COLLECTION_BROKEN,
    COLLECTION_TAKEN,
    CRITERIA_BROKEN,
    CRITERIA_TAKEN,
    FILTER_BROKEN,
    FILTER_TAKEN,
    KIB,
    PAGES_BROKEN,
    PAGES_TAKEN,
    QUESTION_BROKEN,
    QUESTION_TAKEN,
    RUN_BROKEN,
    RUN_ID,
    SETTINGS_BROKEN,
    SETTINGS_TAKEN,
    TASK_BROKEN,
    TASK_TAKEN,
    Change,
    Rpc,
    at,
    put,
    wide,
)

START_BROKEN: dict[str, Change] = {
    "request_id": put(request_id=wide(129)),
    "on_disconnect": put(on_disconnect=3),
    "max_cost_micros": put(max_cost_micros=0),
    "max_cost_micros ": put(max_cost_micros=-1),
    "max_tokens": put(max_tokens=0),
    "max_tokens ": put(max_tokens=-(2**63)),
}
START_TAKEN: dict[str, Change] = {
    "request_id": put(request_id=wide(128)),
    "on_disconnect": put(on_disconnect=2),
    "most": put(max_cost_micros=2**53, max_tokens=2**53),
    "least": put(max_cost_micros=1, max_tokens=1),
}
COMPOSE_SETTINGS_BROKEN: dict[str, Change] = {
    "settings.overall_threshold": at("settings", overall_threshold=1.001),
    "settings.overall_threshold ": at("settings", overall_threshold=float("nan")),
    "settings.max_revisions": at("settings", max_revisions=-1),
    "settings.max_revisions ": at("settings", max_revisions=11),
    "settings.top_k": at("settings", top_k=0),
    "settings.top_k ": at("settings", top_k=101),
    "settings.relevance_threshold": at("settings", relevance_threshold=-0.001),
    "settings.faithfulness_threshold": at("settings", faithfulness_threshold=1.001),
    "settings.search_mode": at("settings", search_mode=9),
}
COMPOSE_SETTINGS_TAKEN: dict[str, Change] = {
    "lowest": at("settings", overall_threshold=0, max_revisions=0, top_k=1, relevance_threshold=0, faithfulness_threshold=0),
    "highest": at(
        "settings", overall_threshold=1, max_revisions=10, top_k=100, relevance_threshold=1, faithfulness_threshold=1
    ),
}


def _without_collection(message: Any) -> None:
    FILTER_TAKEN["filter exists"](message)
    message.ClearField("collection")


def _starting(**bounds: int) -> Change:
    return put_times({name: Timestamp(seconds=seconds) for name, seconds in bounds.items()})


def put_times(moments: dict[str, Timestamp]) -> Change:
    """Set fields of times."""

    def change(message: Any) -> None:
        for name, moment in moments.items():
            getattr(message, name).CopyFrom(moment)

    return change


ASK = Rpc(
    "orchestrator",
    "Ask",
    lambda: pb2.AskRequest(question="q"),
    {
        **QUESTION_BROKEN,
        **COLLECTION_BROKEN,
        **SETTINGS_BROKEN,
        **FILTER_BROKEN,
        **START_BROKEN,
        "draft_answer": put(draft_answer=wide(64 * KIB + 1)),
        "draft_answer ": put(draft_answer=" \n"),
    },
    {
        **QUESTION_TAKEN,
        **COLLECTION_TAKEN,
        **SETTINGS_TAKEN,
        **FILTER_TAKEN,
        **START_TAKEN,
        "draft_answer": put(draft_answer=wide(64 * KIB)),
    },
)
COMPOSE = Rpc(
    "orchestrator",
    "Compose",
    lambda: pb2.ComposeRequest(
        task="t", collection="notes", criteria=[grading_pb2.Criterion(name=f"own_{number}") for number in range(3)]
    ),
    {
        **TASK_BROKEN,
        **COLLECTION_BROKEN,
        **COMPOSE_SETTINGS_BROKEN,
        **CRITERIA_BROKEN,
        **FILTER_BROKEN,
        f"filter{' ' * len(FILTER_BROKEN)}": _without_collection,
        **START_BROKEN,
        "draft": put(draft=wide(64 * KIB + 1)),
        "draft ": put(draft=" \n"),
    },
    {
        **TASK_TAKEN,
        **COLLECTION_TAKEN,
        **COMPOSE_SETTINGS_TAKEN,
        **CRITERIA_TAKEN,
        **FILTER_TAKEN,
        **START_TAKEN,
        "no collection": put(collection=""),
        "draft": put(draft=wide(64 * KIB)),
    },
)
RUN_RPCS = [
    ASK,
    COMPOSE,
    Rpc(
        "orchestrator",
        "WatchRun",
        lambda: pb2.WatchRunRequest(run_id=RUN_ID),
        {**RUN_BROKEN, "after_sequence": put(after_sequence=-1)},
        {"upper case": put(run_id=RUN_ID.upper()), "after_sequence": put(after_sequence=2**63 - 1)},
        missing=True,
    ),
    Rpc("orchestrator", "GetRun", lambda: pb2.GetRunRequest(run_id=RUN_ID), RUN_BROKEN, missing=True),
    Rpc("orchestrator", "CancelRun", lambda: pb2.CancelRunRequest(run_id=RUN_ID), RUN_BROKEN, missing=True),
    Rpc(
        "orchestrator",
        "ResumeRun",
        lambda: pb2.ResumeRunRequest(run_id=RUN_ID, decision="APPROVAL_DECISION_APPROVE"),
        {
            **RUN_BROKEN,
            "approval": put(approval=-1),
            "decision": put(decision=0),
            "decision ": put(decision=4),
            "feedback": put(feedback=wide(8 * KIB + 1)),
        },
        {
            "upper case": put(run_id=RUN_ID.upper()),
            "approval": put(approval=2**31 - 1),
            "revise": put(decision=3, feedback="a"),
            "feedback": put(feedback=wide(8 * KIB)),
        },
        missing=True,
    ),
    Rpc(
        "orchestrator",
        "ListRuns",
        pb2.ListRunsRequest,
        {
            **PAGES_BROKEN,
            "state": put(state=9),
            "outcome": put(outcome=99),
            "workflow": put(workflow=wide(65)),
            "principal": put(principal=wide(129)),
            "create_time_from": _starting(create_time_from=2**60),
            "create_time_before": _starting(create_time_before=-(2**60)),
        },
        {
            **PAGES_TAKEN,
            "filters": put(state=3, outcome=11),
            "names": put(workflow=wide(64), principal=wide(128)),
            "times": _starting(create_time_from=-62135596800, create_time_before=253402300799),
            "no time at all": _starting(create_time_from=9, create_time_before=8),
        },
    ),
]
