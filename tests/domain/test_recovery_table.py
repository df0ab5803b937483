"""The decision table, row by row, with the cases from the field by their numbers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from settled.domain.contract import (
    Cached,
    Consistency,
    DuplicateInFlight,
    Outcomes,
    Pin,
    Poll,
    ProviderContract,
)
from settled.domain.provider import Answered, Echo, Finding, Via
from settled.domain.recovery import Situation, Step, StepKind, recover
from tests.domain.recovery_cases import (
    COMMENTS,
    GENERIC,
    HOUR,
    IETF,
    IETF_WITHOUT_ECHO,
    JITTER,
    KUBERNETES,
    LEDGER,
    MINUTE,
    MOLLIE,
    POSTMARK,
    SENT_AT,
    SMTP,
    SQS,
    STRIPE,
    STRIPE_BLIND,
    SUCCESS,
    TIMEOUT,
    found,
    situation,
)

RESEND, LOOK, WAIT, STOP = (
    StepKind.RESEND,
    StepKind.LOOK_UP,
    StepKind.WAIT,
    StepKind.HAND_OVER,
)
LOST = found(Answered.LOST)
EARLIER = situation(sent=2, dispatched=2)
"""An attempt before this one may have been performed."""


def decide(where: Situation, contract: ProviderContract, finding: Finding | None) -> Step:
    return recover(where, contract, finding, JITTER)


# What a preset makes of each kind of trouble, a minute after the first attempt.
#                                 STRIPE   BLIND    MOLLIE   SQS      K8S      IETF     POSTMARK
TABLE: list[tuple[str, Finding | None, list[StepKind]]] = [
    ("owner gone", None, [RESEND, RESEND, RESEND, RESEND, RESEND, RESEND, STOP]),
    ("lost reply", LOST, [RESEND, RESEND, RESEND, RESEND, RESEND, RESEND, STOP]),
    (
        "in progress",
        found(Answered.IN_PROGRESS),
        [WAIT, WAIT, WAIT, WAIT, WAIT, WAIT, STOP],
    ),
    (
        "duplicate without reference",
        found(Answered.DUPLICATE),
        [LOOK, STOP, LOOK, STOP, LOOK, STOP, STOP],
    ),
    (
        "duplicate with reference",
        found(Answered.DUPLICATE_OF, reference="re_1"),
        [LOOK, LOOK, LOOK, LOOK, LOOK, LOOK, LOOK],
    ),
    ("name taken", found(Answered.NAME_TAKEN), [LOOK, STOP, LOOK, STOP, LOOK, STOP, STOP]),
    ("key mismatch", found(Answered.KEY_MISMATCH), [STOP] * 7),
    ("server error", found(Answered.SERVER_ERROR), [LOOK, STOP, LOOK, STOP, RESEND, STOP, STOP]),
    (
        "unavailable",
        found(Answered.UNAVAILABLE),
        [RESEND, RESEND, RESEND, RESEND, RESEND, RESEND, STOP],
    ),
    (
        "key store down",
        found(Answered.STORE_UNAVAILABLE),
        [RESEND, RESEND, RESEND, RESEND, RESEND, RESEND, STOP],
    ),
    (
        "precondition",
        found(Answered.PRECONDITION),
        [LOOK, STOP, LOOK, STOP, LOOK, STOP, STOP],
    ),
    (
        "not sent",
        found(Answered.NOT_SENT),
        [StepKind.DISPATCH] * 7,
    ),
    (
        "no target",
        found(Answered.NO_TARGET),
        [StepKind.SETTLE_FAILED] * 7,
    ),
    (
        "rejected at first",
        found(Answered.REJECTED),
        [StepKind.SETTLE_FAILED, StepKind.SETTLE_FAILED, LOOK, STOP]
        + [StepKind.SETTLE_FAILED, STOP, STOP],
    ),
    (
        "rate limited at first",
        found(Answered.RATE_LIMITED),
        [StepKind.DISPATCH, StepKind.DISPATCH, RESEND, RESEND, RESEND, RESEND, STOP],
    ),
    (
        "credential refused at first",
        found(Answered.UNAUTHORISED),
        [StepKind.DISPATCH, StepKind.DISPATCH, WAIT, WAIT, WAIT, WAIT, STOP],
    ),
    ("performed, nothing echoed", found(Answered.PERFORMED), [StepKind.SETTLE_SUCCEEDED] * 7),
    ("performed, equal", SUCCESS, [StepKind.SETTLE_SUCCEEDED] * 7),
    (
        "performed, differs",
        found(Answered.PERFORMED, echo=Echo.DIFFERS, differs_in="amount"),
        [STOP] * 7,
    ),
    ("pending", found(Answered.PENDING, reference="re_1"), [StepKind.ACCEPT] * 7),
    ("pending, differs", found(Answered.PENDING, echo=Echo.DIFFERS), [STOP] * 7),
    ("failed there", found(Answered.FAILED), [StepKind.SETTLE_FAILED] * 7),
    ("reversed", found(Answered.REVERSED), [StepKind.SETTLE_REVERSED] * 7),
]
PRESETS = [STRIPE, STRIPE_BLIND, MOLLIE, SQS, KUBERNETES, IETF, POSTMARK]


@pytest.mark.parametrize(("name", "finding", "kinds"), TABLE, ids=[row[0] for row in TABLE])
def test_the_first_attempt(name: str, finding: Finding | None, kinds: list[StepKind]) -> None:
    """The only attempt, inside every window: what each provider's promises allow."""
    steps = [decide(situation(), contract, finding) for contract in PRESETS]
    assert [step.kind for step in steps] == kinds, [step.rule for step in steps]
    assert all(step.rule and step.reason for step in steps)


