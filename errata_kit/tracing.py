"""Spans across the services, by the names of OpenTelemetry's semantic conventions.

Nothing is exported, and nothing of OpenTelemetry is imported, unless its standard variables name a collector or ask for the
exporter `otlp`; see tracing_export.py. A trace id stands in the logs either way. Which span a task works under travels in a
variable of our own: OpenTelemetry's complains when an async generator is closed by another task than the one that ran it.
"""

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from errata_kit.calls import current_call
from errata_kit.errors import ErrataError

if TYPE_CHECKING:
    from errata_kit.tracing_export import Exporting

# A closed list: no place for questions, texts of documents, prompts, principals or keys.
AttributeName: TypeAlias = Literal[
    "errata.run_id",
    "errata.workflow",
    "errata.outcome",
    "errata.operation",
    "errata.prompt_version",
    "errata.attempts",
    "errata.cost_micros",
    "error.type",
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.output_tokens",
    "rpc.system.name",
    "rpc.method",
    "rpc.response.status_code",
]
Attributes: TypeAlias = Mapping[AttributeName, str | int | float | bool]
Kind: TypeAlias = Literal["internal", "server", "client"]

_LONGEST_TEXT: Final = 256
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
# What a server is to blame for, by the conventions for gRPC. A client reports every status but OK as an error.
_SERVER_FAULTS: Final = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})


class Span:
    """One span. Without tracing it is a stand-in that takes everything and keeps nothing. Never raises."""

    __slots__ = ("_inner", "_kind", "_told")

    def __init__(self, inner: Any = None, kind: Kind = "internal") -> None:
        self._inner = inner
        self._kind: Kind = kind
        self._told = False

    def __bool__(self) -> bool:
        """Whether it is more than a stand-in, so that attributes are worth working out."""
        return self._inner is not None

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits; empty without tracing."""
        return "" if self._inner is None else f"{self._inner.get_span_context().trace_id:032x}"

    def headers(self) -> dict[str, str]:
        """The metadata that makes the callee's spans children of this one (W3C Trace Context); empty without tracing."""
        return {} if self._inner is None or _exporting is None else _exporting.headers(self._inner)

    def note(self, attributes: Attributes) -> None:
        """Set attributes; long texts are cut."""
        if self._inner is not None:
            for name, value in attributes.items():
                self._inner.set_attribute(name, value[:_LONGEST_TEXT] if isinstance(value, str) else value)

    def ended_with(self, code: str) -> None:
        """Note the name of the gRPC status of the call that this span stands for."""
        if self._inner is None or self._told:
            return
        self._inner.set_attribute("rpc.response.status_code", code)
        if code in _SERVER_FAULTS or (self._kind == "client" and code != "OK"):
            self.failed(code)
        self._told = True

    def failed(self, error_type: str) -> None:
        """Note that it failed, and how. What an error says in words may be somebody's text, so it has no place here."""
        if self._inner is not None and not self._told and _exporting is not None:
            self._told = True
            self._inner.set_attribute("error.type", error_type[:_LONGEST_TEXT])
            _exporting.mark_failed(self._inner)

    def end(self) -> None:
        """End it."""
        if self._inner is not None:
            self._inner.end()


_OFF: Final = Span()
_NOTHING: Final = contextlib.nullcontext(_OFF)
_exporting: "Exporting | None" = None
_current: ContextVar[Span] = ContextVar("errata_span", default=_OFF)


class _Entered:
    """Makes a span the current one inside a block, and ends it with the block."""

    __slots__ = ("_before", "_span")

    def __init__(self, span: Span) -> None:
        self._span = span
        self._before = _OFF

    def __enter__(self) -> Span:
        self._before = _current.get()
        _current.set(self._span)
        return self._span

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # Not by a token: a stream that is given up may be closed in another context, where no token is valid.
        _current.set(self._before)
        if error is not None and not isinstance(error, GeneratorExit):
            self._span.failed(_type_of(error))
        self._span.end()


def configure_tracing(service: str) -> Callable[[], None]:
    """Start exporting if the environment asks for it. Call once, from the start of a process.

    Returns what ends it: the spans so far are flushed, for three seconds at most.

    Raises:
        StartFailed: a variable has a value that is not possible; the sentence names it.
    """
    # Only here, and the SDK only below: whoever exports nothing need not pay for the imports.
    from errata_kit.tracing_settings import wanted

    if not wanted():
        return _nothing
    from errata_kit.tracing_export import start

    global _exporting  # noqa: PLW0603 - there is one collector a process, as there is one environment
    exporting = _exporting = start(service)

    def stop() -> None:
        global _exporting  # noqa: PLW0603
        _exporting = None
        exporting.stop()

    return stop


@contextlib.contextmanager
def tracing(service: str) -> Iterator[None]:
    """Export spans inside the block, if the environment asks for it; see configure_tracing."""
    stop = configure_tracing(service)
    try:
        yield
    finally:
        stop()


def server_span(method: str, metadata: Mapping[str, str], run_id: str = "") -> AbstractContextManager[Span]:
    """The span of an incoming call, child of its caller's. method: /package.Service/Method; it must be one that exists."""
    if _exporting is None:
        return _NOTHING
    inner = _exporting.begin(method.lstrip("/"), "server", _exporting.parent_in(metadata))
    return _Entered(_described(Span(inner, "server"), _rpc(method), run_id))


def client_span(method: str) -> Span:
    """The span of an outgoing call, child of the current one. Whoever begins it ends it; its headers go into the metadata."""
    if _exporting is None:
        return _OFF
    return _begun(method.lstrip("/"), "client", _rpc(method))


def span(name: str, attributes: Attributes | None = None) -> AbstractContextManager[Span]:
    """A step, child of the current span. An error that leaves the block is noted by its type."""
    if _exporting is None:
        return _NOTHING
    return _Entered(_begun(name, "internal", attributes or {}))


def begin_span(name: str, attributes: Attributes, kind: Kind = "client") -> Span:
    """A span that nothing goes on under, child of the current one. Whoever begins it ends it."""
    return _OFF if _exporting is None else _begun(name, kind, attributes)


def current_span() -> Span:
    """The span that this task works under, or a stand-in."""
    return _current.get()


def trace_id_of(traceparent: str) -> str:
    """The trace id in a W3C traceparent; empty when it is none."""
    found = _TRACEPARENT.fullmatch(traceparent[:55])
    if found is None or traceparent.startswith("ff") or not (int(found[1], 16) and int(found[2], 16)):
        return ""
    return found[1]


def is_tracing() -> bool:
    """Whether spans are exported."""
    return _exporting is not None


def _begun(name: str, kind: Kind, attributes: Attributes) -> Span:
    if _exporting is None:
        return _OFF
    inner = _exporting.begin(name, kind, _exporting.under(_current.get()._inner))
    return _described(Span(inner, kind), attributes, current_call().run_id)


def _described(begun: Span, attributes: Attributes, run_id: str) -> Span:
    if run_id:
        begun.note({"errata.run_id": run_id})
    begun.note(attributes)
    return begun


def _rpc(method: str) -> Attributes:
    return {"rpc.system.name": "grpc", "rpc.method": method.lstrip("/")}


def _type_of(error: BaseException) -> str:
    if isinstance(error, ErrataError):
        return error.why.value
    return "CANCELLED" if isinstance(error, asyncio.CancelledError) else type(error).__name__


def _nothing() -> None:
    return None
