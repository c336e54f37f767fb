"""Messages that two or more services share, as domain values, and back."""

import datetime
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final

from errata.corpus.v1 import filter_pb2, passage_pb2
from errata.errors.v1 import errors_pb2
from errata.grading.v1 import grading_pb2
from errata.usage.v1 import usage_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from errata_kit import edits, grades, passages, search, usage
from errata_kit.bounds import first_entries, first_few, invalid
from errata_kit.errors import Reason

# What the models of passages and claims take; whatever is beyond is not even read.
_MAX_HEADINGS: Final = 16
_MAX_METADATA: Final = 64
_MAX_EVIDENCE: Final = 100


def passage_values(message: passage_pb2.Passage) -> dict[str, Any]:
    """The fields of a passage, for a model that checks them."""
    return {
        "passage_id": message.passage_id,
        "text": message.text,
        "title": message.title,
        "heading_path": tuple(first_few(message.heading_path, _MAX_HEADINGS)),
        "document_id": message.document_id,
        "start_line": message.start_line,
        "end_line": message.end_line,
        "has_code": message.has_code,
        "source_uri": message.source_uri,
        "metadata": first_entries(message.metadata, _MAX_METADATA),
    }


def passage_from(message: passage_pb2.Passage) -> passages.Passage:
    """A passage from one of our own services."""
    return passages.Passage(**passage_values(message))


def passage_to(passage: passages.Passage) -> passage_pb2.Passage:
    """A passage as a message."""
    return passage_pb2.Passage(
        passage_id=passage.passage_id,
        document_id=passage.document_id,
        title=passage.title,
        heading_path=passage.heading_path,
        text=passage.text,
        start_line=passage.start_line,
        end_line=passage.end_line,
        has_code=passage.has_code,
        source_uri=passage.source_uri,
        metadata=passage.metadata,
    )


def span_from(message: passage_pb2.Span) -> passages.Span:
    """A span from one of our own services."""
    return passages.Span(message.start, message.end)


def span_to(span: passages.Span) -> passage_pb2.Span:
    """A span as a message."""
    return passage_pb2.Span(start=span.start, end=span.end)


def answer_from(message: passage_pb2.Answer) -> passages.Answer:
    """An answer from one of our own services."""
    cited = tuple(passages.Citation(item.number, item.passage_id, span_from(item.span)) for item in message.citations)
    return passages.Answer(message.text, cited, message.model, message.refusal)


def answer_to(answer: passages.Answer) -> passage_pb2.Answer:
    """An answer as a message."""
    cited = [
        passage_pb2.Citation(number=item.number, passage_id=item.passage_id, span=span_to(item.span))
        for item in answer.citations
    ]
    return passage_pb2.Answer(text=answer.text, citations=cited, model=answer.model, refusal=answer.refusal)


def grade_from(message: grading_pb2.PassageGrade) -> grades.PassageGrade:
    """A passage's grade from the judge."""
    kinds = (grading_pb2.InjectionKind.Name(kind).removeprefix("INJECTION_KIND_") for kind in message.injections)
    return grades.PassageGrade(
        message.score, message.relevant, message.reasoning, tuple(grades.InjectionKind(kind) for kind in kinds)
    )


def grade_to(grade: grades.PassageGrade) -> grading_pb2.PassageGrade:
    """A passage's grade as a message."""
    return grading_pb2.PassageGrade(
        score=grade.score,
        relevant=grade.relevant,
        reasoning=grade.reasoning,
        injections=[f"INJECTION_KIND_{kind.value}" for kind in grade.injections],
    )


def claim_values(message: grading_pb2.Claim) -> dict[str, Any]:
    """The fields of a claim, for a model that checks them."""
    return {
        "claim_id": message.claim_id,
        "text": message.text,
        "span": {"start": message.span.start, "end": message.span.end},
        "verdict": _verdict(message.verdict),
        "support": message.support,
        "evidence": [
            {
                "passage_id": item.passage_id,
                "quote": item.quote,
                "span": {"start": item.span.start, "end": item.span.end},
            }
            for item in first_few(message.evidence, _MAX_EVIDENCE)
        ],
        "explanation": message.explanation,
    }


def claim_from(message: grading_pb2.Claim) -> grades.Claim:
    """A claim from the judge."""
    return grades.Claim(**claim_values(message))


def claim_to(claim: grades.Claim) -> grading_pb2.Claim:
    """A claim as a message."""
    return grading_pb2.Claim(
        claim_id=claim.claim_id,
        text=claim.text,
        span=span_to(claim.span),
        verdict=f"VERDICT_{claim.verdict.value}",
        support=claim.support,
        evidence=[
            grading_pb2.Evidence(passage_id=item.passage_id, quote=item.quote, span=span_to(item.span))
            for item in claim.evidence
        ],
        explanation=claim.explanation,
    )


