"""A20 and A30: streams of an older release, and two releases at work on one store at once."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import settled
from settled import Kind, Money, OperationView, UnknownKind
from settled.domain.journal.unit import RecordedEvent
from settled.infrastructure.testing.journal_units import eventually
from settled.verify import releases
from settled.verify.check import check, refused
from settled.verify.crates import KILOS, TIMES, stream_of
from settled.verify.stage import AGENT, APPROVER, Stage
from settled.verify.worker import WorkerProcess

RELEASES = "settled.verify.releases"
PARAMS = {"order": "order-72", "amount": Money("30.00", "USD")}
REASON = {"reason": "damaged"}
CRATES = 12
MANY = 6
"""How many operations each release begins."""


def opened(stage: Stage, kinds: list[Kind[Any]]) -> settled.App:
    """Open the store as a service of one release does; it is closed with the stage."""
    app = settled.open(stage.url, kinds=kinds, migrate=False, require_fsync=False)
    stage.cleaning.callback(app.close)
    return app


def worker_of(stage: Stage, release: str, *options: str, **settings: Any) -> WorkerProcess:
    """Start a worker process of one release: a name in `settled.verify.releases`."""
    environment = {"SETTLED_KINDS": f"{RELEASES}:{release}"}
    name = release.lower()
    return stage.start_worker(name, environment=environment, options=options, **settings)


def ready(stage: Stage, worker: WorkerProcess) -> WorkerProcess:
    """Wait until a worker has its place."""
    assert worker.ready(30), stage.log_of(worker)
    return worker


def command(stage: Stage, code: int, *words: str, module: str = "settled") -> dict[str, Any]:
    """Run a command on the stage's store, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        env=stage.environment(),
        capture_output=True,
        text=True,
        timeout=120,
        cwd=stage.folder,
    )
    assert done.returncode == code, f"{words}: exit code {done.returncode}: {done.stderr}"
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    return found


def retiring(stage: Stage, text: str, code: int) -> list[str]:
    """Ask doctor, with code that has no kinds at all, what still needs a version."""
    told = command(stage, code, "doctor", "--retiring", text, "--json")
    assert told["blocked"] == bool(code), told
    return sorted(name for one in told["by"] for name in one["named"])


def refuses_to_start(stage: Stage, release: str, *named: str) -> None:
    """A worker of a release does not start, and names what nobody serves."""
    worker = worker_of(stage, release)
    assert worker.process.wait(30) == 2, stage.log_of(worker)
    said = stage.log_of(worker)
    assert all(name in said for name in named), said


@check("A20", "a proposal and an unknown outcome of the release before")
def a20_work_of_the_release_before_is_finished(stage: Stage) -> None:
    """Refused by code that does not know it, and finished by code that has kept the version."""
    before = opened(stage, releases.OLD)
    proposed = before.operations.propose("voucher", "voucher-1", PARAMS, by=AGENT)
    unknown = before.operations.intend("voucher", "voucher-2", PARAMS, by=AGENT)
    killed = worker_of(stage, "OLD", fault="after_call=kill")
    killed.wait_killed()
    stage.expect(requests=1, effects=1)
    # Until its lease is over, the killed worker counts as one that serves the old version.
    eventually(lambda: all(worker.lapsed for worker in stage.app.journal.workers()))

    refuses_to_start(stage, "NEW", "voucher@1/simulator", "voucher-1", "voucher-2")
    told = command(stage, 1, "doctor", "--kinds", f"{RELEASES}:NEW", "--json")
    assert told["kinds_not_declared"] == ["voucher@1/simulator"], told
    assert any("Nobody serves voucher@1" in one["message"] for one in told["findings"]), told
    assert retiring(stage, "voucher@1", 1) == ["acme/voucher/voucher-1", "acme/voucher/voucher-2"]

    ready(stage, worker_of(stage, "RETAINED"))
    done = stage.wait(unknown, "succeeded")
    assert stage.names(done).count("Dispatching") == 2
    stage.expect(requests=2, effects=1)
    after = opened(stage, releases.RETAINED)
    again = after.operations.intend(releases.voucher_1, "voucher-2", PARAMS, by=AGENT)
    assert again.version == done.version, "a duplicate of last month's request is recognised"
    _approve(after, proposed)
    assert stage.wait(proposed, "succeeded").receipt is not None
    stage.expect(requests=3, effects=2)
    assert retiring(stage, "voucher@1", 0) == []
    ready(stage, worker_of(stage, "NEW"))


@check("A20", "a proposal of the release before, revised")
def a20_what_was_never_sent_moves_to_the_newest_version(stage: Stage) -> None:
    """Nobody keeps old code for proposals: revised, it is the new code's."""
    before = opened(stage, releases.OLD)
    proposed = before.operations.propose("voucher", "voucher-1", PARAMS, by=AGENT)
    after = opened(stage, releases.NEW)
    with refused(UnknownKind, "Version 1 of kind voucher is not declared here"):
        _approve(after, proposed)
    revised = after.operations.revise(proposed, {**PARAMS, **REASON}, by=AGENT)
    assert retiring(stage, "voucher@1", 0) == []
    ready(stage, worker_of(stage, "NEW"))
    _approve(after, revised)
    stage.wait(proposed, "succeeded")
    stage.expect(requests=1, effects=1)


