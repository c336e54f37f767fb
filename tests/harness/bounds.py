"""Requests at their bounds and beyond: what breaks each field of the contract, and what is just taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from errata.corpus.v1 import filter_pb2, passage_pb2
from errata.generator.v1 import generator_service_pb2 as generator_pb2
from errata.grading.v1 import grading_pb2

from tests.harness.services import (
    CALL_SECONDS,
    Served,
    passage,
)

KIB = 1024
WIDE = "ä"  # two bytes, so that a bound in characters would be off by a factor
RUN_ID = "01890000-0000-7000-8000-000000000000"


Change = Callable[[Any], None]


@dataclass(frozen=True)
class Rpc:
    """A method, a request that it takes, what breaks the request (by the path that must be named), and what just does not."""

    service: str
    method: str
    valid: Callable[[], Any]
    broken: Mapping[str, Change]
    taken: Mapping[str, Change] = field(default_factory=dict)
    missing: bool = False  # The call fails as NOT_FOUND where the request is taken.

    def call(self, served: Served, request: Any) -> Any:
        return getattr(served.stub, self.method)(request, timeout=CALL_SECONDS)


def put(**values: Any) -> Change:
    """Set scalar fields, or replace a repeated one."""

    def change(message: Any) -> None:
        for name, value in values.items():
            if isinstance(value, list):
                message.ClearField(name)
                getattr(message, name).extend(value)
            else:
                setattr(message, name, value)

    return change


def at(path: str, **values: Any) -> Change:
    """Set fields of a message inside, such as passages.3."""

    def change(message: Any) -> None:
        for part in path.split("."):
            message = message[int(part)] if part.isdigit() else getattr(message, part)
        put(**values)(message)

    return change


def entries(path: str, values: Mapping[str, str]) -> Change:
    """Add metadata to a message inside."""

    def change(message: Any) -> None:
        for part in path.split("."):
            message = message[int(part)] if part.isdigit() else getattr(message, part)
        message.metadata.update(values)

    return change


def wide(limit: int) -> str:
    """A text of exactly so many bytes, most of them in characters of two."""
    return WIDE * (limit // 2) + "a" * (limit % 2)


def passages(count: int) -> list[passage_pb2.Passage]:
    return [passage(f"p{number}") for number in range(count)]


QUESTION_BROKEN = {
    "question": put(question=""),
    "question ": put(question=" \n"),
    "question  ": put(question=wide(8 * KIB + 1)),
}
QUESTION_TAKEN = {"question": put(question=wide(8 * KIB)), "question of one byte": put(question="a")}
ANSWER_BROKEN = {"answer": put(answer=""), "answer ": put(answer=wide(64 * KIB + 1))}
CRITERION_NAMES_BROKEN: dict[str, Change] = {
    f"criteria[0].name{' ' * place}": put(criteria=[grading_pb2.Criterion(name=name)])
    for place, name in enumerate(("", "a" * 65, "A", "1a", "_a", "a-b", "a b", "ä", "a\n", "overall", "faithfulness"))
}
OVERALL_BROKEN: dict[str, Change] = {
    f"overall_threshold{' ' * place}": put(overall_threshold=value) for place, value in enumerate((-0.001, 1.001, float("inf")))
}
OVERALL_TAKEN: dict[str, Change] = {"overall 0": put(overall_threshold=0), "overall 1": put(overall_threshold=1)}
PASSAGES_BROKEN: dict[str, Change] = {
    "passages": put(passages=passages(101)),
    "passages ": put(passages=[passage("same"), passage("same")]),
    "passages[0].passage_id": at("passages.0", passage_id=""),
    "passages[0].passage_id ": at("passages.0", passage_id=wide(129)),
    "passages[3].text": at("passages.3", text=""),
    "passages[3].text ": at("passages.3", text=wide(16 * KIB + 1)),
    "passages[1].document_id": at("passages.1", document_id=wide(513)),
    "passages[1].title": at("passages.1", title=wide(KIB + 1)),
    "passages[2].heading_path": at("passages.2", heading_path=["h"] * 17),
    "passages[2].heading_path[1]": at("passages.2", heading_path=["h", wide(513)]),
    "passages[1].source_uri": at("passages.1", source_uri=wide(2 * KIB + 1)),
    "passages[1].start_line": at("passages.1", start_line=-1),
    "passages[1].end_line": at("passages.1", end_line=-1),
    "passages[0].metadata": entries("passages.0", {str(number): "" for number in range(65)}),
    "passages[0].metadata.k": entries("passages.0", {"k": wide(KIB + 1)}),
}
PASSAGES_TAKEN: dict[str, Change] = {
    "100 passages": put(passages=passages(100)),
    "passage_id": at("passages.0", passage_id=wide(128)),
    "text": at("passages.3", text=wide(16 * KIB)),
    "document_id": at("passages.1", document_id=wide(512)),
    "title": at("passages.1", title=wide(KIB)),
    "heading_path": at("passages.2", heading_path=[wide(512)] * 16),
    "source_uri": at("passages.1", source_uri=wide(2 * KIB)),
    "metadata": entries("passages.0", {str(number): wide(KIB) for number in range(64)}),
}


def claim(**values: Any) -> grading_pb2.Claim:
    return grading_pb2.Claim(**{"claim_id": "c1", "text": "made up", "verdict": "VERDICT_UNSUPPORTED", **values})


def where(**test: Any) -> filter_pb2.MetadataFilter:
    return filter_pb2.MetadataFilter(condition=filter_pb2.MetadataCondition(**{"field": "metadata.a", **test}))


def nested(depth: int, inner: filter_pb2.MetadataFilter) -> filter_pb2.MetadataFilter:
    for _ in range(depth - 1):
        inner = filter_pb2.MetadataFilter(all_of=filter_pb2.MetadataFilterList(filters=[inner]))
    return inner


def of(kind: str, count: int, inner: filter_pb2.MetadataFilter | None = None) -> filter_pb2.MetadataFilter:
    parts = filter_pb2.MetadataFilterList(filters=[inner or where(equals="x")] * count)
    chosen: dict[str, Any] = {kind: parts}
    return filter_pb2.MetadataFilter(**chosen)


def filtered(chosen: filter_pb2.MetadataFilter) -> Change:
    return lambda message: message.filter.CopyFrom(chosen)


def values(*texts: str) -> filter_pb2.StringList:
    return filter_pb2.StringList(values=texts)


def numbers(**bounds: float) -> filter_pb2.NumberRange:
    return filter_pb2.NumberRange(**bounds)


FILTERS_BROKEN = {
    "5 deep": nested(5, where(equals="x")),
    "65 parts": of("all_of", 64),
    "any_of nothing": of("any_of", 0),
    "no field": where(field="", equals="x"),
    "unknown field": where(field="text", equals="x"),
    "no key": where(field="metadata.", equals="x"),
    "long key": where(field=f"metadata.{'k' * 65}", equals="x"),
    "odd key": where(field="metadata.a b", equals="x"),
    "no test": where(),
    "long value": where(equals=wide(KIB + 1)),
    "no values": where(one_of=values()),
    "101 values": where(one_of=values(*["x"] * 101)),
    "a long value among others": where(one_of=values("x", wide(KIB + 1))),
    "has_code maybe": where(field="has_code", equals="maybe"),
    "range of nothing": where(number_range=numbers()),
    "range of no number": where(number_range=numbers(minimum=float("nan"))),
    "range of a title": where(field="title", number_range=numbers(minimum=1)),
    "times without end": where(time_range=filter_pb2.TimeRange()),
}
FILTERS_TAKEN = {
    "filter nothing": filter_pb2.MetadataFilter(),
    "filter 4 deep": nested(4, where(equals="x")),
    "filter 4 deep, exists not": nested(4, where(exists=False)),
    "filter of 64 parts": of("all_of", 63),
    "filter of 63 that do not exist": of("any_of", 63, where(exists=False)),
    "filter long key": where(field=f"metadata.{'k' * 64}", equals="x"),
    "filter long value": where(equals=wide(KIB)),
    "filter 100 values": where(one_of=values(*[wide(KIB)] * 100)),
    "filter endless range": where(number_range=numbers(minimum=float("-inf"))),
    "filter exists": where(exists=True),
}
FILTER_BROKEN = {f"filter{' ' * place}": filtered(chosen) for place, chosen in enumerate(FILTERS_BROKEN.values())}
FILTER_TAKEN = {name: filtered(chosen) for name, chosen in FILTERS_TAKEN.items()}
COLLECTION_BROKEN = {
    f"collection{' ' * place}": put(collection=name)
    for place, name in enumerate(("a" * 64, "A", "-a", "_a", "a b", "ä", "a\n", "../a"))
}
COLLECTION_TAKEN = {"collection": put(collection="a" * 63)}
PAGES_BROKEN = {"page_size": put(page_size=-1), "page_token": put(page_token="no token")}
PAGES_TAKEN = {"page_size 0": put(page_size=0), "page_size": put(page_size=500), "more": put(page_size=2**31 - 1)}
RUN_BROKEN = {
    f"run_id{' ' * place}": put(run_id=name) for place, name in enumerate(("", "1", RUN_ID + "0", RUN_ID.replace("-", "")))
}
SETTINGS_BROKEN: dict[str, Change] = {
    **{f"settings.top_k{' ' * value}": at("settings", top_k=value * 101) for value in (0, 1)},
    "settings.relevance_threshold": at("settings", relevance_threshold=1.001),
    "settings.relevance_threshold ": at("settings", relevance_threshold=float("nan")),
    "settings.min_relevant": at("settings", min_relevant=0),
    "settings.min_relevant ": at("settings", min_relevant=101),
    "settings.max_retrievals": at("settings", max_retrievals=0),
    "settings.max_retrievals ": at("settings", max_retrievals=11),
    "settings.faithfulness_threshold": at("settings", faithfulness_threshold=-0.001),
    "settings.max_refinements": at("settings", max_refinements=-1),
    "settings.max_refinements ": at("settings", max_refinements=6),
    "settings.search_mode": at("settings", search_mode=9),
}
SETTINGS_TAKEN: dict[str, Change] = {
    "least": at("settings", top_k=1, relevance_threshold=0, min_relevant=1, max_retrievals=1, max_refinements=0),
    "most": at("settings", top_k=100, relevance_threshold=1, min_relevant=100, max_retrievals=10, max_refinements=5),
    "scores": at("settings", faithfulness_threshold=1, relevance_threshold=0.0),
}
TASK_BROKEN = {"task": put(task=""), "task ": put(task=" \n"), "task  ": put(task=wide(8 * KIB + 1))}
TASK_TAKEN = {"task": put(task=wide(8 * KIB)), "task of one byte": put(task="a")}
DRAFT_BROKEN = {"draft": put(draft=""), "draft ": put(draft=" \n"), "draft  ": put(draft=wide(64 * KIB + 1))}
DRAFT_TAKEN = {"draft": put(draft=wide(64 * KIB))}


def criteria(count: int) -> list[grading_pb2.Criterion]:
    return [grading_pb2.Criterion(name=f"own_{number}") for number in range(count)]


CRITERIA_BROKEN: dict[str, Change] = {
    "criteria": put(criteria=criteria(21)),
    "criteria ": put(criteria=[*criteria(2), *criteria(1)]),
    "criteria[1].name": put(criteria=[*criteria(1), grading_pb2.Criterion(name="Own")]),
    "criteria[0].name": put(criteria=[grading_pb2.Criterion(name="a" * 65)]),
    "criteria[0].name ": put(criteria=[grading_pb2.Criterion(name="overall")]),
    "criteria[0].name  ": put(criteria=[grading_pb2.Criterion(name="faithfulness")]),
    "criteria[0].description": put(criteria=[grading_pb2.Criterion(name="own", description=wide(KIB + 1))]),
    "criteria[0].threshold": put(criteria=[grading_pb2.Criterion(name="own", threshold=1.001)]),
    "criteria[0].threshold ": put(criteria=[grading_pb2.Criterion(name="own", threshold=float("nan"))]),
}
CRITERIA_TAKEN: dict[str, Change] = {
    "20 criteria": put(criteria=criteria(20)),
    "criteria": put(criteria=[grading_pb2.Criterion(name="a" * 64, description=wide(KIB), threshold=0)]),
}


def draft_issue(**values: Any) -> grading_pb2.DraftIssue:
    return grading_pb2.DraftIssue(**{"criterion": "clarity", "severity": 1, "description": "unclear", **values})


WRITE_DRAFT = Rpc(
    "generator",
    "WriteDraft",
    lambda: generator_pb2.WriteDraftRequest(task="t", passages=passages(4)),
    {**TASK_BROKEN, **PASSAGES_BROKEN, **CRITERIA_BROKEN},
    {**TASK_TAKEN, **PASSAGES_TAKEN, **CRITERIA_TAKEN, "no passages": put(passages=[])},
)
REVISE_DRAFT = Rpc(
    "generator",
    "ReviseDraft",
    lambda: generator_pb2.ReviseDraftRequest(
        task="t", draft="made up", passages=passages(4), failing_claims=[claim(), claim()], issues=[draft_issue()] * 2
    ),
    {
        **TASK_BROKEN,
        **DRAFT_BROKEN,
        **PASSAGES_BROKEN,
        **CRITERIA_BROKEN,
        "issues": put(issues=[draft_issue()] * 51),
        "issues[1].severity": at("issues.1", severity=0),
        "issues[1].severity ": at("issues.1", severity=9),
        "issues[1].criterion": at("issues.1", criterion=wide(65)),
        "issues[1].description": at("issues.1", description=wide(2 * KIB + 1)),
        "issues[1].quote": at("issues.1", quote=wide(2 * KIB + 1)),
        "suggestions": put(suggestions=["s"] * 21),
        "suggestions[1]": put(suggestions=["s", wide(2 * KIB + 1)]),
        "failing_claims": put(failing_claims=[claim()] * 201),
        "failing_claims[1].text": at("failing_claims.1", text=wide(8 * KIB + 1)),
        "failing_claims[1].verdict": at("failing_claims.1", verdict=0),
        "failing_claims[1].span.start": at("failing_claims.1.span", start=-1),
        "feedback": put(feedback=wide(8 * KIB + 1)),
    },
    {
        **TASK_TAKEN,
        **DRAFT_TAKEN,
        **PASSAGES_TAKEN,
        **CRITERIA_TAKEN,
        "no passages": put(passages=[]),
        "50 issues": put(issues=[draft_issue(description=wide(2 * KIB), quote=wide(2 * KIB))] * 50),
        "20 suggestions": put(suggestions=[wide(2 * KIB)] * 20),
        "200 claims": put(failing_claims=[claim()] * 200),
        "feedback": put(feedback=wide(8 * KIB)),
    },
)
