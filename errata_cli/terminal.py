"""What all commands share: consoles, exit codes, and errors as one clear sentence."""

import asyncio
import json
import re
import sys
from collections.abc import Coroutine
from enum import IntEnum
from typing import Any, Final

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import Console

from errata_kit.errors import ErrataError, Reason
from errata_kit.rpc.status import from_rpc_error


class ExitCode(IntEnum):
    """What the process tells its caller."""

    OK = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    WAITING = 4


class UsageError(Exception):
    """What was asked for on the command line can't be done; the message says why."""


class Interrupted(Exception):
    """Ctrl-C ended the command; the message says what becomes of the run."""


# C0 and C1 controls but for tab and newline, line separators, and what turns the direction of writing around.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Text from strangers without control characters: a document must not steer the terminal that shows it."""
    return _CONTROL.sub("�", text)


def flat(text: str) -> str:
    """Text from strangers as one line."""
    return printable(" ".join(text.split()))


def print_json(message: Message, indent: int | None = None) -> None:
    """A message as JSON on standard output, without indent as one line. What could steer a terminal is escaped."""
    values = MessageToDict(message, preserving_proto_field_name=True)
    text = json.dumps(values, ensure_ascii=False, indent=indent)
    sys.stdout.write(_CONTROL.sub(_escaped, text) + "\n")
    sys.stdout.flush()


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"


def output() -> Console:
    """Standard output: colours on a terminal, plain text of any width in a pipe."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=10_000, no_color=True, emoji=False)


def errors() -> Console:
    """Standard error."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def run_command(command: Coroutine[Any, Any, int], service: str, target: str) -> int:
    """Run a command that calls a service, and turn what goes wrong into one sentence and an exit code."""
    try:
        return asyncio.run(command)
    except KeyboardInterrupt:
        errors().print("errata: interrupted", markup=False)
        return ExitCode.FAILED
    except Interrupted as error:
        errors().print(f"errata: {error}", markup=False)
        return ExitCode.FAILED
    except UsageError as error:
        errors().print(f"errata: {printable(str(error))}", markup=False)
        return ExitCode.USAGE
    except grpc.aio.AioRpcError as error:
        known = from_rpc_error(error, service)
    except ErrataError as error:
        known = error
    errors().print(f"errata: {printable(sentence(known, service, target))}", markup=False)
    return ExitCode.USAGE if known.why is Reason.INVALID_FIELD else ExitCode.FAILED


def sentence(error: ErrataError, service: str, target: str) -> str:
    """The error for people, with what they can do about it. target is where the service that was called should listen."""
    match error.why:
        case Reason.SERVICE_UNAVAILABLE if error.metadata.get("service") == service:
            return f"{error.message} at {target}. Is the suite up? Start it with: errata up"
        case Reason.UNAUTHENTICATED:
            return f"{error.message}. Set ERRATA_API_KEY, or ERRATA_API_KEY_FILE to a file that holds it"
        case Reason.COLLECTION_NOT_FOUND:
            return f"{error.message}. Make it with: errata ingest PATH --collection {error.metadata.get('collection', '')}"
        case Reason.RUN_NOT_WAITING:
            return f"{error.message}. What has become of it: errata show {error.metadata.get('run_id', 'RUN')}"
        case Reason.REQUEST_ID_REUSED if error.metadata.get("run_id"):
            return f"{error.message}. It belongs to: errata show {error.metadata['run_id']}"
        case _:
            return f"{error.message} [{error.why.value}]"
