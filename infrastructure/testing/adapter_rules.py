"""What every provider adapter has to keep, judged by what the simulated provider has seen.

One call is at most one request, a repetition is the same request, each way in which a call can fail
is called by its name, and a look-up finds what was performed. `settled.testing.AdapterSuite` is
all of it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from settled.domain.permit import SendPermit
from settled.domain.provider import Answered, Provider, Via
from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.simulator.client import SimulatorClient
from settled.infrastructure.simulator.record import Seen
from settled.infrastructure.testing.adapter_calls import (
    IDENTITY,
    KEY,
    NOW,
    OTHER_KEY,
    SECRET,
    call_for,
    lookup_for,
    run,
)

ProviderAt = Callable[[str], Provider]
"""A base URL, such as `http://127.0.0.1:40123` -> the adapter pointed at it."""

UNDECIDED = frozenset(
    {
        Answered.LOST,
        Answered.IN_PROGRESS,
        Answered.DUPLICATE,
        Answered.DUPLICATE_OF,
        Answered.NAME_TAKEN,
        Answered.RATE_LIMITED,
        Answered.SERVER_ERROR,
        Answered.UNAVAILABLE,
        Answered.STORE_UNAVAILABLE,
    }
)
"""What neither settles an operation nor says that nothing has happened."""


class AdapterFixtures:
    """What a subclass gives, and what comes of it."""

    @pytest.fixture
    def provider_at(self) -> ProviderAt:
        """Make the adapter under test for a base URL; it requests refunds at `/v1/refunds`."""
        raise NotImplementedError("Define the fixture provider_at.")

    @pytest.fixture
    def params(self) -> Any:
        """Return parameters that the simulated provider accepts: an amount and an order."""
        raise NotImplementedError("Define the fixture params.")

    @pytest.fixture
    def provider(self, provider_at: ProviderAt, settled_simulator: SimulatorClient) -> Provider:
        """Return the adapter, pointed at the simulated provider."""
        return provider_at(settled_simulator.url)

    @pytest.fixture
    def other_worker(self, provider_at: ProviderAt, settled_simulator: SimulatorClient) -> Provider:
        """Return the adapter as another process makes it, which remembers nothing of the first."""
        return provider_at(settled_simulator.url)


class SendingRules(AdapterFixtures):
    """One call is at most one request, and a repetition is the same one."""

    def test_sealing_is_pure(self, provider: Provider, other_worker: Provider, params: Any) -> None:
        """The request must be the same on each worker, or a resend is another request."""
        sealed = provider.seal(IDENTITY, KEY, params, SECRET)
        assert sealed == provider.seal(IDENTITY, KEY, params, SECRET)
        assert sealed == other_worker.seal(IDENTITY, KEY, params, SECRET)
        assert sealed != provider.seal(IDENTITY, OTHER_KEY, params, SECRET)

    def test_a_success_is_one_request_and_one_effect(
        self, provider: Provider, params: Any, settled_simulator: SimulatorClient
    ) -> None:
        """The adapter reports what the provider did, by the provider's name for it."""
        call = call_for(provider, params)
        (finding,) = run(provider, lambda: provider.send(call))
        (seen,) = settled_simulator.log().calls()
        (effect,) = settled_simulator.effects()
        assert (finding.answered, finding.via) == (Answered.PERFORMED, Via.REPLY)
        assert (finding.reference, seen.effect) == (effect.id, effect.id)

    def test_a_resend_is_the_same_request(
        self,
        provider: Provider,
        other_worker: Provider,
        params: Any,
        settled_simulator: SimulatorClient,
    ) -> None:
        """Key, headers and bytes are those of the first attempt, whichever worker sends them."""
        settled_simulator.fault(reply="close")
        first = call_for(provider, params)
        again = call_for(other_worker, params, attempt=2, request=first.request)
        (lost,) = run(provider, lambda: provider.send(first))
        (came,) = run(other_worker, lambda: other_worker.send(again))
        assert (lost.answered, came.answered) == (Answered.LOST, Answered.PERFORMED)
        one, two = (_sent(seen) for seen in settled_simulator.log().calls())
        assert one == two
        if provider.contract.keyed:
            assert len(settled_simulator.effects()) == 1, "the provider has not recognised the key"

    def test_a_redirect_is_not_followed(
        self, provider: Provider, params: Any, settled_simulator: SimulatorClient
    ) -> None:
        """What is sent on is a second request, to somebody whom the contract does not name."""
        headers = {"Location": settled_simulator.refunds_url}
        settled_simulator.fault(status=307, execute=False, headers=headers)
        call = call_for(provider, params)
        (finding,) = run(provider, lambda: provider.send(call))
        assert finding.answered not in (Answered.PERFORMED, Answered.PENDING, Answered.NOT_SENT)
        assert len(settled_simulator.log().calls()) == 1

    def test_nothing_is_sent_when_the_permit_is_over(
        self, provider: Provider, params: Any, settled_simulator: SimulatorClient
    ) -> None:
        """A worker that froze and thaws late must not send: others have judged its attempt."""
        call = call_for(provider, params, permit_seconds=-0.001)
        (finding,) = run(provider, lambda: provider.send(call))
        assert finding.answered is Answered.NOT_SENT
        assert settled_simulator.log().requests == ()

    def test_the_permit_is_checked_on_a_kept_connection_too(
        self, provider: Provider, params: Any, settled_simulator: SimulatorClient
    ) -> None:
        """An open connection saves the handshake, and never the check."""
        call = call_for(provider, params)
        late = replace(call, attempt=2, permit=SendPermit(elapsed_seconds(), NOW))
        findings = run(provider, lambda: provider.send(call), lambda: provider.send(late))
        assert [f.answered for f in findings] == [Answered.PERFORMED, Answered.NOT_SENT]
        assert len(settled_simulator.log().calls()) == 1


