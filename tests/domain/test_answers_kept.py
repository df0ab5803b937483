"""What a refusal said is kept, because the next decision is made from the stream alone.

The reconciler decides anew when the row is due. A decision to look up that lived only in the
process which had the answer was lost: the next one saw an open window and sent again.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from settled.domain.clock import Stamp
from settled.domain.contract.presets import stripe_v1_refund
from settled.domain.digest import Digest
from settled.domain.operation import events as ev
from settled.domain.operation.judgement import conclude
from settled.domain.operation.operation import Operation, intend
from settled.domain.operation.terms import Terms
from settled.domain.provider import Answered, Finding, Via
from settled.domain.recovery import StepKind, recover

START = datetime(2026, 11, 30, 14, 3, 9, tzinfo=UTC)
STAMP = Stamp(START + timedelta(seconds=1), "reconciler")
TERMS = Terms(
    tenant="acme",
    kind="refund",
    identity="refund-request-9",
    kind_version=1,
    mode="live",
    params="{}",
    params_version=1,
    digest=Digest(
        algorithm="hmac-sha-256", value="0" * 64, key_id="k1", kind="refund", params_version=1
    ),
    provider="psp",
    hand_over_to="payments-oncall",
    priority=1,
    within_seconds=72_000,
    attempts_allowed=8,
    call_timeout_seconds=30,
    permit_seconds=5,
)


def dispatched() -> Operation:
    """Return an operation whose request may be out."""
    stamp = Stamp(START, "dispatcher")
    operation = intend(TERMS, stamp, "key-1")
    operation.record(ev.Claimed, stamp, worker="worker", epoch=1, due_at=START)
    operation.record(
        ev.Dispatching,
        stamp,
        attempt=1,
        key="key-1",
        worker="worker",
        epoch=1,
        permit_until=START + timedelta(seconds=5),
        call_deadline=START + timedelta(seconds=35),
        adapter="http/1",
        scope=(),
        credential_fingerprint="",
        request_digest="0" * 64,
    )
    return operation


def answered(what: Answered, reference: str | None = None) -> Operation:
    """Return it after this answer was judged and recorded, and nothing else."""
    operation = dispatched()
    finding = Finding(what, Via.REPLY, "as the provider said", reference=reference)
    situation = operation.situation(STAMP.at)
    conclude(operation, recover(situation, stripe_v1_refund, finding, timedelta()), STAMP, finding)
    assert operation.state == "outcome_unknown"
    return operation


@pytest.mark.parametrize("what", [Answered.SERVER_ERROR, Answered.DUPLICATE, Answered.PRECONDITION])
def test_a_decision_to_look_up_is_not_forgotten(what: Answered) -> None:
    """Stripe keeps server errors under the key: what was to be looked up is not sent again."""
    operation = answered(what)
    step = recover(operation.situation(STAMP.at), stripe_v1_refund, None, timedelta())
    assert step.kind is StepKind.LOOK_UP


def test_a_lost_reply_is_sent_again() -> None:
    """The rule above does not reach further than it should."""
    operation = answered(Answered.LOST)
    step = recover(operation.situation(STAMP.at), stripe_v1_refund, None, timedelta())
    assert step.kind is StepKind.RESEND


def test_an_object_that_a_refusal_names_is_read_and_not_yet_ours() -> None:
    """Its name is what to look up by; who it belongs to is kept once it has been compared."""
    operation = answered(Answered.DUPLICATE_OF, "re_1")
    situation = operation.situation(STAMP.at)
    assert situation.handle == "re_1" and situation.known_there
    assert operation.new_references == []
    operation.record(
        ev.Succeeded,
        STAMP,
        reference="re_1",
        via="lookup",
        replayed=False,
        reason="it is there",
        rule="performed",
    )
    assert operation.new_references == [("psp", "re_1")]
