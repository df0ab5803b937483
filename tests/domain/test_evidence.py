"""What evidence that came by itself may conclude: a late reply speaks of its own attempt alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from settled.domain.clock import Stamp
from settled.domain.identity import Identity, provider_key
from settled.domain.keys import DerivedKeys
from settled.domain.kind import Kind
from settled.domain.money import Money
from settled.domain.operation import events as ev
from settled.domain.operation.evidence import admit
from settled.domain.operation.judgement import conclude
from settled.domain.operation.operation import Operation, intend
from settled.domain.params import Params
from settled.domain.provider import Answered, Echo, Finding, Via
from settled.domain.recovery import Step, StepKind, recover
from settled.infrastructure.http.json_provider import HttpProvider
from settled.infrastructure.simulator.contract import simulator_contract

START = datetime(2026, 11, 30, 14, 3, 9, tzinfo=UTC)
IDENTITY = Identity("acme", "refund", "refund-request-9")
CONTRACT = simulator_contract()


class RefundParams(Params):
    """A refund of part of an order."""

    order: str
    amount: Money


def stamp(seconds: float) -> Stamp:
    return Stamp(START + timedelta(seconds=seconds), "worker")


def an_intent() -> Operation:
    """Return an operation that is ready."""
    provider = HttpProvider("http://psp.example/v1/refunds", contract=CONTRACT)
    kind = Kind("refund", RefundParams, provider, "payments-oncall")
    params = RefundParams(order="order-72", amount=Money("30.00", "USD"))
    terms = kind.terms(IDENTITY, params, DerivedKeys(bytes(32)), {})
    return intend(terms, stamp(0), provider_key(UUID(int=7), IDENTITY, 1))


def dispatch(operation: Operation, at: float) -> None:
    """Send the next attempt: from ready, or again from outcome_unknown."""
    if operation.state == "ready":
        later = stamp(at + 60).at
        operation.record(ev.Claimed, stamp(at), worker="worker", epoch=1, due_at=later)
    operation.record(
        ev.Dispatching,
        stamp(at),
        attempt=operation.next_attempt,
        key=operation.provider_key,
        worker="worker",
        epoch=1,
        permit_until=stamp(at + 5).at,
        call_deadline=stamp(at + 35).at,
        adapter="http/1",
        scope=(),
        credential_fingerprint="",
        request_digest="d",
    )


def lose(operation: Operation, at: float) -> None:
    """Lose the owner of the attempt that is out."""
    operation.record(
        ev.OutcomeUnknown,
        stamp(at),
        cause="owner_gone",
        reason="its worker is gone",
        rule="unanswered",
        sender_reported=False,
        waited=False,
        attempt_out=True,
        next_at=stamp(at).at,
    )


def confirm_absent(operation: Operation, at: float) -> None:
    """Prove that nothing of the attempts so far exists."""
    operation.record(
        ev.ConfirmedAbsent,
        stamp(at),
        via="lookup",
        reason="not found",
        rule="absent, proven",
        due_at=stamp(at).at,
    )


def late(answered: Answered, **more: Any) -> Finding:
    return Finding(answered, Via.REPLY, "the late reply", **more)


@pytest.mark.parametrize(
    "answered", [Answered.REJECTED, Answered.NO_TARGET, Answered.NOT_SENT, Answered.FAILED]
)
def test_a_late_refusal_says_nothing_about_a_later_attempt(answered: Answered) -> None:
    """The first was proven absent, the second is out: a 400 for the first settles nothing."""
    operation = an_intent()
    dispatch(operation, 1)
    lose(operation, 40)
    confirm_absent(operation, 80)
    dispatch(operation, 81)
    admit(operation, CONTRACT, late(answered), stamp(82), timedelta(), attempt=1)
    assert operation.state == "dispatching"
    assert isinstance(operation.pending_events[-1], ev.EvidenceRecorded)


def test_a_late_receipt_settles_whichever_attempt_it_answers() -> None:
    """An effect that exists is ours by the key, also when it was believed to be absent."""
    operation = an_intent()
    dispatch(operation, 1)
    lose(operation, 40)
    confirm_absent(operation, 80)
    dispatch(operation, 81)
    receipt = late(Answered.PERFORMED, reference="re_1", receipt={"id": "re_1"}, echo=Echo.EQUAL)
    admit(operation, CONTRACT, receipt, stamp(82), timedelta(), attempt=1)
    assert (operation.state, operation.reference) == ("succeeded", "re_1")


def test_the_sender_that_reports_that_nothing_was_sent_is_believed() -> None:
    """Its permit was over before the first byte; it was the only attempt, so nothing is out."""
    operation = an_intent()
    dispatch(operation, 1)
    lose(operation, 40)
    admit(operation, CONTRACT, late(Answered.NOT_SENT), stamp(50), timedelta(), attempt=1)
    assert (operation.state, operation.out) == ("ready", ())


def test_nobody_else_is_believed_that_nothing_was_sent() -> None:
    """What does not answer one of our requests proves nothing about them."""
    operation = an_intent()
    dispatch(operation, 1)
    lose(operation, 40)
    admit(operation, CONTRACT, late(Answered.NOT_SENT), stamp(50), timedelta())
    assert operation.state == "outcome_unknown"


def test_one_of_two_attempts_that_was_not_sent_leaves_the_other_unknown() -> None:
    """Both are out; that one of them never left says nothing about the other."""
    operation = an_intent()
    dispatch(operation, 1)
    lose(operation, 40)
    dispatch(operation, 41)
    lose(operation, 80)
    admit(operation, CONTRACT, late(Answered.NOT_SENT), stamp(90), timedelta(), attempt=2)
    assert operation.state == "outcome_unknown"


@pytest.mark.parametrize("answered", [Answered.FAILED, Answered.PENDING, Answered.REVERSED])
@pytest.mark.parametrize("known", [True, False], ids=["accepted", "unknown"])
def test_news_of_an_earlier_object_says_nothing_about_the_one_that_was_issued_anew(
    answered: Answered, known: bool
) -> None:
    """Found by the simulation: a webhook that came twice failed the next generation's refund."""
    operation = an_intent()
    dispatch(operation, 1)
    operation.record(ev.Failed, stamp(2), via="reply", reason="declined", rule="failed")
    operation.record(
        ev.Reissued,
        stamp(3),
        generation=2,
        provider_key=provider_key(UUID(int=7), IDENTITY, 2),
        give_up_at=stamp(9000).at,
        reason="once more",
    )
    dispatch(operation, 4)
    lose(operation, 40)
    if known:
        ours = Finding(Answered.PENDING, Via.REPLY, "pending", reference="re_2", echo=Echo.EQUAL)
        admit(operation, CONTRACT, ours, stamp(41), timedelta(), attempt=2)
        assert (operation.state, operation.reference) == ("accepted", "re_2")
    before = operation.state
    told = Finding(answered, Via.WEBHOOK, "told again", reference="re_1", echo=Echo.EQUAL)
    admit(operation, CONTRACT, told, stamp(50), timedelta())
    assert operation.state == before
    assert isinstance(operation.pending_events[-1], ev.EvidenceRecorded)


