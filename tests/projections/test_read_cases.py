"""Cases from the field for the read side: what made somebody's view miss, repeat or mix up events.

The table in docs/projections.md says which test shows each of them; those that had none are here.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

import settled
from settled import (
    ABSENT,
    App,
    Arrow,
    Event,
    Identity,
    Lifecycle,
    Money,
    Params,
    Principal,
    RecordedEvent,
    Rows,
    State,
    StateMachine,
    presets,
)
from settled.domain.errors import StoreUnavailable
from settled.domain.journal.unit import Committed
from settled.infrastructure.journal.opening import sqlite_path
from settled.infrastructure.seeding import seed
from settled.infrastructure.testing.postgres_binaries import find_binaries
from settled.infrastructure.testing.postgres_server import PostgresServer
from settled.projections import runner
from settled.projections.operations import OperationsProjection
from settled.projections.projector import Projector
from settled.projections.runner import Runner
from settled.verify.receipts import Receipts
from tests.projections.parcels import Counted, ParcelsNow, begin, scan
from tests.projections.test_projector import counts, last_position, log, once_each, own_transaction
from tests.projections.test_rebuild import ROOT, content, process, rebuilt
from tests.projections.test_runner import Heard, is_free, running, until

LOOKS = 300
PATIENCE_SECONDS = 60.0


def test_read_case_03_a_writer_that_pauses(app: App, store_url: str) -> None:
    """However often the log is looked at meanwhile, the event is neither passed by nor late.

    No reader asks a clock, so a pause of many looks is one of two minutes, or of a day.
    """
    first = begin(app, "parcel-1")
    app.projector().catch_up(Counted())
    with own_transaction(store_url, app) as (connection, commit):
        slow = begin(app, "parcel-slow", connection=connection)
        if app.journal.dialect == "postgresql":  # on SQLite nobody else writes meanwhile
            scan(app, first, "Lyon", "Metz")
        reached = {app.projector().run_once(Counted()) for _ in range(LOOKS)}
        assert len(reached) == 1 and len(counts(app)) == 1
        commit()
    app.projector().catch_up(Counted())
    assert counts(app) == once_each(app)
    assert slow.id in {event.stream for event in log(app)[:2]}, "it has an early position"


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_read_case_05_restored_from_a_dump(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where transactions are counted anew, old and new events are delivered, each once."""
    monkeypatch.setenv("SETTLED_STATE_DIR", str(tmp_path / "state"))
    with ExitStack() as stack:
        before, after = stack.enter_context(_two_stores(database, tmp_path))
        with settled.open(before, migrate=True, require_fsync=False) as app:
            scan(app, begin(app, "parcel-1"), "Lyon", "Metz")
            app.projector().run_once(Counted(), page=2)
            stored = log(app)
        _dump_and_restore(before, after)
        app = stack.enter_context(settled.open(after, require_fsync=False))
        assert log(app) == stored
        scan(app, begin(app, "parcel-2"), "Nice")
        app.projector().catch_up(Counted())
        app.projector().catch_up(ParcelsNow())
        assert counts(app) == once_each(app) and len(log(app)) == len(stored) + 2
        assert len(app.projector().fetch("SELECT * FROM parcels_now_1")) == 2
        positions = [event.position or 0 for event in log(app)]
        assert positions == sorted(positions)


@contextmanager
def _two_stores(database: str, folder: Path) -> Generator[tuple[str, str]]:
    if database == "sqlite":
        (folder / "restored").mkdir()
        yield f"sqlite:///{folder}/settled.db", f"sqlite:///{folder}/restored/settled.db"
        return
    with PostgresServer() as one, PostgresServer() as other:
        yield one.url(), other.url()


