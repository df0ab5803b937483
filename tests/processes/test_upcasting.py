"""Events of several schema versions in one log: whoever reads it sees today's (LOG 6, 11).

The older events are written as the older releases wrote them, with their own hashes: nothing that
is stored is ever rewritten, so each reader has to turn them into what it knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pytest

import settled
from settled import (
    ABSENT,
    App,
    Arrow,
    Event,
    Lifecycle,
    RecordedEvent,
    Rows,
    State,
    StateMachine,
    StoreTooNew,
)
from settled.domain.journal.port import AgendaRow
from settled.domain.journal.unit import Committed, Unit
from settled.domain.kinds import Kinds
from settled.domain.operation import events as ev
from settled.infrastructure.audit.auditor import verify
from settled.infrastructure.journal.opening import open_journal
from settled.infrastructure.seeding import SeededRefund, seed
from settled.infrastructure.transfer.exporting import export
from settled.infrastructure.transfer.importing import import_copy
from settled.processes.replay import Odd, historical, what_if
from settled.projections.operations import OperationsProjection
from settled.projections.status import statuses
from tests.audit.raw import Intruder
from tests.processes.test_versions import rewritten
from tests.projections.test_rebuild import rebuilt
from tests.projections.test_why import kind

SEEDED = replace(kind(), params=SeededRefund)
STREAM = settled.stream_id("acme", "crate", "crate", "crate-1")


class Packed(Event):
    """A crate was packed."""

    TOPIC: ClassVar[str] = "test.crate.Packed"
    tenant: str
    identity: str


class Weighed(Event):
    """It was weighed. First in pounds; then in kilos, without a unit; now in grams, with a note."""

    TOPIC: ClassVar[str] = "test.crate.Weighed"
    SCHEMA_VERSION: ClassVar[int] = 3
    BODY: ClassVar[frozenset[str]] = frozenset({"note"})
    grams: int
    note: str | None = None

    @classmethod
    def upcast(cls, fields: dict[str, Any], version: int) -> dict[str, Any]:
        """Take each step from the stored version on."""
        if version < 2:
            fields = {"kilos": fields["pounds"] * 0.5}
        if version < 3:
            fields = {"grams": round(fields["kilos"] * 1000)}
        return fields

    def apply(self, crate: Crate) -> None:
        crate.grams += (self.grams,)


class Shipped(Event):
    """It has left."""

    TOPIC: ClassVar[str] = "test.crate.Shipped"


class Crate(StateMachine):
    """What is weighed again and again."""

    TOPIC = "test.crate"
    EVENTS = (Packed, Weighed, Shipped)
    LIFECYCLE = Lifecycle(
        "crate",
        states=[State("packed", "Weighed now and then."), State("gone", "Away.", settled=True)],
        arrows=[
            Arrow((ABSENT,), "Packed", "packed"),
            Arrow(("packed",), "Weighed", None),
            Arrow(("packed",), "Shipped", "gone"),
        ],
    )

    def prepare(self) -> None:
        super().prepare()
        self.grams: tuple[int, ...] = ()

    def next_due(self) -> datetime | None:
        return None if self.settled else self.created_on + timedelta(days=30)


class Weights:
    """What each crate weighed last, folded from classes and from fields alone."""

    version, topics = 1, ("test.crate.Weighed",)

    def __init__(self, name: str = "weights", version: int = 1) -> None:
        self.name, self.version = name, version

    def tables(self, dialect: str) -> Sequence[str]:
        """Return one table."""
        sql = "CREATE TABLE {} (stream text PRIMARY KEY, grams bigint NOT NULL)"
        return [sql.format(f"{self.name}_{self.version}")]

    def in_version(self, version: int) -> Weights:
        """Return it with tables of another version."""
        return Weights(self.name, version)

    def contents(self) -> dict[str, str]:
        """Return what a rebuild compares."""
        return {self.name: f"SELECT stream, grams FROM {self.name}_{self.version}"}

    def apply(self, event: Any, record: RecordedEvent, rows: Rows) -> None:
        """Fold one event."""
        rows.execute(
            f"INSERT INTO {self.name}_{self.version} VALUES (:stream, :grams)"
            " ON CONFLICT (stream) DO UPDATE SET grams = :grams",
            stream=str(record.stream),
            grams=event.grams,
        )


def appended(app: App, unit: Unit) -> None:
    assert isinstance(app.ledger.append(unit), Committed)


def weigh(app: App, **columns: Any) -> None:
    """Record a weight as some release did: `columns` are what it stored in place of ours."""
    crate = app.ledger.load("acme", STREAM)
    assert isinstance(crate, Crate)
    crate.record(Weighed, app.ledger.stamp("scales"), grams=7_000, note="fragile")
    appended(app, rewritten(app.ledger.unit(crate), **columns))


BEFORE = {"body": None, "body_digest": None}
"""The first two versions had no note."""


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    """A log with events of all three versions, as three releases wrote them."""
    with settled.open(store_url, migrate=True, require_fsync=False) as opened:
        stamp = opened.ledger.stamp("packer")
        crate = Crate.begin(Packed, STREAM, stamp, tenant="acme", identity="crate-1")
        opened.ledger.begin(crate)
        weigh(opened, schema_version=1, state=b'{"pounds":4}', **BEFORE)
        weigh(opened, schema_version=2, state=b'{"kilos":5}', **BEFORE)
        weigh(opened)
        yield opened


def test_a_stream_is_loaded_under_todays_schema(app: App) -> None:
    """One step after the other, from whichever version is stored."""
    crate = app.ledger.load("acme", STREAM)
    assert isinstance(crate, Crate)
    assert crate.grams == (2_000, 5_000, 7_000)
    assert [record.schema_version for record in app.journal.events("acme", STREAM)] == [1, 1, 2, 3]


def test_it_goes_on_under_todays_schema(app: App) -> None:
    """New events stand behind old ones on one chain."""
    weigh(app)
    assert app.ledger.load("acme", STREAM).grams[-2:] == (7_000, 7_000)  # type: ignore[union-attr]
    assert historical(app.journal, app.ledger.mapper).odd_count == 0


def test_hashes_cover_what_is_stored(app: App, store_url: str) -> None:
    """The audit knows nothing of schemas: what was written once stays provable."""
    report = verify(app.journal, store_url)
    assert (report.breaches, report.events) == ((), 4)


def test_a_projection_and_its_rebuild_see_todays_schema(app: App, store_url: str) -> None:
    """Whoever folds later folds the same."""
    projector, weights = app.projector(), Weights()
    assert projector.catch_up(weights) == 4
    sql = "SELECT grams FROM weights_{}"
    assert projector.fetch(sql.format(1)) == [{"grams": 7_000}]

    done = rebuilt(app, store_url, weights)
    assert (done.version, done.differences) == (2, ())
    assert projector.fetch(sql.format(2)) == [{"grams": 7_000}]


def test_a_copy_holds_what_was_stored(app: App, store_url: str, tmp_path: Path) -> None:
    """It is exported and imported as it is, and upcast there as it is here."""
    path, url = tmp_path / "all.jsonl", f"sqlite:///{tmp_path / 'copy.db'}"
    export(app.journal, store_url, path)
    with closing(open_journal(url, migrate=True)) as copy:
        import_copy(copy, url, path)
        assert list(copy.read(0, 99).events) == list(app.journal.read(0, 99).events)
        assert historical(copy, app.ledger.mapper).odd_count == 0
        crate = app.ledger.mapper.fold(copy.events("acme", STREAM))
    assert isinstance(crate, Crate) and crate.grams == (2_000, 5_000, 7_000)


def test_a_step_that_is_missing_is_named(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay is what a release is tried with before it is let at a store."""

    def only_from_the_second(fields: dict[str, Any], version: int) -> dict[str, Any]:
        return {"grams": round(fields["kilos"] * 1000)}

    monkeypatch.setattr(Weighed, "upcast", only_from_the_second)
    (odd,) = historical(app.journal, app.ledger.mapper).oddities
    assert (odd.odd, odd.version) == (Odd.NOT_UPCAST, 2)


