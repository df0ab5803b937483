"""`settled doctor`: what does not move, what nobody knows, and whether the agenda is the log's."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

import settled
from settled.doctor import behind
from settled.domain.journal.port import Diagnosis
from settled.infrastructure.journal.opening import is_sqlite, open_journal, sqlite_path
from settled.infrastructure.journal.postgres.address import Address
from settled.infrastructure.testing.journal_units import eventually
from settled.projections.operations import OperationsProjection
from settled.projections.status import ProjectionStatus
from tests.cli.runner import SHOP, CommandLine

REFUND = '{"order": "order-72", "amount": {"amount": "30.00", "currency": "USD"}}'


def findings(document: dict[str, Any], subject: str) -> list[tuple[str, str]]:
    found = document["findings"]
    return [(one["severity"], one["message"]) for one in found if one["subject"] == subject]


def execute(url: str, sql: str) -> None:
    """Run SQL behind the store's back."""
    if is_sqlite(url):
        with closing(sqlite3.connect(sqlite_path(url), isolation_level=None)) as file:
            file.execute(sql)
        return
    with closing(Address.of(url).connect({})) as server:
        server.execute(sql.encode())


@pytest.fixture
def begun(settled_: CommandLine) -> CommandLine:
    """A store with two refunds that nobody has worked on."""
    for number in (1, 2):
        assert settled_("ops", "intend", "refund", f"refund-{number}", REFUND).code == 0
    return settled_


@pytest.fixture
def other(begun: CommandLine) -> str:
    """Newer code, which has dropped the refund and knows e-mails alone."""
    return f"{SHOP}:email"


def test_a_store_that_is_well(begun: CommandLine) -> None:
    """Everything is compared, nothing is wrong, and what is open is listed with who has it."""
    with begun.worker("--name", "one"):
        begun.until("refund-2", lambda row: row.state == "succeeded")
        begun.until("refund-1", lambda row: row.state == "succeeded")
        assert begun("ops", "propose", "refund", "refund-3", REFUND).code == 0
        document = begun("doctor", "--full", "--json").document
        assert (document["full"], document["agenda"]["streams"]) == (True, 3)
        assert document["agenda"]["odd_count"] == 0
        (waiting,) = document["waiting"]
        assert waiting["named"] == ["acme/refund/refund-3"] and waiting["by"] == ["one"]
        assert waiting["states"] == {"proposed": 1}
        assert not [one for one in document["findings"] if one["severity"] == "fail"]
        told = begun("doctor")
    assert told.code == 0
    assert f"1 stream of {waiting['route']}, served by one" in told.out
    assert "a sample of 1 stream agree with the log" in told.out


@pytest.mark.parametrize("how", [(), ("--full",)], ids=["sample", "full"])
def test_an_agenda_that_is_not_the_logs(begun: CommandLine, how: tuple[str, ...]) -> None:
    """A row that somebody has written: its stream would be looked at too late, or never."""
    execute(begun.url, "UPDATE agenda SET state = 'claimed' WHERE identity = 'refund-1'")
    done = begun("doctor", "--json", *how)
    assert done.code == 1
    ((severity, message),) = findings(done.document, "agenda")
    assert severity == "fail"
    assert message.startswith("acme/refund/refund-1, event 1: state is claimed in the agenda")


def test_a_stream_that_the_agenda_has_lost(begun: CommandLine) -> None:
    """Only a look at all of the log finds it."""
    execute(begun.url, "DELETE FROM agenda WHERE identity = 'refund-1'")
    assert begun("doctor", "--json").code == 0
    done = begun("doctor", "--json", "--full")
    assert done.code == 1
    ((_, message),) = findings(done.document, "agenda")
    assert "the agenda does not" in message


def test_work_that_nobody_knows(begun: CommandLine, other: str) -> None:
    """It is named by doctor and refused at the start, until somebody says that others have it."""
    (waiting,) = begun("doctor", "--json").document["waiting"]
    route = waiting["route"]
    done = begun("doctor", "--kinds", other, "--json")
    assert (done.code, done.document["kinds_not_declared"]) == (1, [route])
    ((severity, message),) = findings(done.document, "kind")
    assert severity == "fail"
    assert f"Nobody serves {route} (acme/refund/refund-1, acme/refund/refund-2)" in message

    refused = begun("worker", "--kinds", other, "--json")
    assert (refused.code, refused.error["name"]) == (2, "UnknownKind")
    assert route in refused.error["message"] and "acme/refund/refund-1" in refused.error["message"]
    with begun.worker("--kinds", other, "--leave-to-others", "--name", "other") as process:
        assert begun("doctor", "--kinds", other, "--json").code == 1
        process.terminate()
        process.wait(30)
        assert process.stderr is not None and "left_for_others" in process.stderr.read()
    assert begun.effects == []


