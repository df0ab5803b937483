"""The kind that the demo works with: a refund, under the contract of Stripe's API v1."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from settled.domain.contract import ReplayMarker, presets
from settled.domain.kind import Kind
from settled.domain.money import Money
from settled.domain.params import Params
from settled.domain.retry import FullJitter
from settled.infrastructure.http.json_provider import HttpProvider

PROVIDER_VARIABLE = "SETTLED_DEMO_PROVIDER"
"""The environment variable that tells the workers where the demo's provider takes refunds."""

CONTRACT = replace(
    presets.stripe_v1_refund, replay_marker=ReplayMarker(header="Idempotent-Replayed")
)
"""Stripe's promises, and the header by which the demo's provider marks a replay."""


class RefundParams(Params):
    """What is refunded, and how much of it."""

    order: str
    amount: Money


def refund_at(url: str) -> Kind[RefundParams]:
    """Return the kind of refunds at a provider."""
    return Kind(
        "refund",
        RefundParams,
        HttpProvider(url, contract=CONTRACT, body=_body),
        hand_over_to="payments-oncall",
        label="Refund {amount} for {order}",
        retry=FullJitter(base_seconds=0.1, cap_seconds=1, attempts=8),
        within=timedelta(hours=20),
    )


def _body(params: RefundParams) -> dict[str, Any]:
    """Return the request as Stripe takes it: in minor units, the currency in lower case."""
    return {
        "amount": params.amount.minor,
        "currency": params.amount.currency.lower(),
        "metadata": {"order": params.order},
    }
