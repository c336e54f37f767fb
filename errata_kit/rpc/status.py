"""Errata's errors as gRPC statuses, and back."""

from typing import Final

import grpc
from errata.errors.v1 import errors_pb2
from errata.usage.v1 import usage_pb2
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from errata_kit.errors import (
    DeadlineExceeded,
    ErrataError,
    InvalidFields,
    NotFound,
    Reason,
    RemoteError,
    RunCancelled,
    ServiceUnavailable,
)
from errata_kit.rpc import convert
from errata_kit.usage import ModelCall

DOMAIN: Final = "errata"
# gRPC breaks the call when its details do not fit into 8 KiB of headers at some proxies and 16 KiB here.
_MAX_VIOLATIONS: Final = 32
_MAX_TEXT: Final = 512
_MAX_DETAILS_BYTES: Final = 6 * 1024
_MAX_CALLS: Final = 4

STATUS_OF_REASON: Final[dict[Reason, grpc.StatusCode]] = {
    Reason.INVALID_FIELD: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    Reason.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
    Reason.COLLECTION_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.DOCUMENT_REJECTED: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.INDEX_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Reason.EMBEDDING_FAILED: grpc.StatusCode.UNAVAILABLE,
    Reason.EMBEDDING_MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.MODEL_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Reason.MODEL_RATE_LIMITED: grpc.StatusCode.UNAVAILABLE,
    Reason.MODEL_QUOTA_EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.MODEL_AUTHENTICATION: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.MODEL_REFUSED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.MODEL_TRUNCATED: grpc.StatusCode.UNAVAILABLE,
    Reason.MODEL_FILTERED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.MODEL_OUTPUT_INVALID: grpc.StatusCode.UNAVAILABLE,
    Reason.MODEL_CONTEXT_EXCEEDED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.MODEL_REQUEST_REJECTED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.JUDGEMENT_INCOMPLETE: grpc.StatusCode.UNAVAILABLE,
    Reason.RUN_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.RUN_NOT_WAITING: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.REQUEST_ID_REUSED: grpc.StatusCode.ALREADY_EXISTS,
    Reason.BUDGET_EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.OVERLOADED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.RATE_LIMITED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.DRAINING: grpc.StatusCode.UNAVAILABLE,
    Reason.DEADLINE_EXCEEDED: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.CANCELLED: grpc.StatusCode.CANCELLED,
    Reason.INTERNAL: grpc.StatusCode.INTERNAL,
    Reason.SERVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}

# The API was asked often enough: the model client has retried already, and a channel must not multiply that.
_NO_CHANNEL_RETRY: Final = frozenset(reason for reason in Reason if reason.startswith(("MODEL_", "EMBEDDING_", "JUDGEMENT_")))


def to_status(error: ErrataError) -> status_pb2.Status:
    """The error as a google.rpc.Status with ErrorInfo, and BadRequest, RetryInfo or ResourceInfo where they apply."""
    metadata = _fitting({key[:64]: value[:_MAX_TEXT] for key, value in list(error.metadata.items())[:16]})
    packed = [_packed(error_details_pb2.ErrorInfo(reason=error.why.value, domain=DOMAIN, metadata=metadata))]
    if isinstance(error, InvalidFields):
        violations = [
            error_details_pb2.BadRequest.FieldViolation(field=item.field[:128], description=item.description[:256])
            for item in error.violations[:_MAX_VIOLATIONS]
        ]
        while sum(item.ByteSize() for item in violations) > _MAX_DETAILS_BYTES:
            violations.pop()
        packed.append(_packed(error_details_pb2.BadRequest(field_violations=violations)))
    if isinstance(error, NotFound):
        info = error_details_pb2.ResourceInfo(resource_type=error.resource_type, resource_name=error.name[:_MAX_TEXT])
        packed.append(_packed(info))
    if error.model_calls:
        # What the failure has cost: the caller keeps the account of the run.
        packed.append(_packed(convert.usage_to(error.model_calls[:_MAX_CALLS])))
    if error.retry_after is not None:
        delay = Duration()
        delay.FromNanoseconds(int(max(0.0, error.retry_after) * 1e9))
        packed.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    code = STATUS_OF_REASON[error.why].value[0]
    return status_pb2.Status(code=code, message=error.message[:_MAX_TEXT], details=packed)


