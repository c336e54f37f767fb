"""The errors that Errata raises, and the reasons that clients branch on.

    ErrataError
    ├── InvalidFields            a request breaks its contract, field by field
    ├── NotFound                 CollectionNotFound, RunNotFound
    ├── DocumentRejected         a document can't be ingested
    ├── IndexUnavailable         the index can't be reached, or its folder is locked
    ├── ModelError               one class for each way in which a model fails: ModelUnavailable, ModelRefused,
    │                            ModelOutputInvalid, EmbeddingFailed, EmbeddingMismatch and so on
    ├── JudgementIncomplete      nothing could be judged
    ├── ServiceUnavailable       another service of the suite can't be reached
    ├── Overloaded, RateLimited, Draining    not now
    ├── NotAuthenticated, PermissionDenied   not this caller
    ├── DeadlineExceeded, RunCancelled, BudgetExhausted
    ├── RunNotWaiting, RequestIdReused
    └── RemoteError              what another service reported, passed on unchanged

The message of an error is for callers: one sentence without the text of a driver or a model. That text goes into
`detail`, which only the server's log sees.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from errata_kit.usage import ModelCall


class Reason(StrEnum):
    """Why a call, an item or a run failed. A test keeps it equal to errata.errors.v1.ErrorReason."""

    INVALID_FIELD = "INVALID_FIELD"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    COLLECTION_NOT_FOUND = "COLLECTION_NOT_FOUND"
    DOCUMENT_REJECTED = "DOCUMENT_REJECTED"
    INDEX_UNAVAILABLE = "INDEX_UNAVAILABLE"
    EMBEDDING_FAILED = "EMBEDDING_FAILED"
    EMBEDDING_MISMATCH = "EMBEDDING_MISMATCH"
    MODEL_UNAVAILABLE = "MODEL_UNAVAILABLE"
    MODEL_RATE_LIMITED = "MODEL_RATE_LIMITED"
    MODEL_QUOTA_EXHAUSTED = "MODEL_QUOTA_EXHAUSTED"
    MODEL_AUTHENTICATION = "MODEL_AUTHENTICATION"
    MODEL_REFUSED = "MODEL_REFUSED"
    MODEL_TRUNCATED = "MODEL_TRUNCATED"
    MODEL_FILTERED = "MODEL_FILTERED"
    MODEL_OUTPUT_INVALID = "MODEL_OUTPUT_INVALID"
    MODEL_CONTEXT_EXCEEDED = "MODEL_CONTEXT_EXCEEDED"
    MODEL_REQUEST_REJECTED = "MODEL_REQUEST_REJECTED"
    JUDGEMENT_INCOMPLETE = "JUDGEMENT_INCOMPLETE"
    RUN_NOT_FOUND = "RUN_NOT_FOUND"
    RUN_NOT_WAITING = "RUN_NOT_WAITING"
    REQUEST_ID_REUSED = "REQUEST_ID_REUSED"
    BUDGET_EXHAUSTED = "BUDGET_EXHAUSTED"
    OVERLOADED = "OVERLOADED"
    RATE_LIMITED = "RATE_LIMITED"
    DRAINING = "DRAINING"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CANCELLED = "CANCELLED"
    INTERNAL = "INTERNAL"
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"


class ErrataError(Exception):
    """An expected failure.

    message: one sentence for the caller. metadata: what the reason's comment in errors.proto lists.
    retry_after: seconds until a retry makes sense, when known. detail: for the server's log only.
    """

    reason: ClassVar[Reason] = Reason.INTERNAL
    default_message: ClassVar[str] = "Something went wrong inside Errata; its log has the rest"

    def __init__(
        self,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        *,
        retry_after: float | None = None,
        detail: str = "",
    ) -> None:
        self.message = message or self.default_message
        super().__init__(self.message)
        self.metadata: dict[str, str] = dict(metadata or {})
        self.retry_after = retry_after
        self.detail = detail
        self.model_calls: tuple[ModelCall, ...] = ()
        """Model calls that were made before it failed: they cost money all the same."""

    quotes: ClassVar[bool] = False
    """Whether detail may quote a model, its provider or a prompt. Then it is for the log at DEBUG only."""

    @property
    def why(self) -> Reason:
        """The reason; a RemoteError carries the one it was given."""
        return self.reason

    def for_log(self, *, debug: bool = False) -> str:
        """What the log may say of detail; at the default level nothing that somebody else may have written."""
        return self.detail[:2000] if debug or not self.quotes else ""


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One broken bound: the field's path as in the proto, and what must hold."""

    field: str
    description: str


class InvalidFields(ErrataError):
    """A request breaks its contract. Every broken field is listed."""

    reason = Reason.INVALID_FIELD

    def __init__(self, violations: tuple[FieldViolation, ...]) -> None:
        listed = "; ".join(f"{violation.field}: {violation.description}" for violation in violations[:8])
        super().__init__(f"The request is not valid: {listed}")
        self.violations = violations


class NotFound(ErrataError):
    """Something named in the request does not exist."""

    resource_type: ClassVar[str] = ""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no {self.resource_type} {name!r}", metadata={self.metadata_key: name})
        self.name = name

    metadata_key: ClassVar[str] = ""


class CollectionNotFound(NotFound):
    """No such collection."""

    reason = Reason.COLLECTION_NOT_FOUND
    resource_type = "collection"
    metadata_key = "collection"


class RunNotFound(NotFound):
    """No such run, or it is no longer kept."""

    reason = Reason.RUN_NOT_FOUND
    resource_type = "run"
    metadata_key = "run_id"


