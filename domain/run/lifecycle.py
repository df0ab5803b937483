"""The lifecycle of a run, written once. Guard, pictures and tests are made from it."""

from __future__ import annotations

from settled.domain.machine.lifecycle import ABSENT, Arrow, Lifecycle, State

STATES = (
    State(
        "created",
        "The start is durable, and no worker has had it yet. Entered by Started; left when a worker"
        " takes it.",
    ),
    State(
        "running",
        "One worker has it, under an owner epoch of its own, and runs its function. Calls to models"
        " and tools are in flight here: a call that has not returned is pending. Left when the"
        " function waits, ends or fails, or when the worker gives it back. When the worker dies,"
        " the next one takes it under the next epoch, and what the first still writes is refused.",
        held=True,
    ),
    State(
        "waiting",
        "Nobody runs it, and it needs nobody's memory: it waits for an operation, an approval, an"
        " input or a moment. Entered by Waits; left when a worker takes it because what it waits"
        " for is recorded in its own stream, or because a deadline has passed.",
    ),
    State(
        "suspended",
        "Put aside with the moment at which a worker takes it again. Entered when a worker stopped,"
        " when its function failed and is tried again later, and when the code that is here serves"
        " another version of its state.",
    ),
    State("completed", "Its function ended, and the result is recorded.", settled=True),
    State("failed", "It cannot go on, and the reason is recorded.", settled=True),
    State(
        "cancelled",
        "Somebody called it off. What it had intended goes on: operations are cancelled by"
        " themselves, where nothing is out.",
        settled=True,
    ),
    State("expired", "The deadline of its session passed before it had ended.", settled=True),
    State(
        "replaced",
        "Another run goes on in its place, with what is left of its budgets and its deadline.",
        settled=True,
    ),
)

OPEN = ("created", "running", "waiting", "suspended")

ARROWS = (
    Arrow((ABSENT,), "Started", "created"),
    # A worker has it.
    Arrow(OPEN, "OwnerClaimed", "running"),
    Arrow(("running",), "OwnerReleased", "suspended"),
    Arrow(OPEN, "Suspended", "suspended"),
    Arrow(OPEN, "Migrated", None),
    # What its function does.
    Arrow(("running",), "TurnStarted", None),
    Arrow(("running",), "ModelCallRequested", None),
    Arrow(("running",), "ModelCallReturned", None),
    Arrow(("running",), "ToolCallRequested", None),
    Arrow(("running",), "ToolCallBound", None),
    Arrow(("running",), "ToolCallReturned", None),
    Arrow(("running",), "LookupRequested", None),
    Arrow(("running",), "LookupReturned", None),
    Arrow(("running",), "CallFailed", None),
    Arrow(("running", "waiting", "suspended"), "CallTimedOut", None),
    Arrow(("running",), "BudgetExceeded", None),
    Arrow(("running",), "CheckpointMarked", None),
    # Waiting, and what it waits for.
    Arrow(("running",), "Waits", "waiting"),
    Arrow(("waiting",), "StillWaiting", None),
    Arrow(OPEN, "InputReceived", None),
    Arrow(OPEN, "OperationSeen", None),
    Arrow(OPEN, "DeadlinePassed", None),
    # Ends.
    Arrow(("running",), "CancelRequested", None),
    Arrow(("running",), "Completed", "completed"),
    Arrow(("running",), "Failed", "failed"),
    Arrow(OPEN, "Cancelled", "cancelled"),
    Arrow(OPEN, "Expired", "expired"),
    Arrow((*OPEN, "failed"), "Replaced", "replaced"),
)

LIFECYCLE = Lifecycle("run", states=STATES, arrows=ARROWS)