# The same trouble while an earlier attempt is unknown.
LATER_TABLE: list[tuple[str, Finding, list[StepKind]]] = [
    (
        "not sent this time",
        found(Answered.NOT_SENT),
        [RESEND, RESEND, RESEND, RESEND, RESEND, RESEND, STOP],
    ),
    (
        "rejected, it may be our own success",
        found(Answered.REJECTED),
        [LOOK, STOP, LOOK, STOP, LOOK, STOP, STOP],
    ),
    ("no target", found(Answered.NO_TARGET), [LOOK, STOP, LOOK, STOP, LOOK, STOP, STOP]),
    (
        "rate limited",
        found(Answered.RATE_LIMITED),
        [RESEND, RESEND, RESEND, RESEND, RESEND, RESEND, STOP],
    ),
    (
        "credential refused",
        found(Answered.UNAUTHORISED),
        [WAIT, WAIT, WAIT, WAIT, WAIT, WAIT, STOP],
    ),
    (
        "performed, nothing echoed",
        found(Answered.PERFORMED),
        [StepKind.SETTLE_SUCCEEDED, StepKind.SETTLE_SUCCEEDED, StepKind.SETTLE_SUCCEEDED]
        + [STOP, LOOK, STOP, StepKind.SETTLE_SUCCEEDED],
    ),
    ("performed, equal", SUCCESS, [StepKind.SETTLE_SUCCEEDED] * 7),
    (
        "failed, kept under the key",
        found(Answered.FAILED),
        [StepKind.SETTLE_FAILED, StepKind.SETTLE_FAILED, StepKind.SETTLE_FAILED]
        + [STOP, LOOK, STOP, STOP],
    ),
]


@pytest.mark.parametrize(("name", "finding", "kinds"), LATER_TABLE, ids=[r[0] for r in LATER_TABLE])
def test_a_later_attempt(name: str, finding: Finding, kinds: list[StepKind]) -> None:
    """A refusal of the second request says nothing about the first one."""
    steps = [decide(EARLIER, contract, finding) for contract in PRESETS]
    assert [step.kind for step in steps] == kinds, [step.rule for step in steps]


@pytest.mark.parametrize(
    ("after", "with_lookup", "without"),
    [
        (timedelta(hours=23, minutes=20), RESEND, RESEND),
        (timedelta(hours=23, minutes=45), LOOK, STOP),
        (timedelta(hours=25), LOOK, STOP),
    ],
)
def test_case_3_the_window(after: timedelta, with_lookup: StepKind, without: StepKind) -> None:
    """24 h of retention and 30 min of margin, the worker down in between."""
    assert decide(situation(after), STRIPE, None).kind is with_lookup
    assert decide(situation(after), STRIPE_BLIND, None).kind is without
    assert decide(situation(after), STRIPE, LOST).kind is with_lookup


def test_the_window_counts_the_timeout_and_the_delay() -> None:
    """The request that leaves last must still arrive within the window."""
    edge = timedelta(hours=23, minutes=30) - TIMEOUT - JITTER
    assert decide(situation(edge - timedelta(seconds=1)), STRIPE, None).kind is RESEND
    assert decide(situation(edge), STRIPE, None).kind is LOOK


