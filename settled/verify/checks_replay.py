"""A18: what is stored is replayed through today's code, and nothing is sent for it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from settled.domain.contract import ProviderContract, Retention
from settled.domain.journal.port import AgendaRow
from settled.domain.kind import Kind
from settled.domain.kinds import Kinds
from settled.domain.operation.deciding_again import Decision
from settled.domain.provider import Call, Finding, Lookup
from settled.infrastructure.journal.opening import is_sqlite, sqlite_path
from settled.infrastructure.journal.postgres.address import Address
from settled.infrastructure.testing.journal_units import eventually
from settled.processes.replay import Odd, RecordsOnly, historical, what_if
from settled.verify.check import check
from settled.verify.checks_fairness import commit, unit_of
from settled.verify.stage import Stage

STREAMS = {"soaked": 850, "soaked-lookup": 50, "soaked-resend": 50, "soaked-nothing": 50}
"""A thousand streams, by the kind of their operations."""


@check("A18", "a thousand streams are replayed, and decided again")
def a18_a_replay_sends_nothing(stage: Stage) -> None:
    """0 requests, the same decisions; and what is changed on purpose is found, and nothing else."""
    _perform(stage)
    before = len(stage.simulator.log().requests)
    mapper = stage.app.ledger.mapper
    report = historical(stage.app.journal, mapper)
    assert report.streams == sum(STREAMS.values()), report.streams
    assert not report.oddities, report.oddities
    told = _command(stage, 0)
    assert (told["same"], told["events"]) == (True, report.events), told

    decisions = _decisions(stage, Kinds.of(map(_watched, stage.app.kinds.versions.values())))
    assert len(decisions) > report.streams, f"only {len(decisions)} decisions"
    assert sum("OutcomeUnknown" in d.recorded[0] for d in decisions) > 50, "hardly any was unknown"
    differing = [decision for decision in decisions if decision.differs]
    assert not differing, differing[:3]

    _changed_on_purpose(stage)
    assert len(stage.simulator.log().requests) == before, "a replay has asked the provider"


def _perform(stage: Stage) -> None:
    """Have a thousand operations performed at a provider that loses, fails and refuses."""
    stage.simulator.fault(reply="close", times=60)
    stage.simulator.fault(execute=False, status=429, times=40)
    stage.simulator.fault(status=500, times=40)
    names = ((kind, number) for kind, many in STREAMS.items() for number in range(many))
    commit(stage, (unit_of(stage, "acme", f"{kind}-{number}", kind) for kind, number in names))
    stage.crew()
    active = ("ready", "claimed", "dispatching", "accepted", "outcome_unknown")
    eventually(lambda: not stage.app.journal.heads(states=active, limit=1), seconds=120)
    stage.end_workers()


def _decisions(stage: Stage, kinds: Kinds) -> list[Decision]:
    found: list[Decision] = []
    for row in _rows(stage):
        records = stage.app.journal.events(row.tenant, row.stream)
        found += what_if(records, stage.app.ledger.mapper, kinds)[1]
    return found


def _rows(stage: Stage) -> list[AgendaRow]:
    return stage.app.journal.heads(limit=sum(STREAMS.values()) + 1)


class _Watched(RecordsOnly):
    """A provider that ends the check when it is asked for anything."""

    async def send(self, call: Call) -> Finding:
        """Fail the check."""
        raise AssertionError("a replay has sent something")

    async def look_up(self, lookup: Lookup) -> Finding:
        """Fail the check."""
        raise AssertionError("a replay has asked something")


def _watched(kind: Kind[Any]) -> Kind[Any]:
    return replace(kind, provider=_Watched(kind.provider))


def _changed_on_purpose(stage: Stage) -> None:
    """A contract that promises less now, and a row of the agenda that somebody has written."""
    kind = stage.app.kinds["soaked-resend"]
    contract = replace(kind.provider.contract, retention=Retention())
    forgetful = replace(kind, provider=_Promising(kind.provider, contract))
    unknown = [row for row in _rows(stage) if row.kind == kind.name and _was_unknown(stage, row)]
    assert unknown, "none of them was ever unknown"
    for row in unknown:
        records = stage.app.journal.events(row.tenant, row.stream)
        _, decisions = what_if(records, stage.app.ledger.mapper, Kinds.of([forgetful]))
        assert any("HandedOver" in d.today[-1] for d in decisions if d.differs), decisions

    stage.strike("a row of the agenda written by hand")
    changed = _rows(stage)[0]
    _write(stage, changed.identity)
    report = historical(stage.app.journal, stage.app.ledger.mapper)
    found = [(one.odd, one.identity) for one in report.oddities]
    assert found == [(Odd.HEAD_DIFFERS, changed.identity)], found
    told = _command(stage, 1)
    assert [one["identity"] for one in told["oddities"]] == [changed.identity], told


@dataclass(frozen=True)
class _Promising(RecordsOnly):
    """A provider with another contract than it had."""

    promised: ProviderContract

    @property
    def contract(self) -> ProviderContract:
        """What it promises now."""
        return self.promised


def _was_unknown(stage: Stage, row: AgendaRow) -> bool:
    records = stage.app.journal.events(row.tenant, row.stream)
    return any(record.topic.endswith(".OutcomeUnknown") for record in records)


def _write(stage: Stage, operation_id: str) -> None:
    """Write the agenda behind the store's back."""
    sql = "UPDATE agenda SET state = 'proposed' WHERE identity = {}"
    if is_sqlite(stage.url):
        with closing(sqlite3.connect(sqlite_path(stage.url), isolation_level=None)) as file:
            file.execute(sql.format("?"), (operation_id,))
        return
    with closing(Address.of(stage.url).connect({})) as server:
        server.execute(sql.format("%s").encode(), (operation_id,))


def _command(stage: Stage, code: int) -> dict[str, Any]:
    """Replay on the command line, where no kind is declared and so no provider is made."""
    environment = stage.environment()
    del environment["SETTLED_KINDS"]
    done = subprocess.run(
        [sys.executable, "-m", "settled", "replay", "--historical", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=stage.folder,
    )
    assert done.returncode == code, f"the exit code is {done.returncode}: {done.stderr}"
    told: dict[str, Any] = json.loads(done.stdout)
    return told
