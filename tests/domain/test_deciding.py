"""Given a proposal, when somebody decides on it, then this was recorded: each policy, step by step.

Whatever is not a decision on exactly this version, by somebody who may make it, records nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from settled.domain.approval import POLICY, Above, Approval, Requirement
from settled.domain.clock import Stamp
from settled.domain.contract import presets
from settled.domain.errors import (
    DecisionRefused,
    EffectPossible,
    PermissionDenied,
    TransitionRefused,
)
from settled.domain.identity import Identity, Principal
from settled.domain.keys import DerivedKeys
from settled.domain.kind import Kind
from settled.domain.money import Money
from settled.domain.operation import deciding
from settled.domain.operation import events as ev
from settled.domain.operation.operation import Operation, fields
from settled.domain.params import Params
from settled.domain.provider import Call
from settled.domain.reply import Reply
from settled.infrastructure.function_provider import FunctionProvider
from settled.infrastructure.testing.manual_clock import START
from settled.testing import Given, given, happened

KEYS = DerivedKeys(b"k" * 32)
LEAD, FINANCE = frozenset({"lead"}), frozenset({"finance-lead"})
HOUR = timedelta(hours=1)


class RefundParams(Params):
    """A refund of part of an order."""

    order: str
    amount: Money


def usd(amount: str) -> Money:
    return Money(amount, "USD")


def refund(amount: str) -> RefundParams:
    return RefundParams(order="order-72", amount=usd(amount))


def perform(call: Call, params: RefundParams) -> Reply:
    """Never called here."""
    return Reply.unknown("nobody asked")


def kind(approval: Approval) -> Kind[RefundParams]:
    provider = FunctionProvider("psp", presets.generic_http, perform)
    return Kind("refund", RefundParams, provider, "payments-oncall", approvers=approval)


def person(actor: str, *roles: str) -> Principal:
    return Principal("acme", actor, frozenset(roles))


GRACE, ALAN = person("grace", "lead"), person("alan", "lead", "finance-lead")
BARBARA = person("barbara", "finance-lead")
ADA = person("ada", "lead")
"""Who proposed it: the kit's actor."""


class Desk:
    """A proposal of a kind, and the words that are given about it."""

    def __init__(self, approval: Approval, amount: str = "30.00") -> None:
        self.kind = kind(approval)
        identity = Identity("acme", "refund", "refund-request-9")
        params = refund(amount)
        terms = self.kind.terms(identity, params, KEYS, {"tool_call": "call-1"})
        self.asked = approval.asks(params)
        self.history: Given[Operation] = given(
            Operation,
            [
                happened(
                    ev.Proposed,
                    **fields(terms),
                    expires_at=START + 24 * HOUR,
                    requirement=self.asked,
                )
            ],
            stream=Operation.stream(identity),
        )

    def when(self, command: Callable[[Operation, Stamp], Any]) -> Any:
        return self.history.when(command)

    def approves(self, by: Principal, **given: Any) -> Any:
        return self._says(deciding.approve, by, given, "key-1")

    def rejects(self, by: Principal, **given: Any) -> Any:
        return self._says(deciding.reject, by, given)

    def _says(
        self, decide: Callable[..., None], by: Principal, given: dict[str, Any], *more: Any
    ) -> Any:
        def command(machine: Operation, stamp: Stamp) -> None:
            said = deciding.Said(
                by,
                given.pop("proposal_version", machine.proposal_version),
                given.pop("digest", machine.terms.digest.value),
                **given,
            )
            decide(machine, said, machine.requirement, Stamp(stamp.at, by.actor), *more)

        return self.history.when(command)

    def revises(self, by: Principal, amount: str) -> Any:
        def command(machine: Operation, stamp: Stamp) -> None:
            by_them = Stamp(stamp.at, by.actor)
            deciding.revise(machine, self.kind, refund(amount), KEYS, by_them, "key-1")

        return self.history.when(command)

    def revokes(self, by: Principal) -> Any:
        return self.history.when(
            lambda machine, stamp: deciding.revoke(
                machine, by, "on second thoughts", self.asked, stamp, stamp.at + HOUR
            )
        )


