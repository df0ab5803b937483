"""Between the claim and the request: the hook is asked, and what it says is done, and no more.

Given an operation and its kind's hook, when a worker takes it, then this: nothing is ever sent on
an answer that was not given, and no hook is asked while a request may be out.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from settled import Above, Approval, Call, Kind, Money, Params, Reply, presets
from settled.domain.clock import Stamp
from settled.domain.errors import DecisionRefused
from settled.domain.identity import Identity, Principal, provider_key
from settled.domain.keys import DerivedKeys
from settled.domain.kinds import Kinds
from settled.domain.operation import deciding
from settled.domain.operation import events as ev
from settled.domain.operation.operation import Operation, fields, propose
from settled.infrastructure.function_provider import FunctionProvider
from settled.infrastructure.testing.given import Decided, Given
from settled.infrastructure.testing.manual_clock import START, ManualClock
from settled.processes import revalidation
from settled.processes.dispatcher import Dispatcher
from settled.processes.manager import Work
from settled.processes.operations import PAUSE_SECONDS, Desk
from settled.processes.revalidation import NoAnswer, Revalidation
from settled.processes.runner import ShutDown
from settled.testing import given, happened

SECRET = b"k" * 32
IDENTITY = Identity("acme", "refund", "refund-request-9")
KEY = provider_key(UUID(int=7), IDENTITY, 1)
HOUR = timedelta(hours=1)
GRACE = Principal("acme", "grace", frozenset({"lead"}))


class RefundParams(Params):
    """A refund of part of an order."""

    order: str
    amount: Money


def refund(amount: str, currency: str = "USD") -> RefundParams:
    return RefundParams(order="order-72", amount=Money(amount, currency))


def perform(call: Call, params: RefundParams) -> Reply:
    return Reply.performed({"id": "re_1"}, reference="re_1")


def fine(params: RefundParams) -> None:
    """Nothing has changed."""


class Shop:
    """A kind with a hook, a worker's dispatcher, and one operation of it."""

    def __init__(
        self, hook: Callable[[RefundParams], object], *, proposed: bool = False, **policy: Any
    ) -> None:
        policy.setdefault("permit", timedelta(seconds=5))
        provider = FunctionProvider("psp", presets.generic_http, perform)
        self.kind: Kind[RefundParams] = Kind(
            "refund",
            RefundParams,
            provider,
            "payments-oncall",
            label="Refund {amount} for {order}",
            revalidate=hook,  # type: ignore[arg-type]  # a hook may return anything
            **policy,
        )
        self.clock = ManualClock()
        desk = Desk(Kinds.of([self.kind]), self.clock, SECRET, lambda operation, command: None)
        self.dispatcher = Dispatcher(desk)
        terms = self.kind.terms(IDENTITY, refund("30.00"), DerivedKeys(SECRET), {})
        first = happened(
            ev.Intended,
            **fields(terms),
            provider_key=KEY,
            generation=1,
            give_up_at=START + 20 * HOUR,
        )
        if proposed:
            asked = self.kind.policy.asks(refund("30.00"))
            first = happened(
                ev.Proposed, **fields(terms), expires_at=START + HOUR, requirement=asked
            )
        self.history: Given[Operation] = given(
            Operation, [first], clock=self.clock, stream=Operation.stream(IDENTITY)
        )
        if proposed:
            self.approve()

    def approve(self) -> Any:
        def command(machine: Operation, stamp: Stamp) -> None:
            said = deciding.Said(GRACE, machine.proposal_version, machine.terms.digest.value)
            assert machine.requirement is not None
            by_grace = Stamp(stamp.at, "grace")
            deciding.approve(machine, said, machine.requirement, by_grace, KEY)

        return self.history.when(command)

    def look(self, *, at: Any = None, epoch: int = 1) -> Decided[Operation]:
        return self.history.decides(self.dispatcher, at=at, epoch=epoch)

    def asked(self) -> Decided[Operation]:
        """Claim it, and look again while it is held: the hook is about to be asked."""
        self.look().then(ev.Claimed)
        return self.look(at=self.clock.at).then().then_performs(Work.LOOKUP, "revalidate")