@check("A20", "a kind that the newer release no longer knows")
def a20_a_kind_that_is_gone_is_named_and_refused(stage: Stage) -> None:
    """Never idle in silence: refused at the start, named while it waits, finished by old code."""
    before = opened(stage, releases.OLD)
    courier = before.operations.intend("courier", "courier-1", PARAMS, by=AGENT)
    refuses_to_start(stage, "RETAINED", "courier@1/simulator", "acme/courier/courier-1")
    newer = ready(stage, worker_of(stage, "RETAINED", "--leave-to-others"))
    assert '"left_for_others"' in stage.log_of(newer)
    own = opened(stage, releases.RETAINED)
    fields = {**PARAMS, **REASON}
    stage.wait(own.operations.intend("voucher", "voucher-1", fields, by=AGENT), "succeeded")
    (row,) = stage.app.journal.heads(kind="courier")
    assert (row.state, row.takes, row.owner) == ("ready", 0, None), row
    assert retiring(stage, "courier@1", 1) == ["acme/courier/courier-1"]

    older = ready(stage, worker_of(stage, "OLD"))
    stage.wait(courier, "succeeded")
    assert older.terminate() == 0
    assert retiring(stage, "courier@1", 0) == []
    newer.kill()
    ready(stage, worker_of(stage, "RETAINED"))
    stage.expect(requests=2, effects=2)


@check("A20", "events of the release before, upcast")
def a20_events_of_before_are_read_under_todays_schema(stage: Stage) -> None:
    """What old code has begun, new code goes on with; views and audit see all of it."""
    crates(stage, 0, "old", "pack", "3")
    older = at_work(stage, "old")
    eventually(lambda: all(len(weighed(stage, number)) >= 2 for number in range(3)), seconds=30)
    assert older.terminate() == 0
    at_work(stage, "new")
    eventually(lambda: shipped(stage, 3), seconds=30)
    for number in range(3):
        versions = [event.schema_version for event in weighed(stage, number)]
        assert versions == sorted(versions) and set(versions) == {1, 2}, versions
    folded = crates(stage, 0, "new", "project")
    assert folded == {"weighed": 3 * TIMES, "grams": 3 * TIMES * KILOS * 1000}, folded
    assert command(stage, 0, "audit", "verify", "--json")["sound"]


@check("A30", "each release finishes what its own version has begun")
def a30_two_releases_serve_one_kind_side_by_side(stage: Stage) -> None:
    """Services and workers of both at once: each operation is sent once, by code that knows it."""
    ready(stage, worker_of(stage, "OLD"))
    ready(stage, worker_of(stage, "NEW"))
    before, after = opened(stage, releases.OLD), opened(stage, releases.NEW)
    begun: list[tuple[str, OperationView]] = []
    for number in range(MANY):
        old = before.operations.intend("voucher", f"old-{number}", PARAMS, by=AGENT)
        fields = {**PARAMS, **REASON}
        new = after.operations.intend("voucher", f"new-{number}", fields, by=AGENT)
        begun += [("old", old), ("new", new)]
    for release, operation in begun:
        done = stage.wait(operation, "succeeded")
        senders = {fields["worker"] for fields in stage.fields(done, "Dispatching")}
        assert senders == {release}, f"{done.operation_id} was sent by {senders}"
    stage.expect(requests=2 * MANY, effects=2 * MANY)
    assert not stage.app.journal.heads(parked=True)
    for worker in stage.workers:
        assert '"step_failed"' not in stage.log_of(worker), stage.log_of(worker)


@check("A30", "events that the older code cannot read")
def a30_no_event_that_either_cannot_read_goes_unnoticed(stage: Stage) -> None:
    """Old code yields in front of them, by name; it parks nothing and appends nothing behind."""
    older = at_work(stage, "old")
    at_work(stage, "new")
    eventually(lambda: len(stage.app.journal.workers()) == 2, seconds=30)
    crates(stage, 0, "old", "pack", str(CRATES))
    eventually(lambda: shipped(stage, CRATES), seconds=60)
    left = 0
    for number in range(CRATES):
        versions = [event.schema_version for event in weighed(stage, number)]
        assert len(versions) == TIMES, versions
        assert versions == sorted(versions), f"old code wrote behind what it cannot read {versions}"
        left += 2 in versions
    assert left, "the newer release was not at work"
    assert not stage.app.journal.heads(parked=True)
    said = stage.log_of(older)
    assert '"left_to_others"' in said and "schema 2" in said, said
    assert '"parked"' not in said and '"step_failed"' not in said, said
    assert older.running, "what it can read it goes on with"

    crates(stage, 1, "old", "project")
    (view,) = command(stage, 1, "projections", "status", "--json")["projections"]
    assert (view["state"], view["parked"]) == ("yielded", 0), view
    expected = {"weighed": CRATES * TIMES, "grams": CRATES * TIMES * KILOS * 1000}
    assert crates(stage, 0, "new", "project") == expected


def _approve(app: settled.App, proposal: OperationView) -> None:
    version, digest = proposal.proposal_version, proposal.digest
    app.operations.approve(proposal, proposal_version=version, digest=digest, by=APPROVER)


def crates(stage: Stage, code: int, release: str, *words: str) -> dict[str, Any]:
    """Run a process of one release of the crates to its end."""
    return command(stage, code, release, *words, module="settled.verify.crates_worker")


def at_work(stage: Stage, release: str) -> WorkerProcess:
    """Start a worker of one release of the crates."""
    module = ("-m", "settled.verify.crates_worker", release, "work", release)
    return ready(stage, stage.start_process(f"crates-{release}", *module))


def weighed(stage: Stage, number: int) -> list[RecordedEvent]:
    """Return the weights of a crate, as they are stored."""
    events = stage.app.journal.events("acme", stream_of(f"crate-{number}"))
    return [event for event in events if event.topic == "verify.crate.Weighed"]


def shipped(stage: Stage, many: int) -> bool:
    """Say whether so many crates have left."""
    return len(stage.app.journal.heads("acme", kind="crate", states=["shipped"])) == many
