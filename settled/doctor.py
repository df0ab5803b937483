"""What doctor looks at: the store, what is open and for which code, the agenda, the views.

It reads, and changes nothing. A finding is a `Diagnosis`: "fail" where commits can be lost, effects
doubled or work left alone for ever; "warn" where somebody should look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from settled.domain.answers import blocked_by_unknowns
from settled.domain.journal.mapper import EventMapper
from settled.domain.journal.port import AgendaRow, Diagnosis, Journal, WorkerRow
from settled.domain.keys import DerivedKeys
from settled.domain.kind import Kind
from settled.domain.kinds import Kinds
from settled.domain.machine.event import machine_kinds
from settled.domain.run.kind import RunKind
from settled.infrastructure.views.opening import has_views, open_views
from settled.processes.replay import Odd, Report, historical, sampled
from settled.processes.unserved import Waiting, waiting
from settled.projections.projector import Projector
from settled.projections.status import ProjectionStatus, statuses

SAMPLE = 500
"""How many open streams are compared with the agenda, unless all are to be."""

OVERDUE_SECONDS = 5
"""What has been due for less than this is about to be looked at."""

BEHIND_SECONDS = 60
"""A projection that lags by less than this is about to catch up."""

SHOWN_ROWS = 100

_READ_ELSEWHERE = frozenset({Odd.UNKNOWN_TOPIC, Odd.TOO_NEW})
"""Streams that other code reads: nothing is wrong with them."""


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found. `waiting` is all that is open, `agenda` the comparison with the log.

    `kinds_not_declared` are the routes of `waiting` that the given kinds do not serve.
    """

    at: datetime
    dialect: str
    findings: tuple[Diagnosis, ...]
    workers: tuple[WorkerRow, ...]
    overdue: tuple[AgendaRow, ...]
    parked: tuple[AgendaRow, ...]
    waiting: tuple[Waiting, ...]
    kinds_not_declared: tuple[str, ...]
    agenda: Report
    full: bool
    projections: tuple[ProjectionStatus, ...]

    @property
    def failing(self) -> bool:
        """Whether something was found that must not stay as it is."""
        return any(finding.severity == "fail" for finding in self.findings)


def examine(
    url: str,
    journal: Journal,
    kinds: Iterable[Kind[Any]] | None,
    runs: Iterable[RunKind] = (),
    *,
    full: bool,
) -> Examination:
    """Look at a store. `kinds` and `runs` are those of the code that is asked about, where that is
    known; with them counts every state machine that was imported.
    """
    now = journal.time()
    declared = None if kinds is None else Kinds.of(kinds)
    mapper = EventMapper(DerivedKeys(journal.installation().secret))
    agenda = historical(journal, mapper) if full else sampled(journal, mapper, SAMPLE)
    late = now - timedelta(seconds=OVERDUE_SECONDS)
    workers = journal.workers()
    found = waiting(journal)
    served = served_by(declared, runs) if declared is not None else ()
    strange = [one for one in found if declared is not None and not _is_in(one, served)]
    views = _views(url, journal)
    findings = [
        *journal.examine(),
        *_left_behind(workers),
        *_alone(found, served if declared is not None else None),
        *_agenda(agenda),
        *behind(views),
        *(() if declared is None else _blocked(declared)),
    ]
    return Examination(
        at=now,
        dialect=journal.dialect,
        findings=tuple(findings),
        workers=tuple(workers),
        overdue=tuple(journal.heads(overdue_at=late, limit=SHOWN_ROWS)),
        parked=tuple(journal.heads(parked=True, limit=SHOWN_ROWS)),
        waiting=tuple(found),
        kinds_not_declared=tuple(one.route for one in strange),
        agenda=agenda,
        full=full,
        projections=tuple(views),
    )


def served_by(kinds: Kinds, runs: Iterable[RunKind]) -> tuple[str, ...]:
    """Return the routes that a worker of this code could serve."""
    return (*kinds.routes, *(run.name for run in runs), *machine_kinds())


def _is_in(one: Waiting, served: Iterable[str]) -> bool:
    return not {one.route, one.route.partition("/")[0]}.isdisjoint(served)


def _left_behind(workers: Iterable[WorkerRow]) -> Iterator[Diagnosis]:
    for row in workers:
        if row.lapsed:
            yield Diagnosis(
                "warn",
                "lease",
                f"{row.name} (epoch {row.epoch}) is gone, and what it had waits to be taken over.",
            )


def _alone(found: Iterable[Waiting], served: Iterable[str] | None) -> Iterator[Diagnosis]:
    """Name what no running worker serves and the given code does not know."""
    for one in found:
        if one.by or served is None:
            continue
        if not _is_in(one, served):
            yield Diagnosis(
                "fail",
                "kind",
                f"Nobody serves {one}: it is not declared in --kinds, and no worker runs that"
                " has it.",
            )


def _agenda(report: Report) -> Iterator[Diagnosis]:
    for oddity in report.oddities:
        elsewhere = oddity.odd in _READ_ELSEWHERE
        version = "" if oddity.version is None else f", event {oddity.version}"
        yield Diagnosis(
            "warn" if elsewhere else "fail",
            "stream" if elsewhere else "agenda",
            f"{oddity.tenant}/{oddity.kind}/{oddity.identity}{version}: {oddity.message}.",
        )


def _views(url: str, journal: Journal) -> list[ProjectionStatus]:
    if not has_views(url):
        return []
    mapper = EventMapper(DerivedKeys(journal.installation().secret))
    with closing(open_views(url)) as views:
        return statuses(Projector(journal, mapper, views))


def behind(views: Iterable[ProjectionStatus]) -> Iterator[Diagnosis]:
    """Name the projections that stand still, have set streams aside, or lag."""
    for one in views:
        name = f"{one.name} {one.version}"
        if one.state in ("stopped", "yielded", "parked"):
            error = f": {one.error}" if one.error else ""
            yield Diagnosis("warn", "projection", f"{name} is {one.state}{error}.")
        elif one.state == "live" and one.lag_seconds > BEHIND_SECONDS:
            yield Diagnosis(
                "warn",
                "projection",
                f"{name} is {one.behind} events behind, {one.lag_seconds:.0f} s.",
            )


def _blocked(kinds: Kinds) -> Iterator[Diagnosis]:
    """Name the contracts whose unknowns leave every lost reply to a person."""
    for kind in kinds.versions.values():
        if why := blocked_by_unknowns(kind):
            message = f"A lost reply of {kind.route} is always handed over: {why}."
            yield Diagnosis("warn", "contract", message)