def test_an_answer_that_it_holds_lets_it_be_sent() -> None:
    """Claimed in a commit of its own, asked, and dispatched under the same claim."""
    shop = Shop(fine)
    asked = shop.asked()
    asked.came(None).then()
    machine = asked.machine
    decision = shop.dispatcher.decide(
        machine, Stamp(shop.clock.at, "dispatcher"), _position(epoch=1)
    )
    assert isinstance(machine.pending_events[-1], ev.Dispatching)
    assert decision.work is Work.CALL  # type: ignore[union-attr]


def _position(epoch: int) -> Any:
    from settled.processes.manager import Position

    return Position("worker-1", epoch, draining=False)


def test_called_off_with_its_reason() -> None:
    """Nothing was sent, so nothing remains of it but why."""
    told = Shop(lambda params: f"{params.order} was delivered").asked().performed()
    told.then(happened(ev.Cancelled, reason="no longer valid: order-72 was delivered"))


def test_changed_terms_are_a_revised_proposal() -> None:
    """The old approval does not count for it; a new one sends the new amount."""
    shop = Shop(lambda params: refund("20.00"), proposed=True, approvers=frozenset({"lead"}))
    told = shop.asked().performed()
    told.then(ev.Revised).then_is("proposed", due=START + timedelta(days=7))
    machine = told.machine
    assert machine.proposal_version == 2 and machine.label == "Refund 20.00 USD for order-72"
    assert machine.approved_by is None and "20.00 USD" in str(machine.last_reason)
    late = shop.history.when(
        lambda one, stamp: one.record(
            ev.Intended,
            stamp,
            **fields(one.terms),
            provider_key=KEY,
            generation=1,
            give_up_at=START + HOUR,
        )
    )
    late.then_refused(DecisionRefused, "Nobody has approved version 2")
    shop.approve().then(ev.Approved, ev.Intended).then_is("ready")


def test_changed_terms_of_what_needed_no_approval_need_one() -> None:
    """Whoever intended 30 has not said that 35 is all right; one with the role approver may."""
    told = Shop(lambda params: refund("35.00")).asked().performed()
    told.then(ev.Revised).then_is("proposed")
    assert told.machine.requirement is not None
    assert told.machine.requirement.roles == ("approver",)


def test_the_policy_decides_on_changed_terms_anew() -> None:
    """Less than it asks people about it approves itself; more needs whoever more needs."""
    policy = Approval(
        frozenset({"lead"}),
        above=(Above(Money("100.00", "USD"), frozenset({"finance-lead"}), count=2),),
        auto_below=(Money("10.00", "USD"),),
    )
    less = Shop(lambda params: refund("5.00"), proposed=True, approvers=policy)
    less.asked().performed().then(ev.Revised, ev.Approved, ev.Intended).then_is("ready")
    more = Shop(lambda params: refund("500.00"), proposed=True, approvers=policy)
    told = more.asked().performed()
    told.then(ev.Revised)
    assert told.machine.requirement is not None
    assert (told.machine.requirement.roles, told.machine.approvals_missing) == (
        ("finance-lead",),
        2,
    )


def test_the_same_terms_are_no_change() -> None:
    """A hook that works out the amount anew and finds what it was says that it holds."""
    shop = Shop(lambda params: refund("30.00"))
    shop.asked().performed().then().then_is("claimed")


def test_terms_that_were_sent_before_do_not_change() -> None:
    """Absent for certain, the request was still made of those terms: it is called off."""
    shop = Shop(lambda params: refund("20.00"))
    _sent_and_found_absent(shop)
    told = shop.asked().performed()
    told.then(ev.Cancelled).then_is("cancelled")
    assert "an operation of its own" in str(told.machine.last_reason)


