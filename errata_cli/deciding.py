"""`errata approve`, `errata reject`, `errata revise` and `errata cancel`: what people do to a run."""

from dataclasses import dataclass
from typing import Final

from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2

from errata_cli.calling import CALL_SECONDS, Follower, follow_watch, orchestrator
from errata_cli.finding import run_id_of
from errata_cli.inputs import metadata_of, read_text
from errata_cli.result import outcome_name
from errata_cli.terminal import ExitCode, UsageError, output, run_command
from errata_cli.timeline import state_of

_DONE: Final = {"APPROVE": "approved", "REJECT": "rejected", "REVISE": "sent back for a revision"}


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person says. name: APPROVE, REJECT or REVISE. said: the remark or the feedback, - for standard input.

    approval: which request is answered; 0 means the one that waits.
    """

    run: str
    name: str
    said: str = ""
    approval: int = 0
    principal: str = ""
    watch: bool = False


def decide(decision: Decision, target: str) -> int:
    """Hand a decision over, and watch what becomes of it where that is wanted."""
    return run_command(_decide(decision, target), "orchestrator", target)


def cancel(run: str, target: str) -> int:
    """Stop a run."""
    return run_command(_cancel(run, target), "orchestrator", target)


async def _decide(decision: Decision, target: str) -> int:
    metadata = metadata_of(decision.principal)
    said = read_text("-", "feedback") if decision.said == "-" else decision.said
    if decision.name == "REVISE" and not said.strip():
        raise UsageError("the feedback must say what is to be changed")
    async with orchestrator(target) as stub:
        run_id = await run_id_of(stub, decision.run)
        before = await stub.GetRun(pb2.GetRunRequest(run_id=run_id, without_trace=True), timeout=CALL_SECONDS)
        request = pb2.ResumeRunRequest(
            run_id=run_id, approval=decision.approval, decision=f"APPROVAL_DECISION_{decision.name}", feedback=said
        )
        await stub.ResumeRun(request, timeout=CALL_SECONDS, metadata=metadata)
        after = before.run.last_sequence
        if decision.watch:
            return await follow_watch(Follower(stub, json_lines=False), stub, run_id, after)
    done = _DONE[decision.name]
    output().print(f"{done}  {run_id}; what comes of it: errata watch {run_id} --after {after}", markup=False, soft_wrap=True)
    return ExitCode.OK


async def _cancel(run: str, target: str) -> int:
    async with orchestrator(target) as stub:
        run_id = await run_id_of(stub, run)
        # The orchestrator bounds the wait by the time that a replica may take to react.
        ended = (await stub.CancelRun(pb2.CancelRunRequest(run_id=run_id))).run
    if ended.outcome == trace_pb2.OUTCOME_CANCELLED:
        output().print(f"cancelled  {run_id}", markup=False)
        return ExitCode.OK
    what = outcome_name(ended.outcome) if ended.outcome else state_of(ended)
    output().print(f"had ended before  {run_id}: {what}", markup=False)
    return ExitCode.OK