def _fitting(metadata: dict[str, str]) -> dict[str, str]:
    """As many of the first entries as fit; one that does not is left out whole."""
    room, kept = _MAX_DETAILS_BYTES // 2, {}
    for key, value in metadata.items():
        room -= len(key.encode()) + len(value.encode())
        if room >= 0:
            kept[key] = value
    return kept


def trailers(error: ErrataError) -> tuple[tuple[str, str], ...]:
    """Trailing metadata beside the status: whether, and when, the caller's channel may try again."""
    if error.why in _NO_CHANNEL_RETRY:
        return (("grpc-retry-pushback-ms", "-1"),)
    if error.retry_after is not None:
        return (("grpc-retry-pushback-ms", str(max(1, int(error.retry_after * 1000)))),)
    return ()


def to_detail(error: ErrataError) -> errors_pb2.ErrorDetail:
    """The error as an item of a batch or stream, or as the end of a run."""
    return errors_pb2.ErrorDetail(
        reason=f"ERROR_REASON_{error.why.value}",
        message=error.message[: 4 * _MAX_TEXT],
        metadata={key: value[: 2 * _MAX_TEXT] for key, value in list(error.metadata.items())[:16]},
    )


def from_detail(detail: errors_pb2.ErrorDetail) -> RemoteError:
    """An item's error as an exception. A reason that this build does not know becomes INTERNAL."""
    known = detail.reason in errors_pb2.ErrorReason.values()
    reason = _reason(errors_pb2.ErrorReason.Name(detail.reason)) if known else Reason.INTERNAL
    return RemoteError(reason, detail.message, metadata=dict(detail.metadata))


def from_rpc_error(error: grpc.aio.AioRpcError, service: str) -> ErrataError:
    """What a failed call of another service means here.

    An Errata error keeps its reason. Without one, the transport failed: the service can't be reached, the deadline passed, or
    the call was cancelled.
    """
    status = _status_of(error)
    if status is not None:
        retry_after: float | None = None
        info: error_details_pb2.ErrorInfo | None = None
        calls: tuple[ModelCall, ...] = ()
        for packed in status.details:
            if packed.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
                info = error_details_pb2.ErrorInfo()
                packed.Unpack(info)
            elif packed.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
                retry = error_details_pb2.RetryInfo()
                packed.Unpack(retry)
                retry_after = retry.retry_delay.ToNanoseconds() / 1e9
            elif packed.Is(usage_pb2.Usage.DESCRIPTOR):
                usage = usage_pb2.Usage()
                packed.Unpack(usage)
                calls = convert.model_calls_from(usage)
        if info is not None and info.domain == DOMAIN:
            metadata = {"service": service, **dict(info.metadata)}
            remote = RemoteError(_reason(info.reason), status.message, metadata=metadata, retry_after=retry_after)
            remote.model_calls = calls
            return remote
    match error.code():
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineExceeded(f"The deadline passed while waiting for the {service}", metadata={"service": service})
        case grpc.StatusCode.CANCELLED:
            return RunCancelled(f"The call of the {service} was cancelled", metadata={"service": service})
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.UNIMPLEMENTED:
            message = f"The {service} can't be reached"
            return ServiceUnavailable(message, metadata={"service": service}, detail=error.details() or "")
        case code:
            message = f"The {service} failed with {code.name}"
            return RemoteError(Reason.INTERNAL, message, metadata={"service": service})


def _status_of(error: grpc.aio.AioRpcError) -> status_pb2.Status | None:
    # from_call checks the code and message against the status; a proxy in between may have changed them.
    try:
        return rpc_status.from_call(error)  # type: ignore[arg-type]  # an AioRpcError has all that is read of a Call
    except ValueError:
        return None


def _reason(name: str) -> Reason:
    try:
        return Reason(name.removeprefix("ERROR_REASON_"))
    except ValueError:
        return Reason.INTERNAL


def _packed(message: Message) -> Any:
    packed = Any()
    packed.Pack(message)
    return packed