def test_work_that_a_running_worker_knows(begun: CommandLine, other: str) -> None:
    """A rolling deployment is no fault: what old workers serve, new code need not know."""
    assert begun("ops", "intend", "hang", "hang-1", '{"to": "ada@acme.example"}').code == 0
    with begun.worker("--name", "old", "--drain-seconds", "0"):
        done = begun("doctor", "--kinds", other, "--json")
        assert (done.code, findings(done.document, "kind")) == (0, [])
        assert done.document["kinds_not_declared"] != []
        with begun.worker("--kinds", other, "--name", "new"):
            workers = begun("doctor", "--json").document["workers"]
            assert {row["name"] for row in workers} == {"old", "new"}
            (new,) = [row for row in workers if row["name"] == "new"]
            assert [route for route in new["serves"] if "@" in route] == ["email@1/smtp"]


def test_what_still_needs_a_version(begun: CommandLine) -> None:
    """Asked with no code at all: old code can go when nothing is listed any more."""
    done = begun("doctor", "--retiring", "refund@1", "--json", SETTLED_KINDS="")
    assert done.code == 1
    (waiting,) = done.document["by"]
    assert waiting["named"] == ["acme/refund/refund-1", "acme/refund/refund-2"]
    assert (waiting["states"], done.document["workers"]) == ({"ready": 2}, [])
    told = begun("doctor", "--retiring", "refund@1", SETTLED_KINDS="")
    assert told.code == 1 and "2 ready: acme/refund/refund-1, acme/refund/refund-2" in told.out
    assert begun("doctor", "--retiring", "refund@2", SETTLED_KINDS="").code == 0
    with begun.worker("--name", "one"):
        for number in (1, 2):
            begun.until(f"refund-{number}", lambda row: row.state == "succeeded")
        done = begun("doctor", "--retiring", "refund@1", SETTLED_KINDS="")
        assert done.code == 0
        assert "worker  one serves refund@1" in done.out and "it can be retired" in done.out


def test_a_version_that_is_none(begun: CommandLine) -> None:
    """A typing error must not look like an all-clear."""
    refused = begun("doctor", "--retiring", "refund", "--json")
    assert (refused.code, refused.error["name"]) == (2, "InvalidInput")


def test_a_contract_that_leaves_everything_to_people(begun: CommandLine) -> None:
    """Known before it happens: every lost reply of these will be somebody's work."""
    found = findings(begun("doctor", "--json").document, "contract")
    assert all(severity == "warn" for severity, _ in found)
    assert any("A lost reply of email@1" in message for _, message in found), found
    assert any("leaves open" in message for _, message in found)


def test_a_lease_that_ran_out(begun: CommandLine) -> None:
    """What a worker had that is gone waits for somebody to take it over."""
    with closing(open_journal(begun.url, require_fsync=False)) as journal:
        (waiting,) = begun("doctor", "--json").document["waiting"]
        member, committer = journal.enrol("gone", 60.0), journal.committer()
        rows = committer.claim(epoch=member.epoch, kinds=[waiting["route"]], want=1, reader=1)
        assert len(rows) == 1
        execute(begun.url, ENDED[is_sqlite(begun.url)])
        eventually(lambda: any(row.lapsed for row in journal.workers()))
        found = findings(begun("doctor", "--json").document, "lease")
        assert [message.split(" (")[0] for _, message in found] == ["gone"]
        committer.close()


ENDED = {
    True: "UPDATE worker SET lease_until = 0",
    False: "UPDATE worker SET lease_until = clock_timestamp()",
}
"""Ends every lease, by whether the store is SQLite."""


def test_projections_are_looked_at_where_there_are_any(begun: CommandLine) -> None:
    """And looking makes no store of views."""
    assert begun("doctor", "--json").document["projections"] == []
    if is_sqlite(begun.url):
        assert not (begun.folder / "settled.db.views").exists()
    with settled.open(begun.url, migrate=False) as app:
        app.projector().catch_up(OperationsProjection())
    (view,) = begun("doctor", "--json").document["projections"]
    assert (view["name"], view["state"], view["behind"]) == ("operations", "live", 0)


def standing(**fields: Any) -> ProjectionStatus:
    """Return where a projection stands that is well but for these fields."""
    well: dict[str, Any] = {
        **{
            "name": "operations",
            "schema": "",
            "version": 1,
            "fold": 1,
            "state": "live",
            "position": 90,
        },
        **{"settled": 100, "behind": 10, "lag_seconds": 59.0, "parked": 0},
        **{"error": None, "error_position": None, "error_at": None},
    }
    return ProjectionStatus(**{**well, **fields})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),
        ({"lag_seconds": 61.0}, ["operations 1 is 10 events behind, 61 s."]),
        ({"state": "building", "lag_seconds": 600.0}, []),
        (
            {"state": "stopped", "error": "ValueError: x"},
            ["operations 1 is stopped: ValueError: x."],
        ),
        ({"state": "yielded"}, ["operations 1 is yielded."]),
        ({"state": "parked"}, ["operations 1 is parked."]),
    ],
)
def test_a_projection_that_somebody_waits_for(fields: dict[str, Any], expected: list[str]) -> None:
    """What stands still or lags is found; what is just catching up or being built is not."""
    found = list(behind([standing(**fields)]))
    assert found == [Diagnosis("warn", "projection", message) for message in expected]