def test_one_with_the_role_approves_and_it_is_intended() -> None:
    """The record says who, as what, on which version and digest, having looked at what, and why."""
    desk = Desk(Approval(LEAD, valid_for=2 * HOUR, version=4))
    told = desk.approves(GRACE, reason="as agreed", evidence=("ticket-81",))
    told.then(ev.Approved, ev.Intended).then_is("ready")
    (decision,) = told.machine.decisions
    assert (decision.by, decision.authority, decision.policy_version) == ("grace", "role lead", 4)
    assert decision.digest == told.machine.terms.digest.value and decision.proposal_version == 1
    assert (decision.reason, decision.evidence) == ("as agreed", ("ticket-81",))
    assert decision.valid_until == told.machine.approved_until == START + 2 * HOUR
    assert told.machine.decided == decision


@pytest.mark.parametrize(
    ("by", "given", "error", "saying"),
    [
        (person("mallory"), {}, PermissionDenied, "mallory may not approve"),
        (person("mallory", "leads", "operator"), {}, PermissionDenied, "may not approve"),
        (GRACE, {"proposal_version": 2}, DecisionRefused, "about version 2"),
        (GRACE, {"digest": "0" * 64}, DecisionRefused, "with its own digest"),
        (GRACE, {"valid_until": START}, DecisionRefused, "over before it is given"),
    ],
    ids=["no role", "other roles", "version", "digest", "over"],
)
def test_what_is_no_decision_on_this_records_nothing(
    by: Principal, given: dict[str, Any], error: type[DecisionRefused], saying: str
) -> None:
    """To know an id, to have some role, or to have seen another version, is not enough."""
    desk = Desk(Approval(LEAD))
    desk.approves(by, **given).then_refused(error, saying)


def test_nobody_approves_after_the_time_to_decide() -> None:
    """The proposal expires then; a decision that comes first in the queue changes nothing."""
    desk = Desk(Approval(LEAD))
    desk.history.clock.advance(24 * HOUR)
    desk.approves(GRACE).then_refused(DecisionRefused, "time to decide")


def test_the_first_decision_stands() -> None:
    """The same again records nothing; the opposite is refused with the decision that stands."""
    desk = Desk(Approval(LEAD))
    desk.approves(GRACE)
    desk.approves(GRACE).then()
    desk.approves(ALAN).then()
    told = desk.rejects(ALAN)
    told.then_refused(DecisionRefused, "approved by grace")
    assert (told.refused.decision.decided, told.refused.decision.by) == ("approved", "grace")


def test_a_rejection_stands_too() -> None:
    """Whoever approves after it is told who declined, and why is on record."""
    desk = Desk(Approval(LEAD))
    desk.rejects(GRACE, reason="too much").then(ev.Rejected).then_is("rejected")
    desk.rejects(ALAN).then()
    told = desk.approves(ALAN)
    told.then_refused(DecisionRefused, "rejected by grace")
    assert (told.refused.decision.authority, told.refused.decision.reason) == (
        "role lead",
        "too much",
    )


def test_two_of_them_are_two_people() -> None:
    """One who approves twice is one; the second person makes it an intent."""
    desk = Desk(Approval(LEAD, count=2))
    desk.approves(GRACE).then(ev.Approved).then_is("proposed", due=START + 24 * HOUR)
    desk.approves(GRACE).then()
    assert desk.when(lambda machine, stamp: machine.decided).returned is None
    told = desk.approves(ALAN)
    told.then(ev.Approved, ev.Intended).then_is("ready")
    assert told.machine.approved_by == "grace, alan"


def test_one_rejection_is_enough() -> None:
    """Whoever approved before it does not outweigh it."""
    desk = Desk(Approval(LEAD, count=3))
    desk.approves(GRACE)
    desk.approves(ALAN)
    desk.rejects(ADA, reason="not this one").then(ev.Rejected).then_is("rejected")


def test_four_eyes() -> None:
    """Who proposed it does not approve it, and may well decline it."""
    desk = Desk(Approval(LEAD, four_eyes=True))
    desk.approves(ADA).then_refused(PermissionDenied, "somebody else must approve")
    desk.approves(GRACE).then(ev.Approved, ev.Intended)
    other = Desk(Approval(LEAD, four_eyes=True))
    other.rejects(ADA, reason="a mistake of mine").then(ev.Rejected)


