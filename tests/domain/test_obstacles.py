"""Each obstacle alone, by the words that a person reads, and what only looks like one.

The decision table shows what comes of an obstacle; several of them lead to the same step, so a lost
one would hide behind the next. `make mutations` takes each condition out and looks at this file.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from settled.domain.contract import (
    Dedup,
    EchoField,
    Key,
    KeyCarrier,
    Limits,
    Matching,
    MatchingKind,
    Pin,
    ProviderContract,
    Retention,
    RetentionKind,
)
from settled.domain.contract.words import DuplicateInFlight, KeySupport
from settled.domain.obstacles import (
    absence_obstacle,
    quiet_from,
    resend_at,
    resend_obstacle,
    sending_obstacle,
)
from tests.domain.recovery_cases import (
    COMMENTS,
    HOUR,
    LEDGER,
    MINUTE,
    SENT_AT,
    SMTP,
    STRIPE,
    TIMEOUT,
    situation,
)

NAMED = replace(
    STRIPE,
    dedup=Dedup.NATURAL_KEY,
    key=Key(carrier=KeyCarrier.BODY, name="name"),
    key_support=KeySupport.UNKNOWN,
)
"""A provider that deduplicates by a name: there is no key whose support could be in doubt."""

ENABLED = replace(
    STRIPE, key_support=KeySupport.MUST_BE_ENABLED, key_enabled_ref="ticket OPS-7 at the provider"
)
UNCOMPARED = replace(STRIPE, matching=Matching(MatchingKind.UNKNOWN), echo=())
ECHOED = replace(UNCOMPARED, echo=(EchoField(field="order", path="order"),))
ACCOUNT_ONLY = replace(STRIPE, key_scope=frozenset({Pin.ACCOUNT}))

FORBIDDEN: list[tuple[str, ProviderContract, dict[str, Any]]] = [
    ("all 8 attempts are used", STRIPE, {"dispatched": 8}),
    ("all 2 attempts are used", replace(STRIPE, limits=Limits(max_attempts=2)), {"dispatched": 2}),
    ("its time for automatic steps is over", STRIPE, {"give_up_at": SENT_AT + MINUTE}),
    ("the provider's limit of 1 min", replace(STRIPE, limits=Limits(deadline=MINUTE)), {}),
    ("deduplicates nothing", SMTP, {}),
    ("no document says", replace(STRIPE, key_support=KeySupport.UNKNOWN), {}),
    ("nobody has stated that keys are enabled", replace(ENABLED, key_enabled_ref=""), {}),
    ("went without this key", STRIPE, {"key_on_every_attempt": False}),
    ("not the one that was sent", STRIPE, {"request_identical": False}),
    ("address, region, version or account changed", STRIPE, {"scope_unchanged": False}),
    ("the credential changed", STRIPE, {"credential_unchanged": False}),
    ("tells our effect from a foreign one", UNCOMPARED, {}),
    ("not known how long the provider keeps keys", replace(STRIPE, retention=Retention()), {}),
    (
        "keeps the last keys only",
        replace(STRIPE, retention=Retention(RetentionKind.LAST_N)),
        {},
    ),
    ("the clock went back", STRIPE, {"last_event_at": SENT_AT + HOUR}),
    ("not known when the first request left", STRIPE, {"first_sent_at": None}),
    ("keeps keys for 24 h less", STRIPE, {"now": SENT_AT + 24 * HOUR}),
]


@pytest.mark.parametrize(("words", "contract", "changes"), FORBIDDEN, ids=[f[0] for f in FORBIDDEN])
def test_why_nothing_is_resent(
    words: str, contract: ProviderContract, changes: dict[str, Any]
) -> None:
    """Whoever is handed the operation reads the true reason, and each reason is enough."""
    where = situation(**changes)
    assert words in (resend_obstacle(where, contract, where.now) or "nothing in the way")


ALLOWED: list[tuple[str, ProviderContract, dict[str, Any]]] = [
    ("all as it should be", STRIPE, {}),
    ("fewer attempts than the provider allows", replace(STRIPE, limits=Limits(max_attempts=2)), {}),
    ("no bound of the provider's", replace(STRIPE, limits=Limits()), {"dispatched": 7}),
    ("before the provider's deadline", replace(STRIPE, limits=Limits(deadline=HOUR)), {}),
    ("a name instead of a key", NAMED, {}),
    ("keys were enabled, and somebody said so", ENABLED, {}),
    ("keys need not be enabled", replace(STRIPE, key_enabled_ref=""), {}),
    ("another credential of the same account", ACCOUNT_ONLY, {"credential_unchanged": False}),
    ("nothing is compared there, and the answer is here", ECHOED, {}),
    ("it is compared there, and nothing is echoed", replace(STRIPE, echo=()), {}),
    ("kept for ever", replace(STRIPE, retention=Retention(RetentionKind.FOREVER)), {}),
]


@pytest.mark.parametrize(("name", "contract", "changes"), ALLOWED, ids=[a[0] for a in ALLOWED])
def test_what_is_no_reason_against_a_resend(
    name: str, contract: ProviderContract, changes: dict[str, Any]
) -> None:
    """An obstacle that is seen where there is none costs a person's time, each time."""
    where = situation(**changes)
    assert resend_obstacle(where, contract, where.now) is None


