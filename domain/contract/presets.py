"""Contracts of known providers, each with its sources and the day they were checked.

A cell that no document of the provider fills is left out, so recovery takes the conservative
branch. Whoever knows more narrows or widens a copy and answers for it:

    dataclasses.replace(presets.mollie_refund, max_in_flight=timedelta(minutes=2), sources=(…))
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta

from settled.domain.contract.parts import (
    EchoField,
    Guards,
    Key,
    LookupPromise,
    Matching,
    Outcomes,
    ReplayMarker,
    Retention,
    Rule,
    Severity,
)
from settled.domain.contract.vocabulary import ProviderContract
from settled.domain.contract.words import (
    Anchor,
    Cached,
    Dedup,
    DuplicateCompleted,
    DuplicateInFlight,
    EchoAs,
    KeyCarrier,
    KeySupport,
    LookupBy,
    MatchingKind,
    OnExpired,
    Outcome,
    PreExecution,
    RetentionKind,
)
from settled.domain.errors import InvalidContract
from settled.domain.provider import Answered

_CHECKED = date(2026, 11, 30)
_SQS_DOCS = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest"
_K8S_CONVENTIONS = (
    "https://github.com/kubernetes/community/blob/master/contributors/devel/"
    "sig-architecture/api-conventions.md"
)

stripe_v1_refund = ProviderContract(
    provider="stripe",
    operation="refund (API v1)",
    sources=(
        "https://docs.stripe.com/api/idempotent_requests",
        "https://docs.stripe.com/error-low-level#idempotency",
        "https://docs.stripe.com/api/refunds/object",
    ),
    verified_on=_CHECKED,
    dedup=Dedup.CLIENT_KEY,
    key=Key(carrier=KeyCarrier.HEADER, name="Idempotency-Key", max_len=255),
    key_support=KeySupport.DOCUMENTED,
    retention=Retention(
        RetentionKind.FIXED, timedelta(hours=24), safety_margin=timedelta(minutes=30)
    ),
    on_expired=OnExpired.NEW_REQUEST,
    matching=Matching(MatchingKind.FULL),
    duplicate_completed=DuplicateCompleted.REPLAY_STORED,
    duplicate_in_flight=DuplicateInFlight.SIGNAL,
    cached=frozenset(Cached),
    uncached_pre_execution=frozenset(PreExecution),
    # That the list shows a refund at once, and how far it reaches back, is not written down.
    lookups=(
        LookupPromise(
            by=LookupBy.PARENT_LIST, items="data", match="metadata.settled_key", more="has_more"
        ),
    ),
    outcomes=Outcomes(
        status_path="status",
        meanings={
            "pending": Outcome.PENDING,
            "requires_action": Outcome.PENDING,
            "succeeded": Outcome.SUCCEEDED,
            "failed": Outcome.FAILED,
            "canceled": Outcome.FAILED,
        },
        success_may_reverse=True,
        webhook_object="data.object",
    ),
    rules=(
        Rule(
            answered=Answered.KEY_MISMATCH,
            status=400,
            body={"error.type": "idempotency_error"},
            reason="the key was used with other parameters",
        ),
        Rule(
            answered=Answered.IN_PROGRESS,
            status=409,
            body={"error.code": "idempotency_key_in_use"},
            reason="a request with this key is running",
        ),
    ),
    reference="id",
    echo=(
        EchoField(
            field="amount",
            path="amount",
            written=EchoAs.MINOR_UNITS,
            currency_path="currency",
        ),
    ),
    guards=Guards(provider_enforces_remaining=True),
    severity=Severity(duplicate_cost="a partial refund is paid twice"),
    sdk_autokey=True,
)
"""A refund at Stripe, API v1. Server errors are kept under the key: they are looked up, not resent.
The request carries our key in `metadata.settled_key` too, so that a list can be searched for it.
"""

mollie_refund = ProviderContract(
    provider="mollie",
    operation="refund",
    sources=(
        "https://docs.mollie.com/overview/api-idempotency",
        "https://docs.mollie.com/payments/refunds",
    ),
    verified_on=_CHECKED,
    dedup=Dedup.CLIENT_KEY,
    key=Key(carrier=KeyCarrier.HEADER, name="Idempotency-Key"),
    key_support=KeySupport.DOCUMENTED,
    retention=Retention(
        RetentionKind.FIXED, timedelta(hours=1), safety_margin=timedelta(minutes=5)
    ),
    on_expired=OnExpired.NEW_REQUEST,
    matching=Matching(MatchingKind.FULL),
    duplicate_completed=DuplicateCompleted.REPLAY_STORED,
    replay_marker=ReplayMarker(header="Idempotent-Replayed"),
    duplicate_in_flight=DuplicateInFlight.SIGNAL,
    lookups=(
        LookupPromise(
            by=LookupBy.PARENT_LIST,
            items="_embedded.refunds",
            match="metadata.settled_key",
            more="_links.next",
        ),
    ),
    outcomes=Outcomes(
        status_path="status",
        meanings={
            "queued": Outcome.PENDING,
            "pending": Outcome.PENDING,
            "processing": Outcome.PENDING,
            "refunded": Outcome.SUCCEEDED,
            "failed": Outcome.FAILED,
            "canceled": Outcome.FAILED,
        },
    ),
    rules=(
        Rule(
            answered=Answered.IN_PROGRESS,
            status=409,
            reason="a request with this key is running",
        ),
    ),
    reference="id",
    echo=(
        EchoField(
            field="amount",
            path="amount.value",
            written=EchoAs.MAJOR_UNITS,
            currency_path="amount.currency",
        ),
    ),
    guards=Guards(provider_enforces_remaining=False),
    severity=Severity(duplicate_cost="a partial refund is paid twice"),
)
"""A refund at Mollie. The window is one hour, and equal partial refunds are both executed. A key
that was used with other parameters is a 400 that nothing tells from a failed validation, so a 400
is looked up."""

sqs_fifo = ProviderContract(
    provider="amazon-sqs",
    operation="SendMessage to a FIFO queue",
    sources=(
        f"{_SQS_DOCS}/APIReference/API_SendMessage.html",
        f"{_SQS_DOCS}/SQSDeveloperGuide/FIFO-key-terms.html",
        f"{_SQS_DOCS}/SQSDeveloperGuide/single-producer-single-consumer.html",
    ),
    verified_on=_CHECKED,
    dedup=Dedup.CLIENT_KEY,
    key=Key(carrier=KeyCarrier.BODY, name="MessageDeduplicationId", max_len=128),
    key_support=KeySupport.DOCUMENTED,
    retention=Retention(
        RetentionKind.FIXED, timedelta(minutes=5), safety_margin=timedelta(seconds=30)
    ),
    on_expired=OnExpired.NEW_REQUEST,
    matching=Matching(MatchingKind.NONE),
    duplicate_completed=DuplicateCompleted.SILENT_DROP,
    # Of all that is *sent* with one id within the interval, one copy is delivered.
    duplicate_in_flight=DuplicateInFlight.BLOCKS,
    outcomes=Outcomes(acceptance_only=True),
    reference="MessageId",
    echo=(EchoField(field="body_md5", path="MD5OfMessageBody"),),
    severity=Severity(duplicate_cost="a message is delivered twice"),
    sdk_autokey=False,
)
"""A message to an SQS FIFO queue: five minutes of deduplication, no comparison, no look-up. What
can be compared is the MD5 of the body, so intents state it as `body_md5`."""

kubernetes_create = ProviderContract(
    provider="kubernetes",
    operation="create an object by name",
    sources=(
        _K8S_CONVENTIONS,
        "https://kubernetes.io/docs/concepts/overview/working-with-objects/names/",
    ),
    verified_on=_CHECKED,
    dedup=Dedup.NATURAL_KEY,
    key=Key(carrier=KeyCarrier.BODY, name="metadata.name", max_len=253, alphabet="[a-z0-9.-]"),
    retention=Retention(RetentionKind.FOREVER),
    matching=Matching(MatchingKind.NONE),
    duplicate_completed=DuplicateCompleted.ERROR_NO_REF,
    # Only one object of a kind can have a name: of two creates at once, one fails.
    duplicate_in_flight=DuplicateInFlight.EITHER_MAY_FAIL,
    cached=frozenset(),
    uncached_pre_execution=frozenset({PreExecution.VALIDATION}),
    lookups=(LookupPromise(by=LookupBy.NATURAL_ID),),
    rules=(
        Rule(
            answered=Answered.NAME_TAKEN,
            status=409,
            body={"reason": "AlreadyExists"},
            reason="an object of this name exists",
        ),
        Rule(
            answered=Answered.PRECONDITION,
            status=409,
            body={"reason": "Conflict"},
            reason="the object has another version",
        ),
    ),
    reference="metadata.uid",
    echo=(
        EchoField(field="name", path="metadata.name"),
        EchoField(field="digest", path="metadata.annotations.settled-digest"),
    ),
    severity=Severity(reversible=True),
)
"""An object that is created under a name of ours, never by `generateName`. The name protects while
the object exists: for objects that end by themselves (a Job with a TTL), give a copy a retention
that is shorter than their life. Intents state `name` and `digest`, and the object carries the
digest in the annotation `settled-digest`."""

postmark = ProviderContract(
    provider="postmark",
    operation="send an e-mail",
    sources=("https://postmarkapp.com/developer/api/email-api",),
    verified_on=_CHECKED,
    outcomes=Outcomes(acceptance_only=True),
    reference="MessageID",
    severity=Severity(duplicate_cost="a person gets the same e-mail twice"),
)
"""An e-mail through Postmark, which states that it has no idempotency. Accepted is all that is
promised; whatever else happens to a request that may have been sent is for a person to find out."""

smtp = ProviderContract(
    provider="smtp",
    operation="send an e-mail",
    sources=("RFC 1047", "RFC 5321, sections 4.2.1 and 6.1"),
    verified_on=_CHECKED,
    key=Key(carrier=KeyCarrier.MIME_HEADER, name="Message-ID"),
    # RFC 5321, 4.2.1: after a 4yz or 5yz reply the requested action did not occur.
    uncached_pre_execution=frozenset(
        {PreExecution.VALIDATION, PreExecution.AUTH, PreExecution.RATE_LIMIT}
    ),
    outcomes=Outcomes(acceptance_only=True),
    severity=Severity(duplicate_cost="a person gets the same e-mail twice"),
)
"""An e-mail by SMTP. No server deduplicates; the Message-ID stays the same in each attempt, so that
a reader's program may. Without a reply after the final dot nobody knows (RFC 1047)."""

