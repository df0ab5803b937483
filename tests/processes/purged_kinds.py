"""Kinds whose operations can be purged at once, and one whose details have to stay for a day.

A module of their own, because a process that is killed in the middle of a purge loads them too.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import settled
from settled import FunctionProvider, Kind, Lookup, Money, Params, ProviderContract, Reply, presets


class RefundParams(Params):
    """A refund of part of an order."""

    order: str
    amount: Money


FORGETFUL = ProviderContract(provider="psp", operation="refund", max_in_flight=timedelta())
"""Recognises no duplicate and answers no question: it has no use for anybody's details."""


def refund_it(call: settled.Call, params: RefundParams) -> Reply:
    """Perform at once, and refuse what is about order-0."""
    if params.order == "order-0":
        return Reply.refused("there is no such order, says Jane Roe")
    reference = f"re_{params.order}"
    return Reply.performed({"id": reference, "customer": "Jane Roe"}, reference=reference)


def find_it(lookup: Lookup) -> Reply | None:
    """Find nothing."""
    return None


def _kind(
    name: str, contract: ProviderContract, approvers: frozenset[str] = frozenset()
) -> Kind[RefundParams]:
    return Kind(
        name,
        RefundParams,
        FunctionProvider("psp", contract, refund_it),
        "payments-oncall",
        label="Refund {amount} for {order}",
        approvers=approvers,
    )


refund = _kind("refund", FORGETFUL)
decided = _kind("decided", FORGETFUL, frozenset({"approver"}))
kept = _kind("kept", replace(presets.stripe_v1_refund, provider="psp", lookups=()))
"""Its provider keeps keys for a day."""

KINDS: list[Kind[RefundParams]] = [refund, decided, kept]
__all__ = ["KINDS", "Money", "RefundParams"]