def test_the_moment_of_sending_counts_and_not_that_of_deciding() -> None:
    """A resend that is put off must be allowed then."""
    where = situation()
    assert sending_obstacle(where, STRIPE, where.give_up_at - TIMEOUT) is None
    assert sending_obstacle(where, STRIPE, where.give_up_at) is not None


REACHING = COMMENTS.lookups[0]
FORGETFUL = replace(COMMENTS, lookups=(replace(REACHING, horizon=MINUTE),))

UNPROVEN: list[tuple[str, ProviderContract, dict[str, Any]]] = [
    ("has named c-1 before", COMMENTS, {"handle": "c-1"}),
    ("has said that it had this request", COMMENTS, {"known_there": True}),
    ("the clock went back", COMMENTS, {"last_event_at": SENT_AT + 2 * HOUR}),
    ("account changed", COMMENTS, {"scope_unchanged": False}),
    ("how far back the look-up reaches", FORGETFUL, {}),
    (
        "how far back the look-up reaches",
        replace(COMMENTS, lookups=(replace(REACHING, horizon=None),)),
        {},
    ),
    ("may lag", replace(COMMENTS, lookups=(replace(REACHING, max_lag=None),)), {}),
    ("the sender has not reported", COMMENTS, {"sender_known": False}),
    ("the sender has not reported", LEDGER, {"sender_known": False, "key_on_every_attempt": False}),
    ("may work on a request", replace(COMMENTS, max_in_flight=None), {}),
    ("may work on a request", COMMENTS, {"nothing_arrives_after": None}),
    ("may still arrive", COMMENTS, {"nothing_arrives_after": SENT_AT + HOUR}),
]


@pytest.mark.parametrize(
    ("words", "contract", "changes"), UNPROVEN, ids=[f"{n}-{u[0]}" for n, u in enumerate(UNPROVEN)]
)
def test_why_absence_is_not_proven(
    words: str, contract: ProviderContract, changes: dict[str, Any]
) -> None:
    """ "Not found" ends an operation only where nothing else can be the reason for it."""
    where = situation(HOUR, **changes)
    assert words in (absence_obstacle(where, contract, None) or "proven")


@pytest.mark.parametrize(
    ("contract", "changes"),
    [(COMMENTS, {}), (LEDGER, {}), (LEDGER, {"sender_known": False})],
    ids=["without a key", "with a key", "with a key and a silent sender"],
)
def test_when_absence_is_proven(contract: ProviderContract, changes: dict[str, Any]) -> None:
    """Then it is: else each of these would end at a person."""
    assert absence_obstacle(situation(HOUR, **changes), contract, None) is None


def test_from_when_it_is_quiet() -> None:
    """The last moment of arriving, whoever knows of it, and then the time of working on it."""
    where, working = situation(), timedelta(seconds=5)
    assert where.nothing_arrives_after is not None
    assert quiet_from(where, COMMENTS) == where.nothing_arrives_after + working
    assert quiet_from(where, COMMENTS, SENT_AT + HOUR) == SENT_AT + HOUR + working
    assert quiet_from(where, COMMENTS, SENT_AT) == where.nothing_arrives_after + working
    assert quiet_from(where, replace(COMMENTS, max_in_flight=None)) is None
    assert quiet_from(replace(where, nothing_arrives_after=None), COMMENTS) is None


def test_two_at_once_only_where_one_is_performed() -> None:
    """Where the second would be performed beside the first, it waits until that is over."""
    where = situation()
    risky = replace(
        LEDGER, duplicate_in_flight=DuplicateInFlight.MAY_EXECUTE_TWICE, max_in_flight=HOUR
    )
    assert resend_at(where, STRIPE, where.now) == where.now
    quiet = quiet_from(where, risky)
    assert quiet is not None and resend_at(where, risky, where.now) == quiet
    assert resend_at(where, replace(risky, max_in_flight=None), where.now) is None
