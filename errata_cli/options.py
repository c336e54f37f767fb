"""Options that several commands have."""

from enum import StrEnum
from typing import Annotated

import typer

DEFAULT_ORCHESTRATOR = "127.0.0.1:50051"
DEFAULT_RETRIEVER = "127.0.0.1:50052"

Collection = Annotated[str, typer.Option("--collection", "-c", help="The collection.")]
Orchestrator = Annotated[
    str, typer.Option(envvar="ERRATA_ORCHESTRATOR_TARGET", help="Where the orchestrator listens: host:port.")
]
Retriever = Annotated[str, typer.Option(envvar="ERRATA_RETRIEVER_TARGET", help="Where the retriever listens: host:port.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run: its id, or a beginning of it that no other run has.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print each event as one line of JSON.")]
Principal = Annotated[str, typer.Option("--as", envvar="ERRATA_PRINCIPAL", help="Who asks or decides; recorded with the run.")]
Where = Annotated[list[str] | None, typer.Option(help="Only documents with this metadata: KEY=VALUE. Repeatable.")]
RequestId = Annotated[str, typer.Option(help="Makes it idempotent: the same id and request give the same run.")]
KeepGoing = Annotated[bool, typer.Option("--keep-going", help="The run goes on when this command is interrupted.")]
MaxCost = Annotated[str, typer.Option(metavar="DOLLARS", help="End the run before the model call that would pass this.")]
MaxTokens = Annotated[int | None, typer.Option(help="The same in tokens, input and output together.")]
Timeout = Annotated[float, typer.Option(min=0.1, help="Seconds until the deadline.")]
Approval = Annotated[int, typer.Option(min=0, help="Which request is answered; 0 means the one that waits.")]
Remark = Annotated[str, typer.Option(help="A remark that is recorded with the decision.")]
Watch = Annotated[bool, typer.Option("--watch", help="Go on watching the run.")]


class State(StrEnum):
    """States of a run; a test keeps them equal to the contract's."""

    RUNNING = "running"
    FINISHED = "finished"
    WAITING = "waiting"


class Outcome(StrEnum):
    """Ends of a run; a test keeps them equal to the contract's."""

    ANSWERED = "answered"
    ANSWERED_AFTER_REFINEMENT = "answered_after_refinement"
    REFUSED_NO_EVIDENCE = "refused_no_evidence"
    REFUSED_UNFAITHFUL = "refused_unfaithful"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANCELLED = "cancelled"
    FAILED = "failed"
    APPROVED = "approved"
    MAX_REVISIONS_REACHED = "max_revisions_reached"
    REJECTED = "rejected"
    BUDGET_EXHAUSTED = "budget_exhausted"