class FailureRules(AdapterFixtures):
    """Each way in which a call can fail is called by its name, and nothing is repeated."""

    def test_a_refused_connection_is_not_sent(self, provider_at: ProviderAt, params: Any) -> None:
        """Nobody listened, so nothing can have been done: the one safe reason to go on."""
        with socket.socket() as bound:  # Bound and not listening: nobody else can take the port.
            bound.bind(("127.0.0.1", 0))
            provider = provider_at(f"http://127.0.0.1:{bound.getsockname()[1]}")
            call = call_for(provider, params)
            (finding,) = run(provider, lambda: provider.send(call))
        assert finding.answered is Answered.NOT_SENT

    def test_a_failed_handshake_decides_nothing(
        self, provider_at: ProviderAt, params: Any, settled_simulator: SimulatorClient
    ) -> None:
        """The server speaks no TLS. Not sent, if the adapter can tell; never an answer."""
        provider = provider_at(settled_simulator.url.replace("http:", "https:"))
        call = call_for(provider, params, timeout_seconds=0.3)
        (finding,) = run(provider, lambda: provider.send(call))
        assert finding.answered in (Answered.NOT_SENT, Answered.LOST)
        assert settled_simulator.effects() == []

    @pytest.mark.parametrize("reply", ["close", "reset", "cut_status_line", "cut_body", "garbage"])
    @pytest.mark.parametrize("execute", [True, False])
    def test_a_lost_reply_is_lost_and_not_repeated(
        self,
        provider: Provider,
        params: Any,
        settled_simulator: SimulatorClient,
        reply: str,
        execute: bool,
    ) -> None:
        """Whether it was executed cannot be seen from here, so both are reported alike."""
        settled_simulator.fault(reply=reply, execute=execute)
        call = call_for(provider, params)
        (finding,) = run(provider, lambda: provider.send(call))
        assert finding.answered is Answered.LOST
        assert len(settled_simulator.log().calls()) == 1
        assert len(settled_simulator.effects()) == execute

    def test_a_late_reply_is_lost(
        self, provider: Provider, params: Any, settled_simulator: SimulatorClient
    ) -> None:
        """The call ends at its timeout, and nothing is sent a second time."""
        settled_simulator.fault(hold_after=True)
        call = call_for(provider, params, timeout_seconds=0.3)
        (finding,) = run(provider, lambda: provider.send(call))
        settled_simulator.release()
        assert finding.answered is Answered.LOST
        assert len(settled_simulator.wait(answers=1).calls()) == 1

    @pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
    def test_an_unavailable_server_is_not_asked_again(
        self, provider: Provider, params: Any, settled_simulator: SimulatorClient, status: int
    ) -> None:
        """Recovery decides about another attempt, under the contract; an adapter never does."""
        headers = {"Retry-After": "0"}
        settled_simulator.fault(status=status, body="not now", execute=False, headers=headers)
        call = call_for(provider, params)
        (finding,) = run(provider, lambda: provider.send(call))
        assert finding.answered in UNDECIDED
        assert len(settled_simulator.log().calls()) == 1

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
    def test_a_refusal_is_no_success(
        self, provider: Provider, params: Any, settled_simulator: SimulatorClient, status: int
    ) -> None:
        """It is an answer, so it was sent; and whatever it means, nothing was performed."""
        refusal = {"error": {"code": "refused", "message": "No."}}
        settled_simulator.fault(status=status, execute=False, body=refusal)
        call = call_for(provider, params)
        (finding,) = run(provider, lambda: provider.send(call))
        assert finding.answered not in (Answered.PERFORMED, Answered.PENDING, Answered.NOT_SENT)
        assert len(settled_simulator.log().calls()) == 1

    @pytest.mark.parametrize(
        "conduct",
        [
            {"duplicate_completed": "conflict"},
            {"duplicate_completed": "conflict_with_reference"},
            {"in_progress_seconds": 60},
        ],
        ids=["409_duplicate", "409_duplicate_of", "409_in_progress"],
    )
    def test_a_duplicate_decides_nothing(
        self,
        provider: Provider,
        params: Any,
        settled_simulator: SimulatorClient,
        conduct: Mapping[str, Any],
    ) -> None:
        """A 409 says that there was a first request. What came of that one, it does not say."""
        if not provider.contract.keyed:
            pytest.skip("the contract declares no key that a duplicate is recognised by")
        settled_simulator.conduct(**conduct)
        settled_simulator.fault(reply="close")
        call = call_for(provider, params)
        again = replace(call, attempt=2)
        _, told = run(provider, lambda: provider.send(call), lambda: provider.send(again))
        assert [seen.status for seen in settled_simulator.log().calls()] == [201, 409]
        assert told.answered in UNDECIDED

    def test_a_success_that_cannot_be_read_is_lost(
        self, provider: Provider, params: Any, settled_simulator: SimulatorClient
    ) -> None:
        """A status line alone is only a hint."""
        settled_simulator.fault(status=200, body="<html>")
        call = call_for(provider, params)
        (finding,) = run(provider, lambda: provider.send(call))
        assert finding.answered is Answered.LOST


