"""Logs: one JSON object a line on standard error, each with the service, the run and the trace it belongs to."""

import logging
import sys
from typing import Any, Final, Literal

import structlog
import structlog.tracebacks
from structlog.typing import EventDict, WrappedLogger

from errata_kit.calls import current_call


def configure_logs(service: str, level: str, form: Literal["json", "text"]) -> None:
    """Send structlog's and the standard library's lines through one formatter. Call once, from __main__."""

    def add_call(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event.setdefault("service", service)
        call = current_call()
        if call.run_id:
            event.setdefault("run_id", call.run_id)
        if call.trace_id:
            event.setdefault("trace_id", call.trace_id)
        if call.principal.name:
            event.setdefault("principal", call.principal.name)
            event.setdefault("tenant", call.principal.tenant)
        return event

    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        add_call,
    ]
    renderer: Any = structlog.processors.JSONRenderer()
    if form == "text":
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    else:
        # Without local variables: they hold questions, documents and keys.
        tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        shared.append(structlog.processors.ExceptionRenderer(tracebacks))
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # Libraries below say at INFO what we say ourselves, or text that must not be in a log.
    for noisy in ("httpx2", "httpx", "httpcore", "httpcore2", "openai", "asyncio", "filelock", "alembic"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_news)


# What grpcio raises when the client has cancelled or gone in the middle of it.
_OF_THE_CLIENT: Final = frozenset({"CancelledError", "AbortError", "UsageError", "ExecuteBatchError"})


def _is_news(record: logging.LogRecord) -> bool:
    # grpcio logs a traceback for each handler that a client cancelled, which is nothing unusual.
    cause = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    return not (cause is not None and type(cause).__name__ in _OF_THE_CLIENT)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger whose lines are an event name and key-value pairs."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(name)
    return logger
