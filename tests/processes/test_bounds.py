"""What bounds a recovery: windows, attempts, spacing, credentials, and a person's wish to cancel.

Each of these once went past its bound; the histories did not show it, because it takes a contract
or a command that they do not draw.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from settled.domain.clock import Stamp
from settled.domain.contract import Limits, ProviderContract, presets
from settled.domain.operation import events as ev
from settled.domain.operation.evidence import admit
from settled.domain.provider import Answered, Echo, Finding, Via
from settled.domain.retry import FullJitter
from settled.infrastructure.simulator.contract import simulator_contract
from settled.testing import ManualClock
from tests.processes.world import ModelProvider, World

DAY = timedelta(hours=24)


def world_of(contract: ProviderContract | None = None, **policy: object) -> World:
    clock = ManualClock(5)
    provider = ModelProvider(contract or simulator_contract(), clock, True, DAY, True)
    world = World(provider, clock, **policy)
    world.intend()
    return world


def until_settled(world: World, steps: int = 60) -> None:
    for _ in range(steps):
        due = world.load().next_due()
        if due is None or world.load().state == "handed_over":
            return
        world.clock.at = max(world.clock.at, due)
        world.step()


def test_after_adoption_the_window_counts_from_the_intent() -> None:
    """Another copy may have sent at any time since then: a resend starts no new window."""
    world = world_of(presets.mollie_refund)
    world.clock.at += timedelta(minutes=50)
    machine = world.load()
    machine.record(
        ev.OutcomeUnknown,
        Stamp(world.clock.at, "ada"),
        cause="adopted",
        reason="adopted",
        rule="adopted",
        sender_reported=False,
        waited=False,
        attempt_out=True,
        next_at=world.clock.at,
    )
    world.commit(machine)
    intended = world.load().intended_at
    assert intended is not None
    assert world.load().situation(world.clock.at).first_sent_at == intended
    world.provider.lose_next = True
    world.step()
    world.clock.at += timedelta(minutes=11)
    assert world.load().situation(world.clock.at).first_sent_at == intended


def test_spacing_puts_a_resend_off_once() -> None:
    """A provider that wants a pause between requests gets one, and then the request."""
    contract = replace(simulator_contract(), limits=Limits(min_spacing=timedelta(seconds=5)))
    world = world_of(contract)
    world.provider.lose_next = True
    world.step()
    until_settled(world)
    assert world.load().state == "succeeded"
    assert world.count("Dispatching") == 2
    assert world.count("ReconciliationScheduled") == 0


def test_proven_absence_does_not_buy_more_attempts() -> None:
    """Three attempts are three requests, however often it was proven that nothing came of them."""
    world = world_of(retry=FullJitter(1, 60, 3))
    for _ in range(12):
        if world.load().settled:
            break
        world.clock.at = max(world.clock.at, world.load().next_due() or world.clock.at)
        world.provider.fail_next = Answered.NOT_SENT
        world.step()
    assert world.load().state == "failed"
    assert world.count("Dispatching") == 3


def test_a_refused_credential_uses_up_no_attempt() -> None:
    """Somebody mends it in the end, and then every refund still has its attempts."""
    contract = simulator_contract()
    contract = replace(
        contract,
        uncached_pre_execution=contract.uncached_pre_execution
        | presets.stripe_v1_refund.uncached_pre_execution,
    )
    world = world_of(contract, retry=FullJitter(1, 60, 3))
    for _ in range(6):
        world.clock.at = max(world.clock.at, world.load().next_due() or world.clock.at)
        world.provider.fail_next = Answered.UNAUTHORISED
        world.step()
        assert world.load().state == "ready"
    until_settled(world)
    assert world.load().state == "succeeded"


def test_what_shall_be_cancelled_is_asked_about_and_not_sent_again() -> None:
    """A resend might perform what somebody has withdrawn."""
    world = world_of()
    world.step("before_call")
    machine = world.load()
    machine.record(ev.CancelRequested, Stamp(world.clock.at, "support-agent"), reason="mistake")
    world.commit(machine)
    for _ in range(4):
        world.clock.at += timedelta(minutes=2)
        world.step()
    assert world.provider.requests == []
    assert world.load().state == "cancelled"


def test_a_failure_that_names_nothing_does_not_take_a_success_back() -> None:
    """A stale webhook about an earlier try is for a person to read, not a reversal."""
    world = world_of()
    world.step()
    machine = world.load()
    assert machine.state == "succeeded"
    late = Finding(Answered.FAILED, Via.WEBHOOK, "try 1 failed")
    admit(machine, simulator_contract(), late, Stamp(world.clock.at, "webhook"), timedelta())
    assert machine.state == "handed_over" and machine.contradicted


def test_a_dispute_is_not_settled_by_the_next_webhook() -> None:
    """Two objects were found for one intent: that one of them fits does not make the other go."""
    world = world_of()
    world.step("after_call")
    world.clock.at += timedelta(seconds=1)
    world.step()
    machine = world.load()
    two = Finding(Answered.PERFORMED, Via.LOOKUP, "2 objects", echo=Echo.DIFFERS, differs_in="two")
    stamp = Stamp(world.clock.at, "reconciler")
    admit(machine, simulator_contract(), two, stamp, timedelta())
    assert machine.state == "handed_over"
    one = Finding(Answered.PERFORMED, Via.WEBHOOK, "performed", reference="re_1", echo=Echo.EQUAL)
    admit(machine, simulator_contract(), one, stamp, timedelta())
    assert machine.state == "handed_over"
    assert machine.next_due() == stamp.at, "its owner hears of the news"


def test_an_effect_before_any_request_has_to_be_shown_to_be_ours() -> None:
    """Nothing was sent from here, so a bare "performed" settles nothing."""
    world = world_of()
    machine = world.load()
    bare = Finding(Answered.PERFORMED, Via.WEBHOOK, "performed", reference="re_7")
    admit(machine, simulator_contract(), bare, Stamp(world.clock.at, "webhook"), timedelta())
    assert machine.state == "handed_over"


def test_a_call_that_was_given_up_counts_as_able_to_arrive() -> None:
    """Whoever still runs may still send: nothing is resent beside it that could double."""
    world = world_of()
    world.step("before_call")
    machine = world.load()
    until = world.clock.at + timedelta(hours=3)
    lost = Finding(Answered.LOST, Via.REPLY, "still runs", may_arrive_until=until)
    machine.record(
        ev.OutcomeUnknown,
        Stamp(world.clock.at, "dispatcher"),
        cause="reply_lost",
        reason=lost.reason,
        rule="lost reply",
        sender_reported=False,
        waited=False,
        attempt_out=True,
        may_arrive_until=until,
        next_at=world.clock.at,
    )
    assert machine.situation(world.clock.at).nothing_arrives_after == until


def test_a_new_generation_is_not_cancelled_by_an_old_wish() -> None:
    """Reissuing is an explicit command, given after the cancel."""
    world = world_of(retry=FullJitter(1, 60, 1))
    machine = world.load()
    world.step("before_call")
    machine = world.load()
    stamp = Stamp(world.clock.at, "ada")
    machine.record(ev.CancelRequested, stamp, reason="mistake")
    machine.record(
        ev.OutcomeUnknown,
        stamp,
        cause="owner_gone",
        reason="gone",
        rule="r",
        sender_reported=True,
        waited=False,
        attempt_out=True,
        next_at=stamp.at,
    )
    machine.record(ev.Failed, stamp, via="hand", reason="not there", rule="settled by hand")
    machine.record(
        ev.Reissued,
        stamp,
        generation=2,
        provider_key="another",
        give_up_at=stamp.at + timedelta(hours=1),
        reason="again",
    )
    assert machine.state == "ready" and not machine.cancel_requested
