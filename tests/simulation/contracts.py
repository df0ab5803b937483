"""The contracts of the simulated providers, and how each of them behaves within its contract.

A behaviour never does what its contract rules out, and now and then everything that it leaves open:
what nobody promises is what a provider does on the worst day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from settled.domain.approval import Approval
from settled.domain.contract import (
    FOREVER,
    Consistency,
    Dedup,
    DuplicateCompleted,
    DuplicateInFlight,
    LookupBy,
    LookupPromise,
    Matching,
    MatchingKind,
    OnExpired,
    Outcomes,
    Poll,
    ProviderContract,
    Retention,
    RetentionKind,
    presets,
)
from settled.domain.contract.words import EchoAs
from settled.domain.money import Money
from settled.domain.params import Params
from settled.infrastructure.simulator.contract import simulator_contract


class RefundParams(Params):
    """A refund of part of an order."""

    order: str
    amount: Money


@dataclass(frozen=True)
class Conduct:
    """How a provider behaves under its contract. Durations in seconds.

    `window_seconds` is how long it keeps keys; 0: it knows none. `running_seconds` is the longest
    that it works on a request, `unseen_seconds` the longest that a look-up misses what was done.
    `keeps_errors`: a server error is given again under the same key. `pends`: a final outcome
    comes later. `reverses`: what has succeeded is taken back one day. Webhooks may tell of each.
    """

    contract: ProviderContract
    window_seconds: float = 0.0
    running_seconds: float = 600.0
    unseen_seconds: float = 0.0
    keeps_errors: bool = False
    blocks: bool = False
    pends: float = 0.0
    webhooks: float = 0.0
    lookups: bool = True
    reverses: float = 0.0
    within: timedelta = timedelta(minutes=20)
    approvers: frozenset[str] | Approval = frozenset()


APPROVED_FOR_MINUTES = Approval(frozenset({"approver"}), valid_for=timedelta(minutes=5))
"""An approval that is at times over before any worker is there again."""

_ANSWERS_AT_ONCE = replace(simulator_contract().outcomes, status_path="", meanings={})
_ASKED_BY_KEY = LookupPromise(by=LookupBy.KEY, consistency=Consistency.STRONG, horizon=FOREVER)

KEYED = replace(
    simulator_contract(),
    provider="keyed",
    retention=Retention(
        RetentionKind.FIXED, timedelta(minutes=12), safety_margin=timedelta(minutes=1)
    ),
    max_in_flight=timedelta(minutes=1),
    lookups=(
        replace(
            _ASKED_BY_KEY,
            consistency=Consistency.EVENTUAL,
            max_lag=timedelta(seconds=20),
        ),
    ),
    outcomes=_ANSWERS_AT_ONCE,
)
PENDING = replace(
    simulator_contract(),
    provider="pending",
    max_in_flight=timedelta(minutes=1),
    outcomes=replace(
        simulator_contract().outcomes,
        max_pending=timedelta(hours=2),
        poll=Poll(first=timedelta(seconds=20), longest=timedelta(minutes=10)),
    ),
)
ASKED = replace(
    simulator_contract(),
    provider="asked",
    dedup=Dedup.NONE,
    key=None,
    key_scope=None,
    retention=Retention(),
    on_expired=OnExpired.UNKNOWN,
    matching=Matching(),
    duplicate_completed=DuplicateCompleted.EXECUTES_AGAIN,
    replay_marker=None,
    duplicate_in_flight=DuplicateInFlight.MAY_EXECUTE_TWICE,
    max_in_flight=timedelta(minutes=1),
    cached=None,
    lookups=(_ASKED_BY_KEY,),
    outcomes=Outcomes(),
    rules=(),
)
LAGGING = replace(
    ASKED,
    provider="lagging",
    lookups=(
        replace(
            _ASKED_BY_KEY,
            consistency=Consistency.EVENTUAL,
            max_lag=timedelta(seconds=45),
        ),
    ),
)
NATURAL = replace(
    KEYED,
    provider="natural",
    retention=Retention(RetentionKind.FOREVER),
    duplicate_in_flight=DuplicateInFlight.UNKNOWN,
    rules=(),
    replay_marker=None,
    matching=Matching(MatchingKind.FULL),
)
VAGUE = replace(
    KEYED, provider="vague", duplicate_in_flight=DuplicateInFlight.UNKNOWN, max_in_flight=None
)

CONDUCTS: Mapping[str, Conduct] = {
    "keyed": Conduct(KEYED, 720, 60, 20, webhooks=0.3, reverses=0.1),
    "stripe": Conduct(
        presets.stripe_v1_refund, 86_400, 900, 300, keeps_errors=True, pends=0.2, reverses=0.1
    ),
    "mollie": Conduct(
        presets.mollie_refund,
        3_600,
        900,
        300,
        keeps_errors=True,
        pends=0.3,
        reverses=0.1,
        within=timedelta(minutes=100),
    ),
    "asked": Conduct(ASKED, running_seconds=60, reverses=0.1),
    "lagging": Conduct(LAGGING, running_seconds=60, unseen_seconds=45, webhooks=0.8, reverses=0.3),
    "mail": Conduct(presets.smtp, lookups=False),
    "queue": Conduct(presets.sqs_fifo, 300, 900, blocks=True, lookups=False),
    "pending": Conduct(
        PENDING, 86_400, 60, pends=0.8, webhooks=0.9, reverses=0.1, within=timedelta(hours=3)
    ),
    "decided": Conduct(
        KEYED, 720, 60, 20, webhooks=0.5, approvers=APPROVED_FOR_MINUTES, reverses=0.1
    ),
    "vague": Conduct(VAGUE, 720, 900, 20, blocks=True, webhooks=0.8, reverses=0.3),
    "natural": Conduct(NATURAL, 1e12, 60, 20, blocks=True, webhooks=0.3, reverses=0.1),
}
"""By kind: the name of the kind is the name of its provider too."""


def receipt_of(
    contract: ProviderContract, params: RefundParams, name: str, status: str
) -> dict[str, Any]:
    """Return the provider's object, with what the contract says that it repeats."""
    document: dict[str, Any] = {"id": name, "status": status}
    for echo in contract.echo:
        value = getattr(params, echo.field, None)
        if isinstance(value, Money):
            minor = echo.written is EchoAs.MINOR_UNITS
            _put(document, echo.path, value.minor if minor else str(value.amount))
            if echo.currency_path:
                _put(document, echo.currency_path, value.currency)
        elif value is not None:
            _put(document, echo.path, value)
    return document


def _put(document: dict[str, Any], path: str, value: Any) -> None:
    *folders, last = path.split(".")
    for folder in folders:
        document = document.setdefault(folder, {})
    document[last] = value
