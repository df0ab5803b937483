"""What can happen to a run. Each event's topic is stable; its docstring says what it means.

Fields named in `BODY` hold what may have to be erased one day; they read as None afterwards. What
is kept there is JSON text.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from settled.domain.machine.event import Event
from settled.domain.run.records import (
    Bound,
    CallRecord,
    Checkpoint,
    OnRecovery,
    Reason,
    RunBudget,
    Seen,
    Sort,
    Wait,
)

if TYPE_CHECKING:
    from settled.domain.run.run import Run

WAITERS = "settled:runs"
"""Under this name a run is found by the operations that it is bound to; no provider has it."""

SESSION_OVER = "the deadline of its session passed"
"""Why a run expired."""


class Started(Event):
    """A run is wanted: by whose code, with which input, until when, and how much it may use.

    A `parent` is the run that it replaces or forks from; then `used` is what that one had used, and
    `checkpoint` the last that it marked.
    """

    TOPIC: ClassVar[str] = "settled.run.Started"
    BODY: ClassVar[frozenset[str]] = frozenset({"input", "checkpoint"})
    tenant: str
    kind: str
    identity: str
    reason: Reason
    agent_build: str
    state_version: int
    session_until: datetime
    budget: RunBudget
    parent: str | None = None
    used: dict[str, int] = {}
    input: str | None = None
    checkpoint: Checkpoint | None = None

    def apply(self, run: Run) -> None:
        """Fold."""
        run.started = self
        run.state_version = self.state_version
        run.used = dict(self.used)
        run.checkpoint = self.checkpoint
        run.due = self.timestamp


class OwnerClaimed(Event):
    """A worker took it, under the next epoch: what the owner before still writes is refused."""

    TOPIC: ClassVar[str] = "settled.run.OwnerClaimed"
    PROGRESS: ClassVar[bool] = False
    epoch: int
    worker: str
    membership: int
    reason: Reason

    def apply(self, run: Run) -> None:
        """Fold."""
        run.epoch, run.worker, run.membership = self.epoch, self.worker, self.membership
        run.wait = None
        run.due = run.started.session_until


class OwnerReleased(Event):
    """Its worker stopped in good order, and gave it back."""

    TOPIC: ClassVar[str] = "settled.run.OwnerReleased"
    PROGRESS: ClassVar[bool] = False

    def apply(self, run: Run) -> None:
        """Fold."""
        run.worker = None
        run.due = self.timestamp


class Suspended(Event):
    """Put aside until `due_at`. `failed` when its function had failed, and is tried again."""

    TOPIC: ClassVar[str] = "settled.run.Suspended"
    BODY: ClassVar[frozenset[str]] = frozenset({"reason"})
    reason: str | None = None
    due_at: datetime
    failed: bool

    def apply(self, run: Run) -> None:
        """Fold."""
        run.worker = None
        run.failures += self.failed
        run.withheld += not self.failed
        run.last_reason = self.reason
        run.due = self.due_at


class Migrated(Event):
    """The state of its last checkpoint was brought to another version, by declared code."""

    TOPIC: ClassVar[str] = "settled.run.Migrated"
    BODY: ClassVar[frozenset[str]] = frozenset({"checkpoint"})
    from_version: int
    to_version: int
    checkpoint: Checkpoint | None = None

    def apply(self, run: Run) -> None:
        """Fold."""
        run.state_version = self.to_version
        run.checkpoint = self.checkpoint


class TurnStarted(Event):
    """A turn began; its calls have to end until then."""

    TOPIC: ClassVar[str] = "settled.run.TurnStarted"
    turn: str
    until: datetime

    def apply(self, run: Run) -> None:
        """Fold."""
        run.turns = run.turns | {self.turn: self.until}


class _Requested(Event):
    """A call is about to be made, under a name of its own within the run.

    `digest` tells what is asked from something else under the same name. `reserved` is what it may
    use of the budget at most.
    """

    SORT: ClassVar[Sort]
    call_id: str
    called: str
    on_recovery: OnRecovery
    digest: str
    until: datetime
    level: str
    attempt: int
    reserved: dict[str, int] = {}
    model_call_id: str | None = None
    rpc_id: str | None = None

    def apply(self, run: Run) -> None:
        """Fold."""
        before = run.calls.get(self.call_id)
        run.use_lost(self.call_id)
        run.reserved = run.reserved | {self.call_id: self.reserved}
        run.take_call(
            CallRecord(
                call_id=self.call_id,
                sort=self.SORT,
                name=self.called,
                on_recovery=self.on_recovery,
                digest=self.digest,
                until=self.until,
                level=self.level,
                epoch=run.epoch,
                attempt=self.attempt,
                operation=before.operation if before else None,
                model_call_id=self.model_call_id,
                rpc_id=self.rpc_id,
            )
        )


class ModelCallRequested(_Requested):
    """A model is about to be asked. Recorded, with its share of the budget, before it is."""

    TOPIC: ClassVar[str] = "settled.run.ModelCallRequested"
    SORT: ClassVar[Sort] = Sort.MODEL


class ToolCallRequested(_Requested):
    """A tool is about to be called."""

    TOPIC: ClassVar[str] = "settled.run.ToolCallRequested"
    SORT: ClassVar[Sort] = Sort.TOOL


class LookupRequested(_Requested):
    """Something is about to be looked up whose answer depends on when it is asked."""

    TOPIC: ClassVar[str] = "settled.run.LookupRequested"
    SORT: ClassVar[Sort] = Sort.LOOKUP


class _Returned(Event):
    """What a call came to: its result, and what it used of the budget."""

    call_id: str
    result: str | None = None
    used: dict[str, int] = {}

    def apply(self, run: Run) -> None:
        """Fold."""
        run.settle(self.call_id, self.used)
        run.change_call(self.call_id, state="returned", result=self.result, reason=None)


class ModelCallReturned(_Returned):
    """The model answered."""

    TOPIC: ClassVar[str] = "settled.run.ModelCallReturned"
    BODY: ClassVar[frozenset[str]] = frozenset({"result"})


class ToolCallReturned(_Returned):
    """The tool answered; of a call that is bound, the operation itself says what became of it."""

    TOPIC: ClassVar[str] = "settled.run.ToolCallReturned"
    BODY: ClassVar[frozenset[str]] = frozenset({"result"})


class LookupReturned(_Returned):
    """What was found, and the moment as of which it was so."""

    TOPIC: ClassVar[str] = "settled.run.LookupReturned"
    BODY: ClassVar[frozenset[str]] = frozenset({"result"})
    as_of: datetime

    def apply(self, run: Run) -> None:
        """Fold."""
        super().apply(run)
        run.change_call(self.call_id, as_of=self.as_of)


class ToolCallBound(Event):
    """The call stands for this operation, whoever else does: it has the business's identity.

    `place` is this run's among the runs that are told when the operation is settled or decided.
    """

    TOPIC: ClassVar[str] = "settled.run.ToolCallBound"
    call_id: str
    operation: Bound
    place: int | None

    def apply(self, run: Run) -> None:
        """Fold."""
        run.change_call(self.call_id, operation=self.operation)
        run.bound = run.bound | {self.operation.stream: self.operation}
        if self.place is not None:
            run.new_references.append((WAITERS, place_of(self.operation, self.place)))


class CallFailed(Event):
    """A call failed, was refused, or was lost: made by an owner that is gone, and not repeated."""

    TOPIC: ClassVar[str] = "settled.run.CallFailed"
    BODY: ClassVar[frozenset[str]] = frozenset({"reason"})
    call_id: str
    lost: bool
    reason: str | None = None
    used: dict[str, int] = {}

    def apply(self, run: Run) -> None:
        """Fold."""
        run.settle(self.call_id, self.used)
        run.change_call(self.call_id, state="lost" if self.lost else "failed", reason=self.reason)


class CallTimedOut(Event):
    """A call had not returned by its deadline. Of an operation that says nothing: it goes on."""

    TOPIC: ClassVar[str] = "settled.run.CallTimedOut"
    call_id: str
    used: dict[str, int] = {}

    def apply(self, run: Run) -> None:
        """Fold."""
        run.settle(self.call_id, self.used)
        run.change_call(self.call_id, state="timed_out", reason="its deadline passed")


class BudgetExceeded(Event):
    """A call was not made: more was asked for than is left."""

    TOPIC: ClassVar[str] = "settled.run.BudgetExceeded"
    call_id: str
    unit: str
    wanted: int
    left: int


class CheckpointMarked(Event):
    """The run wrote down where it stands, at a named boundary."""

    TOPIC: ClassVar[str] = "settled.run.CheckpointMarked"
    BODY: ClassVar[frozenset[str]] = frozenset({"checkpoint"})
    boundary: str
    size_bytes: int
    checkpoint: Checkpoint | None = None

    def apply(self, run: Run) -> None:
        """Fold."""
        run.checkpoint = self.checkpoint
        run.boundaries = run.boundaries | {self.boundary: self.originator_version}


class Waits(Event):
    """The run gave its worker back, and waits."""

    TOPIC: ClassVar[str] = "settled.run.Waits"
    wait: Wait

    def apply(self, run: Run) -> None:
        """Fold."""
        run.worker = None
        run.failures = run.withheld = 0
        run.wait, run.waiting_since, run.looks = self.wait, self.timestamp, 0
        run.waits = run.waits | {self.wait.key: self.wait}
        run.due = self.timestamp if run.is_told(self.wait) else run.next_look(self.timestamp)


class StillWaiting(Event):
    """What is waited for was looked at, in case nobody told, and is not there yet."""

    TOPIC: ClassVar[str] = "settled.run.StillWaiting"

    def apply(self, run: Run) -> None:
        """Fold."""
        run.looks += 1
        run.due = run.next_look(self.timestamp)


class InputReceived(Event):
    """Somebody (`actor`) answered. The first answer under a name stands."""

    TOPIC: ClassVar[str] = "settled.run.InputReceived"
    BODY: ClassVar[frozenset[str]] = frozenset({"value"})
    input_name: str
    value: str | None = None
    rpc_id: str | None = None

    def apply(self, run: Run) -> None:
        """Fold."""
        run.inputs = run.inputs | {self.input_name: self.value}
        run.take_news(self.timestamp)


class OperationSeen(Event):
    """An operation that the run is bound to was settled or decided. What counts is its own stream;
    this wakes.
    """

    TOPIC: ClassVar[str] = "settled.run.OperationSeen"
    operation: Bound
    seen: Seen

    def apply(self, run: Run) -> None:
        """Fold."""
        run.seen = run.seen | {self.operation.stream: self.seen}
        run.take_news(self.timestamp)


class DeadlinePassed(Event):
    """A deadline passed: of the session, of a turn, or of the call or wait that is named."""

    TOPIC: ClassVar[str] = "settled.run.DeadlinePassed"
    level: str
    subject: str
    until: datetime

    def apply(self, run: Run) -> None:
        """Fold."""
        run.passed = run.passed | {(self.level, self.subject)}
        if run.wait is not None and run.wait.key == self.subject:
            run.due = self.timestamp


class CancelRequested(Event):
    """Somebody wants the run to end; its owner ends it at its next step."""

    TOPIC: ClassVar[str] = "settled.run.CancelRequested"
    BODY: ClassVar[frozenset[str]] = frozenset({"reason"})
    reason: str | None = None

    def apply(self, run: Run) -> None:
        """Fold."""
        run.cancel_requested, run.last_reason = True, self.reason


class Completed(Event):
    """Its function ended."""

    TOPIC: ClassVar[str] = "settled.run.Completed"
    BODY: ClassVar[frozenset[str]] = frozenset({"result"})
    result: str | None = None

    def apply(self, run: Run) -> None:
        """Fold."""
        run.result = self.result


class _Ended(Event):
    reason: str | None = None

    def apply(self, run: Run) -> None:
        """Fold."""
        run.last_reason = self.reason


class Failed(_Ended):
    """It cannot go on: what it needs was refused, or its function failed too often."""

    TOPIC: ClassVar[str] = "settled.run.Failed"
    BODY: ClassVar[frozenset[str]] = frozenset({"reason"})


class Cancelled(_Ended):
    """It was called off. What it had intended is not."""

    TOPIC: ClassVar[str] = "settled.run.Cancelled"
    BODY: ClassVar[frozenset[str]] = frozenset({"reason"})


class Expired(Event):
    """The deadline of its session had passed."""

    TOPIC: ClassVar[str] = "settled.run.Expired"

    def apply(self, run: Run) -> None:
        """Fold."""
        run.last_reason = SESSION_OVER


class Replaced(_Ended):
    """Another run (`by`) goes on in its place."""

    TOPIC: ClassVar[str] = "settled.run.Replaced"
    BODY: ClassVar[frozenset[str]] = frozenset({"reason"})
    by: str


REQUESTED: dict[Sort, type[_Requested]] = {
    Sort.MODEL: ModelCallRequested,
    Sort.TOOL: ToolCallRequested,
    Sort.LOOKUP: LookupRequested,
}
RETURNED: dict[Sort, type[_Returned]] = {
    Sort.MODEL: ModelCallReturned,
    Sort.TOOL: ToolCallReturned,
    Sort.LOOKUP: LookupReturned,
}

EVENTS: tuple[type[Event], ...] = (
    *(Started, OwnerClaimed, OwnerReleased, Suspended, Migrated, TurnStarted),
    *(ModelCallRequested, ModelCallReturned, ToolCallRequested, ToolCallBound, ToolCallReturned),
    *(LookupRequested, LookupReturned, CallFailed, CallTimedOut, BudgetExceeded, CheckpointMarked),
    *(Waits, StillWaiting, InputReceived, OperationSeen, DeadlinePassed, CancelRequested),
    *(Completed, Failed, Cancelled, Expired, Replaced),
)


def place_of(operation: Bound, place: int) -> str:
    """Return the name of a place among the runs that are told of an operation."""
    return f"{operation.stream}/{place}"