class DocumentRejected(ErrataError):
    """A document is empty, binary, not UTF-8, or too large. metadata: document_id, cause."""

    reason = Reason.DOCUMENT_REJECTED


class StartFailed(ErrataError):
    """A service can't start; the message says why."""


class IndexUnavailable(ErrataError):
    """The index can't be reached, or another process holds its data folder."""

    reason = Reason.INDEX_UNAVAILABLE


class ModelError(ErrataError):
    """A call of a language or embedding model gave no usable result. Its subclasses say why; none is ever a verdict."""

    quotes = True


class ModelUnavailable(ModelError):
    """The endpoint can't be reached, fails, or does not speak the protocol. metadata: cause."""

    reason = Reason.MODEL_UNAVAILABLE
    default_message = "The model endpoint is unavailable"


class ModelRateLimited(ModelError):
    """The endpoint takes no more requests for now; retry_after is set when it said how long."""

    reason = Reason.MODEL_RATE_LIMITED
    default_message = "The model endpoint limits the rate of requests"


class ModelQuotaExhausted(ModelError):
    """The account's budget at the provider is used up; waiting does not help."""

    reason = Reason.MODEL_QUOTA_EXHAUSTED
    default_message = "The quota at the model provider is used up"


class ModelAuthenticationFailed(ModelError):
    """The provider does not accept the key, or the key may not use the model."""

    reason = Reason.MODEL_AUTHENTICATION
    default_message = "The model provider rejected the credentials"


class ModelRequestRejected(ModelError):
    """The endpoint will never accept this request: unknown model, unsupported schema or parameter. metadata: status."""

    reason = Reason.MODEL_REQUEST_REJECTED
    default_message = "The model endpoint rejected the request; the configured model may not support it"


class ModelContextExceeded(ModelError):
    """The prompt is longer than the model's context."""

    reason = Reason.MODEL_CONTEXT_EXCEEDED
    default_message = "The text is too long for the model's context window"


class ModelRefused(ModelError):
    """The model declined to answer."""

    reason = Reason.MODEL_REFUSED
    default_message = "The model refused to answer"


class ModelFiltered(ModelError):
    """The provider's content filter withheld the prompt or the answer."""

    reason = Reason.MODEL_FILTERED
    default_message = "The provider's content filter stopped the model"


class ModelTruncated(ModelError):
    """The output was cut at the length limit, or a stream ended early."""

    reason = Reason.MODEL_TRUNCATED
    default_message = "The model's answer was cut off before it was complete"


class ModelOutputInvalid(ModelError):
    """The model answered, but not with what was asked for. metadata: cause."""

    reason = Reason.MODEL_OUTPUT_INVALID
    default_message = "The model's answer does not have the required form"


class EmbeddingFailed(ModelError):
    """The embedding model failed, or returned something else than one finite vector a text. metadata: cause."""

    reason = Reason.EMBEDDING_FAILED
    default_message = "The embedding model returned vectors that can't be used"


class EmbeddingMismatch(ModelError):
    """The collection was made with another embedding model or size. metadata: collection, expected, actual."""

    reason = Reason.EMBEDDING_MISMATCH
    default_message = "The embedding model returned vectors of another size"


class DeadlineExceeded(ErrataError):
    """The deadline passed."""

    reason = Reason.DEADLINE_EXCEEDED
    default_message = "The deadline passed"


class ModelDeadlineExceeded(ModelError, DeadlineExceeded):
    """The caller's time ran out while a model was working."""

    reason = Reason.DEADLINE_EXCEEDED
    default_message = "The deadline passed before the model answered"


class JudgementIncomplete(ErrataError):
    """Nothing could be judged, so nothing can be decided."""

    reason = Reason.JUDGEMENT_INCOMPLETE


class RunNotWaiting(ErrataError):
    """The run waits for no decision, or for another one. metadata: run_id, state, approval."""

    reason = Reason.RUN_NOT_WAITING


class RequestIdReused(ErrataError):
    """The request_id belongs to another request. metadata: request_id, run_id."""

    reason = Reason.REQUEST_ID_REUSED


class BudgetExhausted(ErrataError):
    """The next model call would pass the run's budget. metadata: limit, cause."""

    reason = Reason.BUDGET_EXHAUSTED
    default_message = "The next model call would pass the budget of the run"


class ServiceUnavailable(ErrataError):
    """Another service of the suite can't be reached. metadata: service."""

    reason = Reason.SERVICE_UNAVAILABLE


class Overloaded(ErrataError):
    """More work than the service takes; retry_after says when to try again."""

    reason = Reason.OVERLOADED


class RateLimited(ErrataError):
    """The principal, or everybody together, has used up a limit. metadata: limit, scope. retry_after is always set."""

    reason = Reason.RATE_LIMITED


class NotAuthenticated(ErrataError):
    """The caller did not say who it is, or could not prove it. metadata: cause."""

    reason = Reason.UNAUTHENTICATED


class PermissionDenied(ErrataError):
    """The caller is known, and may not do this. metadata: role, the one that it lacks."""

    reason = Reason.PERMISSION_DENIED


class Draining(ErrataError):
    """The service is shutting down; another replica takes the call."""

    reason = Reason.DRAINING


class RunCancelled(ErrataError):
    """The caller, or somebody with CancelRun, cancelled."""

    reason = Reason.CANCELLED


class RemoteError(ErrataError):
    """What another service reported, passed on with its own reason."""

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, metadata=metadata, retry_after=retry_after)
        self._why = reason

    @property
    def why(self) -> Reason:
        """The other service's reason."""
        return self._why
