"""Shared messages as domain values and back: nothing is lost on the way."""

import datetime
from typing import cast

import pytest
from errata.corpus.v1 import filter_pb2, passage_pb2
from errata.grading.v1 import grading_pb2
from errata.usage.v1 import usage_pb2
from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.timestamp_pb2 import Timestamp

from errata_kit.bounds import Bounded, Question, validated
from errata_kit.errors import InvalidFields, Reason
from errata_kit.grades import AnswerGrade, Claim, Evidence, FindingKind, GuardFinding, HallucinationRisk, PassageGrade, Verdict
from errata_kit.passages import Answer, Citation, Passage, Span
from errata_kit.rpc import convert
from errata_kit.search import AllOf, AnyOf, Equals, Exists, Filter, NoneOf, OneOf, Range, SearchMode
from errata_kit.usage import ModelCall

PASSAGE = Passage(
    passage_id="p",
    text="Größe",
    title="Title",
    heading_path=("A", "B"),
    document_id="d",
    start_line=3,
    end_line=9,
    has_code=True,
    source_uri="file:///d",
    metadata={"team": "x", "": "empty key"},
)
CLAIM = Claim("c1", "Claim", Span(0, 5), Verdict.CONTRADICTED, 0.25, (Evidence("p", "Größe", Span(0, 7)),), "Why")


def all_set(message: object) -> bool:
    """Whether every field of a message has a value, so that a field which is forgotten shows."""
    fields = message.DESCRIPTOR.fields  # type: ignore[attr-defined]
    return {item.name for item in fields} == {item.name for item, _ in message.ListFields()}  # type: ignore[attr-defined]


def test_a_passage_survives() -> None:
    message = convert.passage_to(PASSAGE)
    assert all_set(message)
    assert convert.passage_from(passage_pb2.Passage.FromString(message.SerializeToString())) == PASSAGE


def test_an_answer_survives() -> None:
    answer = Answer("Text [1]", (Citation(1, "p", Span(2, 4)),), "model", refusal=True)
    message = convert.answer_to(answer)
    assert all_set(message) and all_set(message.citations[0])
    assert convert.answer_from(message) == answer


def test_grades_survive() -> None:
    grade = PassageGrade(0.25, True, "why")
    assert convert.grade_from(convert.grade_to(grade)) == grade
    assert all_set(convert.claim_to(CLAIM)) and convert.claim_from(convert.claim_to(CLAIM)) == CLAIM
    finding = GuardFinding(FindingKind.FLAG, "--x", Span(1, 4), "why", "c1")
    whole = AnswerGrade((CLAIM,), 0.5, HallucinationRisk.MEDIUM, ("c1",), (finding,), "do", "model")
    message = convert.answer_grade_to(whole)
    assert all_set(message) and all_set(message.findings[0])
    assert convert.answer_grade_from(message) == whole


def test_usage_survives_with_and_without_a_price() -> None:
    call = ModelCall(
        "m", "op", "v1", 10, 4, 3, estimated=True, cost_micros=7, latency_seconds=1.5, attempts=2, error=Reason.MODEL_REFUSED
    )
    unknown = ModelCall("m", "op", cost_micros=None)
    free = ModelCall("m", "op", cost_micros=0)
    message = convert.usage_to((call, unknown, free))
    assert all_set(message.model_calls[0]) and not message.model_calls[1].HasField("cost_micros")
    restored = convert.model_calls_from(usage_pb2.Usage.FromString(message.SerializeToString()))
    assert restored == (call, unknown, free)


@pytest.mark.parametrize(
    ("enum", "names", "prefix"),
    [
        (grading_pb2.Verdict.DESCRIPTOR, Verdict, "VERDICT_"),
        (grading_pb2.HallucinationRisk.DESCRIPTOR, HallucinationRisk, "HALLUCINATION_RISK_"),
        (grading_pb2.FindingKind.DESCRIPTOR, FindingKind, "FINDING_KIND_"),
    ],
)
def test_enums_are_those_of_the_protos(enum: EnumDescriptor, names: type[Verdict], prefix: str) -> None:
    stated = {name.removeprefix(prefix) for name in enum.values_by_name}
    assert stated - {"UNSPECIFIED"} == {item.value for item in names}


