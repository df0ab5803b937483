"""The conformance suite for provider adapters: what every adapter has to keep.

    class TestMyAdapter(AdapterSuite):
        @pytest.fixture
        def provider_at(self): return lambda url: MyAdapter(f"{url}/v1/refunds", …)

        @pytest.fixture
        def params(self): return RefundParams(…)

The adapter is pointed at the simulated provider and judged by what that has seen: one call is at
most one request, a repetition is the same request, what is reported as not sent was not sent, and
a look-up finds what was performed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from settled.domain.identity import Identity
from settled.domain.permit import SendPermit
from settled.domain.provider import Answered, Call, Finding, Lookup, Provider, SealedRequest, Via
from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.simulator.client import SimulatorClient
from settled.infrastructure.simulator.record import Seen
from settled.infrastructure.testing.simulator_fixtures import simulator, simulator_process

__all__ = ["AdapterSuite", "call_for", "lookup_for", "run", "simulator", "simulator_process"]

IDENTITY = Identity("acme", "refund", "refund-request-9")
KEY = "0b7e5c1e-6f0c-4d0e-9a44-1c5ad9f0a001"
SECRET = b"the secret of a test installation"
NOW = datetime(2026, 1, 5, 14, 3, 9, tzinfo=UTC)

ProviderAt = Callable[[str], Provider]
"""A base URL, such as `http://127.0.0.1:40123` -> the adapter pointed at it."""


def call_for(
    provider: Provider,
    params: Any,
    *,
    key: str = KEY,
    attempt: int = 1,
    timeout_seconds: float = 10.0,
    permit_seconds: float = 5.0,
    request: SealedRequest | None = None,
) -> Call:
    """Return a call as the dispatcher makes it, with the request sealed now if none is given."""
    permit_until = NOW + timedelta(seconds=permit_seconds)
    return Call(
        identity=IDENTITY,
        key=key,
        attempt=attempt,
        request=request or provider.seal(IDENTITY, key, params, SECRET),
        params=params,
        timeout_seconds=timeout_seconds,
        permit=SendPermit(elapsed_seconds() + permit_seconds, permit_until),
        now=NOW,
        intended=cast(Mapping[str, Any], vars(params)),
    )


def lookup_for(call: Call, *, reference: str | None = None) -> Lookup:
    """Return the question about a call, as the reconciler asks it."""
    return Lookup(
        identity=call.identity,
        key=call.key,
        reference=reference,
        request=call.request,
        params=call.params,
        timeout_seconds=call.timeout_seconds,
        now=call.now,
        intended=call.intended,
    )


def run(provider: Provider, *steps: Callable[[], Coroutine[Any, Any, Finding]]) -> list[Finding]:
    """Run calls and look-ups one after the other in one event loop, and close the adapter."""

    async def all_of_them() -> list[Finding]:
        try:
            return [await step() for step in steps]
        finally:
            close = getattr(provider, "aclose", None)
            if close is not None:
                await close()

    return asyncio.run(all_of_them())


class AdapterSuite:
    """Subclass it, and give `provider_at` and `params`."""

    @pytest.fixture
    def provider_at(self) -> ProviderAt:
        """Make the adapter under test for a base URL; it requests refunds at `/v1/refunds`."""
        raise NotImplementedError("Define the fixture provider_at.")

    @pytest.fixture
    def params(self) -> Any:
        """Return parameters that the simulated provider accepts: an amount and an order."""
        raise NotImplementedError("Define the fixture params.")

    @pytest.fixture
    def provider(self, provider_at: ProviderAt, simulator: SimulatorClient) -> Provider:
        """Return the adapter, pointed at the simulated provider."""
        return provider_at(simulator.url)

    def test_sealing_is_pure(self, provider: Provider, params: Any) -> None:
        """The request must be the same on each worker, or a resend is another request."""
        sealed = [provider.seal(IDENTITY, KEY, params, SECRET) for _ in range(2)]
        assert sealed[0] == sealed[1]
        assert sealed[0] != provider.seal(IDENTITY, KEY[:-1] + "2", params, SECRET)

    def test_a_success_is_one_request_and_one_effect(
        self, provider: Provider, params: Any, simulator: SimulatorClient
    ) -> None:
        """The adapter reports what the provider did, by the provider's name for it."""
        call = call_for(provider, params)
        (finding,) = run(provider, lambda: provider.send(call))
        (seen,) = simulator.log().calls()
        (effect,) = simulator.effects()
        assert (finding.answered, finding.via) == (Answered.PERFORMED, Via.REPLY)
        assert (finding.reference, seen.effect) == (effect.id, effect.id)

    def test_a_resend_is_the_same_request(
        self, provider: Provider, params: Any, simulator: SimulatorClient
    ) -> None:
        """Key, headers and bytes are those of the first attempt; the provider has one effect."""
        simulator.fault(reply="close")
        first = call_for(provider, params)
        again = call_for(provider, params, attempt=2, request=first.request)
        findings = run(provider, lambda: provider.send(first), lambda: provider.send(again))
        assert [f.answered for f in findings] == [Answered.LOST, Answered.PERFORMED]
        one, two = (_without_numbers(seen) for seen in simulator.log().calls())
        assert one == two
        assert len(simulator.effects()) == 1

    @pytest.mark.parametrize("reply", ["close", "reset", "cut_status_line", "cut_body", "garbage"])
    @pytest.mark.parametrize("execute", [True, False])
    def test_a_lost_reply_is_lost_and_not_repeated(
        self,
        provider: Provider,
        params: Any,
        simulator: SimulatorClient,
        reply: str,
        execute: bool,
    ) -> None:
        """Whether it was executed cannot be seen from here, so both are reported alike."""
        simulator.fault(reply=reply, execute=execute)
        call = call_for(provider, params)
        (finding,) = run(provider, lambda: provider.send(call))
        assert finding.answered is Answered.LOST
        assert len(simulator.log().calls()) == 1
        assert len(simulator.effects()) == execute

    def test_a_late_reply_is_lost(
        self, provider: Provider, params: Any, simulator: SimulatorClient
    ) -> None:
        """The call ends at its timeout, and nothing is sent a second time."""
        simulator.fault(hold_after=True)
        call = call_for(provider, params, timeout_seconds=0.3)
        (finding,) = run(provider, lambda: provider.send(call))
        simulator.release()
        assert finding.answered is Answered.LOST
        assert len(simulator.wait(answers=1).calls()) == 1

    @pytest.mark.parametrize("status", [500, 502, 503])
    def test_a_server_error_is_not_repeated(
        self, provider: Provider, params: Any, simulator: SimulatorClient, status: int
    ) -> None:
        """Recovery decides about another attempt, under the contract; an adapter never does."""
        simulator.fault(status=status, body="Internal Server Error")
        call = call_for(provider, params)
        (finding,) = run(provider, lambda: provider.send(call))
        unsettled = {Answered.SERVER_ERROR, Answered.UNAVAILABLE, Answered.LOST}
        assert finding.answered in unsettled
        assert len(simulator.log().calls()) == 1

    def test_a_success_that_cannot_be_read_is_lost(
        self, provider: Provider, params: Any, simulator: SimulatorClient
    ) -> None:
        """A status line alone is only a hint."""
        simulator.fault(status=200, body="<html>")
        call = call_for(provider, params)
        (finding,) = run(provider, lambda: provider.send(call))
        assert finding.answered is Answered.LOST

    def test_a_refused_connection_is_not_sent(self, provider_at: ProviderAt, params: Any) -> None:
        """Nobody listened, so nothing can have been done: the one safe reason to go on."""
        with socket.socket() as bound:  # Bound and not listening: nobody else can take the port.
            bound.bind(("127.0.0.1", 0))
            provider = provider_at(f"http://127.0.0.1:{bound.getsockname()[1]}")
            call = call_for(provider, params)
            (finding,) = run(provider, lambda: provider.send(call))
        assert finding.answered is Answered.NOT_SENT

    def test_nothing_is_sent_when_the_permit_is_over(
        self, provider: Provider, params: Any, simulator: SimulatorClient
    ) -> None:
        """A worker that froze and thaws late must not send: others have judged its attempt."""
        call = call_for(provider, params)
        late = replace(call, permit=SendPermit(elapsed_seconds(), NOW))
        (finding,) = run(provider, lambda: provider.send(late))
        assert finding.answered is Answered.NOT_SENT
        assert simulator.log().requests == ()

    def test_the_permit_is_checked_on_a_kept_connection_too(
        self, provider: Provider, params: Any, simulator: SimulatorClient
    ) -> None:
        """An open connection saves the handshake, and never the check."""
        call = call_for(provider, params)
        late = replace(call, attempt=2, permit=SendPermit(elapsed_seconds(), NOW))
        findings = run(provider, lambda: provider.send(call), lambda: provider.send(late))
        assert [f.answered for f in findings] == [Answered.PERFORMED, Answered.NOT_SENT]
        assert len(simulator.log().calls()) == 1

    def test_a_look_up_finds_what_was_performed(
        self, provider: Provider, params: Any, simulator: SimulatorClient
    ) -> None:
        """The reply is lost, and the look-up that the contract declares makes up for it."""
        if not provider.contract.lookups:
            pytest.skip("the contract declares no look-up")
        simulator.fault(reply="close")
        call = call_for(provider, params)
        lost, found = run(
            provider, lambda: provider.send(call), lambda: provider.look_up(lookup_for(call))
        )
        (effect,) = simulator.effects()
        assert lost.answered is Answered.LOST
        assert (found.answered, found.via) == (Answered.PERFORMED, Via.LOOKUP)
        assert found.reference == effect.id
        assert len(simulator.log().calls()) == 1, "a look-up has no effect"

    def test_a_look_up_tells_that_nothing_is_there(
        self, provider: Provider, params: Any, simulator: SimulatorClient
    ) -> None:
        """Nothing was performed, and nothing is found: whether that proves anything is not said."""
        if not provider.contract.lookups:
            pytest.skip("the contract declares no look-up")
        simulator.fault(reply="close", execute=False)
        call = call_for(provider, params)
        _, found = run(
            provider, lambda: provider.send(call), lambda: provider.look_up(lookup_for(call))
        )
        assert found.answered is Answered.ABSENT
        assert simulator.effects() == []

    def test_a_look_up_that_fails_is_no_evidence(
        self, provider: Provider, params: Any, simulator: SimulatorClient
    ) -> None:
        """An unreachable provider has not said that nothing is there."""
        if not provider.contract.lookups:
            pytest.skip("the contract declares no look-up")
        simulator.fault(on="reads", reply="close")
        call = call_for(provider, params)
        (found,) = run(provider, lambda: provider.look_up(lookup_for(call)))
        assert found.answered is Answered.LOST


def _without_numbers(seen: Seen) -> tuple[object, ...]:
    return seen.method, seen.path, seen.query, seen.headers, seen.key, seen.body_sha256
