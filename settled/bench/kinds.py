"""The kinds of the bench: a provider that is an asynchronous function in the worker's process.

Loaded by workers as a kinds module. The receipt says when the function was called, in the seconds
that all processes of one host share.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from datetime import timedelta

import settled
from settled import FullJitter, Money, Params, Principal, Reply
from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.simulator.contract import simulator_contract

LATENCY_VARIABLE = "SETTLED_BENCH_LATENCY_SECONDS"
AGENT = Principal("acme", "support-agent")

_latency_seconds = float(os.environ.get(LATENCY_VARIABLE, "0"))


class RefundParams(Params):
    """A refund of part of an order."""

    order: str
    amount: Money


PARAMS = RefundParams(order="order-72", amount=Money("30.00", "USD"))


@settled.kind(
    "refund",
    contract=replace(simulator_contract(), provider="function", lookups=()),
    hand_over_to="payments-oncall",
    label="Refund {amount} for {order}",
    retry=FullJitter(0.05, 0.2, 8),
    call_timeout=timedelta(hours=1),
)
async def refund(call: settled.Call, params: RefundParams) -> Reply:
    """Perform a refund, after as long as the environment says."""
    at = elapsed_seconds()
    if _latency_seconds:
        await asyncio.sleep(_latency_seconds)
    return Reply.performed({"order": params.order, "amount": "30.00", "currency": "USD", "at": at})