@pytest.mark.parametrize("mode", list(SearchMode))
def test_search_modes_survive(mode: SearchMode) -> None:
    message = cast("filter_pb2.SearchMode", filter_pb2.SearchMode.Value(convert.mode_to(mode)))
    assert convert.mode_from(message) is mode


def test_a_search_mode_that_is_none_is_a_broken_field() -> None:
    with pytest.raises(InvalidFields) as caught:
        convert.mode_from(cast("filter_pb2.SearchMode", 42))
    assert [item.field for item in caught.value.violations] == ["mode"]


T = datetime.datetime(2025, 5, 1, 12, 30, tzinfo=datetime.UTC)
FILTERS: list[Filter] = [
    AllOf(()),
    AllOf((Equals("metadata.a", ""), OneOf("title", ("a", "b")))),
    AnyOf((Exists("metadata.a"), NoneOf((Exists("metadata.b"),)))),
    Range("metadata.n", gte=-1.5),
    Range("metadata.n", gte=0.0, lte=0.0),
    Range("metadata.t", gte=T),
    Range("metadata.t", gte=T, lte=T + datetime.timedelta(microseconds=1)),
    NoneOf((Equals("has_code", "true"),)),
    AllOf((AnyOf((NoneOf((Equals("document_id", "d"),)),)),)),
]


@pytest.mark.parametrize("selection", FILTERS, ids=repr)
def test_filters_survive(selection: Filter) -> None:
    message = convert.filter_to(selection)
    assert message is not None
    assert convert.filter_from(filter_pb2.MetadataFilter.FromString(message.SerializeToString())) == selection


def test_no_filter_is_no_filter() -> None:
    assert convert.filter_to(None) is None and convert.filter_from(filter_pb2.MetadataFilter()) is None


@pytest.mark.parametrize("seconds", [253_402_300_800, -62_135_596_801])
def test_a_time_out_of_range_is_a_broken_field(seconds: int) -> None:
    times = filter_pb2.TimeRange(earliest=Timestamp(seconds=seconds))
    condition = filter_pb2.MetadataCondition(field="metadata.t", time_range=times)
    with pytest.raises(InvalidFields):
        convert.filter_from(filter_pb2.MetadataFilter(condition=condition))


def test_a_filter_far_too_deep_is_a_broken_field() -> None:
    message = filter_pb2.MetadataFilter()
    for _ in range(40):
        message = filter_pb2.MetadataFilter(all_of=filter_pb2.MetadataFilterList(filters=[message]))
    with pytest.raises(InvalidFields):
        convert.filter_from(message)


@pytest.mark.parametrize("seconds", [0.0, 0.25, 1.5, 3600.0])
def test_durations_survive(seconds: float) -> None:
    assert convert.duration(seconds).ToNanoseconds() == int(seconds * 1e9)


def test_a_moment_survives() -> None:
    assert convert.timestamp(T).ToDatetime(datetime.UTC) == T


class Several(Bounded):
    question: Question
    passages: tuple[Passage, ...]
    size: int


def test_every_broken_field_is_named_by_its_path() -> None:
    passages = [convert.passage_values(passage_pb2.Passage(passage_id="p", text="x" if n != 3 else "")) for n in range(5)]
    with pytest.raises(InvalidFields) as caught:
        validated(Several, {"question": "", "passages": passages, "size": "many"})
    assert [item.field for item in caught.value.violations] == ["question", "passages[3].text", "size"]
    for item in caught.value.violations:
        assert item.description and not item.description.startswith("Value error")
        assert item.field in caught.value.message
