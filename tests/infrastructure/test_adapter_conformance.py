"""HttpProvider against the conformance suite that every adapter has to pass."""

from __future__ import annotations

import pytest

from settled.adapter_suite import AdapterSuite
from settled.domain.contract import LookupBy
from settled.domain.money import Money
from settled.domain.params import Params
from settled.infrastructure.http.json_provider import HttpProvider
from settled.infrastructure.simulator.contract import simulator_contract
from settled.infrastructure.testing.adapter_rules import ProviderAt


class RefundParams(Params):
    """What the simulated provider is asked for."""

    order: str
    amount: Money


class TestHttpProvider(AdapterSuite):
    """The adapter that ships."""

    @pytest.fixture
    def provider_at(self) -> ProviderAt:
        return lambda url: HttpProvider(
            f"{url}/v1/refunds",
            contract=simulator_contract(),
            lookups={LookupBy.KEY: "{url}?key={key}"},
        )

    @pytest.fixture
    def params(self) -> RefundParams:
        return RefundParams(order="order-72", amount=Money("30.00", "USD"))
