"""The kinds of the battery: one provider, many contracts. Loaded by workers as a kinds module.

PSP_URL names the simulated provider. Times are short, so that no check has to wait long.
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

import httpx2

from settled import Budget, FullJitter, HttpProvider, Kind, Money, Params, Remark
from settled.domain.contract import (
    FOREVER,
    Anchor,
    Consistency,
    Dedup,
    DuplicateCompleted,
    DuplicateInFlight,
    EchoField,
    KeySupport,
    LookupBy,
    LookupPromise,
    Matching,
    MatchingKind,
    Poll,
    ProviderContract,
    Retention,
    RetentionKind,
)
from settled.infrastructure.simulator.contract import simulator_contract
from settled.verify.provider import PROVIDER_VARIABLE

PSP_URL = os.environ.get(PROVIDER_VARIABLE, "http://127.0.0.1:9")
BY_KEY = {LookupBy.KEY: "{url}?key={key}"}


class RefundParams(Params):
    """A refund of part of an order."""

    order: str
    amount: Money


class CommentParams(Params):
    """A comment on a ticket."""

    ticket: str
    text: str


FULL = simulator_contract()
"""Key, 24 h window, lookup by key."""

RESEND_ONLY = replace(FULL, lookups=())
LOOKUP_ONLY = replace(
    FULL,
    retention=Retention(
        RetentionKind.FIXED, timedelta(seconds=1), Anchor.FIRST_SENT, timedelta(milliseconds=100)
    ),
)
"""A window that is over as soon as anything is lost: shorter than one call."""

WINDOW_OVER = replace(LOOKUP_ONLY, lookups=())
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
"""Neither key nor lookup."""

WINDOW_OF_SECONDS = replace(
    FULL,
    retention=Retention(
        RetentionKind.FIXED, timedelta(seconds=6), Anchor.FIRST_SENT, timedelta(milliseconds=500)
    ),
)
"""24 h, less half an hour, in seconds: with a call of 0.5 s, resends end 5 s after the first."""

COMPARES_NOTHING = replace(FULL, matching=Matching(MatchingKind.NONE))
LAGGING_LIST = replace(
    NOTHING,
    operation="comment",
    lookups=(
        LookupPromise(
            by=LookupBy.CLIENT_REF,
            consistency=Consistency.EVENTUAL,
            max_lag=timedelta(seconds=30),
            horizon=FOREVER,
            items="data",
            match="reference",
            more="has_more",
        ),
    ),
    echo=(EchoField(field="text", path="text"),),
)
"""No key; a list, which shows a comment 30 s later at the latest, and our reference in it."""


def _polling(first: timedelta, longest: timedelta) -> ProviderContract:
    return replace(FULL, outcomes=replace(FULL.outcomes, poll=Poll(first=first, longest=longest)))


def _ask_the_provider(params: RefundParams) -> str | None:
    """Look at what the provider has of the order; a check holds its answer back."""
    question = {"order": params.order}
    httpx2.get(f"{PSP_URL}/v1/refunds", params=question, trust_env=False, timeout=60)
    return None


def _kind(
    name: str,
    contract: ProviderContract,
    params: type[Params] = RefundParams,
    headers: dict[str, str] | None = None,
    **policy: Any,
) -> Kind[Any]:
    settings: dict[str, Any] = {
        "label": "Refund {amount} for {order}",
        "retry": FullJitter(0.05, 0.2, 8),
        "within": timedelta(minutes=10),
        "call_timeout": timedelta(seconds=10),
        "permit": timedelta(seconds=10),
        "notify_every": timedelta(seconds=1),
        **policy,
    }
    provider = HttpProvider(
        f"{PSP_URL}/v1/refunds",
        contract=contract,
        headers=headers,
        lookups=BY_KEY if contract.lookups else None,
    )
    return Kind(name, params, provider, "payments-oncall", **settings)


refund = _kind("refund", FULL)
resend_only = _kind("resend-only", RESEND_ONLY)
lookup_only = _kind("lookup-only", LOOKUP_ONLY)
window_over = _kind("window-over", WINDOW_OVER)
nothing = _kind("nothing", NOTHING)
patient = _kind("patient", FULL, call_timeout=timedelta(seconds=30))
"""As refund, for a provider that takes its time."""


def _still_valid(params: RefundParams) -> str | None:
    return None


checked = _kind("checked", FULL, revalidate=_still_valid)
"""With a revalidation, so that Claimed has a commit of its own."""

decided = _kind("decided", FULL, approvers=frozenset({"approver"}))
"""Needs an approval."""

curt = _kind("curt", FULL, call_timeout=timedelta(seconds=1), permit=timedelta(seconds=1))
"""As refund, with a permit that is soon over."""

enduring = _kind("enduring", FULL, within=timedelta(hours=20), call_timeout=timedelta(seconds=30))
"""With the time that a kind has by default: a clock that jumps an hour does not end it."""

fleeting = _kind("fleeting", FULL, within=timedelta(milliseconds=1))
"""Its time is over before any worker can look at it."""

UNKEYED = replace(
    NOTHING,
    lookups=(
        LookupPromise(
            by=LookupBy.CLIENT_REF,
            consistency=Consistency.STRONG,
            horizon=FOREVER,
            items="data",
            match="reference",
            more="has_more",
        ),
    ),
)
"""Nothing is recognised as a duplicate, and everything can be found."""

unkeyed = Kind(
    "unkeyed",
    RefundParams,
    HttpProvider(
        f"{PSP_URL}/v1/refunds",
        contract=UNKEYED,
        lookups={LookupBy.CLIENT_REF: "{url}?reference={our_reference}"},
        reference_field="reference",
    ),
    "payments-oncall",
    label="Refund {amount} for {order}",
    retry=FullJitter(0.05, 0.2, 8),
    within=timedelta(minutes=10),
    call_timeout=timedelta(seconds=1),
    permit=timedelta(seconds=1),
    notify_every=timedelta(seconds=1),
)


class AgentRefundParams(Params):
    """A refund as an agent asks for it: what it says beside is no part of the request."""

    order: str
    amount: Money
    note: Annotated[str, Remark()] = ""


class BookingParams(Params):
    """Every sort of field that two callers may write in two ways."""

    name: str
    count: int
    amount: Money
    rate: Decimal = Decimal("1.00")
    express: bool = False
    seat: str | None = None


captured = _kind("captured", FULL, budgets=(Budget("captured:{order}", amount="amount"),))
"""Never more than was captured of an order."""

agent_refund = _kind("agent-refund", FULL, params=AgentRefundParams)
booking = _kind("booking", replace(FULL, echo=()), params=BookingParams, label="Book {count}")

brief = _kind(
    "brief", FULL, approvers=frozenset({"approver"}), decide_within=timedelta(seconds=0.1)
)
"""A proposal that nobody can decide on in time."""

asked = _kind("asked", FULL, revalidate=_ask_the_provider)
"""Stays claimed for as long as the provider does not answer what is asked before the dispatch."""

forgetful = _kind(
    "forgetful",
    replace(
        FULL,
        retention=Retention(
            RetentionKind.FIXED,
            timedelta(seconds=1.5),
            Anchor.FIRST_SENT,
            timedelta(milliseconds=100),
        ),
        outcomes=replace(FULL.outcomes, max_pending=None),
    ),
)
"""Whose provider has a use for an operation's details for a second and a half, and no longer."""