def finding_from(message: grading_pb2.GuardFinding) -> grades.GuardFinding:
    """What the guard found."""
    return grades.GuardFinding(
        kind=grades.FindingKind(grading_pb2.FindingKind.Name(message.kind).removeprefix("FINDING_KIND_")),
        text=message.text,
        span=span_from(message.span),
        explanation=message.explanation,
        claim_id=message.claim_id,
    )


def finding_to(finding: grades.GuardFinding) -> grading_pb2.GuardFinding:
    """What the guard found, as a message."""
    return grading_pb2.GuardFinding(
        kind=f"FINDING_KIND_{finding.kind.value}",
        text=finding.text,
        span=span_to(finding.span),
        explanation=finding.explanation,
        claim_id=finding.claim_id,
    )


def edit_from(message: grading_pb2.AnswerEdit) -> edits.Edit:
    """A change of an answer from the generator."""
    return edits.Edit(span_from(message.span), message.before, message.after, tuple(message.claim_ids), message.reason)


def edit_to(edit: edits.Edit) -> grading_pb2.AnswerEdit:
    """A change of an answer as a message."""
    return grading_pb2.AnswerEdit(
        claim_ids=edit.claim_ids, span=span_to(edit.span), before=edit.before, after=edit.after, reason=edit.reason
    )


def rejected_from(message: grading_pb2.RejectedEdit) -> edits.RejectedEdit:
    """A change that was not made, from the generator."""
    return edits.RejectedEdit(message.after, message.reason)


def rejected_to(edit: edits.RejectedEdit) -> grading_pb2.RejectedEdit:
    """A change that was not made, as a message."""
    return grading_pb2.RejectedEdit(after=edit.after, reason=edit.reason)


def answer_grade_from(message: grading_pb2.AnswerGrade) -> grades.AnswerGrade:
    """An answer's grade from the judge."""
    risk = grading_pb2.HallucinationRisk.Name(message.hallucination_risk).removeprefix("HALLUCINATION_RISK_")
    return grades.AnswerGrade(
        claims=tuple(claim_from(claim) for claim in message.claims),
        faithfulness_score=message.faithfulness_score,
        hallucination_risk=grades.HallucinationRisk(risk),
        problematic_claim_ids=tuple(message.problematic_claim_ids),
        findings=tuple(map(finding_from, message.findings)),
        refinement_suggestion=message.refinement_suggestion,
        model=message.model,
    )


def answer_grade_to(grade: grades.AnswerGrade) -> grading_pb2.AnswerGrade:
    """An answer's grade as a message."""
    return grading_pb2.AnswerGrade(
        claims=[claim_to(claim) for claim in grade.claims],
        faithfulness_score=grade.faithfulness_score,
        hallucination_risk=f"HALLUCINATION_RISK_{grade.hallucination_risk.value}",
        problematic_claim_ids=grade.problematic_claim_ids,
        findings=map(finding_to, grade.findings),
        refinement_suggestion=grade.refinement_suggestion,
        model=grade.model,
    )


def model_calls_from(message: usage_pb2.Usage) -> tuple[usage.ModelCall, ...]:
    """Model calls that another service made, and behind them those that it was saved."""
    made = (_model_call_from(item, False) for item in message.model_calls)
    return (*made, *(_model_call_from(item, True) for item in message.saved_calls))


def usage_to(calls: Iterable[usage.ModelCall]) -> usage_pb2.Usage:
    """Model calls as a message."""
    message = usage_pb2.Usage()
    for call in calls:
        (message.saved_calls if call.saved else message.model_calls).append(
            usage_pb2.ModelCall(
                model=call.model,
                operation=call.operation,
                prompt_version=call.prompt_version,
                input_tokens=call.input_tokens,
                cached_input_tokens=call.cached_input_tokens,
                output_tokens=call.output_tokens,
                estimated=call.estimated,
                cost_micros=call.cost_micros,
                latency=duration(call.latency_seconds),
                attempts=call.attempts,
                error=None if call.error is None else f"ERROR_REASON_{call.error.value}",
            )
        )
    return message


def _model_call_from(item: usage_pb2.ModelCall, saved: bool) -> usage.ModelCall:
    return usage.ModelCall(
        model=item.model,
        operation=item.operation,
        prompt_version=item.prompt_version,
        input_tokens=item.input_tokens,
        cached_input_tokens=item.cached_input_tokens,
        output_tokens=item.output_tokens,
        estimated=item.estimated,
        cost_micros=item.cost_micros if item.HasField("cost_micros") else None,
        latency_seconds=item.latency.ToNanoseconds() / 1e9,
        attempts=item.attempts,
        error=_reason(item.error),
        saved=saved,
    )


def filter_from(message: filter_pb2.MetadataFilter) -> search.Filter | None:
    """A filter from a request; None when it selects everything. Raises InvalidFields for one that breaks its bounds."""
    if message.WhichOneof("kind") is None:
        return None
    selection = _filter(message, 1, itertools.count(1))
    search.validate(selection)
    return selection