def test_whoever_edits_is_an_author_and_so_is_who_proposed() -> None:
    """An edit by an approver needs a third person: neither of the two has seen what is not theirs.

    Were only the last editor counted, a friend's edit would let the proposer approve it.
    """
    desk = Desk(Approval(LEAD, four_eyes=True))
    desk.revises(GRACE, "25.00").then(ev.Revised).then_is("proposed")
    for author in (GRACE, ADA):
        desk.approves(author).then_refused(PermissionDenied, "somebody else must approve")
    desk.approves(ALAN).then(ev.Approved, ev.Intended)


def test_the_fold_counts_no_approval_of_ones_own() -> None:
    """Whichever way the events came to be, four eyes are not two."""
    desk = Desk(Approval(LEAD, four_eyes=True))

    def past_the_command(machine: Operation, stamp: Stamp) -> None:
        about = {"proposal_version": 1, "digest": machine.terms.digest.value, "roles": ("lead",)}
        machine.record(ev.Approved, stamp, **about)
        machine.record(
            ev.Intended,
            stamp,
            **fields(machine.terms),
            provider_key="key-1",
            generation=1,
            give_up_at=START,
        )

    told = desk.when(past_the_command)
    assert isinstance(told.refused, DecisionRefused) and "Nobody has approved" in str(told.refused)


LIMITS = Approval(
    LEAD, above=(Above(usd("100.00"), FINANCE, count=2),), auto_below=(usd("10.00"),), version=3
)


def test_more_needs_others() -> None:
    """Above the limit the role that is enough below it is not."""
    desk = Desk(LIMITS, "100.01")
    desk.approves(GRACE).then_refused(PermissionDenied, "may not approve")
    desk.approves(ALAN).then(ev.Approved)
    desk.approves(BARBARA).then(ev.Approved, ev.Intended)


def test_a_revision_is_under_the_rule_of_its_own_amount() -> None:
    """An amount that was raised after one approval is under the rule for the larger amount."""
    desk = Desk(LIMITS, "100.00")
    desk.revises(ADA, "5000.00")
    desk.approves(GRACE).then_refused(PermissionDenied, "may not approve")
    desk.revises(ADA, "50.00")
    desk.approves(GRACE).then(ev.Approved, ev.Intended)


def begun(policy: Approval, amount: str) -> Operation:
    declared = kind(policy)
    identity = Identity("acme", "refund", "refund-request-9")
    terms = declared.terms(identity, refund(amount), KEYS, {})
    stamp = Stamp(START, "agent")
    return deciding.begin_proposal(declared, terms, refund(amount), stamp, "key-1")


def test_the_policy_decides_what_is_little() -> None:
    """It is on record as the policy's decision, under its version, and not as nobody's."""
    made = begun(LIMITS, "9.99")
    names = [type(event).__name__ for event in made.pending_events]
    assert (names, made.state) == (["Proposed", "Approved", "Intended"], "ready")
    (decision,) = made.decisions
    assert (decision.by, decision.authority) == ("policy refund 3", POLICY)
    assert (decision.policy_version, decision.digest) == (3, made.terms.digest.value)
    assert begun(LIMITS, "10.00").state == "proposed"


def test_a_revision_to_little_is_decided_by_the_policy() -> None:
    """The policy decides anew, on the new terms."""
    desk = Desk(LIMITS)
    desk.revises(ADA, "5.00").then(ev.Revised, ev.Approved, ev.Intended).then_is("ready")


def test_what_somebody_declined_is_not_approved_by_a_policy() -> None:
    """Otherwise a refund that was declined is taken in small steps."""
    desk = Desk(LIMITS)
    desk.rejects(GRACE, reason="not at all")
    desk.revises(ADA, "5.00").then(ev.Revised).then_is("proposed")
    desk.approves(GRACE).then(ev.Approved, ev.Intended)


def test_an_approval_is_not_for_the_next_version() -> None:
    """Neither a whole one nor one of several goes over to other terms."""
    desk = Desk(Approval(LEAD, count=2))
    desk.approves(GRACE)
    before = desk.when(lambda machine, stamp: machine.terms.digest.value).returned
    desk.revises(ADA, "35.00").then(ev.Revised)
    desk.approves(GRACE, proposal_version=1, digest=before).then_refused(DecisionRefused)
    desk.approves(ALAN).then(ev.Approved).then_is("proposed")


def test_a_revision_keeps_where_it_came_from() -> None:
    """The model's call that asked for it stays beside it."""
    desk = Desk(Approval(LEAD))
    assert desk.revises(GRACE, "25.00").machine.terms.origin == {"tool_call": "call-1"}


