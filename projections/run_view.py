"""One run as a caller sees it, and why it stands where it stands, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from settled.domain.identity import Identity
from settled.domain.journal.port import AgendaRow
from settled.domain.run.records import CallRecord, Wait, read_value
from settled.domain.run.run import Run


@dataclass(frozen=True, slots=True)
class RunView:
    """What is known about a run at one version of its stream.

    `waits_for` says in words what it waits for, until `waits_until`. `epoch` counts its owners.
    `used` and `left` are its budgets by unit, money in the smallest. `operations` are the ones that
    its calls stand for, as (kind, operation id). `next_at` is when somebody looks at it again; None
    when it has ended.
    """

    tenant: str
    kind: str
    run_id: str
    state: str
    version: int
    settled: bool
    reason: str
    parent: str | None
    agent_build: str
    state_version: int
    epoch: int
    worker: str | None
    waits_for: str | None
    waits_until: datetime | None
    session_until: datetime
    next_at: datetime | None
    since: datetime
    used: Mapping[str, int]
    left: Mapping[str, int]
    calls: Mapping[str, str]
    operations: tuple[tuple[str, str], ...]
    boundaries: tuple[str, ...]
    cancel_requested: bool
    last_reason: str | None
    result: Any

    @property
    def identity(self) -> Identity:
        """Tenant, kind and run id together."""
        return Identity(self.tenant, self.kind, self.run_id)


def view_of_run(run: Run) -> RunView:
    """Return the picture of a run."""
    wait = run.wait if run.state == "waiting" else None
    return RunView(
        tenant=run.tenant,
        kind=run.kind,
        run_id=run.run_id,
        state=run.state,
        version=run.version,
        settled=run.settled,
        reason=run.started.reason.value,
        parent=run.started.parent,
        agent_build=run.started.agent_build,
        state_version=run.state_version,
        epoch=run.epoch,
        worker=run.worker if run.held else None,
        waits_for=awaited(wait) if wait else None,
        waits_until=wait.until if wait else None,
        session_until=run.started.session_until,
        next_at=run.next_due(),
        since=run.modified_on,
        used=run.all_used,
        left=run.left,
        calls={name: call.state for name, call in run.calls.items()},
        operations=tuple((one.kind, one.operation_id) for one in run.bound.values()),
        boundaries=tuple(sorted(run.boundaries, key=run.boundaries.__getitem__)),
        cancel_requested=run.cancel_requested,
        last_reason=run.last_reason,
        result=read_value(run.result),
    )


def awaited(wait: Wait) -> str:
    """Return what a wait is for, in words."""
    if wait.operation is not None:
        named = f"{wait.operation.kind} {wait.operation.operation_id}"
        if wait.on == "approval":
            return f"a decision on version {wait.proposal_version} of {named}"
        return f"{named} to be settled"
    return f"the moment {wait.key}" if wait.on == "timer" else f"the input {wait.key}"


@dataclass(frozen=True, slots=True)
class RunExplanation:
    """Why a run stands where it stands: `happened`, `known`, `next` at `next_at`, and `notes`."""

    tenant: str
    kind: str
    run_id: str
    state: str
    version: int
    since: datetime
    happened: str
    known: str
    next: str
    next_at: datetime | None
    notes: tuple[str, ...]


def why_run(run: Run, head: AgendaRow, now: datetime) -> RunExplanation:
    """Explain a run. `head` is its agenda row."""
    happened, following = _told(run)
    return RunExplanation(
        tenant=run.tenant,
        kind=run.kind,
        run_id=run.run_id,
        state=run.state,
        version=run.version,
        since=run.modified_on,
        happened=happened,
        known=Run.LIFECYCLE.states[run.state].meaning,
        next=following,
        next_at=run.next_due(),
        notes=tuple(_notes(run, head, now)),
    )


def _told(run: Run) -> tuple[str, str]:
    """Return what happened, and what comes next."""
    match run.state:
        case "created":
            return "it was started", "a worker that serves its kind takes it"
        case "running":
            calls = ", ".join(_called(call) for call in run.pending) or "no call"
            return (
                f"{run.worker} has it under owner epoch {run.epoch}; {calls} in flight",
                "its function goes on; when its worker dies, another takes it",
            )
        case "waiting":
            assert run.wait is not None, "what waits waits for something"
            what = awaited(run.wait)
            if run.is_told(run.wait):
                return f"it waited for {what}, and that is there", "any worker takes it"
            level = run.wait.level
            return (
                f"it waits for {what}",
                f"it goes on when that is there, or when its {level} deadline passes",
            )
        case "suspended":
            reason = f": {run.last_reason}" if run.last_reason else ""
            return f"it was put aside{reason}", "a worker takes it again"
        case _:
            reason = f": {run.last_reason}" if run.last_reason else ""
            return f"it is {run.state}{reason}", "nothing"


def _called(call: CallRecord) -> str:
    return f"{call.sort} call {call.call_id} (attempt {call.attempt}, until {call.until:%H:%M:%S})"


def _notes(run: Run, head: AgendaRow, now: datetime) -> list[str]:
    notes: list[str] = []
    if head.parked_at is not None:
        notes.append(f"It is parked: it was taken {head.takes} times without progress.")
    if run.cancel_requested and not run.settled:
        notes.append("A cancel was requested; its owner ends it at its next step.")
    if run.settled and (unsettled := _perhaps_open(run)):
        notes.append(f"What it had intended goes on by itself: {unsettled}.")
    if any(remains <= 0 for remains in run.left.values()):
        spent = ", ".join(unit for unit, remains in run.left.items() if remains <= 0)
        notes.append(f"Nothing is left of its budget of {spent}.")
    if not run.settled and now >= run.started.session_until:
        notes.append("Its session is over; the next worker lets it expire.")
    return notes


def _perhaps_open(run: Run) -> str:
    pending = [call.operation for call in run.calls.values() if call.state != "returned"]
    return ", ".join(f"{one.kind} {one.operation_id}" for one in pending if one is not None)