generic_http = ProviderContract(
    provider="http",
    operation="any request",
    sources=("RFC 9110, section 9.2.2",),
    verified_on=_CHECKED,
)
"""A server of which nothing is known: no deduplication, no look-up, no refusal that proves
anything. A 2xx settles it, a proven "not sent" is tried again, and all else is handed over."""


def ietf_idempotency_key(
    *,
    provider: str,
    operation: str,
    retention: timedelta,
    sources: Iterable[str],
    verified_on: date,
    echo: Iterable[EchoField] = (),
    safety_margin: timedelta | None = None,
) -> ProviderContract:
    """Return the contract of a server that keeps to the IETF draft on `Idempotency-Key`.

    The server publishes how long it keeps keys (`retention`) and where it says so (`sources`, read
    on `verified_on`). The draft leaves comparing requests to the server, so without an `echo`
    nothing is resent. `safety_margin` is a twentieth of the retention unless stated. Raises
    `InvalidContract` without sources.
    """
    published = tuple(sources)
    if not published:
        raise InvalidContract(
            f"Nobody says how long {provider} keeps keys.",
            hint="Name the page where the server publishes it.",
        )
    return ProviderContract(
        provider=provider,
        operation=operation,
        sources=(
            *published,
            "https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/",
        ),
        verified_on=verified_on,
        dedup=Dedup.CLIENT_KEY,
        key=Key(carrier=KeyCarrier.HEADER, name="Idempotency-Key", quoted=True),
        key_support=KeySupport.DOCUMENTED,
        retention=Retention(
            RetentionKind.FIXED,
            retention,
            anchor=Anchor.FIRST_SENT,
            safety_margin=retention / 20 if safety_margin is None else safety_margin,
        ),
        duplicate_completed=DuplicateCompleted.REPLAY_STORED,
        duplicate_in_flight=DuplicateInFlight.SIGNAL,
        cached=frozenset(Cached),
        rules=(
            Rule(
                answered=Answered.IN_PROGRESS,
                status=409,
                reason="a request with this key is running",
            ),
            Rule(
                answered=Answered.KEY_MISMATCH,
                status=422,
                reason="the key was used with other parameters",
            ),
        ),
        echo=tuple(echo),
    )


ALL: tuple[ProviderContract, ...] = (
    stripe_v1_refund,
    mollie_refund,
    sqs_fifo,
    kubernetes_create,
    postmark,
    smtp,
    generic_http,
)
"""Every contract that is ready to use."""
