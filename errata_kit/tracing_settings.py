"""Whether and how spans are exported: OpenTelemetry's standard variables, checked before anything starts."""

import os
from typing import Final

from errata_kit.errors import StartFailed

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SAMPLERS: Final = (
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
)

VARIABLES: Final = (
    "OTEL_SDK_DISABLED",
    "OTEL_TRACES_EXPORTER",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_INSECURE",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_COMPRESSION",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_SERVICE_NAME",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
)
"""The variables that have an effect; their meanings and defaults are those of the OpenTelemetry specification.

One default differs: OTEL_TRACES_EXPORTER is none unless an endpoint is set.
"""


def wanted() -> bool:
    """Whether spans are to be exported.

    Raises:
        StartFailed: a variable asks for what can't be had; the sentence names it.
    """
    if value("OTEL_SDK_DISABLED").lower() == "true":
        return False
    exporter = value("OTEL_TRACES_EXPORTER")
    if exporter not in ("", "none", "otlp"):
        raise StartFailed(f"OTEL_TRACES_EXPORTER is {exporter[:40]!r}; it must be otlp or none")
    if exporter == "none" or not (exporter or any(map(value, _ENDPOINTS))):
        return False
    for name in _PROTOCOLS:
        if value(name) not in ("", "grpc"):
            raise StartFailed(f"{name} is {value(name)[:40]!r}; spans are exported over grpc only")
    _check_sampler()
    return True


def value(name: str) -> str:
    """A variable without the white space around it; empty when it is not set."""
    return os.environ.get(name, "").strip()


def _check_sampler() -> None:
    # The library goes on with its default and a warning, which is how a collector gets flooded.
    sampler, argument = value("OTEL_TRACES_SAMPLER").lower(), value("OTEL_TRACES_SAMPLER_ARG")
    if sampler and sampler not in _SAMPLERS:
        raise StartFailed(f"OTEL_TRACES_SAMPLER is {sampler[:40]!r}; it must be one of {', '.join(_SAMPLERS)}")
    if sampler.endswith("traceidratio") and argument:
        try:
            ratio = float(argument)
        except ValueError:
            ratio = -1.0
        if not 0.0 <= ratio <= 1.0:
            raise StartFailed(f"OTEL_TRACES_SAMPLER_ARG is {argument[:40]!r}; it must be a number from 0 to 1")
