"""What is open and which code it waits for: the routes of the agenda beside those that are served.

Work of a version that no code knows any more would stay where it is for ever, in silence. So a
worker refuses to start over it, each worker names it while it runs, and doctor lists it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from settled.domain.errors import UnknownKind
from settled.domain.journal.port import AgendaRow, Journal, WorkerRow
from settled.domain.route import Route, serves

SHOWN = 5
"""How many operations of a route are named."""

_PAGE = 500
_COUNTED = 1_000
EVER = datetime(9999, 1, 1, tzinfo=UTC)
"""Whatever is open is due before this."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is open on one route: how much in which state, and the first few by name.

    `by` are the names of running workers that serve it.
    """

    route: str
    kind: str
    version: int | None
    provider: str
    states: dict[str, int]
    named: tuple[str, ...]
    by: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many streams are open."""
        return sum(self.states.values())

    def __str__(self) -> str:
        """Return it in words, as errors and logs name it."""
        more = f" and {self.count - len(self.named)} more" if self.count > len(self.named) else ""
        return f"{self.route} ({', '.join(self.named)}{more})"


def waiting(journal: Journal) -> list[Waiting]:
    """Return all that is open, by route. Of a route a thousand are counted."""
    return _waiting(journal, journal.open_lanes(), most=_COUNTED)


def waiting_for(journal: Journal, kind: str, version: int) -> list[Waiting]:
    """Return what is open under one version of a kind, by provider: all of it is counted."""
    wanted = (kind, version)
    lanes = [(lane, Route.of_lane(lane)) for lane in journal.open_lanes()]
    return _waiting(journal, [lane for lane, at in lanes if (at.kind, at.version) == wanted])


def unserved_lanes(journal: Journal, served: Collection[str]) -> list[str]:
    """Return the lanes with open work that neither `served` nor a running worker leads to.

    Cheap, however much is open: no row of the agenda is counted.
    """
    known = {*served, *(route for row in _running(journal) for route in row.serves)}
    return [lane for lane in journal.open_lanes() if not serves(lane, known)]


def unserved(journal: Journal, served: Collection[str]) -> list[Waiting]:
    """Return what is open in those lanes, by route. Of a route a thousand are counted."""
    return _waiting(journal, unserved_lanes(journal, served), most=_COUNTED)


def must_be_served(journal: Journal, served: Collection[str]) -> None:
    """Raise UnknownKind where something is open that neither this code nor a worker knows."""
    if alone := unserved(journal, served):
        raise UnknownKind(
            "Work is open that neither this code nor any running worker serves: "
            + "; ".join(map(str, alone))
            + ".",
            hint="Declare these kinds in these versions here, or start the workers that have them"
            " first. Leave it to them with --leave-to-others (leave_to_others=True).",
        )


def open_rows(journal: Journal, lane: str, page: int = _PAGE) -> Iterator[AgendaRow]:
    """Yield the open rows of a lane, a page at a time."""
    tenant = lane.partition("/")[0]
    after = None
    while rows := journal.heads(tenant, lane=lane, overdue_at=EVER, after=after, limit=page):
        yield from rows
        after = rows[-1].tenant, rows[-1].stream


def _running(journal: Journal) -> list[WorkerRow]:
    return [row for row in journal.workers() if not row.lapsed]


def _waiting(journal: Journal, lanes: Sequence[str], most: int | None = None) -> list[Waiting]:
    by_route: dict[Route, list[str]] = {}
    for lane in lanes:
        by_route.setdefault(Route.of_lane(lane), []).append(lane)
    running = _running(journal)
    found: list[Waiting] = []
    for route, its_lanes in sorted(by_route.items(), key=lambda one: str(one[0])):
        states: Counter[str] = Counter()
        named: list[str] = []
        rows = (row for lane in its_lanes for row in open_rows(journal, lane, most or _PAGE))
        for row in islice(rows, most):
            states[row.state] += 1
            if len(named) < SHOWN:
                named.append(f"{row.tenant}/{row.kind}/{row.identity}")
        by = tuple(row.name for row in running if serves(its_lanes[0], row.serves))
        if states:  # it may have been settled since its lane was found
            found.append(
                Waiting(
                    str(route),
                    route.kind,
                    route.version,
                    route.provider,
                    dict(states),
                    tuple(named),
                    by,
                )
            )
    return found
