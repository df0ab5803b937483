"""The projector on both databases: nothing passed by, nothing applied twice, whoever dies.

A view that misses an event, or counts one twice, is wrong for good and nobody sees it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import psycopg
import pytest

from settled import App, DeclarationError, Event, Projector, RecordedEvent, Rows, StoreTooNew
from settled.domain.journal.port import Journal, Page
from settled.domain.journal.unit import Committed
from settled.infrastructure.views.postgres import placed
from settled.projections.projection import LoggedEvent
from settled.projections.reading import LeanEvent, fields_of, too_new
from settled.testing import (
    assert_idempotent,
    assert_pages_do_not_matter,
    assert_parts_make_the_whole,
)
from tests.projections.parcels import (
    PAGE,
    Counted,
    Delivered,
    Parcel,
    ParcelsNow,
    Scanned,
    begin,
    deliver,
    scan,
)

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 30.0
PLACES = ("Lyon", "Metz", "Brest", "Nice", "Lille", "Paris", "Tours")


@contextmanager
def runner(url: str, what: str) -> Generator[subprocess.Popen[str]]:
    """A runner in a process of its own that waits to be let go."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.projections.runner", url, what],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def let_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def ended(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode


def counts(app: App) -> list[tuple[int, int]]:
    rows = app.projector().fetch("SELECT position, times FROM counted ORDER BY position")
    return [(row["position"], row["times"]) for row in rows]


def log(app: App) -> list[RecordedEvent]:
    return list(app.journal.read(0, 1000).events)


def last_position(app: App) -> int:
    return log(app)[-1].position or 0


def once_each(app: App) -> list[tuple[int | None, int]]:
    return [(record.position, 1) for record in log(app)]


def test_rows_follow_the_log(app: App) -> None:
    """What was folded stays; the next run goes on behind the last event considered."""
    projector, view = app.projector(), ParcelsNow()
    assert projector.position(view) == 0
    parcel = begin(app, "parcel-1")
    scan(app, parcel, "Lyon", "Metz")
    assert projector.catch_up(view) == projector.position(view) == last_position(app)
    ours = "SELECT place, delivered_at FROM parcels_now_1 WHERE tenant = :tenant"
    assert projector.fetch(ours, tenant="acme") == [{"place": "Metz", "delivered_at": None}]
    deliver(app, parcel)
    begin(app, "parcel-1", tenant="globex")
    assert projector.catch_up(view) == last_position(app)
    (row,) = projector.fetch(ours, tenant="acme")
    (at,) = [record.recorded_at for record in log(app) if record.topic == Delivered.TOPIC]
    assert row["delivered_at"] == (at if app.journal.dialect == "postgresql" else text(at))
    assert len(projector.fetch("SELECT * FROM parcels_now_1")) == 2
    assert projector.catch_up(view) == last_position(app)


def text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def test_a_page_bounds_what_one_run_considers(app: App) -> None:
    """A long log is folded in many short transactions, each with its own position."""
    scan(app, begin(app, "parcel-1"), *PLACES)
    positions = [record.position for record in log(app)]
    assert app.projector().run_once(Counted(), page=3) == positions[2]
    assert app.projector().run_once(Counted(), page=3) == positions[5]
    assert counts(app) == once_each(app)[:6]
    assert app.projector().catch_up(Counted(), page=1) == positions[-1]
    assert counts(app) == once_each(app)


def test_other_topics_are_considered_and_not_folded(app: App) -> None:
    """A projection moves past what does not concern it, and does not read it again."""
    scan(app, begin(app, "parcel-1"), "Lyon")
    nothing = Counted(topics=("letter.",))
    assert app.projector().catch_up(nothing) == last_position(app)
    assert counts(app) == []


def test_each_event_applied_again_leaves_the_same_rows(app: App) -> None:
    """The rule for every fold, by the kit's function, which must also be able to fail."""
    parcel = begin(app, "parcel-1")
    scan(app, parcel, "Lyon", "Metz")
    deliver(app, parcel)
    app.projector().catch_up(ParcelsNow())
    before = app.projector().fetch("SELECT * FROM parcels_now_1")
    assert_idempotent(app.projector(), ParcelsNow())
    assert app.projector().fetch("SELECT * FROM parcels_now_1") == before
    with pytest.raises(AssertionError, match=r"counted counts parcel\.Registered twice"):
        assert_idempotent(app.projector(), Counted())
    with pytest.raises(AssertionError, match="no event of"):
        assert_idempotent(app.projector(), Counted(topics=("letter.",)))


class Forgetful:
    """Folds pages, and only counts the first event of each: what the kit has to notice."""

    name, version, topics = "forgetful", 1, ("parcel.",)

    def tables(self, dialect: str) -> list[str]:
        return ["CREATE TABLE forgetful (position bigint PRIMARY KEY)"]

    def in_version(self, version: int) -> Forgetful:
        return self

    def in_part(self, part: int) -> Forgetful:
        return self

    def contents(self) -> dict[str, str]:
        return {"first": "SELECT * FROM forgetful"}

    def fold(self, events: Sequence[LoggedEvent], rows: Rows) -> None:
        sql = "INSERT INTO forgetful VALUES (:position) ON CONFLICT (position) DO NOTHING"
        rows.execute(sql, position=events[0].position)


def test_the_kit_notices_how_the_log_is_cut(app: App) -> None:
    """A fold that depends on its pages shows something else after each rebuild."""
    scan(app, begin(app, "parcel-1"), "Lyon", "Metz")
    scan(app, begin(app, "parcel-2"), "Lyon", "Metz")
    assert_idempotent(app.projector(), Forgetful())
    with pytest.raises(AssertionError, match="folds one page otherwise"):
        assert_pages_do_not_matter(app.projector(), Forgetful())
    with pytest.raises(AssertionError, match="in 5 parts is not"):
        assert_parts_make_the_whole(app.projector(), Forgetful(), parts=5)


class Renamed(Event):
    """An event whose field had another name in the first version of its schema."""

    TOPIC: ClassVar[str] = "test.Renamed"
    SCHEMA_VERSION: ClassVar[int] = 2
    place: str

    @classmethod
    def upcast(cls, fields: dict[str, Any], version: int) -> dict[str, Any]:
        return {"place": fields["town"]}


@pytest.mark.parametrize(("schema", "state"), [(1, b'{"town":"Lyon"}'), (2, b'{"place":"Lyon"}')])
def test_a_page_is_folded_from_todays_fields(schema: int, state: bytes) -> None:
    """LOG 6, 11: events of version 1 and 2 look the same to a fold that validates nothing."""
    at = datetime(2026, 11, 30, tzinfo=UTC)
    event = LeanEvent(1, "acme", UUID(int=1), 1, Renamed.TOPIC, schema, 1, at, state, b'{"x":1}')
    assert fields_of(event, frozenset()) == {"place": "Lyon"}
    assert too_new(event) is None
    assert too_new(event._replace(schema_version=3)) is not None
    assert too_new(event._replace(topic="test.Unheard")) is not None


def test_killed_between_the_rows_and_the_commit(app: App, store_url: str) -> None:
    """Rows and position are one transaction: a killed runner leaves neither, and none is lost."""
    scan(app, begin(app, "parcel-1"), *PLACES)
    with runner(store_url, "die") as process:
        let_go(process)
        assert ended(process) == -signal.SIGKILL
    assert app.projector().position(Counted()) == 0
    assert counts(app) == []
    app.projector().catch_up(Counted(), PAGE)
    assert counts(app) == once_each(app)


def test_killed_after_the_commit(app: App, store_url: str) -> None:
    """A page that is in is in with its position: whoever comes next begins behind it."""
    scan(app, begin(app, "parcel-1"), *PLACES)
    with runner(store_url, "die-after") as process:
        let_go(process)
        assert ended(process) == -signal.SIGKILL
    assert app.projector().position(Counted()) == log(app)[PAGE - 1].position
    assert counts(app) == once_each(app)[:PAGE]
    app.projector().catch_up(Counted(), PAGE)
    assert counts(app) == once_each(app)


def test_two_runners_at_once_apply_each_event_once(app: App, store_url: str) -> None:
    """Nobody has to take care that only one runs: two processes race over many pages."""
    for number in range(4):
        scan(app, begin(app, f"parcel-{number}"), *PLACES)
    with runner(store_url, "run") as first, runner(store_url, "run") as second:
        let_go(first)
        let_go(second)
        assert (ended(first), ended(second)) == (0, 0)
    assert counts(app) == once_each(app)
    assert app.projector().position(Counted()) == last_position(app)


class SaysWhenRead:
    """A journal that tells when a page was read from it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.was_read = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def read(self, after: int, limit: int) -> Page:
        page = self._journal.read(after, limit)
        self.was_read.set()
        return page


def test_the_second_runner_on_one_page_applies_nothing(app: App) -> None:
    """The race itself: both have read the position and the page before one of them commits."""
    scan(app, begin(app, "parcel-1"), *PLACES)
    first = app.projector()
    first.run_once(Counted(), page=1)
    journal: Any = SaysWhenRead(app.journal)
    reached: list[int] = []
    second = threading.Thread(
        target=lambda: reached.append(Projector(journal, first.mapper, first.views).run_once(view))
    )
    view = Counted()

    class Overlapped(Counted):
        def apply(self, event: Event, record: RecordedEvent, rows: Rows) -> None:
            super().apply(event, record, rows)
            if not second.is_alive():
                second.start()
                assert journal.was_read.wait(PATIENCE_SECONDS)

    assert first.run_once(Overlapped(), page=5) == log(app)[5].position
    second.join(PATIENCE_SECONDS)
    assert reached == [log(app)[5].position]
    assert counts(app) == once_each(app)[:6]


def test_an_event_that_is_committed_late_is_not_passed_by(app: App, store_url: str) -> None:
    """A writer that drew its position early commits after others: its event is folded all the same.

    On SQLite nobody else can write meanwhile; on PostgreSQL a later position is there already.
    """
    first = begin(app, "parcel-1")
    app.projector().catch_up(Counted())
    with own_transaction(store_url, app) as (connection, commit):
        slow = begin(app, "parcel-slow", connection=connection)
        if app.journal.dialect == "postgresql":
            scan(app, first, "Lyon")
        app.projector().catch_up(Counted())
        assert len(counts(app)) == 1
        commit()
    scan(app, slow, "Metz")
    app.projector().catch_up(Counted())
    assert counts(app) == once_each(app)
    assert [record.topic for record in log(app)].count("parcel.Registered") == 2


@contextmanager
def own_transaction(url: str, app: App) -> Generator[tuple[Any, Any]]:
    """A transaction of a service of its own, with what commits it."""
    if app.journal.dialect == "postgresql":
        with psycopg.connect(url) as joined:
            yield joined, joined.commit
        return
    import sqlite3

    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        yield connection, connection.commit
    finally:
        connection.close()


def test_each_version_has_its_own_position(app: App) -> None:
    """The next version of a projection is filled from the start, beside the one in use."""
    scan(app, begin(app, "parcel-1"), "Lyon")
    app.projector().catch_up(ParcelsNow())
    second = ParcelsNow(version=2)
    assert app.projector().position(second) == 0
    assert app.projector().run_once(second, page=1) == log(app)[0].position
    assert app.projector().position(ParcelsNow()) == last_position(app)
    app.projector().catch_up(second)
    old, new = (app.projector().fetch(f"SELECT * FROM parcels_now_{n}") for n in (1, 2))
    assert old == new != []


@pytest.mark.parametrize(
    "newer", [{"topic": "parcel.Teleported"}, {"min_reader": 99}, {"schema_version": 2}]
)
def test_an_event_newer_than_this_code_stops_the_projection(
    app: App, newer: dict[str, Any]
) -> None:
    """Old code cannot know what it would pass by: what is before is kept, and then it says so."""
    parcel = begin(app, "parcel-1")
    scan(app, parcel, "Lyon")
    commit_as(app, parcel, **newer)
    begin(app, "parcel-2")
    before = log(app)
    for _ in range(2):
        with pytest.raises(StoreTooNew, match="not known to this code"):
            app.projector().catch_up(Counted())
        assert app.projector().position(Counted()) == before[1].position
        assert counts(app) == once_each(app)[:2]
    assert log(app) == before
    # It concerns only those who fold such events.
    assert app.projector().catch_up(ParcelsNow(topics=("letter.",))) == last_position(app)


def commit_as(app: App, parcel: Parcel, **columns: Any) -> None:
    """Scan a parcel as other code would record it."""
    machine = app.ledger.load(parcel.tenant, parcel.id)
    assert machine is not None
    machine.record(Scanned, app.ledger.stamp("sorter"), place="Metz")
    unit = app.ledger.unit(machine)
    (change,) = unit.changes
    records = tuple(replace(record, **columns) for record in change.events)
    answer = app.ledger.append(replace(unit, changes=(replace(change, events=records),)))
    assert isinstance(answer, Committed)


class Choosy(Counted):
    """Fails at one place."""

    def apply(self, event: Event, record: RecordedEvent, rows: Rows) -> None:
        super().apply(event, record, rows)
        if isinstance(event, Scanned) and event.place == "Metz":
            raise ValueError("Metz has no rows")


def test_a_fold_that_fails_stops_in_front_of_the_event(app: App) -> None:
    """What is before it is applied and nothing of it, and the note says where to look."""
    parcel = begin(app, "parcel-1")
    scan(app, parcel, "Lyon", "Metz")
    with pytest.raises(ValueError, match="Metz has no rows") as caught:
        app.projector().catch_up(Choosy())
    (note,) = caught.value.__notes__
    assert "counted 1" in note and "parcel.Scanned" in note and str(parcel.id) in note
    assert app.projector().position(Choosy()) == log(app)[1].position
    assert counts(app) == once_each(app)[:2]
    app.projector().catch_up(Counted())
    assert counts(app) == once_each(app)


class Odd(Counted):
    """With a statement that is wrong."""

    def apply(self, event: Event, record: RecordedEvent, rows: Rows) -> None:
        rows.execute("UPDATE nowhere SET place = :place", place="Lyon")


def test_a_wrong_statement_or_name_is_said_to_be_one(app: App) -> None:
    """Who wrote the projection needs the statement, not advice about the journal's tables."""
    begin(app, "parcel-1")
    with pytest.raises(DeclarationError, match="UPDATE nowhere"):
        app.projector().catch_up(Odd())
    with pytest.raises(DeclarationError, match="place"):
        app.projector().fetch("SELECT :place AS place", other="Lyon")
    for wrong in (Counted(name="Parcels now"), Counted(version=0), Counted(name="")):
        with pytest.raises(DeclarationError, match="no projection's name"):
            app.projector().catch_up(wrong)


def test_values_of_every_type_are_kept(app: App) -> None:
    """One fold serves both databases, so both have to take the same values."""
    at = datetime(2026, 11, 30, 15, 3, 9, tzinfo=timezone(timedelta(hours=1)))
    given: dict[str, Any] = {"t": "50 % of 'a:b'", "n": 7, "none": None, "b": b"\0\xff"}
    projector = app.projector()
    sqlite = projector.views.dialect == "sqlite"
    moment, name = ("text", "text") if sqlite else ("timestamptz", "uuid")
    blob = "blob" if sqlite else "bytea"
    with projector.views.of().changing() as rows:
        rows.execute(
            f"CREATE TABLE v (t text, n integer, none text, b {blob}, at {moment}, id {name})"
        )
        changed = rows.execute(
            "INSERT INTO v VALUES (:t, :n, :none, :b, :at, :id)", **given, at=at, id=UUID(int=7)
        )
        assert changed == 1
    (row,) = projector.fetch("SELECT *, '10 % :n' AS kept FROM v WHERE n = :n", n=7)
    assert {name: row[name] for name in given} == given
    assert row["kept"] == "10 % :n"
    assert row["at"] == (text(at) if sqlite else at)
    assert row["id"] == (str(UUID(int=7)) if sqlite else UUID(int=7))


def test_what_was_not_committed_is_not_there(app: App) -> None:
    """A transaction of the store of views is all or nothing."""
    views = app.projector().views.of()
    with views.changing() as rows:
        rows.execute("CREATE TABLE v (n integer)")
    with pytest.raises(KeyError), views.changing() as rows:
        rows.execute("INSERT INTO v VALUES (:n)", n=1)
        raise KeyError
    with views.reading() as rows:
        assert rows.fetch("SELECT n FROM v") == []


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a = :a AND b=:b_2", "a = %(a)s AND b=%(b_2)s"),
        ("a::text = ':no' || \":no\" -- :no\n:a", "a::text = ':no' || \":no\" -- :no\n%(a)s"),
        ("'it''s :no' LIKE '%' % :a", "'it''s :no' LIKE '%%' %% %(a)s"),
    ],
)
def test_placeholders_are_found_where_they_are_some(sql: str, expected: str) -> None:
    """Quotes, comments and casts are no placeholders, and a percent sign stays one."""
    assert placed(sql).decode() == expected
