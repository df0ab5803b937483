"""A run kind that asks somebody and pays, given to the command line with the shop's kinds."""

from __future__ import annotations

from typing import Any

import settled
from settled import ActiveRun, Money, Params, Reply, RunKind, presets


class RefundParams(Params):
    """A refund of part of an order."""

    order: str
    amount: Money


@settled.kind(
    "agent-refund",
    contract=presets.generic_http,
    hand_over_to="payments-oncall",
    label="Refund {amount} for {order}",
    approvers=frozenset({"lead"}),
)
def agent_refund(call: settled.Call, params: RefundParams) -> Reply:
    """Refund what somebody has to approve first."""
    return Reply.performed({}, reference=str(call.identity))


async def _support(run: ActiveRun) -> Any:
    params = {"order": "order-72", "amount": {"amount": "30.00", "currency": "USD"}}
    return (await run.operation("call-1", agent_refund, "refund-request-9", params)).state


support = RunKind("support", _support)
