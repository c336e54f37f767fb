"""What stands on the command line as values: texts, times, money, criteria and conditions. UsageError says what is wrong."""

import datetime
import re
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final

from errata.corpus.v1 import filter_pb2
from errata.grading.v1 import grading_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2

from errata_cli.terminal import UsageError
from errata_kit.search import SearchMode

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO: Final = re.compile(r"(\d{1,6})([smhdw])")
_CRITERION: Final = re.compile(r"(?P<name>[^=:]+)(?:=(?P<threshold>[^:]*))?(?::(?P<description>.*))?", re.DOTALL)
_PRINCIPAL: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,126}[\x21-\x7e])?")
_PRINCIPAL_KEY: Final = "errata-principal"


@dataclass(frozen=True, slots=True)
class Start:
    """How a run is started, whatever its workflow. max_cost: dollars as decimal, or empty. timeout: seconds."""

    request_id: str = ""
    keep_going: bool = False
    max_cost: str = ""
    max_tokens: int | None = None
    principal: str = ""
    timeout: float = 120.0

    @property
    def on_disconnect(self) -> pb2.OnDisconnect:
        """What becomes of the run without us."""
        return pb2.ON_DISCONNECT_CONTINUE if self.keep_going else pb2.ON_DISCONNECT_CANCEL

    @property
    def max_cost_micros(self) -> int | None:
        """The budget in millionths of a dollar. Raises UsageError."""
        return micros(self.max_cost) if self.max_cost else None


def metadata_of(principal: str) -> tuple[tuple[str, str], ...]:
    """Metadata that says who asks. Raises UsageError for a name that metadata can't carry."""
    if not principal:
        return ()
    if not _PRINCIPAL.fullmatch(principal):
        raise UsageError("--as: must be 1 to 128 printable ASCII characters")
    return ((_PRINCIPAL_KEY, principal),)


def read_text(name: str, what: str) -> str:
    """A text from a file, or from standard input for "-"; what names it in errors. Empty for no name."""
    if not name:
        return ""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{what} {name}: {str(error.strerror).lower()}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{what} {name}: is not UTF-8") from None
    if not text.strip():
        raise UsageError(f"{what} {name}: is empty")
    return text.strip()


def micros(dollars: str) -> int:
    """Dollars as millionths of a dollar."""
    try:
        exact = Decimal(dollars.removeprefix("$")) * 1_000_000
        # Compared before it is made an int, which could have millions of digits.
        possible = 1 <= exact <= 2**53 and exact == int(exact)
    except ArithmeticError:
        raise UsageError(f"--max-cost {dollars}: must be dollars such as 0.05") from None
    if not possible:
        raise UsageError(f"--max-cost {dollars}: must be above 0, with at most six decimals")
    return int(exact)


def moment(text: str, option: str, now: datetime.datetime) -> datetime.datetime | None:
    """A time, or how long ago: 2h, 3d. A time without a zone is local. None for no text."""
    if not text:
        return None
    ago = _AGO.fullmatch(text)
    try:
        if ago:
            return now - datetime.timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{option} {text}: must be a time such as 2026-11-30T14:00, or how long ago, such as 2h or 3d"
        ) from None


def criterion(text: str) -> grading_pb2.Criterion:
    """NAME[=THRESHOLD][:DESCRIPTION]."""
    parts = _CRITERION.fullmatch(text)
    if parts is None:
        raise UsageError(f"--criterion {text}: must be NAME[=THRESHOLD][:DESCRIPTION]")
    threshold: float | None = None
    if parts["threshold"] is not None:
        try:
            threshold = float(parts["threshold"])
        except ValueError:
            raise UsageError(f"--criterion {text}: the threshold must be a number, 0-1") from None
    name, description = parts["name"].strip(), (parts["description"] or "").strip()
    return grading_pb2.Criterion(name=name, description=description, threshold=threshold)


def where_filter(where: tuple[str, ...]) -> filter_pb2.MetadataFilter | None:
    """KEY=VALUE each, all of which must hold."""
    if not where:
        return None
    conditions = filter_pb2.MetadataFilterList(filters=[_condition(text) for text in where])
    return filter_pb2.MetadataFilter(all_of=conditions)


def _condition(text: str) -> filter_pb2.MetadataFilter:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise UsageError(f"--where {text}: must be KEY=VALUE")
    own = key in {"document_id", "title", "source_uri", "has_code"} or key.startswith("metadata.")
    condition = filter_pb2.MetadataCondition(field=key if own else f"metadata.{key}", equals=value)
    return filter_pb2.MetadataFilter(condition=condition)


def mode_name(mode: SearchMode) -> str:
    """The mode's name in the contract."""
    return "SEARCH_MODE_" + ("UNSPECIFIED" if mode is SearchMode.DEFAULT else mode.name)