class LookupRules(AdapterFixtures):
    """A look-up that the contract declares finds what was performed, and has no effect itself."""

    @pytest.fixture
    def with_lookup(self, provider: Provider) -> Provider:
        """Return the adapter, if its contract declares a look-up."""
        if not provider.contract.lookups:
            pytest.skip("the contract declares no look-up")
        return provider

    def test_a_look_up_finds_what_was_performed(
        self, with_lookup: Provider, params: Any, settled_simulator: SimulatorClient
    ) -> None:
        """The reply is lost, and the look-up that the contract declares makes up for it."""
        settled_simulator.fault(reply="close")
        call = call_for(with_lookup, params)
        lost, found = run(
            with_lookup,
            lambda: with_lookup.send(call),
            lambda: with_lookup.look_up(lookup_for(call)),
        )
        (effect,) = settled_simulator.effects()
        assert lost.answered is Answered.LOST
        assert (found.answered, found.via) == (Answered.PERFORMED, Via.LOOKUP)
        assert found.reference == effect.id
        assert len(settled_simulator.log().calls()) == 1, "a look-up has no effect"

    def test_a_look_up_finds_what_it_is_told_the_name_of(
        self, with_lookup: Provider, params: Any, settled_simulator: SimulatorClient
    ) -> None:
        """The provider has named its object, and is asked what has become of it."""
        call = call_for(with_lookup, params)
        (sent,) = run(with_lookup, lambda: with_lookup.send(call))
        asked = lookup_for(call, reference=sent.reference)
        (found,) = run(with_lookup, lambda: with_lookup.look_up(asked))
        (effect,) = settled_simulator.effects()
        assert (found.answered, found.reference) == (Answered.PERFORMED, effect.id)

    def test_a_look_up_does_not_find_what_another_has_performed(
        self, with_lookup: Provider, params: Any, settled_simulator: SimulatorClient
    ) -> None:
        """Nothing was performed for this one; an equal refund, of another operation, was."""
        equal = call_for(with_lookup, params, key=OTHER_KEY)
        call = call_for(with_lookup, params)
        run(with_lookup, lambda: with_lookup.send(equal))
        settled_simulator.fault(reply="close", execute=False)
        _, found = run(
            with_lookup,
            lambda: with_lookup.send(call),
            lambda: with_lookup.look_up(lookup_for(call)),
        )
        assert found.answered is Answered.ABSENT
        assert len(settled_simulator.effects()) == 1

    @pytest.mark.parametrize(
        "fault",
        [{"reply": "close"}, {"reply": "cut_body"}, {"status": 500}, {"status": 200, "body": "?"}],
        ids=["close", "cut_body", "500", "unreadable"],
    )
    def test_a_look_up_that_fails_is_no_evidence(
        self,
        with_lookup: Provider,
        params: Any,
        settled_simulator: SimulatorClient,
        fault: Mapping[str, Any],
    ) -> None:
        """A provider that does not answer has not said that nothing is there."""
        settled_simulator.fault(on="reads", **fault)
        call = call_for(with_lookup, params)
        _, found = run(
            with_lookup,
            lambda: with_lookup.send(call),
            lambda: with_lookup.look_up(lookup_for(call)),
        )
        assert found.answered in UNDECIDED


def _sent(seen: Seen) -> tuple[object, ...]:
    """Return a request without what the log itself has added."""
    return seen.method, seen.path, seen.query, seen.headers, seen.key, seen.body_sha256
