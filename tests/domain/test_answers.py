"""The six answers follow from what is declared: another contract gives another answer.

Asserted is what an answer says, not how it is worded.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from settled import Above, Approval, Call, Kind, Money, Params, Reply, presets
from settled.domain.answers import Card, Question, StoreFacts, card, cards
from settled.domain.answers_proposals import proposals_card
from settled.domain.contract import (
    Consistency,
    Dedup,
    DuplicateCompleted,
    DuplicateInFlight,
    KeySupport,
    LookupBy,
    LookupPromise,
    Matching,
    ProviderContract,
    Retention,
    RetentionKind,
)
from settled.infrastructure.function_provider import FunctionProvider
from settled.infrastructure.simulator.contract import simulator_contract

FULL = simulator_contract()
NOTHING = replace(
    FULL,
    dedup=Dedup.NONE,
    key=None,
    key_support=KeySupport.UNKNOWN,
    key_scope=None,
    retention=Retention(),
    matching=Matching(),
    duplicate_completed=DuplicateCompleted.UNKNOWN,
    duplicate_in_flight=DuplicateInFlight.UNKNOWN,
    replay_marker=None,
    lookups=(),
)
DISK = StoreFacts("the SQLite file shop.db")


class RefundParams(Params):
    """A refund of part of an order."""

    order: str
    amount: Money


def refund(call: Call, params: RefundParams) -> Reply:
    """Never called here."""
    return Reply.unknown("nobody asked")


def fine(params: RefundParams) -> None:
    """Nothing has changed."""


def kind(contract: ProviderContract, owner: str = "payments-oncall", **policy: Any) -> Kind[Any]:
    provider = FunctionProvider(contract.provider, contract, refund)
    return Kind("refund", RefundParams, provider, owner, **policy)


def said(asked: Card, question: Question) -> str:
    (answer,) = (answer for answer in asked.answers if answer.question is question)
    return " ".join(answer.lines)


def test_every_question_is_answered() -> None:
    """Six questions, each with words, for a kind and for the evidence that is without one."""
    for asked in cards([kind(FULL)], DISK, ["refund", "evidence"]):
        assert [answer.question for answer in asked.answers] == list(Question)
        assert all(answer.lines for answer in asked.answers) and not asked.missing


def test_identity_owner_and_what_is_stored() -> None:
    """Whoever reads the page learns the names that the declaration has."""
    asked = card(kind(FULL, approvers=frozenset({"lead"})), DISK)
    assert "order, amount" in said(asked, Question.STORED)
    assert "payments-oncall" in said(asked, Question.IDENTITY)
    assert "lead" in said(asked, Question.IDENTITY)
    assert "shop.db" in said(asked, Question.SURVIVES)
    assert "refund.succeeded" in said(asked, Question.WAKES)


def test_what_can_repeat_follows_from_the_contract() -> None:
    """A window is named with its end; without one, nothing is promised to be harmless."""
    repeats = said(card(kind(FULL), DISK), Question.REPEATS)
    assert "same key" in repeats and "20 h" in repeats, "its own time ends before the window"
    longer = said(card(kind(FULL, within=timedelta(days=3)), DISK), Question.REPEATS)
    assert "23 h 29 min" in longer, "24 h less the margin and one call"
    assert "same key" not in said(card(kind(NOTHING), DISK), Question.REPEATS)
    unknown = replace(FULL, retention=Retention(RetentionKind.UNKNOWN))
    assert "not known how long" in said(card(kind(unknown), DISK), Question.REPEATS)


def test_how_it_is_resolved_follows_from_the_recovery_decision() -> None:
    """Resent, asked for, proven absent, or handed over: as recovery itself would do."""
    resolved = said(card(kind(FULL), DISK), Question.RESOLVED)
    assert "sent again" in resolved and "proves that nothing was performed" in resolved
    nothing = said(card(kind(NOTHING), DISK), Question.RESOLVED)
    assert nothing.startswith("Handed over to payments-oncall")
    vague = replace(FULL, lookups=(LookupPromise(by=LookupBy.KEY),))
    assert "proves nothing" in said(card(kind(vague), DISK), Question.RESOLVED)
    second = card(kind(NOTHING, second_owner="head-of-payments"), DISK)
    assert "head-of-payments" in said(second, Question.RESOLVED)


def test_what_the_contract_leaves_open_is_named() -> None:
    """UNKNOWN widens nothing, so a reader has to see where it costs them an automatic step."""
    assert card(kind(FULL), DISK).unknown == ()
    vague = replace(
        FULL,
        max_in_flight=None,
        cached=None,
        retention=Retention(),
        lookups=(LookupPromise(by=LookupBy.KEY, consistency=Consistency.EVENTUAL),),
    )
    unknown = " ".join(card(kind(vague), DISK).unknown)
    for name in ("max_in_flight", "cached", "retention", "max_lag", "horizon"):
        assert name in unknown
    assert card(kind(presets.stripe_v1_refund), DISK).unknown


def test_a_store_that_does_not_survive() -> None:
    """The answer to "where does it survive" is missing then, for every kind."""
    memory = StoreFacts("the SQLite file shop.db", ("it is on tmpfs",))
    found = cards([kind(FULL)], memory, [])
    assert [asked.missing for asked in found] == [("where it survives: it is on tmpfs",)] * 2


@pytest.mark.parametrize("contract", [FULL, NOTHING])
def test_nobody_to_hand_over_to(contract: ProviderContract) -> None:
    """Blanks are nobody: then no person resolves what recovery cannot."""
    missing = card(kind(contract, owner=" "), DISK).missing
    assert any("hand_over_to" in what for what in missing)
    assert any("nobody" in what for what in missing)
    assert any("no automatic step" in what for what in missing) is (contract is NOTHING)


def test_keys_that_nobody_has_enabled() -> None:
    """Whether keys are honoured is a question then, and the answer is missing."""
    asked = replace(FULL, key_support=KeySupport.MUST_BE_ENABLED)
    assert any("key_enabled_ref" in what for what in card(kind(asked), DISK).missing)
    enabled = replace(asked, key_enabled_ref="ticket-81")
    assert not card(kind(enabled), DISK).missing


def test_open_operations_of_a_kind_that_nobody_declares() -> None:
    """They are there, they wait, and nothing at all is known about them."""
    found = cards([kind(FULL)], DISK, ["refund", "forgotten"])
    (unknown,) = (asked for asked in found if asked.kind == "forgotten")
    assert len(unknown.missing) == len(Question)


def test_proposals_answer_the_six_questions_too() -> None:
    """What waits for a person is stored, owned, woken and ended like anything else."""
    policy = Approval(
        frozenset({"lead"}),
        four_eyes=True,
        above=(Above(Money("100.00", "USD"), frozenset({"finance-lead"}), count=2),),
        auto_below=(Money("10.00", "USD"),),
        valid_for=timedelta(hours=8),
        version=3,
    )
    asked = proposals_card(kind(FULL, approvers=policy, revalidate=fine), DISK)
    assert asked is not None and not asked.missing
    assert [answer.question for answer in asked.answers] == list(Question)
    assert all(answer.lines for answer in asked.answers)
    owner = said(asked, Question.IDENTITY)
    assert "10.00 USD" in owner and "2 different people with the role finance-lead" in owner
    assert "none of whom proposed or revised it" in owner
    assert "7 days" in said(asked, Question.WAKES) or "168 h" in said(asked, Question.WAKES)
    assert "revalidation" in said(asked, Question.WAKES)
    assert "8 h" in said(asked, Question.RESOLVED)
    assert proposals_card(kind(FULL), DISK) is None, "nothing of it ever waits for anybody"


def test_what_a_revalidation_changes_is_decided_on_by_somebody() -> None:
    """A kind without a policy owes the answer as well, once its terms can change."""
    asked = proposals_card(kind(FULL, revalidate=fine), DISK)
    assert asked is not None and "the role approver" in said(asked, Question.IDENTITY)
