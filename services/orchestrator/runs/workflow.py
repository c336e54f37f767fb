"""What the engine drives. A workflow is a folder under workflows/ and one line where the service is put together."""

from typing import Any, Protocol

from errata_kit.errors import ErrataError
from services.orchestrator.runs.events import ApprovalRequested, RunFinished, RunStarted
from services.orchestrator.runs.run import RunOptions
from services.orchestrator.runs.trace import RunTrace


class Workflow(Protocol):
    """A kind of run. Request types are the workflow's own."""

    @property
    def name(self) -> str:
        """The name under which runs are listed."""
        ...

    def dump(self, request: Any) -> str:
        """The request as it is stored."""
        ...

    def load(self, stored: str) -> Any:
        """The request from what was stored, also by an earlier build."""
        ...

    def started(self, request: Any, options: RunOptions) -> RunStarted:
        """The first event of a run."""
        ...

    async def run(self, request: Any, trace: RunTrace) -> RunFinished | ApprovalRequested:
        """Work, recording each step in the trace, from wherever the run stands.

        Returns the terminal event, or what the run waits for. Raises ErrataError for failures.
        """
        ...

    def broken_off(self, request: Any, trace: RunTrace, error: ErrataError) -> RunFinished:
        """The terminal event of a run that did not reach its end, with the best that it has so far."""
        ...
