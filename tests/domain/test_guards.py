"""Each guard of an operation's lifecycle, where it alone stands in the way, and beside it.

The table says that a step is possible; these say when it is not. `make mutations` takes each guard
out of the table and looks at this file.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from settled.domain.clock import Stamp
from settled.domain.digest import Digest
from settled.domain.errors import DecisionRefused, EffectPossible, NotPossible, TransitionRefused
from settled.domain.operation import events as ev
from settled.domain.operation.lifecycle import LIFECYCLE
from settled.domain.operation.operation import Operation
from settled.domain.operation.terms import Remains
from settled.infrastructure.testing.given import Happened
from settled.infrastructure.testing.manual_clock import START
from settled.testing import Given, given, happened

SOON = START + timedelta(minutes=1)
LATER = START + timedelta(hours=1)
TERMS: dict[str, Any] = {
    "tenant": "acme",
    "kind": "refund",
    "identity": "refund-request-9",
    "kind_version": 1,
    "mode": "live",
    "params": "{}",
    "params_version": 1,
    "digest": Digest("hmac-sha256", "00" * 32, "refund", 1, "k1"),
    "provider": "psp",
    "hand_over_to": "payments-oncall",
    "priority": 1,
    "within_seconds": 3600.0,
    "attempts_allowed": 8,
    "call_timeout_seconds": 5.0,
    "permit_seconds": 1.0,
}
KEYED: dict[str, Any] = {"provider_key": "key-1", "generation": 1, "give_up_at": LATER}

PROPOSED = happened(ev.Proposed, **TERMS, expires_at=LATER)
REVISED = happened(ev.Revised, **TERMS, proposal_version=2, expires_at=LATER)
APPROVED = happened(ev.Approved, proposal_version=1, digest="00" * 32, roles=())
REJECTED = happened(ev.Rejected, proposal_version=1)
INTENDED = happened(ev.Intended, **TERMS, **KEYED)
REVOKED = happened(ev.ApprovalRevoked, expires_at=LATER)
CANCELLED = happened(ev.Cancelled)
EXPIRED = happened(ev.Expired)
CLAIMED = happened(ev.Claimed, worker="worker-1", epoch=1, due_at=SOON)
RELEASED = happened(ev.Released, reason="its worker is gone", due_at=SOON)
RETRIED = happened(ev.RetryScheduled, reason="not sent", rule="never sent", retry_at=SOON)
WISHED = happened(ev.CancelRequested, reason="the customer called")
ABSENT = happened(ev.ConfirmedAbsent, via="hand", reason="not there", rule="by hand", due_at=SOON)
RESUMED = happened(ev.ReconciliationResumed, reason="go on", give_up_at=LATER)
STOPPED = happened(
    ev.HandedOver, to="payments-oncall", reason="no answer", rule="nothing left", next_at=SOON
)
CONTRADICTED = happened(
    ev.Contradicted,
    to="payments-oncall",
    was="cancelled",
    reason="a webhook",
    reference="re_1",
    next_at=SOON,
)


def dispatched(attempt: int = 1) -> Happened:
    return happened(
        ev.Dispatching,
        attempt=attempt,
        key="key-1",
        worker="worker-1",
        epoch=1,
        permit_until=SOON,
        call_deadline=SOON,
        adapter="http/1",
        scope=(),
        credential_fingerprint="f",
        request_digest="d",
    )


def unknown(cause: str = "reply_lost", attempt_out: bool = True) -> Happened:
    return happened(
        ev.OutcomeUnknown,
        cause=cause,
        reason="no answer",
        rule="lost reply",
        sender_reported=True,
        waited=False,
        attempt_out=attempt_out,
        next_at=SOON,
    )


SENT = [INTENDED, CLAIMED, dispatched()]
ADOPTED = [INTENDED, unknown("adopted")]
APPROVED_ONCE = [PROPOSED, APPROVED, INTENDED]
TWICE = [*SENT, unknown(), dispatched(2)]

REFUSED: list[tuple[str, list[Happened], Happened, type[NotPossible], str]] = [
    ("approved twice", [PROPOSED, APPROVED], APPROVED, DecisionRefused, "approved by ada already"),
    ("rejected after that", [PROPOSED, APPROVED], REJECTED, DecisionRefused, "approved by ada"),
    ("intended undecided", [PROPOSED], INTENDED, DecisionRefused, "Nobody has approved version 1"),
    (
        "intended on the decision about another version",
        [PROPOSED, APPROVED, REVISED],
        INTENDED,
        DecisionRefused,
        "Nobody has approved version 2",
    ),
    ("revised once sent", [*SENT, RETRIED], REVISED, EffectPossible, "cannot change"),
    ("revised in a later claim", [*SENT, RETRIED, CLAIMED], REVISED, EffectPossible, "cannot"),
    ("revised once adopted", [*ADOPTED, ABSENT, CLAIMED, dispatched(), RETRIED], REVISED,
     EffectPossible, "cannot change"),
    ("revoked once sent", [*APPROVED_ONCE, CLAIMED, dispatched(), RETRIED], REVOKED,
     EffectPossible, "cannot change"),
    ("sent after a wish to cancel", [*SENT, WISHED, RETRIED], CLAIMED, TransitionRefused,
     "cancel was requested"),
    ("retried beside an earlier one", TWICE, RETRIED, EffectPossible, "earlier request"),
    ("retried beside another copy's", [*ADOPTED, dispatched()], RETRIED, EffectPossible, "earlier"),
    ("absent after a contradiction", [INTENDED, CANCELLED, CONTRADICTED], ABSENT, DecisionRefused,
     "nothing is sent for it again"),
    ("resumed after a contradiction", [INTENDED, CANCELLED, CONTRADICTED], RESUMED,
     DecisionRefused, "nothing is sent for it again"),
]  # fmt: skip


REISSUED = happened(
    ev.Reissued, generation=2, provider_key="key-2", give_up_at=LATER, reason="once more"
)
FAILED = happened(ev.Failed, via="reply", reason="refused", rule="refused")
PURGED = happened(
    ev.Purged,
    **(TERMS | {"params": None}),
    gone="",
    events=4,
    reason="old enough",
    left=Remains(
        state="failed",
        since=START,
        proposal_version=0,
        approved_by=None,
        approved_version=0,
        approval_consumed=True,
        intended_at=START,
        give_up_at=LATER,
        provider_key="key-1",
        generation=1,
        attempts=(),
        evidence_keys=(),
        told=(),
        references=(),
        reference=None,
        reference_is_theirs=False,
        adopted=False,
        contradicted=False,
        disputed=False,
        cancel_requested=False,
        rule="refused",
    ),
)
REFUSED.append(
    ("begun anew once purged", [*SENT, FAILED, PURGED], REISSUED, TransitionRefused, "were purged")
)


def is_now(history: list[Happened]) -> Given[Operation]:
    return given(Operation, history)


def record(step: Happened) -> Callable[[Operation, Stamp], None]:
    return lambda machine, stamp: machine.record(step.event_class, stamp, **step.fields)


@pytest.mark.parametrize(
    ("name", "history", "step", "error", "saying"), REFUSED, ids=[row[0] for row in REFUSED]
)
def test_what_a_guard_refuses(
    name: str, history: list[Happened], step: Happened, error: type[NotPossible], saying: str
) -> None:
    """Nothing else of the table forbids it there, so without its guard it would be done."""
    assert LIFECYCLE.allows(is_now(history).when(lambda one, _: one.state).returned, step.name)
    is_now(history).when(record(step)).then_refused(error, saying)


LET_THROUGH: list[tuple[list[Happened], Happened]] = [
    ([PROPOSED], APPROVED),
    ([PROPOSED], REJECTED),
    ([PROPOSED, APPROVED], INTENDED),
    ([PROPOSED, APPROVED, REVISED],
     happened(ev.Approved, proposal_version=2, digest="00" * 32, roles=())),
    ([INTENDED, CLAIMED], REVISED),
    (APPROVED_ONCE, REVOKED),
    ([INTENDED, CLAIMED], CANCELLED),
    ([*SENT, RETRIED], CANCELLED),
    ([*SENT, RETRIED], EXPIRED),
    ([*SENT, RETRIED], CLAIMED),
    ([INTENDED, CLAIMED, RELEASED], CLAIMED),
    ([*SENT, unknown(), ABSENT, CLAIMED, dispatched(2)], RETRIED),
    ([*SENT, unknown(), STOPPED], ABSENT),
    ([*SENT, unknown(), STOPPED], RESUMED),
    ([*SENT, FAILED], REISSUED),
]  # fmt: skip


@pytest.mark.parametrize(
    ("history", "step"),
    LET_THROUGH,
    ids=[f"{step.name} after {history[-1].name}" for history, step in LET_THROUGH],
)
def test_what_a_guard_lets_through(history: list[Happened], step: Happened) -> None:
    """A guard that refuses too much strands the operation."""
    is_now(history).when(record(step)).then(step)


@pytest.mark.parametrize("step", [CANCELLED, EXPIRED], ids=lambda step: step.name)
def test_what_may_be_out_is_not_called_off(step: Happened) -> None:
    """Two locks on one door: no way leads to ready or claimed while an attempt is out.

    The guard is the second one, for a way that somebody adds to the table one day; so the machine
    is brought there past the table.
    """

    def record_as_if_ready(machine: Operation, stamp: Stamp) -> None:
        machine.state = "ready"
        machine.record(step.event_class, stamp, **step.fields)

    refused = is_now([*SENT, unknown()]).when(record_as_if_ready)
    refused.then_refused(EffectPossible, "earlier request may have had an effect")


def test_each_guard_is_shown_to_refuse() -> None:
    """A guard that is added to the table needs a line here."""
    shown = {step.name for step in (CANCELLED, EXPIRED)} | {
        step.name for _, _, step, _, _ in REFUSED
    }
    assert {arrow.event for arrow in LIFECYCLE.arrows if arrow.guard} <= shown
