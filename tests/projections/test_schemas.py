"""Views in schemas of their own: whoever reads, drops, rebuilds or forgets one leaves the others.

What an accountant may read must not open what operators see, and what one view forgets must not be
gone from another one, nor from the log.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

import settled
from settled import App, DeclarationError, Event, InvalidInput, RecordedEvent, Rows
from settled.domain.errors import NotPossible, StoreUnavailable
from settled.domain.operation.events import Dispatching
from settled.infrastructure.journal.opening import sqlite_path
from settled.infrastructure.seeding import seed
from settled.infrastructure.views.building import opened_projector
from settled.infrastructure.views.opening import open_views
from settled.projections import register
from settled.projections.operations import OperationsProjection
from settled.projections.projection import Projecting
from settled.projections.status import statuses
from settled.testing import assert_forgets_alike, assert_idempotent, assert_pages_do_not_matter
from settled.verify.receipts import Receipts
from tests.projections.test_projector import log
from tests.projections.test_rebuild import rebuilt
from tests.projections.test_runner import running, until

OPERATIONS = 40


@pytest.fixture
def role(postgres_url: str) -> Generator[str]:
    """A role that may nothing yet, dropped with all that it was given."""
    name = f"settled_test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name}".encode())
        try:
            yield name
        finally:
            for statement in ("DROP OWNED BY {role}", "DROP ROLE {role}"):
                give(postgres_url, statement, name)


@pytest.fixture
def on_postgres(postgres_url: str) -> Generator[App]:
    """An application on PostgreSQL, for what only roles can show."""
    with settled.open(postgres_url, migrate=True, require_fsync=False) as opened:
        yield opened


def acting_as(role: str, url: str) -> str:
    """The URL under which a session has the rights of this role, and no others."""
    return f"{url}{'&' if '?' in url else '?'}options={quote(f'-c role={role}')}"


def give(url: str, statement: str, role: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(statement.format(role=role).encode())


def fold_both(app: App) -> None:
    seed(app.journal, OPERATIONS)
    for projection in (OperationsProjection(), Receipts()):
        app.projector().catch_up(projection)


def content(app: App, projection: Any) -> list[str]:
    """Everything in the tables of a projection, and where it stands, byte for byte."""
    with app.projector().store(projection).reading() as rows:
        found = [row for query in projection.contents().values() for row in rows.fetch(query)]
        return [*sorted(map(repr, found)), repr(register.standing(rows, projection))]


def receipts(app: App, version: int = 1) -> list[dict[str, Any]]:
    with app.projector().store(Receipts()).reading() as rows:
        return rows.fetch(f"SELECT * FROM receipts_{version} ORDER BY received_at, stream")


def received(app: App) -> datetime:
    """When the receipt in the middle came."""
    found = [row["received_at"] for row in receipts(app) if row["received_at"] is not None]
    middle = found[len(found) // 2]
    return datetime.fromisoformat(middle) if isinstance(middle, str) else middle


def test_it_keeps_what_every_fold_has_to(app: App) -> None:
    """The checks that settled gives to those who write projections hold in any schema."""
    seed(app.journal, OPERATIONS)
    assert_idempotent(app.projector(), Receipts())
    assert_pages_do_not_matter(app.projector(), Receipts())


def test_each_has_its_tables_and_position_in_its_schema(app: App) -> None:
    """Rows and position commit together because they lie together, and nowhere else."""
    fold_both(app)
    assert app.projector().views.schemas() == ["", "accounts"]
    assert [(one.schema, one.name) for one in statuses(app.projector())] == [
        ("", "operations"),
        ("accounts", "receipts"),
    ]
    with pytest.raises(DeclarationError, match="receipts_1"):
        app.projector().fetch("SELECT * FROM receipts_1")
    with app.projector().store(Receipts()).reading() as rows:
        assert [one.name for one in register.standings(rows)] == ["receipts"]
        with pytest.raises(DeclarationError, match="operations_1"):
            rows.fetch("SELECT * FROM operations_1")


def test_a_role_reads_one_schema_and_no_other(
    on_postgres: App, postgres_url: str, role: str
) -> None:
    """A right to one view opens neither another one nor the events, also after a rebuild."""
    app = on_postgres
    fold_both(app)
    app.projector().views.of("accounts").let_read(role)
    assert rebuilt(app, postgres_url, Receipts()).version == 2
    with closing(open_views(acting_as(role, postgres_url))) as views:
        assert views.schemas() == ["accounts"]
        with views.of("accounts").reading() as rows:
            live = register.in_role(rows, "receipts", "live")
            assert live is not None and live.version == 2
            assert len(rows.fetch("SELECT * FROM receipts_2")) > OPERATIONS / 2
        for foreign in ("settled.events", "settled.agenda", "settled_views.operations_1"):
            with (
                pytest.raises(StoreUnavailable, match="permission denied"),
                views.of("accounts").reading() as rows,
            ):
                rows.fetch(f"SELECT * FROM {foreign}")
        with (
            pytest.raises(StoreUnavailable, match="permission denied"),
            views.of("accounts").changing() as rows,
        ):
            rows.execute("DELETE FROM receipts_2")
        with pytest.raises(StoreUnavailable, match="permission denied"):
            views.of()
    with pytest.raises(InvalidInput, match="no role nobody_at_all"):
        app.projector().views.of("accounts").let_read("nobody_at_all")


def test_a_role_runs_one_projection_and_no_other(
    on_postgres: App, postgres_url: str, role: str
) -> None:
    """Who runs a view needs to read the log and to write there, and no right to other views."""
    app = on_postgres
    fold_both(app)
    events = log(app)
    give(postgres_url, "DROP SCHEMA settled_views_accounts CASCADE", role)
    give(postgres_url, "CREATE SCHEMA settled_views_accounts AUTHORIZATION {role}", role)
    give(postgres_url, "GRANT USAGE ON SCHEMA settled TO {role}", role)
    give(postgres_url, "GRANT SELECT ON ALL TABLES IN SCHEMA settled TO {role}", role)
    with opened_projector(acting_as(role, postgres_url)) as projector:
        assert projector.catch_up(Receipts()) == events[-1].position
        with pytest.raises(StoreUnavailable, match="permission denied"):
            projector.catch_up(OperationsProjection())
        with (
            pytest.raises(StoreUnavailable, match="permission denied"),
            projector.store(Receipts()).changing() as rows,
        ):
            rows.execute("DELETE FROM settled.events")
    assert log(app) == events


def test_a_file_is_all_that_a_reader_needs(sqlite_url: str, tmp_path: Path) -> None:
    """SQLite has no roles: the file of one view, alone in a folder, tells that view and no more."""
    with settled.open(sqlite_url, migrate=True) as app:
        fold_both(app)
        with pytest.raises(NotPossible, match=r"no roles(.|\n)*settled\.db\.views_accounts,"):
            app.projector().views.of("accounts").let_read("accountant")
        rows = len(receipts(app))
    apart = tmp_path / "apart"
    apart.mkdir()
    shutil.copy(f"{sqlite_path(sqlite_url)}.views_accounts", apart / "settled.db.views_accounts")
    with closing(open_views(f"sqlite:///{apart}/settled.db")) as views:
        assert views.schemas() == ["accounts"]
        with views.of("accounts").reading() as read:
            assert len(read.fetch("SELECT * FROM receipts_1")) == rows
            tables = {row["name"] for row in read.fetch("SELECT name FROM sqlite_schema")}
    assert "receipts_1" in tables and not tables & {"events", "agenda", "operations_1"}


def test_dropped_and_rebuilt_it_disturbs_nobody(app: App, store_url: str) -> None:
    """LOG 6, 12: the other is byte-identical, and whoever waits for it is served meanwhile."""
    fold_both(app)
    before, mine = content(app, OperationsProjection()), content(app, Receipts())
    with app.projector().store(Receipts()).changing() as rows:
        rows.execute("DROP TABLE receipts_1")
        register.forget(rows, Receipts())
    assert content(app, OperationsProjection()) == before
    view = app.views.operations
    view.wait(log(app)[-1].position or 0, timeout_seconds=0)
    assert rebuilt(app, store_url, Receipts()).version == 1
    assert content(app, Receipts()) == mine
    assert content(app, OperationsProjection()) == before
    done = rebuilt(app, store_url, OperationsProjection())
    assert done.differences == () and content(app, Receipts()) == mine


@pytest.mark.parametrize(
    "together", [(OperationsProjection(), Receipts()), (Receipts(),), (OperationsProjection(),)]
)
def test_alone_or_several_in_one_process(app: App, together: tuple[Projecting, ...]) -> None:
    """One process for all views, or one for each: whichever runs keeps up, and the rest waits."""
    seed(app.journal, OPERATIONS)
    end = log(app)[-1].position
    with running(app, *together):
        for projection in together:
            until(lambda p=projection: app.projector().position(p) == end)  # type: ignore[misc]
    names = {one.name for one in statuses(app.projector())}
    assert names == {projection.name for projection in together}


@pytest.mark.parametrize("schema", ["Accounts", "../accounts", "a-b", "1st", "x" * 31, "a b"])
def test_what_is_no_schema_is_said_to_be_none(app: App, schema: str) -> None:
    """A schema becomes the name of a file: nothing may be made anywhere else, or by surprise."""
    with pytest.raises(DeclarationError, match="no schema of receipts"):
        app.projector().catch_up(Receipts(schema=schema))
    assert app.projector().views.schemas() == []


# What is kept for a while.


def test_each_forgets_by_its_own_rule(app: App, store_url: str) -> None:
    """Neither the log nor another view loses anything, and a rebuild brings nothing back."""
    fold_both(app)
    events, others = log(app), content(app, OperationsProjection())
    before = receipts(app)
    passing = Receipts(keep=app.journal.time() - received(app))
    gone = app.projector().forget(passing)
    left = receipts(app)
    assert 0 < gone == len(before) - len(left) and any(row["received_at"] for row in left)
    assert log(app) == events and content(app, OperationsProjection()) == others
    assert app.projector().forget(replace(passing, keep=timedelta(days=1))) == 0
    # Whoever rebuilds it under a longer time keeps no more than there is.
    done = rebuilt(app, store_url, replace(passing, keep=timedelta(days=1)))
    assert (done.version, done.differences) == (2, ())
    assert receipts(app, 2) == left
    assert app.projector().forget(OperationsProjection()) == 0
    assert content(app, OperationsProjection()) == others


def test_what_is_folded_late_is_forgotten_too(app: App, store_url: str) -> None:
    """A view that was behind while it forgot ends with the rows of one that was not."""
    seed(app.journal, OPERATIONS)
    projector = app.projector()
    projector.run_once(Receipts(), page=len(log(app)) // 2)
    projector.forget(Receipts(keep=timedelta()))
    projector.catch_up(Receipts())
    assert any(row["received_at"] for row in receipts(app))
    assert rebuilt(app, store_url, Receipts()).differences == ()
    assert receipts(app, 2) and not any(row["received_at"] for row in receipts(app, 2))


def test_a_runner_forgets(app: App) -> None:
    """Nobody has to remember to run anything else."""
    fold_both(app)
    with running(app, Receipts(keep=timedelta())):
        until(lambda: not any(row["received_at"] for row in receipts(app)))
    assert receipts(app)


@dataclass(frozen=True)
class Reviving(Receipts):
    """Makes its rows anew by a later event: what the kit has to notice."""

    name: str = "reviving"

    @property
    def table(self) -> str:
        return f"reviving_{self.version}"

    def apply(self, event: Event, record: RecordedEvent, rows: Rows) -> None:
        super().apply(event, record, rows)
        if isinstance(event, Dispatching):
            rows.execute(
                f"UPDATE {self.table} SET received_at = :at WHERE stream = :stream",
                at=record.recorded_at,
                stream=str(record.stream),
            )


def test_the_kit_notices_what_forgets_early(app: App) -> None:
    """A rule under which the moment of forgetting shows is one that a rebuild would betray."""
    seed(app.journal, OPERATIONS)
    assert_forgets_alike(app.projector(), Receipts())
    with pytest.raises(AssertionError, match="other rows when it forgets early"):
        assert_forgets_alike(app.projector(), Reviving())