def test_case_4_duplicates_are_looked_up_and_compared() -> None:
    """A conflict alone never proves success; what the look-up finds does."""
    unsure = decide(EARLIER, STRIPE, found(Answered.DUPLICATE))
    assert unsure.kind is LOOK
    looked = replace(EARLIER, looked_up=1, known_there=True)
    seen = found(Answered.PERFORMED, Via.LOOKUP, reference="re_1", echo=Echo.EQUAL)
    assert decide(looked, STRIPE, seen).kind is StepKind.SETTLE_SUCCEEDED


def test_case_6_mail_without_an_answer_is_handed_over() -> None:
    """No key, no look-up: a person decides; what that person's resend brings, settles."""
    step = decide(situation(), SMTP, LOST)
    assert step.kind is STOP
    assert "deduplicates nothing" in step.reason
    assert "no look-up" in step.reason
    ordered = decide(EARLIER, SMTP, found(Answered.PERFORMED))
    assert ordered.kind is StepKind.SETTLE_SUCCEEDED


ABSENT = found(Answered.ABSENT, Via.LOOKUP)


def test_case_8_not_found_inside_the_lag_proves_nothing() -> None:
    """The call ends at +35 s, works 5 s at most, shows up 2 s later, and is seen 30 s before."""
    early = decide(situation(timedelta(seconds=72)), COMMENTS, ABSENT)
    assert (early.kind, early.rule) == (WAIT, "absent, not proven")
    late = decide(situation(timedelta(seconds=73)), COMMENTS, ABSENT)
    assert late.kind is StepKind.CONFIRM_ABSENT
    marked = found(Answered.PERFORMED, Via.LOOKUP, echo=Echo.EQUAL, reference="c-1")
    settled = decide(situation(timedelta(seconds=36)), COMMENTS, marked)
    assert settled.kind is StepKind.SETTLE_SUCCEEDED