def test_revoked_before_the_claim_it_waits_again() -> None:
    """By one who may approve it; the next approval is a new decision on the same version."""
    desk = Desk(Approval(LEAD))
    desk.approves(GRACE)
    desk.revokes(person("mallory")).then_refused(PermissionDenied, "may not revoke")
    desk.revokes(ALAN).then(ev.ApprovalRevoked).then_is("proposed", due=START + HOUR)
    desk.approves(GRACE).then(ev.Approved, ev.Intended).then_is("ready")


def claimed(machine: Operation, stamp: Stamp) -> None:
    machine.record(ev.Claimed, stamp, worker="worker-1", epoch=1, due_at=stamp.at)


def test_a_claim_has_used_the_approval_up() -> None:
    """From the claim on it is too late to revoke; there is nothing to revoke before a decision."""
    desk = Desk(Approval(LEAD))
    desk.revokes(GRACE).then_refused(TransitionRefused)
    desk.approves(GRACE)
    desk.when(claimed)
    desk.revokes(GRACE).then_refused(TransitionRefused)


def test_what_was_intended_without_a_proposal_has_no_approval_to_revoke() -> None:
    """It would wait for a decision that nobody ever asked for."""
    made = given(
        Operation,
        [
            happened(
                ev.Intended,
                **fields(begun(LIMITS, "9.99").terms),
                provider_key="key-1",
                generation=1,
                give_up_at=START + HOUR,
            )
        ],
    )
    asked = Requirement(roles=("lead",))
    told = made.when(
        lambda machine, stamp: deciding.revoke(machine, GRACE, "no", asked, stamp, START + HOUR)
    )
    told.then_refused(TransitionRefused, "without an approval")


def test_an_approval_that_is_over_is_asked_for_again() -> None:
    """It is not sent on an old word, and not dropped either."""
    desk = Desk(Approval(LEAD, valid_for=HOUR))
    desk.approves(GRACE)
    desk.history.clock.advance(2 * HOUR)
    told = desk.when(lambda machine, stamp: deciding.lapse(machine, stamp, stamp.at + HOUR))
    told.then(ev.ApprovalRevoked).then_is("proposed")
    assert told.machine.approved_by is None and not told.machine.declined


def test_the_shortest_approval_of_several_counts() -> None:
    """Who approves until noon has not approved what is sent in the evening."""
    desk = Desk(Approval(LEAD, count=2, valid_for=8 * HOUR))
    desk.approves(GRACE, valid_until=START + 3 * HOUR)
    told = desk.approves(ALAN, valid_until=START + 20 * HOUR)
    assert told.machine.approved_until == START + 3 * HOUR
    ends = [one.valid_until for one in told.machine.decisions]
    assert ends == [START + 3 * HOUR, START + 8 * HOUR]


def test_once_sent_nothing_of_it_changes() -> None:
    """Neither revised nor revoked while it may be out."""
    desk = Desk(Approval(LEAD))
    desk.approves(GRACE)
    desk.when(claimed)
    desk.when(
        lambda machine, stamp: machine.record(
            ev.Dispatching,
            stamp,
            attempt=1,
            key="key-1",
            worker="worker-1",
            epoch=1,
            permit_until=stamp.at,
            call_deadline=stamp.at,
            adapter="http/1",
            scope=(),
            credential_fingerprint="f",
            request_digest="d",
        )
    )
    desk.revises(ADA, "35.00").then_refused(EffectPossible)
    desk.revokes(GRACE).then_refused(EffectPossible)


def test_streams_from_before_requirements_were_recorded_are_read() -> None:
    """One approval was enough then, and still is: today's policy says by whom."""
    desk = Desk(Approval(LEAD))
    old = {name: value for name, value in desk.history.when(_proposed_fields).returned.items()}
    past = given(
        Operation,
        [
            happened(ev.Proposed, **old, expires_at=START + HOUR),
            happened(ev.Approved, proposal_version=1, digest=old["digest"].value, roles=("lead",)),
        ],
    )
    told = past.when(lambda machine, stamp: (machine.approvals_missing, machine.approved_by))
    assert told.returned == (0, "ada")


def _proposed_fields(machine: Operation, stamp: Stamp) -> dict[str, Any]:
    return fields(machine.terms)
