"""The conformance suite for provider adapters: what every adapter has to keep.

    class TestMyAdapter(AdapterSuite):
        @pytest.fixture
        def provider_at(self): return lambda url: MyAdapter(f"{url}/v1/refunds", …)

        @pytest.fixture
        def params(self): return RefundParams(…)

The adapter is pointed at the simulated provider and judged by what that has seen: without a worker,
and at last with one.
"""

from __future__ import annotations

from datetime import timedelta

from settled.app import open
from settled.domain.identity import Principal
from settled.domain.kind import Kind
from settled.domain.params import Params
from settled.domain.provider import Provider
from settled.infrastructure.simulator.client import SimulatorClient
from settled.infrastructure.testing.adapter_rules import FailureRules, LookupRules, SendingRules


class AdapterSuite(SendingRules, FailureRules, LookupRules):
    """Every rule. A subclass overrides the fixtures `provider_at` and `params`."""

    def test_a_worker_sends_no_more_than_it_has_recorded(
        self,
        provider: Provider,
        params: Params,
        settled_simulator: SimulatorClient,
        settled_sqlite_url: str,
    ) -> None:
        """Each request has its Dispatching, and the effect whose reply was lost stays the one."""
        settled_simulator.fault(reply="close")
        kind = Kind(
            "adapter-suite",
            type(params),
            provider,
            hand_over_to="nobody",
            permit=timedelta(seconds=2),
            call_timeout=timedelta(seconds=5),
        )
        by = Principal("acme", "adapter-suite")
        with open(settled_sqlite_url, kinds=[kind], worker=True) as app:
            operation = app.operations.intend(kind, "refund-request-9", params, by=by)
            app.operations.wait(operation, timeout_seconds=60)
            names = [entry.name for entry in app.operations.history(operation, by=by)]
        log = settled_simulator.log()
        assert 1 <= len(log.calls()) <= names.count("Dispatching")
        assert len(log.effects) == 1
