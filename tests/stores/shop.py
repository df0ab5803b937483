"""The kinds of the committed stores: for the wheel that writes a store, and for all later code.

What is declared here has to stay readable for ever. A kind that changes gets another version beside
the old one, as in any release. While a store is written, SHOP_WRITES is set and what happens to an
order is in its name; afterwards everything is performed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar

from settled import FullJitter, Kind, Money, Params, Reply, presets
from settled.domain.contract import Retention, RetentionKind
from settled.infrastructure.function_provider import FunctionProvider
from settled.testing import simulator_contract

WRITES = "SHOP_WRITES"
AGES = timedelta(days=36_500)
"""How long everything may take: a store is opened years after it was written."""


class RefundParams1(Params):
    """A refund of part of an order, as the first version of the kind has it."""

    order: str
    amount: Money


class RefundParams(Params):
    """As the second has it."""

    PARAMS_VERSION: ClassVar[int] = 2
    OLD: ClassVar[Mapping[int, type[Params]]] = {1: RefundParams1}
    order: str
    amount: Money
    reason: str


CONTRACT = replace(
    simulator_contract(),
    provider="shop",
    echo=(),
    retention=Retention(RetentionKind.FOREVER),
)


def perform(call: Any, params: Any) -> Reply:
    """Do what the order's name says, or else perform it."""
    order = params.order if os.environ.get(WRITES) else ""
    match order:
        case "order-accepted":
            return Reply.accepted("handle-1")
        case "order-refused":
            return Reply.refused("the order is closed")
        case "order-unknown" | "order-handed-over":
            raise ConnectionError("the connection was lost")
        case _:
            name = str(call.identity)
            return Reply.performed({"id": name, "order": params.order}, reference=name)


def look_up(lookup: Any) -> Reply | None:
    """Find what was accepted; nothing else was ever performed here."""
    if os.environ.get(WRITES) or lookup.reference is None:
        return None
    return Reply.performed({"id": lookup.reference}, reference=lookup.reference)


def _still_valid(params: Params) -> str | None:
    return None


SHOP = FunctionProvider("shop", CONTRACT, perform, lookup=look_up)
MAIL = FunctionProvider("mail", presets.smtp, perform)

_POLICY: dict[str, Any] = {
    "label": "Refund {amount} for {order}",
    "retry": FullJitter(5, 5, 1_000),
    "within": AGES,
    "decide_within": AGES,
    "call_timeout": timedelta(seconds=5),
    "permit": timedelta(seconds=5),
}
refund_1: Kind[Any] = Kind("refund", RefundParams1, SHOP, "payments-oncall", **_POLICY)
refund: Kind[Any] = replace(refund_1, params=RefundParams, version=2)
decided: Kind[Any] = replace(refund_1, name="decided", approvers=frozenset({"approver"}))
fleeting: Kind[Any] = replace(refund_1, name="fleeting", within=timedelta(microseconds=1))
blind: Kind[Any] = replace(refund_1, name="blind", provider=MAIL)
sent: Kind[Any] = replace(refund_1, name="sent")
checked: Kind[Any] = replace(refund_1, name="checked", revalidate=_still_valid)

KINDS = [refund, refund_1, decided, fleeting, blind, sent, checked]