def _sent_and_found_absent(shop: Shop) -> None:
    """Let it be sent without being asked, and let that come to nothing."""

    def send(machine: Operation, stamp: Stamp) -> None:
        machine.record(ev.Claimed, stamp, worker="worker-0", epoch=9, due_at=stamp.at)
        machine.record(
            ev.Dispatching,
            stamp,
            attempt=1,
            key=KEY,
            worker="worker-0",
            epoch=9,
            permit_until=stamp.at,
            call_deadline=stamp.at,
            adapter="function/1",
            scope=(),
            credential_fingerprint="",
            request_digest="d",
        )
        machine.record(
            ev.OutcomeUnknown,
            stamp,
            cause="reply_lost",
            reason="no answer",
            rule="lost reply",
            sender_reported=True,
            waited=False,
            attempt_out=True,
            next_at=stamp.at,
        )

    def absent(machine: Operation, stamp: Stamp) -> None:
        machine.record(
            ev.ConfirmedAbsent, stamp, via="lookup", reason="not there", rule="absent",
            due_at=stamp.at,
        )  # fmt: skip

    shop.history.when(send)
    assert not shop.dispatcher.interested(shop.history.when(lambda one, _: one).returned)
    shop.history.when(absent)


def test_it_is_asked_again_once_an_absence_is_confirmed() -> None:
    """However fresh the intent is: time has passed, and somebody may have acted meanwhile."""
    shop = Shop(fine, revalidate_after=HOUR)
    _sent_and_found_absent(shop)
    shop.asked().came("no longer wanted").then(ev.Cancelled)


def test_while_something_may_be_out_nobody_is_asked() -> None:
    """In no state in which an attempt may be out does the dispatcher take an interest at all."""
    shop = Shop(fine)
    shop.history.when(_adopted)
    machine = shop.history.when(lambda one, _: one).returned
    assert machine.state == "outcome_unknown" and not shop.dispatcher.interested(machine)


def _adopted(machine: Operation, stamp: Stamp) -> None:
    machine.record(
        ev.OutcomeUnknown,
        stamp,
        cause="adopted",
        reason="another copy may have sent it",
        rule="adopted",
        sender_reported=False,
        waited=False,
        attempt_out=True,
        next_at=stamp.at,
    )


@pytest.mark.parametrize(("age", "asked"), [(timedelta(minutes=59), False), (HOUR, True)])
def test_what_is_fresh_is_not_asked_about(age: timedelta, asked: bool) -> None:
    """Fresh, it is claimed and dispatched in one commit; older, the claim has one of its own."""
    shop = Shop(fine, revalidate_after=HOUR)
    decided = shop.look(at=START + age)
    if asked:
        decided.then(ev.Claimed)
    else:
        decided.then(ev.Claimed, ev.Dispatching).then_performs(Work.CALL)


def test_each_claim_asks_for_itself() -> None:
    """What one worker was told is not what another one knows."""
    shop = Shop(fine)
    shop.asked().came(None)
    shop.look(epoch=2).then(ev.Released)
    shop.look(epoch=2).then(ev.Claimed)
    shop.look(at=shop.clock.at, epoch=2).then_performs(Work.LOOKUP, "revalidate")


@pytest.mark.parametrize(
    "answer",
    [False, True, 0, 17, "", b"no", {"amount": "1"}, OSError("down"), TimeoutError()],
    ids=repr,
)
def test_what_is_no_answer_sends_nothing_and_is_asked_again(answer: object) -> None:
    """A hook that returns False by mistake neither lets it be sent nor calls it off."""
    shop = Shop(fine)
    told = shop.asked().came(answer)
    told.then(ev.Released).then_is("ready", due=START + timedelta(seconds=PAUSE_SECONDS))
    assert "revalidation did not end" in str(told.machine.last_reason)


@pytest.mark.parametrize(
    "given_back",
    [
        RefundParams.model_construct(order=1, amount="a lot"),
        refund("5", "JPY"),
    ],
    ids=["not valid", "no limit in its currency"],
)
def test_new_terms_that_cannot_be_used_are_no_answer(
    given_back: Params,
) -> None:
    """They are neither sent nor proposed."""
    policy = Approval(
        frozenset({"lead"}), above=(Above(Money("100.00", "USD"), frozenset({"lead"})),)
    )
    shop = Shop(lambda params: given_back, proposed=True, approvers=policy)
    told = shop.asked().performed()
    told.then(ev.Released)
    assert "its new terms cannot be used" in str(told.machine.last_reason)