def _dump_and_restore(before: str, after: str) -> None:
    """Write everything as SQL, views too, and run that where nothing is yet."""
    if before.startswith("sqlite"):
        old, new = sqlite_path(before), sqlite_path(after)
        for behind in ("", ".views"):
            with (
                closing(sqlite3.connect(f"{old}{behind}")) as source,
                closing(sqlite3.connect(f"{new}{behind}")) as target,
            ):
                target.executescript("\n".join(source.iterdump()))
        return
    programs = find_binaries(for_others=False)
    dumping = [str(programs / "pg_dump"), before]
    dump = subprocess.run(dumping, check=True, capture_output=True)
    restoring = [str(programs / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", after]
    subprocess.run(restoring, input=dump.stdout, check=True, stdout=subprocess.DEVNULL)


def test_read_case_07_a_thousand_refunds_are_rebuilt(app: App, store_url: str) -> None:
    """Where nothing that acts can be imported: no request, no intent, not a single event."""
    seed(app.journal, 1_400)
    app.projector().catch_up(OperationsProjection())
    before, end = content(app, 1), last_position_of_all(app)
    (succeeded,) = app.projector().fetch(
        "SELECT count(*) AS n FROM operations_1 WHERE state = 'succeeded'"
    )
    assert succeeded["n"] >= 1_000
    with process(store_url, "without-providers") as alone:
        out, said = alone.communicate(timeout=PATIENCE_SECONDS)
        assert (alone.returncode, out) == (0, "2 rebuilt\nnone can be imported\n"), said
    assert content(app, 2) == before
    assert last_position_of_all(app) == end


def last_position_of_all(app: App) -> int:
    return app.journal.read(0, 100_000).events[-1].position or 0


class Asking:
    """The stores of views, which count how often somebody wants to lead."""

    def __init__(self, views: Any) -> None:
        self._views = views
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        store = name in ("reading", "changing")
        return getattr(self._views.of() if store else self._views, name)

    def of(self, schema: str = "") -> Any:
        return self

    def lead(self, name: str) -> Any:
        self.asked += 1
        return self._views.of().lead(name)


def test_read_case_09_a_killed_leader_is_followed_within_a_second(
    app: App, store_url: str, tmp_path: Path
) -> None:
    """Counted in the follower's own looks, of which there are five a second."""
    command = [sys.executable, "-m", "settled", "projections", "run", "operations", "--json"]
    with subprocess.Popen(
        [*command, "--url", store_url],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as leader:
        try:
            until(lambda: not is_free(app.projector().views.of(), "operations"))
            views: Any = Asking(app.projector().views)
            heard = Heard()
            follower = Runner(
                Projector(app.journal, app.ledger.mapper, views), [OperationsProjection()], heard
            )
            with _on_a_thread(follower):
                until(lambda: views.asked > 2)
                assert "projection_led" not in heard
                leader.kill()
                leader.wait(PATIENCE_SECONDS)
                asked = views.asked
                until(lambda: "projection_led" in heard)
                assert (views.asked - asked) * runner.FOLLOW_SECONDS <= 1.0
                seed(app.journal, 3)
                end = last_position_of_all(app)
                until(lambda: app.projector().position(OperationsProjection()) == end)
        finally:
            leader.kill()


def test_read_case_09_two_leaders_survive_a_failover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server stops without a word, and is back: one leads again, and nothing counts twice."""
    monkeypatch.setenv("SETTLED_STATE_DIR", str(tmp_path / "state"))
    assert runner.PAUSE_SECONDS + runner.FOLLOW_SECONDS <= 1.0
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer())
        one = stack.enter_context(settled.open(server.url(), migrate=True, require_fsync=False))
        other = stack.enter_context(settled.open(server.url(), require_fsync=False))
        first = stack.enter_context(running(one, Counted()))
        parcel = begin(one, "parcel-1")
        until(lambda: one.projector().position(Counted()) == last_position(one))
        second = stack.enter_context(running(other, Counted()))
        scan(one, parcel, "Lyon")
        server.stop("immediate")
        until(lambda: "projection_interrupted" in first)
        server.start()
        until(lambda: _scanned(one, parcel))
        end = last_position(one)
        until(lambda: one.projector().position(Counted()) == end)
        assert counts(one) == once_each(one)
        led = [event for event, _ in [*first.said, *second.said]].count("projection_led")
        assert led >= 2, "somebody has led before, and somebody afterwards"


def _scanned(app: App, parcel: Any) -> bool:
    try:
        scan(app, parcel, "Metz")
    except StoreUnavailable:
        return False
    return True


@contextmanager
def _on_a_thread(followed: Runner) -> Generator[None]:
    thread = threading.Thread(target=followed.run)
    thread.start()
    try:
        yield
    finally:
        followed.stop()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


class RefundParams(Params):
    """A refund of part of an order."""

    order: str
    amount: Money


REFUND = settled.Kind(
    "refund",
    RefundParams,
    label="Refund {amount} for {order}",
    provider=settled.HttpProvider(
        "https://psp.example/v1/refunds", contract=presets.stripe_v1_refund
    ),
    hand_over_to="payments-oncall",
)


def test_read_case_10_two_tenants_with_one_id(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same id and words: a row for each in every view, and nobody reads the other's."""
    monkeypatch.setenv("SETTLED_STATE_DIR", str(tmp_path / "state"))
    tenants = ("acme", "globex")
    with settled.open(store_url, kinds=[REFUND], migrate=True, require_fsync=False) as app:
        for tenant in tenants:
            params = RefundParams(order="order-72", amount=Money("30.00", "USD"))
            by = Principal(tenant, "support-agent")
            app.operations.intend(REFUND, "refund-request-9", params, by=by)
        for projection in (OperationsProjection(), Receipts()):
            app.projector().catch_up(projection)
            rebuilt(app, store_url, projection)
        view = app.views.operations
        for tenant in tenants:
            identity = Identity(tenant, "refund", "refund-request-9")
            (line,) = view.find("order-72", tenant)
            assert line.identity == view.get(identity).identity == identity
            assert [(count.tenant, count.number) for count in view.counts(tenant)] == [(tenant, 1)]
        assert len(view.find("order-72", None)) == 2
        with app.projector().store(Receipts()).reading() as rows:
            found = rows.fetch("SELECT tenant, operation_id FROM receipts_2 ORDER BY tenant")
        assert found == [{"tenant": t, "operation_id": "refund-request-9"} for t in tenants]


class Posted(Event):
    """It was posted; in the first version of its schema the place was called a town."""

    TOPIC: ClassVar[str] = "letter.Posted"
    SCHEMA_VERSION: ClassVar[int] = 2
    place: str

    @classmethod
    def upcast(cls, fields: dict[str, Any], version: int) -> dict[str, Any]:
        return {"place": fields["town"]}

    def apply(self, letter: Letter) -> None:
        letter.places = (*letter.places, self.place)


class Begun(Event):
    """Somebody wrote it."""

    TOPIC: ClassVar[str] = "letter.Begun"
    tenant: str
    identity: str

    def apply(self, letter: Letter) -> None:
        letter.tenant, letter.kind, letter.identity = self.tenant, "letter", self.identity
        letter.places = ()


class Letter(StateMachine):
    """What is posted again and again."""

    TOPIC = "letter"
    EVENTS = (Begun, Posted)
    LIFECYCLE = Lifecycle(
        "letter",
        states=[State("written", "Somewhere.", settled=True)],
        arrows=[Arrow((ABSENT,), "Begun", "written"), Arrow(("written",), "Posted", None)],
    )
    places: tuple[str, ...]

    def next_due(self) -> None:
        return None


@dataclass(frozen=True)
class Places:
    """Where letters were posted."""

    version: int = 1
    name: str = "places"
    topics: tuple[str, ...] = ("letter.Posted",)

    def tables(self, dialect: str) -> Sequence[str]:
        return [f"CREATE TABLE places_{self.version} (position bigint PRIMARY KEY, place text)"]

    def in_version(self, version: int) -> Places:
        return replace(self, version=version)

    def contents(self) -> Mapping[str, str]:
        return {"places": f"SELECT place FROM places_{self.version}"}

    def apply(self, event: Event, record: RecordedEvent, rows: Rows) -> None:
        assert isinstance(event, Posted)
        rows.execute(
            f"INSERT INTO places_{self.version} VALUES (:position, :place)"
            " ON CONFLICT (position) DO NOTHING",
            position=record.position,
            place=event.place,
        )


def test_read_case_11_old_and_new_events_look_the_same(app: App, store_url: str) -> None:
    """Loaded, filtered by topic, folded and rebuilt: nobody sees how an event was once written."""
    stream = settled.stream_id("acme", "letter", "letter", "letter-1")
    stamp = app.ledger.stamp("postman")
    app.ledger.begin(Letter.begin(Begun, stream, stamp, tenant="acme", identity="letter-1"))
    _post(app, stream, "Lyon", schema_version=1, state=b'{"town":"Lyon"}')
    _post(app, stream, "Metz")
    letter = app.ledger.load("acme", stream)
    assert isinstance(letter, Letter) and letter.places == ("Lyon", "Metz")
    app.projector().catch_up(Places())
    expected = [{"place": "Lyon"}, {"place": "Metz"}]
    assert app.projector().fetch("SELECT place FROM places_1 ORDER BY position") == expected
    assert rebuilt(app, store_url, Places()).differences == ()
    assert app.projector().fetch("SELECT place FROM places_2 ORDER BY position") == expected


def _post(app: App, stream: Any, place: str, **columns: Any) -> None:
    """Post the letter, as code with these columns would have recorded it."""
    letter = app.ledger.load("acme", stream)
    assert letter is not None
    letter.record(Posted, app.ledger.stamp("postman"), place=place)
    unit = app.ledger.unit(letter)
    (change,) = unit.changes
    records = tuple(replace(record, **columns) for record in change.events)
    answer = app.ledger.append(replace(unit, changes=(replace(change, events=records),)))
    assert isinstance(answer, Committed)