def filter_to(selection: search.Filter | None) -> filter_pb2.MetadataFilter | None:
    """A filter as a message."""
    match selection:
        case None:
            return None
        case search.AllOf(parts):
            return filter_pb2.MetadataFilter(all_of=_filter_list(parts))
        case search.AnyOf(parts):
            return filter_pb2.MetadataFilter(any_of=_filter_list(parts))
        case search.NoneOf(parts):
            return filter_pb2.MetadataFilter(none_of=_filter_list(parts))
        case leaf:
            return filter_pb2.MetadataFilter(condition=_condition_to(leaf))


def mode_from(mode: filter_pb2.SearchMode, field: str = "mode") -> search.SearchMode:
    """A search mode from a request. Raises InvalidFields for a number that is none."""
    try:
        name = filter_pb2.SearchMode.Name(mode).removeprefix("SEARCH_MODE_")
    except ValueError:
        raise invalid(field, "is not a search mode") from None
    return search.SearchMode.DEFAULT if name == "UNSPECIFIED" else search.SearchMode[name]


def mode_to(mode: search.SearchMode) -> str:
    """A search mode as the name of a message's enum."""
    name = "UNSPECIFIED" if mode is search.SearchMode.DEFAULT else mode.name
    return f"SEARCH_MODE_{name}"


def duration(seconds: float) -> Duration:
    """Seconds as a Duration."""
    message = Duration()
    message.FromNanoseconds(int(seconds * 1e9))
    return message


def timestamp(moment: Any) -> Timestamp:
    """An aware datetime as a Timestamp."""
    message = Timestamp()
    message.FromDatetime(moment)
    return message


def _verdict(value: grading_pb2.Verdict) -> str:
    # A number that the enum lacks is left to the model's own check.
    known = value in grading_pb2.Verdict.values()
    return grading_pb2.Verdict.Name(value).removeprefix("VERDICT_") if known else str(value)


def _reason(value: errors_pb2.ErrorReason) -> Reason | None:
    return Reason(errors_pb2.ErrorReason.Name(value).removeprefix("ERROR_REASON_")) if value else None


def _filter(message: filter_pb2.MetadataFilter, depth: int, seen: Iterator[int]) -> search.Filter:
    if depth > search.MAX_DEPTH:
        raise invalid("filter", f"must nest at most {search.MAX_DEPTH} deep")
    # While it is read: a message has room for millions.
    if next(seen) > search.MAX_CONDITIONS:
        raise invalid("filter", f"has more than {search.MAX_CONDITIONS} conditions")
    match message.WhichOneof("kind"):
        case "all_of":
            return search.AllOf(tuple(_filter(part, depth + 1, seen) for part in message.all_of.filters))
        case "any_of":
            return search.AnyOf(tuple(_filter(part, depth + 1, seen) for part in message.any_of.filters))
        case "none_of":
            return search.NoneOf(tuple(_filter(part, depth + 1, seen) for part in message.none_of.filters))
        case "condition":
            return _condition(message.condition)
        case _:
            return search.AllOf(())


def _filter_list(parts: tuple[search.Filter, ...]) -> filter_pb2.MetadataFilterList:
    return filter_pb2.MetadataFilterList(filters=[part for part in map(filter_to, parts) if part is not None])


def _condition(message: filter_pb2.MetadataCondition) -> search.Filter:
    match message.WhichOneof("test"):
        case "equals":
            return search.Equals(message.field, message.equals)
        case "one_of":
            return search.OneOf(message.field, tuple(first_few(message.one_of.values, search.MAX_VALUES)))
        case "number_range":
            numbers = message.number_range
            return search.Range(
                message.field,
                gte=numbers.minimum if numbers.HasField("minimum") else None,
                lte=numbers.maximum if numbers.HasField("maximum") else None,
            )
        case "time_range":
            times = message.time_range
            return search.Range(
                message.field,
                gte=_moment(times.earliest) if times.HasField("earliest") else None,
                lte=_moment(times.latest) if times.HasField("latest") else None,
            )
        case "exists":
            exists = search.Exists(message.field)
            return exists if message.exists else search.Exists(message.field, exists=False)
        case _:
            raise invalid("filter", "has a condition without a test")


def _moment(message: Timestamp) -> datetime.datetime:
    try:
        return message.ToDatetime(datetime.UTC)
    except (ValueError, OverflowError):
        raise invalid("filter", "has a time that is none") from None


def _condition_to(leaf: search.Leaf) -> filter_pb2.MetadataCondition:
    message = filter_pb2.MetadataCondition(field=leaf.field)
    match leaf:
        case search.Equals():
            message.equals = leaf.value
        case search.OneOf():
            message.one_of.values.extend(leaf.values)
        case search.Exists():
            message.exists = leaf.exists
        case search.Range():
            _range_to(leaf, message)
    return message


def _range_to(leaf: search.Range, message: filter_pb2.MetadataCondition) -> None:
    for bound, number, moment in ((leaf.gte, "minimum", "earliest"), (leaf.lte, "maximum", "latest")):
        if isinstance(bound, datetime.datetime):
            getattr(message.time_range, moment).FromDatetime(bound)
        elif bound is not None:
            setattr(message.number_range, number, bound)