def test_a_reader_stops_in_front_of_a_version_that_it_does_not_have(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LOG 6, 11: it yields in front of the event, parks nothing, and goes on when it is newer."""
    weigh(app, schema_version=4)
    projector, weights = app.projector(), Weights()
    with pytest.raises(StoreTooNew, match="Event 5 of stream"):
        projector.catch_up(weights)
    (status,) = statuses(projector)
    assert (status.state, status.parked, status.position) == ("yielded", 0, 4)
    with pytest.raises(StoreTooNew):
        app.ledger.load("acme", STREAM)
    (odd,) = historical(app.journal, app.ledger.mapper).oddities
    assert (odd.odd, odd.version) == (Odd.TOO_NEW, 5)
    monkeypatch.setattr(Weighed, "SCHEMA_VERSION", 4)
    assert projector.catch_up(weights) == 5


def test_operations_of_before_are_read_as_todays(app: App, store_url: str) -> None:
    """The operations view, replay and what-if take a renamed field for what it is now."""
    seed(app.journal, 40)
    rows = [row for row in app.journal.heads(limit=99) if row.kind == "refund"]
    expected = all_that_is_read(app, rows)

    rename = "UPDATE events SET schema_version = 0, state = ? WHERE stream = ? AND version = ?"
    intruder, renamed = Intruder(store_url), 0
    for row in rows:
        for event in app.journal.events(row.tenant, row.stream):
            if event.topic == ev.Succeeded.TOPIC:
                fields = orjson.loads(event.state)
                fields["because"] = fields.pop("rule")
                intruder(rename, orjson.dumps(fields), row.stream, event.originator_version)
                renamed += 1
    assert renamed

    def upcast(fields: dict[str, Any], version: int) -> dict[str, Any]:
        return {**{k: v for k, v in fields.items() if k != "because"}, "rule": fields["because"]}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ev.Succeeded, "upcast", upcast)
        assert all_that_is_read(app, rows) == expected
        done = rebuilt(app, store_url, OperationsProjection())
        assert done.differences == ()


def all_that_is_read(app: App, rows: Sequence[AgendaRow]) -> list[Any]:
    """Return what the view, a replay and a what-if make of the store."""
    projector, mapper = app.projector(), app.ledger.mapper
    declared = OperationsProjection()
    projector.catch_up(declared)
    assert historical(app.journal, mapper).odd_count == 0
    kinds = Kinds.of([SEEDED])
    decided = [what_if(app.journal.events(r.tenant, r.stream), mapper, kinds)[1] for r in rows]
    shown = [projector.fetch(sql) for sql in declared.contents().values()]
    return [decided, [sorted(map(repr, some)) for some in shown]]