durable = _kind("durable", FULL, within=timedelta(days=2))
hasty = _kind("hasty", FULL, call_timeout=timedelta(seconds=0.8))
"""Gives up before a slow provider has answered."""

window = _kind("window", WINDOW_OF_SECONDS, call_timeout=timedelta(seconds=0.5))
window_blind = _kind(
    "window-blind", replace(WINDOW_OF_SECONDS, lookups=()), call_timeout=timedelta(seconds=0.5)
)
polled = _kind("polled", _polling(timedelta(seconds=0.05), timedelta(seconds=0.2)))
told = _kind("told", _polling(timedelta(hours=1), timedelta(hours=1)))
"""Whose next poll is an hour away: a webhook has to tell."""

quick_lookup = _kind(
    "quick-lookup",
    LOOKUP_ONLY,
    call_timeout=timedelta(seconds=0.8),
    permit=timedelta(seconds=0.8),
)
"""Looked up, and absent for certain a few seconds later."""

patient_lookup = _kind("patient-lookup", LOOKUP_ONLY, call_timeout=timedelta(seconds=30))
patient_nothing = _kind(
    "patient-nothing",
    NOTHING,
    call_timeout=timedelta(seconds=30),
    notify_every=timedelta(hours=1),
)
batch = _kind("batch", COMPARES_NOTHING, headers={"x-batch": "2026-11"})
"""Where the provider takes the batch for the key: all its operations have the same one."""


def _soaked(name: str, contract: ProviderContract) -> Kind[Any]:
    """Return a kind of the soak: impatient with the provider, and persistent."""
    seconds = timedelta(seconds=2)
    poll = Poll(first=timedelta(seconds=0.05), longest=timedelta(seconds=1))
    return _kind(
        name,
        replace(contract, outcomes=replace(contract.outcomes, poll=poll)),
        retry=FullJitter(0.05, 0.5, 12),
        call_timeout=seconds,
        permit=seconds,
        notify_every=timedelta(hours=1),
    )


soaked = _soaked("soaked", FULL)
soaked_resend = _soaked("soaked-resend", RESEND_ONLY)
soaked_lookup = _soaked("soaked-lookup", LOOKUP_ONLY)
soaked_nothing = _soaked("soaked-nothing", NOTHING)

comment = Kind(
    "comment",
    CommentParams,
    HttpProvider(
        f"{PSP_URL}/v1/comments",
        contract=LAGGING_LIST,
        reference_field="reference",
        lookups={LookupBy.CLIENT_REF: "{url}?reference={our_reference}"},
    ),
    "support-lead",
    label="Comment on {ticket}",
    retry=FullJitter(0.05, 0.2, 8),
    within=timedelta(minutes=10),
    call_timeout=timedelta(seconds=2),
)
