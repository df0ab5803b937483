"""What the simulated provider promises, as its switches stand at the start.

A test that changes a switch changes the promise with it:
`replace(simulator_contract(), dedup=Dedup.NONE, …)`.
"""

from __future__ import annotations

from datetime import timedelta

from settled.domain.contract import (
    FOREVER,
    Anchor,
    Cached,
    Consistency,
    Dedup,
    DuplicateCompleted,
    DuplicateInFlight,
    EchoAs,
    EchoField,
    Key,
    KeyCarrier,
    KeySupport,
    LookupBy,
    LookupPromise,
    Matching,
    MatchingKind,
    OnExpired,
    Outcome,
    Outcomes,
    Pin,
    Poll,
    PreExecution,
    ProviderContract,
    ReplayMarker,
    Retention,
    RetentionKind,
    Rule,
)
from settled.domain.provider import Answered

_RULES = (
    Rule(answered=Answered.IN_PROGRESS, status=409, body={"error.code": "in_progress"}),
    Rule(
        answered=Answered.DUPLICATE_OF,
        status=409,
        body={"error.code": "duplicate"},
        reference="error.reference",
    ),
    Rule(answered=Answered.DUPLICATE, status=409, body={"error.code": "duplicate"}),
    Rule(
        answered=Answered.NAME_TAKEN,
        status=409,
        body={"error.code": "already_exists"},
        reference="error.reference",
    ),
    Rule(answered=Answered.KEY_MISMATCH, status=422, body={"error.code": "key_mismatch"}),
)


def simulator_contract() -> ProviderContract:
    """Return the contract of `POST /v1/refunds`."""
    return ProviderContract(
        provider="simulator",
        operation="refund",
        sources=("settled.infrastructure.simulator",),
        dedup=Dedup.CLIENT_KEY,
        key=Key(carrier=KeyCarrier.HEADER, name="Idempotency-Key"),
        key_scope=frozenset({Pin.ENDPOINT}),
        key_support=KeySupport.DOCUMENTED,
        retention=Retention(
            RetentionKind.FIXED, timedelta(hours=24), Anchor.FIRST_SENT, timedelta(minutes=30)
        ),
        on_expired=OnExpired.NEW_REQUEST,
        matching=Matching(MatchingKind.FULL),
        duplicate_completed=DuplicateCompleted.REPLAY_STORED,
        replay_marker=ReplayMarker(header="Idempotent-Replayed"),
        duplicate_in_flight=DuplicateInFlight.SIGNAL,
        max_in_flight=timedelta(0),
        cached=frozenset({Cached.SUCCESS}),
        uncached_pre_execution=frozenset({PreExecution.VALIDATION, PreExecution.RATE_LIMIT}),
        lookups=(
            LookupPromise(
                by=LookupBy.KEY,
                consistency=Consistency.STRONG,
                horizon=FOREVER,
                items="data",
                match="key",
                more="has_more",
            ),
        ),
        outcomes=Outcomes(
            status_path="status",
            meanings={
                "pending": Outcome.PENDING,
                "succeeded": Outcome.SUCCEEDED,
                "failed": Outcome.FAILED,
                "reversed": Outcome.REVERSED,
            },
            success_may_reverse=True,
            max_pending=timedelta(days=1),
            poll=Poll(first=timedelta(seconds=1), longest=timedelta(minutes=1)),
            webhook_events=("refund.pending", "refund.succeeded", "refund.failed"),
            webhook_object="data",
        ),
        rules=_RULES,
        reference="id",
        echo=(
            EchoField(
                field="amount",
                path="amount",
                written=EchoAs.MAJOR_UNITS,
                currency_path="currency",
            ),
            EchoField(field="order", path="order"),
        ),
    )