def test_it_rests_longer_the_longer_it_is_in_vain() -> None:
    """An order service that is down for a day leaves some hundred events, not ten thousand."""
    shop = Shop(fine)
    looks = 0
    while shop.clock.at < START + 20 * HOUR and looks < 1000:
        decided = shop.look()
        if decided.machine.state == "expired":
            break
        shop.look(at=shop.clock.at).came(OSError("down")).then(ev.Released)
        looks += 1
    assert 50 < looks < 250


def test_a_worker_that_stops_gives_it_back_at_once() -> None:
    """Another one asks again, without a pause."""
    shop = Shop(fine)
    shop.asked().came(ShutDown()).then(ev.Released).then_is("ready", due=START)


def test_a_hook_that_hangs_is_not_asked_beside_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread an operation, a bounded number a worker: whatever hangs, it hangs in few."""
    never, shops = threading.Event(), list[Operation]()
    monkeypatch.setattr(revalidation, "MOST_HANGING", 2)

    def hang(params: RefundParams) -> None:
        never.wait(30)

    shop = Shop(hang, call_timeout=timedelta(seconds=0.05))
    questions = Revalidation(shop.dispatcher.desk)
    for number in range(3):
        terms = shop.kind.terms(
            Identity("acme", "refund", f"r-{number}"), refund("1"), DerivedKeys(SECRET), {}
        )
        shops.append(propose(terms, Stamp(START, "agent"), START + HOUR))

    def ask(machine: Operation) -> Any:
        return asyncio.run(questions.ask(shop.kind, machine))

    try:
        with pytest.raises(TimeoutError):
            ask(shops[0])
        with pytest.raises(NoAnswer, match="earlier question"):
            ask(shops[0])
        with pytest.raises(TimeoutError):
            ask(shops[1])
        with pytest.raises(NoAnswer, match="2 questions hang"):
            ask(shops[2])
    finally:
        never.set()


LASTING = Approval(frozenset({"lead"}), valid_for=timedelta(minutes=30))


def test_nothing_is_claimed_on_an_approval_that_is_over() -> None:
    """It is put up for a decision again, with all its time."""
    shop = Shop(fine, proposed=True, approvers=LASTING)
    decided = shop.look(at=START + timedelta(minutes=30))
    decided.then(ev.ApprovalRevoked).then_is("proposed")
    assert decided.machine.due == START + timedelta(minutes=30, days=7)


def test_an_approval_that_ends_while_the_hook_is_asked_sends_nothing() -> None:
    """The claim is given back, and it waits for a decision again."""
    shop = Shop(fine, proposed=True, approvers=LASTING)
    shop.asked()
    decided = shop.look(at=START + timedelta(minutes=31))
    decided.then(ev.Released, ev.ApprovalRevoked).then_is("proposed")


def test_no_first_byte_is_permitted_beyond_the_approval() -> None:
    """Approved for two seconds more, with a permit of five: the permit is two seconds."""
    shop = Shop(fine, proposed=True, approvers=LASTING, revalidate_after=HOUR)
    decided = shop.look(at=START + timedelta(minutes=30, seconds=-2))
    decided.then(ev.Claimed, ev.Dispatching)
    (dispatching,) = (one for one in decided.events if isinstance(one, ev.Dispatching))
    assert dispatching.permit_until == START + timedelta(minutes=30)


def test_what_was_sent_before_expires_with_its_approval() -> None:
    """Nothing of it is out, and its terms cannot be decided on anew: it ends."""
    shop = Shop(fine, proposed=True, approvers=LASTING)
    _sent_and_found_absent(shop)
    shop.look(at=START + HOUR).then(ev.Expired).then_is("expired")
