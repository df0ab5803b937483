"""The lifecycle of an operation, written once. Guard, pictures and tests are made from it."""

from __future__ import annotations

from settled.domain.errors import EffectPossible, TransitionRefused
from settled.domain.machine.lifecycle import ABSENT, Arrow, Lifecycle, Refusal, State

PROPOSED = State(
    "proposed",
    "Waits for a decision on exactly this version of the proposal. Entered by Proposed and by each "
    "Revised; left when the version is approved and intended, rejected, expired or cancelled.",
)
READY = State(
    "ready",
    "The intent is durable, and by the best evidence nothing is out. Entered by Intended, and "
    "again when a claim is given back, a request is proven not sent, an effect is proven absent or "
    "a new generation is issued; left by a worker's claim, or by cancelling, expiry or revision.",
)
CLAIMED = State(
    "claimed",
    "One worker owns it and has sent nothing. The claim consumes the approval. Left by "
    "Dispatching, or back to ready when the worker gives it up or is gone.",
    held=True,
)
DISPATCHING = State(
    "dispatching",
    "This attempt may have reached the provider: the event was durable before the first byte. Left "
    "by what the provider answered, or by outcome_unknown when nothing usable came back.",
    held=True,
)
ACCEPTED = State(
    "accepted",
    "The provider has the request and its final outcome is pending. Polled, or told by webhook.",
)
OUTCOME_UNKNOWN = State(
    "outcome_unknown",
    "An effect may exist. Only evidence leads out: a lookup, the same request again where the "
    "contract allows it, a webhook, or a person.",
)
HANDED_OVER = State(
    "handed_over",
    "Automatic steps have stopped, and a named owner reconciles. Entered when the contract leaves "
    "no safe step, and by Contradicted, when evidence disagrees with what was settled.",
)
SUCCEEDED = State("succeeded", "The effect exists and its receipt is recorded.", settled=True)
FAILED = State("failed", "Definitively no effect: refused, or provably never sent.", settled=True)
REJECTED = State("rejected", "A person declined the proposal. Nothing was sent.", settled=True)
EXPIRED = State("expired", "Its time ran out before anything was sent.", settled=True)
CANCELLED = State("cancelled", "Withdrawn before anything was sent.", settled=True)
REVERSED = State("reversed", "The effect existed and the provider took it back.", settled=True)

STATES = (
    PROPOSED,
    READY,
    CLAIMED,
    DISPATCHING,
    ACCEPTED,
    OUTCOME_UNKNOWN,
    HANDED_OVER,
    SUCCEEDED,
    FAILED,
    REJECTED,
    EXPIRED,
    CANCELLED,
    REVERSED,
)

_OUT = ("dispatching", "accepted", "outcome_unknown")
"""States in which a request may be out and automatic steps go on."""

_EVERY = tuple(state.name for state in STATES)
_SETTLED = tuple(state.name for state in STATES if state.settled)
_OPEN = tuple(state.name for state in STATES if not state.settled)

ARROWS = (
    # Coming into being, and decisions.
    Arrow((ABSENT,), "Proposed", "proposed"),
    Arrow((ABSENT,), "Intended", "ready"),
    Arrow(("proposed",), "Approved", None, guard="must_await_decision"),
    Arrow(("proposed",), "Intended", "ready", guard="must_be_approved"),
    Arrow(("proposed",), "Rejected", "rejected", guard="must_await_decision"),
    Arrow(("proposed",), "ProposalExpired", "expired"),
    Arrow(
        ("proposed", "ready", "claimed", "rejected", "expired"),
        "Revised",
        "proposed",
        guard="must_be_undispatched",
    ),
    Arrow(("ready",), "ApprovalRevoked", "proposed", guard="must_be_undispatched"),
    Arrow(
        ("proposed", "ready", "claimed"), "Cancelled", "cancelled", guard="must_have_nothing_out"
    ),
    Arrow(("ready",), "Expired", "expired", guard="must_have_nothing_out"),
    # A worker takes it, and sends.
    Arrow(("ready",), "Claimed", "claimed", guard="must_not_be_withdrawn"),
    Arrow(("claimed",), "Released", "ready"),
    Arrow(("claimed", "outcome_unknown"), "Dispatching", "dispatching"),
    Arrow(("dispatching",), "RetryScheduled", "ready", guard="must_have_no_earlier_out"),
    # What became of it.
    Arrow((*_OUT, "handed_over"), "Succeeded", "succeeded"),
    Arrow((*_OUT, "handed_over"), "Failed", "failed"),
    Arrow(("dispatching", "outcome_unknown"), "Accepted", "accepted"),
    Arrow(("ready", "claimed", "dispatching", "accepted"), "OutcomeUnknown", "outcome_unknown"),
    Arrow(("outcome_unknown",), "ConfirmedAbsent", "ready"),
    Arrow(("handed_over",), "ConfirmedAbsent", "ready", guard="must_not_be_contradicted"),
    Arrow(("accepted", "outcome_unknown"), "HandedOver", "handed_over"),
    Arrow(
        ("handed_over",),
        "ReconciliationResumed",
        "outcome_unknown",
        guard="must_not_be_contradicted",
    ),
    Arrow(("succeeded",), "Reversed", "reversed"),
    Arrow(("failed",), "Reissued", "ready", guard="must_not_be_purged"),
    Arrow(
        (
            "proposed",
            "succeeded",
            "failed",
            "rejected",
            "expired",
            "cancelled",
            "reversed",
        ),
        "Contradicted",
        "handed_over",
    ),
    # What is noted without a change of state.
    Arrow(_EVERY, "EvidenceRecorded", None),
    Arrow((*_OUT, "handed_over"), "CancelRequested", None),
    Arrow(("accepted", "outcome_unknown", "handed_over"), "LookedUp", None),
    Arrow(("dispatching", "accepted"), "ProgressReported", None),
    Arrow(("accepted", "outcome_unknown"), "ReconciliationScheduled", None),
    Arrow(("handed_over",), "OwnerNotified", None),
    Arrow(_SETTLED, "Purged", None),
)

REFUSALS = (
    Refusal(
        (*_OUT, "handed_over"),
        ("Cancelled", "Revised", "ApprovalRevoked", "Expired"),
        EffectPossible,
        "A request may be out, so this cannot be changed or withdrawn until its outcome is known.",
        "Wait for the outcome, or let the owner settle it by hand; a cancel is kept as a request.",
    ),
    Refusal(
        _OPEN,
        ("Purged",),
        TransitionRefused,
        "It is open, and goes on with its details: nothing of it can be purged.",
        "Purge it once it is settled.",
    ),
)

LIFECYCLE = Lifecycle("operation", states=STATES, arrows=ARROWS, refusals=REFUSALS)
