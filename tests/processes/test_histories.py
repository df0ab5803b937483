"""The invariant of the whole, over random histories of the unmodified process managers.

Per key, requests seen at the provider are never more than the Dispatching events, each after its
own; the effect happens at most once, whatever dies, is lost, or takes days; and an open operation
always has exactly one due time.
"""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from settled.domain.contract import presets
from settled.domain.contract.vocabulary import ProviderContract
from settled.domain.provider import Answered
from settled.testing import ManualClock
from tests.processes.world import ModelProvider, World, equal

LONG = os.environ.get("SETTLED_LONG") == "1"

CONTRACTS: dict[str, tuple[ProviderContract, bool, timedelta, bool]] = {
    "stripe": (presets.stripe_v1_refund, True, timedelta(hours=24), True),
    "mollie": (presets.mollie_refund, True, timedelta(hours=1), True),
    "smtp": (presets.smtp, False, timedelta(0), False),
}

steps = st.lists(
    st.tuples(
        st.sampled_from([None, "before_commit", "before_call", "after_call"]),
        st.booleans(),
        st.sampled_from(
            [
                None,
                None,
                None,
                Answered.NOT_SENT,
                Answered.IN_PROGRESS,
                Answered.RATE_LIMITED,
                Answered.UNAVAILABLE,
                Answered.REJECTED,
            ]
        ),
        st.sampled_from([0, 0, 1, 40, 1200, 3600, 40_000, 90_000]),
        st.sampled_from([0, 0, 0, 2, 20, 400]),
    ),
    min_size=1,
    max_size=50 if LONG else 20,
)


@pytest.mark.parametrize("name", CONTRACTS)
@settings(max_examples=3000 if LONG else 120, deadline=None)
@given(history=steps, seed=st.integers(0, 2**32))
def test_never_silently_twice_and_never_silently_lost(
    name: str, history: list[tuple[str | None, bool, Answered | None, int, int]], seed: int
) -> None:
    """Whatever happens in between, the provider holds at most one effect, and nothing is stuck."""
    contract, keyed, window, visible = CONTRACTS[name]
    clock = ManualClock(seed)
    provider = ModelProvider(contract, clock, keyed, window, visible)
    world = World(provider, clock, within=timedelta(days=30))
    world.intend()
    for crash, lose, answer, pause_seconds, stall_seconds in history:
        machine = world.load()
        assert (machine.next_due() is None) == machine.settled
        clock.at = max(clock.at, machine.next_due() or clock.at)
        clock.at += timedelta(seconds=pause_seconds)
        provider.lose_next, provider.fail_next = lose, answer
        world.step(crash, timedelta(seconds=stall_seconds))

        assert len(provider.effects) <= 1, world.names()
        assert len(provider.requests) <= world.count("Dispatching")
        for request, dispatched in enumerate(world.dispatched_before, start=1):
            assert request <= dispatched, "a request left before its Dispatching was durable"
        assert len({(key, body) for key, _, body in provider.requests}) <= 1
        again = world.load()
        assert equal(vars(again), vars(world.load())), "folding is a function of the log"
        if again.state == "succeeded":
            assert len(provider.effects) == 1
        if again.state in ("failed", "expired"):
            assert not provider.effects, world.names()


def test_a_worker_that_stalls_past_its_permit_does_not_send() -> None:
    """The permit is looked at right before the first byte, on a clock that nobody can set."""
    clock = ManualClock(1)
    provider = ModelProvider(presets.smtp, clock, False, timedelta(0), False)
    world = World(provider, clock)
    world.intend()
    world.step(stall=timedelta(seconds=30))
    assert provider.requests == []
    assert world.load().state == "ready"


def test_a_provider_without_key_and_lookup_is_asked_once() -> None:
    """A6: after a lost reply nothing is sent again; a person is told, and told again."""
    clock = ManualClock(2)
    provider = ModelProvider(presets.smtp, clock, False, timedelta(0), False)
    world = World(provider, clock)
    world.intend()
    world.step("after_call")
    for _ in range(4):
        clock.at += timedelta(hours=5)
        world.step()
    assert world.load().state == "handed_over"
    assert len(provider.requests) == 1
    assert {notice.owner for notice in world.notifier.notices} == {"payments-oncall"}
    assert len(world.notifier.notices) >= 2
