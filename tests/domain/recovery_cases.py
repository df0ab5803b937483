"""Situations and findings for the tests of the recovery decision, in the words of the cases."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from settled.domain.contract import (
    FOREVER,
    Consistency,
    Dedup,
    EchoField,
    LookupBy,
    LookupPromise,
    Outcomes,
    ProviderContract,
    presets,
)
from settled.domain.provider import Answered, Echo, Finding, Via
from settled.domain.recovery import Situation

SENT_AT = datetime(2026, 11, 30, 0, 0, tzinfo=UTC)
TIMEOUT = timedelta(seconds=30)
JITTER = timedelta(seconds=2)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)

STRIPE = presets.stripe_v1_refund
STRIPE_BLIND = replace(STRIPE, lookups=())
MOLLIE = presets.mollie_refund
SQS = presets.sqs_fifo
KUBERNETES = presets.kubernetes_create
POSTMARK = presets.postmark
SMTP = presets.smtp
GENERIC = presets.generic_http
IETF = presets.ietf_idempotency_key(
    provider="psp",
    operation="refund",
    retention=24 * HOUR,
    sources=["https://psp.example/docs/keys"],
    verified_on=date(2026, 11, 30),
    echo=[EchoField(field="order", path="order")],
)
IETF_WITHOUT_ECHO = replace(IETF, echo=())
COMMENTS = ProviderContract(
    provider="forge",
    operation="comment",
    max_in_flight=timedelta(seconds=5),
    lookups=(
        LookupPromise(
            by=LookupBy.PARENT_LIST,
            consistency=Consistency.EVENTUAL,
            max_lag=timedelta(seconds=2),
            horizon=FOREVER,
        ),
    ),
    echo=(EchoField(field="marker", path="marker"),),
)
"""Case 8: no key, a list that lags by two seconds, a marker in the text."""

LEDGER = replace(
    STRIPE,
    max_in_flight=MINUTE,
    lookups=(LookupPromise(by=LookupBy.KEY, consistency=Consistency.STRONG, horizon=FOREVER),),
)
"""A keyed provider that can be asked for a key and shows what it has at once."""

EVERY_CONTRACT = (
    *presets.ALL,
    *(STRIPE_BLIND, IETF, IETF_WITHOUT_ECHO, COMMENTS, LEDGER),
    replace(COMMENTS, dedup=Dedup.FUZZY),
    replace(STRIPE, outcomes=Outcomes(webhook_events=("refund.updated",)), lookups=()),
)


def situation(after: timedelta = MINUTE, **changes: Any) -> Situation:
    """One attempt that may have been sent, looked at `after` it left; all as it should be."""
    usual: dict[str, Any] = {
        "now": SENT_AT + after,
        "last_event_at": SENT_AT,
        "first_sent_at": SENT_AT,
        "sent": 1,
        "dispatched": 1,
        "attempts_allowed": 8,
        "nothing_arrives_after": SENT_AT + timedelta(seconds=35),
        "sender_known": True,
        "key_on_every_attempt": True,
        "scope_unchanged": True,
        "request_identical": True,
        "credential_unchanged": True,
        "timeout": TIMEOUT,
        "give_up_at": SENT_AT + timedelta(days=3),
        "looked_up": 0,
        "last_lookup_absent_at": None,
        "handle": None,
        "accepted_at": None,
        "waits": 0,
    }
    return Situation(**{**usual, **changes})


def found(answered: Answered, via: Via = Via.REPLY, **more: Any) -> Finding:
    """A finding with nothing in it but what is said here."""
    return Finding(answered=answered, via=via, reason=f"it says {answered}", **more)


SUCCESS = found(Answered.PERFORMED, reference="re_1", echo=Echo.EQUAL)
