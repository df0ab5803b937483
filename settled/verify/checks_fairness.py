"""One tenant's flood, an unreadable stream, a paused provider: nobody else waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime, timedelta

from settled import Identity, Money, OperationView, Principal
from settled.domain.identity import provider_key
from settled.domain.journal.unit import Answer, Committed, Unit
from settled.domain.keys import DerivedKeys
from settled.domain.operation.operation import intend
from settled.verify.check import check, check_each
from settled.verify.stage import Stage

FLOOD = 2_000
OTHERS = ("birch", "cedar", "dogwood", "elm", "fir")
BATCH = 2_000
SECOND = timedelta(seconds=1)


def unit_of(stage: Stage, tenant: str, operation_id: str, kind: str = "refund") -> Unit:
    """Return the unit of an intent, to be committed together with many others."""
    declared = stage.app.kinds[kind]
    identity = Identity(tenant, kind, operation_id)
    params = declared.params(order=operation_id, amount=Money("30.00", "USD"))
    installation = stage.app.installation
    terms = declared.terms(identity, params, DerivedKeys(installation.secret), {})
    stamp = stage.app.ledger.stamp("flood")
    return stage.app.ledger.unit(intend(terms, stamp, provider_key(installation.id, identity, 1)))


def commit(stage: Stage, units: Iterator[Unit]) -> None:
    """Commit units, a few thousand at a time."""
    waiting: list[Future[Answer]] = []
    for unit in units:
        waiting.append(stage.app.queue.submit(unit))
        if len(waiting) == BATCH:
            assert all(isinstance(future.result(60), Committed) for future in waiting)
            waiting.clear()
    assert all(isinstance(future.result(60), Committed) for future in waiting)


def warm(stage: Stage) -> None:
    """Have the worker perform something first: its very first call imports and connects."""
    stage.wait(start_for(stage, "alder"), "succeeded")


def settled_after(stage: Stage, operation: OperationView) -> timedelta:
    """Return how long it took from the intent to the receipt, by the store's time."""
    by = Principal(operation.tenant, "reader")
    at: dict[str, datetime] = {
        entry.name: entry.at for entry in stage.app.operations.history(operation, by=by)
    }
    return at["Succeeded"] - at["Intended"]


def start_for(stage: Stage, tenant: str, number: int = 1) -> OperationView:
    """Intend one refund for another tenant."""
    params = {"order": f"order-{number}", "amount": Money("30.00", "USD")}
    by = Principal(tenant, "support-agent")
    return stage.app.operations.intend("refund", f"refund-{number}", params, by=by)


@check("A40", "one tenant with thousands of due rows")
def a40_one_tenants_flood_delays_nobody_else(stage: Stage) -> None:
    """Thousands of due rows of one tenant: others take under 1 s."""
    flood(stage, FLOOD)


def flood(stage: Stage, due: int) -> None:
    """Let so many rows of one tenant be due, and see how long others take."""
    commit(stage, (unit_of(stage, "acme", f"refund-{number}") for number in range(due)))
    stage.worker(concurrency=20)
    stage.simulator.wait(calls=40, seconds=30)
    slowest = timedelta()
    for number in range(3):
        started = [start_for(stage, tenant, number) for tenant in OTHERS]
        for operation in started:
            done = stage.wait(operation, "succeeded")
            slowest = max(slowest, settled_after(stage, done))
    assert slowest < SECOND, slowest
    (still_due,) = stage.app.journal.heads("acme", states=["ready"], limit=1)
    assert still_due.due_at is not None


def from_newer_code(stage: Stage, number: int) -> Unit:
    """Return the unit of an intent that only newer code can read."""
    unit = unit_of(stage, "acme", f"from-newer-code-{number}")
    (change,) = unit.changes
    newer = replace(change, events=tuple(replace(e, schema_version=99) for e in change.events))
    return replace(unit, changes=(newer,))


@check("A40", "events that only newer code can read")
def a40_what_cannot_be_read_is_left_to_others_visibly(stage: Stage) -> None:
    """Events of newer code, in a kind that this worker serves: named, and in nobody's way.

    There are more of them than the worker has places.
    """
    commit(stage, (from_newer_code(stage, number) for number in range(30)))
    worker = stage.worker(concurrency=10)
    stage.wait_log(worker, "left_to_others", times=30)
    warm(stage)
    operation = start_for(stage, "birch")
    assert settled_after(stage, stage.wait(operation, "succeeded")) < SECOND
    same_tenant = stage.wait(start_for(stage, "acme", 2), "succeeded")
    assert settled_after(stage, same_tenant) < SECOND
    left = stage.app.journal.heads("acme", states=["ready"])
    assert len(left) == 30 and all(row.identity.startswith("from-newer-code") for row in left)
    assert all((row.owner, row.takes, row.parked_at) == (None, 0, None) for row in left), left
    assert stage.log_of(worker).count('"left_to_others"') == 30, "each is taken once, and left"


@check("A40", "a kind that this worker does not know")
def a40_a_kind_that_is_not_declared_here_waits_for_others(stage: Stage) -> None:
    """It is named when the worker starts, and stays due for one that knows it."""
    waiting = stage.intend("refund-9", kind="nothing")
    worker = stage.worker(kinds="refund")
    warm(stage)
    assert settled_after(stage, stage.wait(start_for(stage, "birch"), "succeeded")) < SECOND
    assert stage.get(waiting).state == "ready"
    assert '"left_for_others"' in stage.log_of(worker)
    assert '"nothing@1/simulator"' in stage.log_of(worker)
    stage.worker("second")
    stage.wait(waiting, "succeeded")


@check_each("A40", "a paused provider, with {} due", [1, 500])
def a40_a_paused_provider_rests_and_nobody_else(stage: Stage, due: int) -> None:
    """What waits in a paused lane is not sent, others are; it goes on when resumed."""
    commit(stage, (unit_of(stage, "acme", f"refund-{number}") for number in range(due)))
    stage.app.journal.pause("acme/refund@1/simulator", True)
    stage.worker()
    warm(stage)
    for tenant in OTHERS:
        done = stage.wait(start_for(stage, tenant), "succeeded")
        assert settled_after(stage, done) < SECOND
    assert stage.requests() == 1 + len(OTHERS)
    stage.app.journal.pause("acme/refund@1/simulator", False)
    stage.simulator.wait(calls=1 + len(OTHERS) + due, seconds=30)
