"""A25: PostgreSQL crashes under load, drops its connections, or its answer to a COMMIT is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

import psycopg

import settled
from settled import Identity
from settled.infrastructure.testing.fault_relay import Fault
from settled.infrastructure.testing.journal_units import eventually
from settled.verify.check import POSTGRESQL, check, check_each
from settled.verify.relayed import relayed
from settled.verify.service import PATIENCE_SECONDS, Service
from settled.verify.stage import AGENT, Stage

LOAD = 200
DROPPED = 200
OPEN = ("ready", "claimed", "dispatching", "outcome_unknown")

LOST = [
    (event, fault)
    for event in ("Dispatching", "Succeeded")
    for fault in (Fault.LOSE_REPLY, Fault.LOSE_REQUEST)
]


@contextmanager
def under_load(stage: Stage) -> Generator[Service]:
    """Have operations begun and performed meanwhile: in the end each was performed once.

    No worker was restarted for it, and none failed.
    """
    crew = stage.crew()
    service = Service(stage, [("refund", f"refund-{number}") for number in range(LOAD)])
    try:
        yield service
        service.join()
    finally:
        service.stop()
    eventually(lambda: not stage.app.journal.heads("acme", states=OPEN), seconds=PATIENCE_SECONDS)
    rows = stage.app.journal.heads("acme", kind="refund", limit=2 * LOAD)
    views = [stage.get(Identity("acme", "refund", row.identity)) for row in rows]
    assert len(views) >= LOAD and {view.state for view in views} == {"succeeded"}
    assert {stage.names(view).count("Intended") for view in views} == {1}
    keys = Counter(effect.key for effect in stage.simulator.effects())
    assert keys == Counter(view.provider_key for view in views)
    stage.check_invariant(*views)
    for worker in crew:
        assert worker.terminate() == 0, stage.log_of(worker)


@check("A25", "the server crashes twice under load", databases=POSTGRESQL, own_server=True)
def a25_immediate_shutdown_under_load(stage: Stage) -> None:
    """Whoever was told of an error begins it again; in the end each was performed once."""
    with under_load(stage) as service:
        for _ in range(2):
            service.wait_begun(LOAD // 4)
            stage.crash_server()


@check("A25", "connections dropped by the hundred", databases=POSTGRESQL, own_server=True)
def a25_connections_dropped_by_the_hundred(stage: Stage) -> None:
    """The server ends every session of ours again and again, wherever it is in its work."""
    dropped = 0
    with under_load(stage) as service, psycopg.connect(stage.server.url()) as admin:
        service.wait_begun(LOAD // 10)
        while dropped < DROPPED:
            found = admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'settled' AND pid <> pg_backend_pid()"
            )
            dropped += sum(ended for (ended,) in found)
            admin.commit()  # a transaction sees one picture of the sessions
        stage.strike(f"{dropped} sessions ended by the server")


@check("A25", "the answer to an intent's COMMIT is lost", databases=POSTGRESQL, own_server=True)
def a25_the_answer_to_an_intents_commit_is_lost(stage: Stage) -> None:
    """The service's COMMIT arrives and its answer does not: one Intended, no conflict."""
    with (
        relayed(stage) as (relay, url),
        settled.open(url, kinds=stage.app.kinds.by_name.values()) as app,
    ):
        relay.inject(Fault.LOSE_REPLY, on=b"settled.operation.Intended")
        stage.strike("lose reply: COMMIT of Intended")
        params = {"order": "order-72", "amount": settled.Money("30.00", "USD")}
        told = app.operations.intend("refund", "refund-request-9", params, by=AGENT)
        relay.wait_struck()
    assert (told.state, told.version) == ("ready", 1)
    assert stage.names(told) == ["Intended"]
    stage.worker()
    done = stage.wait(told, "succeeded")
    stage.expect(requests=1, effects=1)
    stage.check_invariant(done, unsent=0)


@check_each(
    "A25",
    "a worker's commit is lost: {0[0]}, {0[1]}",
    LOST,
    databases=POSTGRESQL,
    own_server=True,
)
def a25_a_workers_commit_is_lost(stage: Stage, lost: tuple[str, Fault]) -> None:
    """A commit around the call is lost, before or after the server had it: nothing twice."""
    event, fault = lost
    with relayed(stage) as (relay, url):
        worker = stage.worker(environment={"SETTLED_URL": url}, lease_seconds=10)
        relay.inject(fault, on=f"settled.operation.{event}".encode())
        stage.strike(f"{fault}: COMMIT of {event}")
        operation = stage.intend(kind="nothing")
        done = stage.wait(operation, "succeeded", "handed_over")
        assert relay.strikes == 1
        assert done.state == "succeeded"
        counted = Counter(stage.names(done))
        assert counted == Counter(["Intended", "Claimed", "Dispatching", "Succeeded"])
        stage.expect(requests=1, effects=1)
        assert worker.terminate() == 0


@check("A25", "the server is away for longer than a lease", databases=POSTGRESQL, own_server=True)
def a25_a_worker_outlives_an_outage_longer_than_its_lease(stage: Stage) -> None:
    """The lease ends meanwhile; the worker takes a new place by itself when it can."""
    with relayed(stage) as (relay, url):
        worker = stage.worker(environment={"SETTLED_URL": url}, lease_seconds=0.5)
        first = stage.wait(stage.intend("refund-1"), "succeeded")
        relay.inject(Fault.REFUSE)
        stage.strike("every connection refused")
        eventually(lambda: all(row.lapsed for row in stage.app.journal.workers()))
        relay.heal()
        second = stage.wait(stage.intend("refund-2"), "succeeded")
        assert worker.running and worker.terminate() == 0
        stage.check_invariant(first, second, unsent=0)
