"""The registry of reasons, and errors as statuses and back."""

import re
from pathlib import Path

import grpc
import pytest
from errata.errors.v1 import errors_pb2
from grpc_status import rpc_status

from errata_kit.errors import (
    CollectionNotFound,
    DeadlineExceeded,
    ErrataError,
    FieldViolation,
    InvalidFields,
    ModelRateLimited,
    Reason,
    RemoteError,
    RunCancelled,
    ServiceUnavailable,
)
from errata_kit.rpc.status import STATUS_OF_REASON, from_detail, from_rpc_error, to_detail, to_status, trailers

PROTO = Path(__file__).parents[3] / "protos/errata/errors/v1/errors.proto"


def test_the_reasons_are_those_of_the_proto() -> None:
    names = {name.removeprefix("ERROR_REASON_") for name in errors_pb2.ErrorReason.keys()}  # noqa: SIM118 - no dict
    assert names - {"UNSPECIFIED"} == {reason.value for reason in Reason}
    assert all(reason.name == reason.value for reason in Reason)


def test_every_reason_has_the_status_that_the_proto_states() -> None:
    stated = {}
    for comment, name in re.findall(r"((?:  //[^\n]*\n)+)  ERROR_REASON_(\w+) = [1-9]", PROTO.read_text()):
        codes = [word for word in re.findall(r"\b[A-Z_]{5,}\b", comment) if word in grpc.StatusCode.__members__]
        stated[name] = codes[-1]
    assert stated == {reason.value: STATUS_OF_REASON[reason].name for reason in Reason}


def rpc_error(error: ErrataError) -> grpc.aio.AioRpcError:
    """The error as it arrives at a client."""
    status = rpc_status.to_status(to_status(error))
    metadata = grpc.aio.Metadata(*status.trailing_metadata)
    return grpc.aio.AioRpcError(status.code, grpc.aio.Metadata(), metadata, status.details)


def bare(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "text of a driver")


@pytest.mark.parametrize("reason", list(Reason))
def test_an_error_keeps_its_reason_over_the_wire(reason: Reason) -> None:
    sent = RemoteError(reason, "A sentence.", metadata={"key": "value"}, retry_after=2.5)
    received = from_rpc_error(rpc_error(sent), "judge")
    assert (received.why, received.message, received.retry_after) == (reason, "A sentence.", 2.5)
    assert received.metadata == {"service": "judge", "key": "value"}
    item = from_detail(to_detail(sent))
    assert (item.why, item.message, item.metadata) == (reason, "A sentence.", {"key": "value"})


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, ServiceUnavailable),
        (grpc.StatusCode.UNIMPLEMENTED, ServiceUnavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceeded),
        (grpc.StatusCode.CANCELLED, RunCancelled),
    ],
)
def test_a_failed_transport_has_a_reason_too(code: grpc.StatusCode, kind: type[ErrataError]) -> None:
    error = from_rpc_error(bare(code), "judge")
    assert type(error) is kind and error.metadata["service"] == "judge" and "driver" not in error.message


@pytest.mark.parametrize("code", [grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.RESOURCE_EXHAUSTED])
def test_any_other_status_is_internal_without_its_text(code: grpc.StatusCode) -> None:
    error = from_rpc_error(bare(code), "judge")
    assert error.why is Reason.INTERNAL and "driver" not in error.message and code.name in error.message


def test_a_reason_of_a_newer_build_becomes_internal() -> None:
    detail = errors_pb2.ErrorDetail(reason=999, message="From the future.")  # type: ignore[arg-type]
    assert from_detail(detail).why is Reason.INTERNAL


def test_an_item_without_a_reason_becomes_internal() -> None:
    assert from_detail(errors_pb2.ErrorDetail(message="Odd.")).why is Reason.INTERNAL


def test_details_fit_into_a_calls_trailers() -> None:
    violations = tuple(FieldViolation("f" * 500, "d" * 5000) for _ in range(500))
    wordy = ErrataError("m" * 100_000, {f"{n:03}{'k' * 500}": "v" * 100_000 for n in range(100)})
    for error in (InvalidFields(violations), wordy, CollectionNotFound("c" * 100_000)):
        assert to_status(error).ByteSize() < 16_000, type(error)
        assert to_detail(error).ByteSize() < 64_000


def test_detail_never_leaves() -> None:
    error = ErrataError("A sentence.", detail="text of a driver")
    assert b"driver" not in to_status(error).SerializeToString() + to_detail(error).SerializeToString()
    assert "driver" not in f"{error} {error!r}"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ModelRateLimited(retry_after=3), "-1"),
        (RemoteError(Reason.JUDGEMENT_INCOMPLETE, ""), "-1"),
        (RemoteError(Reason.EMBEDDING_FAILED, ""), "-1"),
        (RemoteError(Reason.OVERLOADED, "", retry_after=1.5), "1500"),
        (RemoteError(Reason.INDEX_UNAVAILABLE, ""), None),
    ],
)
def test_the_pushback_says_whether_a_channel_may_try_again(error: ErrataError, expected: str | None) -> None:
    assert dict(trailers(error)).get("grpc-retry-pushback-ms") == expected