def test_what_was_taken_back_is_not_settled_by_news_of_before() -> None:
    """Found by the simulation: "reversed" came first, and "succeeded", which is older, second."""
    operation = an_intent()
    dispatch(operation, 1)
    lose(operation, 40)
    reversed_ = Finding(Answered.REVERSED, Via.WEBHOOK, "taken back", "re_1", echo=Echo.EQUAL)
    admit(operation, CONTRACT, reversed_, stamp(50), timedelta())
    assert operation.state == "handed_over"
    done = Finding(Answered.PERFORMED, Via.WEBHOOK, "it succeeded", "re_1", echo=Echo.EQUAL)
    admit(operation, CONTRACT, done, stamp(51), timedelta())
    assert operation.state == "handed_over"
    assert isinstance(operation.pending_events[-1], ev.EvidenceRecorded)


def reissue(operation: Operation, at: float) -> None:
    """Let the present generation fail, and issue it anew."""
    if operation.state == "ready":
        dispatch(operation, at)
    operation.record(ev.Failed, stamp(at), via="reply", reason="declined", rule="failed")
    operation.record(
        ev.Reissued,
        stamp(at),
        generation=operation.generation + 1,
        provider_key=provider_key(UUID(int=7), IDENTITY, operation.generation + 1),
        give_up_at=stamp(9000).at,
        reason="once more",
    )