@pytest.mark.parametrize(
    "spoilt",
    [
        {"sender_known": False},
        {"scope_unchanged": False},
        {"credential_unchanged": False},
        {"request_identical": False},
        {"nothing_arrives_after": None},
        {"handle": "c-1"},
        {"known_there": True},
        {"last_event_at": SENT_AT + 2 * HOUR},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_spoils_a_negative_look_up(spoilt: dict[str, Any]) -> None:
    """A36 and its kin: as long as something may be out or elsewhere, absence is no proof."""
    step = decide(situation(HOUR, **spoilt), COMMENTS, ABSENT)
    assert step.kind is WAIT
    over = {**spoilt, "give_up_at": SENT_AT + MINUTE}
    assert decide(situation(HOUR, **over), COMMENTS, ABSENT).kind is STOP


@pytest.mark.parametrize(
    "unstated",
    [{"horizon": None}, {"consistency": Consistency.UNKNOWN, "max_lag": None}, {"max_lag": None}],
    ids=["horizon", "consistency", "lag"],
)
def test_a_promise_left_out_proves_no_absence(unstated: dict[str, Any]) -> None:
    """Each of them alone would let a look-up that cannot know say that nothing is there."""
    vague = replace(COMMENTS, lookups=(replace(COMMENTS.lookups[0], **unstated),))
    assert decide(situation(HOUR), vague, ABSENT).kind is WAIT
    slow = replace(COMMENTS, max_in_flight=None)
    assert decide(situation(HOUR), slow, ABSENT).kind is WAIT


def test_a_late_permit_of_the_attempt_counts_too() -> None:
    """The finding may know of a request that can arrive later than the events say."""
    frozen = replace(ABSENT, may_arrive_until=SENT_AT + 2 * HOUR)
    assert decide(situation(HOUR), COMMENTS, frozen).kind is WAIT
    assert decide(situation(HOUR), COMMENTS, ABSENT).kind is StepKind.CONFIRM_ABSENT


def test_a_keyed_provider_needs_no_proof_that_the_sender_is_dead() -> None:
    """The key keeps a thawed sender harmless; without the key on each attempt it does not."""
    unheard = situation(HOUR, sender_known=False)
    assert decide(unheard, LEDGER, ABSENT).kind is StepKind.CONFIRM_ABSENT
    keyless = replace(unheard, key_on_every_attempt=False)
    assert decide(keyless, LEDGER, ABSENT).kind is WAIT


def test_presets_prove_no_absence_by_themselves() -> None:
    """No document says how long a request may be worked on or how soon a list shows it."""
    for contract in (STRIPE, MOLLIE, KUBERNETES):
        assert decide(situation(2 * HOUR), contract, ABSENT).kind is WAIT


@pytest.mark.parametrize("contract", [STRIPE, MOLLIE, SQS, KUBERNETES, IETF, SMTP, GENERIC])
@pytest.mark.parametrize("via", [Via.REPLY, Via.LOOKUP, Via.WEBHOOK, Via.HAND])
def test_case_9_what_differs_never_settles(contract: ProviderContract, via: Via) -> None:
    """Two operations under one key: the reply to the second tells of the first."""
    for answered in (Answered.PERFORMED, Answered.FAILED, Answered.PENDING, Answered.REVERSED):
        foreign = found(answered, via, echo=Echo.DIFFERS, differs_in="amount")
        step = decide(EARLIER, contract, foreign)
        assert (step.kind, step.alert) == (STOP, True)
        assert "amount" in step.reason


def test_case_10_a_wait_across_the_window_becomes_a_look_up() -> None:
    """429 for an hour with half an hour left: wait as told, then ask instead of resending."""
    at = timedelta(hours=23)
    slow = found(Answered.RATE_LIMITED, retry_after=HOUR)
    where = situation(at, sent=2, dispatched=2)
    step = decide(where, STRIPE, slow)
    assert (step.kind, step.not_before) == (LOOK, SENT_AT + at + HOUR)
    assert decide(where, STRIPE_BLIND, slow).kind is STOP
    soon = replace(slow, retry_after=MINUTE)
    resent = decide(where, STRIPE, soon)
    assert (resent.kind, resent.not_before) == (RESEND, SENT_AT + at + MINUTE)
    # The first and only request was refused before anything happened: no window is running.
    first = decide(situation(at), STRIPE, slow)
    assert (first.kind, first.not_before) == (StepKind.DISPATCH, SENT_AT + at + HOUR)


def test_a_wait_never_outlives_the_deadline() -> None:
    """At the end of the automatic steps a person is told, not an hour later."""
    where = situation(sent=2, dispatched=2, give_up_at=SENT_AT + 10 * MINUTE)
    step = decide(where, STRIPE, found(Answered.RATE_LIMITED, retry_after=HOUR))
    assert (step.kind, step.not_before) == (WAIT, where.give_up_at)
    assert decide(replace(where, now=where.give_up_at), STRIPE, None).kind is STOP


@pytest.mark.parametrize(
    "change",
    [
        {"key_on_every_attempt": False},
        {"scope_unchanged": False},
        {"request_identical": False},
        {"credential_unchanged": False},
        {"first_sent_at": None},
        {"last_event_at": SENT_AT + HOUR},
        {"dispatched": 8},
        {"give_up_at": SENT_AT},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_forbids_a_resend(change: dict[str, Any]) -> None:
    """Each condition alone is enough."""
    assert decide(situation(), STRIPE, LOST).kind is RESEND
    step = decide(situation(**change), STRIPE, LOST)
    assert step.kind is (STOP if "give_up_at" in change else LOOK)
    assert decide(situation(**change), STRIPE_BLIND, LOST).kind is STOP


def test_a_rotated_credential_matters_where_it_is_part_of_the_key() -> None:
    """Unless the contract lists what a key is unique within, everything is."""
    rotated = situation(credential_unchanged=False)
    assert decide(rotated, replace(STRIPE, key_scope=frozenset({Pin.ACCOUNT})), LOST).kind is RESEND
    assert decide(rotated, replace(STRIPE, key_scope=frozenset(Pin)), LOST).kind is LOOK
    assert decide(rotated, STRIPE, found(Answered.UNAUTHORISED)).kind is StepKind.DISPATCH
    earlier = replace(rotated, sent=2, dispatched=2)
    assert decide(earlier, STRIPE, found(Answered.UNAUTHORISED)).kind is LOOK


def test_without_comparison_and_echo_nothing_is_resent() -> None:
    """A server that may replay a foreign answer is not asked for one."""
    assert decide(situation(), IETF, LOST).kind is RESEND
    step = decide(situation(), IETF_WITHOUT_ECHO, LOST)
    assert step.kind is STOP
    assert "foreign" in step.reason


def test_two_at_once_wait_for_quiet() -> None:
    """Where a duplicate in flight may be performed too, the first must have ended."""
    risky = replace(
        STRIPE,
        duplicate_in_flight=DuplicateInFlight.MAY_EXECUTE_TWICE,
        max_in_flight=5 * MINUTE,
    )
    step = decide(situation(), risky, LOST)
    quiet = SENT_AT + timedelta(seconds=35) + 5 * MINUTE
    assert (step.kind, step.not_before) == (RESEND, quiet)
    assert decide(situation(), replace(risky, max_in_flight=None), LOST).kind is LOOK


def test_in_progress_waits_a_quarter_and_not_for_ever() -> None:
    """A running request is given time; a provider that never ends it is given to a person."""
    contract = replace(STRIPE, max_in_flight=8 * MINUTE)
    busy = found(Answered.IN_PROGRESS)
    step = decide(EARLIER, contract, busy)
    assert (step.kind, step.not_before) == (WAIT, EARLIER.now + 2 * MINUTE)
    told = decide(EARLIER, contract, replace(busy, retry_after=HOUR))
    assert told.not_before == EARLIER.now + HOUR
    assert decide(replace(EARLIER, waits=8), contract, busy).kind is LOOK
    assert decide(replace(EARLIER, waits=8), replace(contract, lookups=()), busy).kind is STOP


def test_a_kept_server_error_waits_for_a_webhook_if_there_is_one() -> None:
    """Asking again brings the same error again."""
    listening = replace(STRIPE_BLIND, outcomes=Outcomes(webhook_events=("refund.updated",)))
    step = decide(situation(), listening, found(Answered.SERVER_ERROR))
    assert (step.kind, step.not_before) == (WAIT, situation().give_up_at)
    rerun = replace(STRIPE, cached=frozenset({Cached.SUCCESS}))
    assert decide(situation(), rerun, found(Answered.SERVER_ERROR)).kind is RESEND


def test_looking_goes_on_once_it_began() -> None:
    """A look-up that found nothing or failed does not turn into a resend of a kept error."""
    looked = situation(looked_up=2)
    assert decide(looked, STRIPE, None).kind is LOOK
    failed = decide(looked, STRIPE, found(Answered.LOST, Via.LOOKUP))
    assert (failed.kind, failed.rule) == (LOOK, "look-up failed")
    assert failed.not_before == looked.now + JITTER
    refused = decide(looked, STRIPE, found(Answered.UNAUTHORISED, Via.LOOKUP))
    assert (refused.kind, refused.alert) == (LOOK, True)
    over = replace(looked, give_up_at=looked.now)
    assert decide(over, STRIPE, None).kind is STOP
    assert decide(over, STRIPE, found(Answered.LOST, Via.LOOKUP)).kind is STOP


def test_never_sent_settles_truthfully() -> None:
    """When nothing may be sent any more and nothing ever was, failed is the truth."""
    last = situation(dispatched=8)
    refused = decide(last, STRIPE, found(Answered.NOT_SENT))
    assert (refused.kind, refused.rule) == (
        StepKind.SETTLE_FAILED,
        "never sent, attempts exhausted",
    )
    nothing_out = situation(sent=0, first_sent_at=None, nothing_arrives_after=None)
    assert decide(nothing_out, GENERIC, None).kind is StepKind.DISPATCH
    late = replace(nothing_out, give_up_at=nothing_out.now)
    assert decide(late, GENERIC, None).kind is StepKind.SETTLE_FAILED


def test_a_replay_of_the_only_attempt_is_not_taken_on_trust() -> None:
    """Somebody used our key before us: unless the provider compares, look at what it made."""
    replayed = found(Answered.PERFORMED, replayed=True)
    assert decide(situation(), IETF, replayed).kind is STOP
    assert decide(situation(), replace(IETF, lookups=STRIPE.lookups), replayed).kind is LOOK
    assert decide(situation(), STRIPE, replayed).kind is StepKind.SETTLE_SUCCEEDED
    rejected = found(Answered.REJECTED, replayed=True)
    assert decide(situation(), STRIPE, rejected).kind is LOOK


def test_a_look_up_by_a_chosen_name_must_be_compared() -> None:
    """Others choose names too: the object of that name is ours only if it equals the intent."""
    taken = replace(EARLIER, looked_up=1, known_there=True)
    unequal = found(Answered.PERFORMED, Via.LOOKUP, reference="uid-1")
    assert decide(taken, KUBERNETES, unequal).kind is STOP
    ours = replace(unequal, echo=Echo.EQUAL)
    assert decide(taken, KUBERNETES, ours).kind is StepKind.SETTLE_SUCCEEDED


PENDING = found(Answered.PENDING, reference="re_1", echo=Echo.EQUAL)
ACCEPTED = situation(HOUR, accepted_at=SENT_AT + MINUTE, handle="re_1")


def test_pending_is_polled_until_it_is_not() -> None:
    """A12: accepted once, asked ever more rarely, settled once, never created again."""
    contract = replace(
        STRIPE,
        outcomes=replace(
            STRIPE.outcomes,
            max_pending=timedelta(days=10),
            poll=Poll(first=MINUTE, longest=HOUR),
        ),
    )
    accepted = decide(situation(), contract, PENDING)
    assert (accepted.kind, accepted.not_before) == (StepKind.ACCEPT, SENT_AT + 2 * MINUTE)
    assert decide(ACCEPTED, contract, None) == Step(
        StepKind.POLL, "accepted", "its final outcome is not known yet"
    )
    again = decide(replace(ACCEPTED, looked_up=3), contract, found(Answered.PENDING, Via.LOOKUP))
    assert (again.kind, again.not_before) == (StepKind.POLL, ACCEPTED.now + 8 * MINUTE)
    for nothing_new in (Answered.LOST, Answered.ABSENT, Answered.RATE_LIMITED, Answered.NO_TARGET):
        step = decide(ACCEPTED, contract, found(nothing_new, Via.LOOKUP))
        assert step.kind is StepKind.POLL
    done = found(Answered.PERFORMED, Via.WEBHOOK, reference="re_1")
    assert decide(ACCEPTED, contract, done).kind is StepKind.SETTLE_SUCCEEDED
    # The provider's own time for it counts, past the deadline of the kind.
    late = replace(ACCEPTED, now=SENT_AT + timedelta(days=5))
    assert decide(late, contract, None).kind is StepKind.POLL
    too_late = replace(ACCEPTED, now=SENT_AT + timedelta(days=11))
    assert decide(too_late, contract, None).kind is STOP


def test_pending_without_a_stated_time_ends_with_the_deadline() -> None:
    """An unknown max_pending does not mean for ever."""
    assert decide(ACCEPTED, STRIPE, None).kind is StepKind.POLL
    assert decide(replace(ACCEPTED, now=ACCEPTED.give_up_at), STRIPE, None).kind is STOP


def test_pending_that_cannot_be_asked_for_waits_for_a_webhook() -> None:
    """There is neither a handle nor a look-up: listen until the deadline."""
    step = decide(situation(), GENERIC, found(Answered.PENDING))
    assert (step.kind, step.not_before) == (StepKind.ACCEPT, situation().give_up_at)
    listening = replace(ACCEPTED, handle=None)
    waiting = decide(listening, GENERIC, None)
    assert (waiting.kind, waiting.not_before) == (WAIT, listening.give_up_at)


def test_evidence_before_anything_was_sent_must_be_equal() -> None:
    """A webhook that comes first is ours only if it says what we intended."""
    unsent = situation(sent=0, dispatched=0, first_sent_at=None, nothing_arrives_after=None)
    told = found(Answered.PERFORMED, Via.WEBHOOK)
    assert decide(unsent, STRIPE, told).kind is LOOK
    assert decide(unsent, STRIPE_BLIND, told).kind is STOP
    equal = replace(told, echo=Echo.EQUAL)
    assert decide(unsent, STRIPE, equal).kind is StepKind.SETTLE_SUCCEEDED


def test_a_person_may_say_what_happened() -> None:
    """By hand an outcome needs no echo, and may still not differ."""
    said = found(Answered.PERFORMED, Via.HAND)
    assert decide(EARLIER, SQS, said).kind is StepKind.SETTLE_SUCCEEDED


def test_limits_of_the_provider_narrow_those_of_the_kind() -> None:
    """The stricter of two bounds counts, for the number, the time and the pause."""
    strict = replace(STRIPE, limits=replace(STRIPE.limits, max_attempts=1))
    assert decide(situation(), strict, LOST).kind is LOOK
    short = replace(STRIPE, limits=replace(STRIPE.limits, deadline=MINUTE))
    assert decide(situation(), short, LOST).kind is LOOK
    slow = replace(STRIPE, limits=replace(STRIPE.limits, min_spacing=MINUTE))
    assert decide(situation(), slow, LOST).not_before == situation().now + MINUTE


def test_reasons_are_for_people() -> None:
    """`ops why` prints them as they are."""
    step = decide(situation(timedelta(hours=23, minutes=45)), STRIPE_BLIND, LOST)
    assert "keeps keys for 24 h less a margin of 30 min" in step.reason
    assert "23 h 45 min old" in step.reason
