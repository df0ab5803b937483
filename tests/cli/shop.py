"""The kinds of a small shop, given to the command line as --kinds tests/cli/shop.py.

Their effects are lines in a file that SHOP_FILE names, so that a test counts them.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import settled
from settled import Money, Params, Reply, presets


class RefundParams(Params):
    """A refund of part of an order."""

    order: str
    amount: Money


class EmailParams(Params):
    """An e-mail to one address."""

    to: str


def perform(what: str) -> Reply:
    """Have the effect: one line more."""
    with Path(os.environ["SHOP_FILE"]).open("a", encoding="utf-8") as file:
        print(what, file=file)
    return Reply.performed({"line": what}, reference=what)


@settled.kind(
    "refund",
    contract=presets.generic_http,
    hand_over_to="payments-oncall",
    label="Refund {amount} for {order}",
)
def refund(call: settled.Call, params: RefundParams) -> Reply:
    """Refund at once."""
    return perform(str(call.identity))


@settled.kind(
    "large-refund",
    contract=presets.generic_http,
    hand_over_to="payments-oncall",
    label="Refund {amount} for {order}",
    approvers=frozenset({"lead"}),
)
def large_refund(call: settled.Call, params: RefundParams) -> Reply:
    """Refund what somebody has to approve first."""
    return perform(str(call.identity))


@settled.kind("email", contract=presets.smtp, hand_over_to="support-lead", label="E-mail to {to}")
def email(call: settled.Call, params: EmailParams) -> Reply:
    """Never know whether it arrived."""
    return Reply.unknown("the connection was lost")


@settled.kind("hang", contract=presets.generic_http, hand_over_to="support-lead")
def hang(call: settled.Call, params: EmailParams) -> Reply:
    """Answer long after everybody has gone."""
    threading.Event().wait(60)
    return Reply.unknown("nobody answered")