def hand_over(operation: Operation, at: float) -> None:
    """Stop, because no step is safe and possible."""
    step = Step(StepKind.HAND_OVER, "unanswered, nothing left", "nothing left")
    conclude(operation, step, stamp(at))


def told(answered: Answered, reference: str | None, via: Via = Via.WEBHOOK) -> Finding:
    return Finding(answered, via, answered.value, reference, echo=Echo.EQUAL)


def look_up(operation: Operation, finding: Finding, at: float) -> None:
    """Ask, and conclude what recovery makes of the answer."""
    step = recover(operation.situation(stamp(at).at), CONTRACT, finding, timedelta())
    conclude(operation, step, stamp(at), finding)


BOTH_ORDERS = pytest.mark.parametrize(
    "order",
    [(Answered.REVERSED, Answered.PERFORMED), (Answered.PERFORMED, Answered.REVERSED)],
    ids=["reversed first", "performed first"],
)


@BOTH_ORDERS
@pytest.mark.parametrize("name", ["re_1", None], ids=["named", "nameless"])
def test_a_reversal_that_comes_after_the_hand_over_is_not_forgotten(
    order: tuple[Answered, ...], name: str | None
) -> None:
    """An older "performed" behind it settles nothing; in the order of events both are believed."""
    operation = an_intent()
    dispatch(operation, 1)
    lose(operation, 40)
    hand_over(operation, 41)
    for number, answered in enumerate(order):
        admit(operation, CONTRACT, told(answered, name), stamp(50 + number), timedelta())
    in_order = order[0] is Answered.PERFORMED and name is not None
    expected = "reversed" if in_order else "handed_over"
    assert operation.state == expected


@BOTH_ORDERS
@pytest.mark.parametrize("name", ["re_2", None], ids=["named", "nameless"])
def test_a_reversal_in_a_later_generation_is_not_forgotten(
    order: tuple[Answered, ...], name: str | None
) -> None:
    """Whose it is was not known when it came; a look-up that knows no better settles nothing."""
    operation = an_intent()
    reissue(operation, 1)
    dispatch(operation, 4)
    lose(operation, 40)
    for number, answered in enumerate(order):
        admit(operation, CONTRACT, told(answered, name), stamp(50 + number), timedelta())
        assert operation.state == "outcome_unknown"
    look_up(operation, told(Answered.PERFORMED, "re_2", Via.LOOKUP), 60)
    assert (operation.state, operation.disputed) == ("handed_over", True)
    admit(operation, CONTRACT, told(Answered.PERFORMED, "re_2"), stamp(61), timedelta())
    assert operation.state == "handed_over"


@pytest.mark.parametrize("told_first", [True, False], ids=["webhook first", "reply first"])
def test_an_earlier_object_that_was_performed_hides_no_second_effect(told_first: bool) -> None:
    """The one that had failed is reported as performed while its successor is out, or after it."""
    operation = an_intent()
    reissue(operation, 1)
    dispatch(operation, 4)
    earlier = told(Answered.PERFORMED, "re_1")
    if told_first:
        admit(operation, CONTRACT, earlier, stamp(5), timedelta())
        assert operation.state == "dispatching"
    look_up(operation, told(Answered.PERFORMED, "re_2", Via.REPLY), 6)
    if not told_first:
        assert operation.state == "succeeded"
        admit(operation, CONTRACT, earlier, stamp(7), timedelta())
    assert operation.state == "handed_over"


@pytest.mark.parametrize("told_first", [True, False], ids=["webhook first", "refusal first"])
def test_an_earlier_object_that_was_performed_is_not_followed_by_another_request(
    told_first: bool,
) -> None:
    """What is out was never sent: sending it again would make a second effect."""
    operation = an_intent()
    reissue(operation, 1)
    dispatch(operation, 4)
    earlier = told(Answered.PERFORMED, "re_1")
    if told_first:
        admit(operation, CONTRACT, earlier, stamp(5), timedelta())
    look_up(operation, late(Answered.NOT_SENT), 6)
    if told_first:
        assert (operation.state, operation.disputed) == ("handed_over", True)
    else:
        admit(operation, CONTRACT, earlier, stamp(7), timedelta())
        assert (operation.state, operation.reference) == ("succeeded", "re_1")


def test_a_webhook_that_overtakes_the_reply_in_a_later_generation_hinders_nothing() -> None:
    """It names what the reply names, so the reply settles."""
    operation = an_intent()
    reissue(operation, 1)
    dispatch(operation, 4)
    admit(operation, CONTRACT, told(Answered.PERFORMED, "re_2"), stamp(5), timedelta())
    look_up(operation, told(Answered.PERFORMED, "re_2", Via.REPLY), 6)
    assert (operation.state, operation.reference) == ("succeeded", "re_2")


@pytest.mark.parametrize("attempt", [1, 2], ids=["of the earlier", "of the present"])
def test_a_late_receipt_speaks_of_the_generation_of_its_attempt(attempt: int) -> None:
    """The present one is settled by it; an earlier one says that two effects may exist."""
    operation = an_intent()
    reissue(operation, 1)
    dispatch(operation, 4)
    lose(operation, 40)
    receipt = told(Answered.PERFORMED, f"re_{attempt}", Via.REPLY)
    admit(operation, CONTRACT, receipt, stamp(50), timedelta(), attempt)
    assert operation.state == ("succeeded" if attempt == 2 else "outcome_unknown")


@pytest.mark.parametrize("attempt", [None, 1], ids=["webhook", "late reply"])
@pytest.mark.parametrize("other_first", [True, False], ids=["other first", "ours first"])
def test_an_effect_beside_the_object_that_is_pending_brings_a_person_in(
    other_first: bool, attempt: int | None
) -> None:
    """Both are equal to the intent, so two effects may exist; neither settles the operation."""
    operation = an_intent()
    dispatch(operation, 1)
    look_up(operation, told(Answered.PENDING, "re_1", Via.REPLY), 2)
    names = ["re_9", "re_1"] if other_first else ["re_1", "re_9"]
    for number, name in enumerate(names):
        performed = told(Answered.PERFORMED, name)
        admit(operation, CONTRACT, performed, stamp(3 + number), timedelta(), attempt)
        at_once = "handed_over" if other_first else "succeeded"
        assert operation.state == (at_once if number == 0 else "handed_over")
    assert (operation.state, operation.reference) == ("handed_over", "re_1")


def test_an_effect_beside_ours_is_remembered_when_the_operation_is_resumed() -> None:
    """Resuming does not make the second effect undone: the next end is disputed again."""
    operation = an_intent()
    dispatch(operation, 1)
    look_up(operation, told(Answered.PENDING, "re_1", Via.REPLY), 2)
    admit(operation, CONTRACT, told(Answered.PERFORMED, "re_9"), stamp(3), timedelta())
    operation.record(
        ev.ReconciliationResumed, stamp(4), reason="try again", give_up_at=stamp(9000).at
    )
    look_up(operation, told(Answered.PERFORMED, "re_1", Via.LOOKUP), 5)
    assert operation.state == "handed_over"
    last = operation.pending_events[-1]
    assert isinstance(last, ev.HandedOver)
    assert "re_9 was performed" in last.reason
