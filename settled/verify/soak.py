"""A29, and `settled verify --soak`: many operations, and everything goes wrong at random meanwhile.

It ends when every operation is settled or in somebody's hands. Then each of them is compared with
what the provider saw and holds.
"""

from __future__ import annotations

import select
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from settled import HistoryEntry, Identity, Kind
from settled.domain.journal.port import AgendaRow
from settled.domain.journal.unit import RecordedEvent
from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.simulator.record import SimulatorLog
from settled.projections.history import history_of
from settled.verify.chaos import Chaos
from settled.verify.invariant import check_invariant
from settled.verify.service import Named, Service
from settled.verify.stage import OPERATOR, Stage

TENANT = "acme"
KINDS = (
    *("soaked", "soaked", "soaked", "soaked"),
    *("soaked-resend", "soaked-lookup", "soaked-nothing"),
)
"""Contracts in the proportions in which they are drawn: most providers offer a key."""

HELPLESS = "soaked-nothing"
"""The kind whose provider offers neither key nor look-up: whatever is lost goes to a person."""

_RESENDS_NO_MORE = (
    "duplicate, window open",
    "rejected, effect possible, window open",
    "in progress, window open, waited long enough",
)
UNHELPED = {
    "soaked": (),
    "soaked-lookup": (),
    "soaked-resend": _RESENDS_NO_MORE,
}
"""By which rules other kinds may be handed over before their attempts or their time are used up.

These answers say that a resend will not help, and this provider cannot be asked what is true.
"""

FEW = 10
"""Of less operations of a kind than this, all may have met something that ends with a person."""

OPEN = ("ready", "claimed", "dispatching", "accepted", "outcome_unknown")
NO_EFFECT = ("failed", "expired", "cancelled")
ENDS = ("succeeded", "handed_over", *NO_EFFECT)
ROOM = 1_000
"""How many operations are in flight at once."""

LOOK_SECONDS = 0.25
TURN_SECONDS = 0.01
STALL_SECONDS = 120.0
"""How long nothing may end before it is said that it stands still."""

_PAGE = 2_000

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Figures:
    """What a soak has counted. Nothing of it is wrong by itself: see `expect_nothing_wrong`."""

    operations: int
    succeeded: int
    failed: int
    """Known not to have happened."""
    handed_over: int
    effects: int
    requests: int
    dispatches: int
    """Dispatching events."""
    unknowns: int
    """OutcomeUnknown events."""
    kills: int
    restarts: int
    faults: int
    """Kinds of misbehaviour that the provider was told, each for one to three requests."""
    unparked: int
    """Rows that were taken too often without progress, and given back by a person."""
    duplicates: int
    """Effects beyond the first of an operation."""
    lost: int
    """Operations that were begun and are not there, or succeeded without an effect."""
    untrue: int
    """Operations that were recorded as without effect and have one, or that were contradicted."""
    unaccounted: int
    """Effects of no operation that succeeded, or that somebody has been told of."""
    given_up: int
    """Operations handed over while what their provider offers was left to try."""
    barren: int
    """Kinds of which nothing succeeded, where more than a few were begun."""
    slowest_recovery_seconds: float
    """From the dispatch that nobody knew the outcome of to the end of that operation."""
    seconds: float

    def expect_nothing_wrong(self) -> None:
        """Raise AssertionError where an operation had an effect twice, or is not what it seems."""
        assert not self.duplicates, f"{self.duplicates} effects beyond the first of an operation"
        assert not self.lost, f"{self.lost} operations are lost, or have no effect and succeeded"
        assert not self.untrue, f"{self.untrue} operations are not what was recorded of them"
        assert not self.unaccounted, f"{self.unaccounted} effects that nobody has been told of"
        assert not self.given_up, f"{self.given_up} operations were handed over without need"
        assert not self.barren, f"{self.barren} kinds of which nothing succeeded"


def soak(
    stage: Stage, operations: int, *, restarts: bool, tell: Tell = lambda line: None
) -> Figures:
    """Run so many operations through chaos, and count.

    Raises AssertionError where nothing ends any more, and where the provider saw a request that
    was not recorded before.
    """
    began_at = elapsed_seconds()
    names = [(stage.chance.choice(KINDS), f"refund-{n}") for n in range(operations)]
    chaos = Chaos(stage, stage.crew_size, restarts)
    service = Service(stage, names, room=ROOM)
    try:
        unparked = _until_all_ended(stage, chaos, service, operations, tell)
    finally:
        service.stop()
    tell("every operation has ended; comparing each with what the provider saw")
    chaos.stop()
    log = stage.simulator.log()
    records = _by_stream(_events(stage))
    histories = {stream: history_of(found) for stream, found in records.items()}
    unsent = check_invariant(histories.values(), log.calls())
    figures = _count(stage, names, log, histories, chaos, unparked, began_at)
    assert figures.requests + sum(unsent) == figures.dispatches, (figures, unsent)
    return figures


def _until_all_ended(
    stage: Stage, chaos: Chaos, service: Service, operations: int, tell: Tell
) -> int:
    """Turn until every operation has ended; return how many rows had to be unparked."""
    begun = ended = unparked = 0
    look_at = moved_at = told_at = elapsed_seconds()
    while ended < operations:
        chaos.turn()
        select.select([], [], [], TURN_SECONDS)
        now = elapsed_seconds()
        if now < look_at:
            continue
        service.check()
        begun += service.count_begun()
        still_open = stage.app.journal.heads(TENANT, states=OPEN, limit=2 * ROOM)
        unparked += _unpark(stage, still_open)
        before, ended = ended, max(ended, begun - len(still_open))
        service.make_room(ended - before)
        moved_at = now if ended > before else moved_at
        look_at = now + LOOK_SECONDS
        if now - told_at > 1:
            told_at = now
            tell(
                f"{ended} of {operations} ended, {len(still_open)} open, {chaos.kills} kills,"
                f" {chaos.restarts} restarts"
            )
        if now - moved_at > STALL_SECONDS:
            left = Counter(row.state for row in still_open)
            raise AssertionError(f"nothing has ended for {STALL_SECONDS:g} s; open: {dict(left)}")
    return unparked


def _unpark(stage: Stage, rows: Iterable[AgendaRow]) -> int:
    """Do what a person does with rows that were taken too often: workers died there each time."""
    parked = [row for row in rows if row.parked_at is not None]
    for row in parked:
        identity = Identity(row.tenant, row.kind, row.identity)
        stage.app.operations.unpark(identity, by=OPERATOR)
    return len(parked)


def _events(stage: Stage) -> Iterator[RecordedEvent]:
    """Read the log to its end; nobody writes any more."""
    after = 0
    while events := stage.app.journal.read(after, _PAGE).events:
        yield from events
        after = events[-1].position or 0


def _by_stream(events: Iterable[RecordedEvent]) -> dict[UUID, list[RecordedEvent]]:
    streams: dict[UUID, list[RecordedEvent]] = defaultdict(list)
    for event in events:
        if event.tenant == TENANT:
            streams[event.stream].append(event)
    return streams


def _rows(stage: Stage) -> Iterator[AgendaRow]:
    after: tuple[str, UUID] | None = None
    while rows := stage.app.journal.heads(TENANT, after=after, limit=_PAGE):
        yield from rows
        after = (rows[-1].tenant, rows[-1].stream)


def _count(
    stage: Stage,
    names: Sequence[Named],
    log: SimulatorLog,
    histories: Mapping[UUID, Sequence[HistoryEntry]],
    chaos: Chaos,
    unparked: int,
    began_at: float,
) -> Figures:
    """Compare every operation with the effects that the provider holds for its order."""
    performed = Counter(str(effect.fields["order"]) for effect in log.effects)
    rows = list(_rows(stage))
    states = {row.identity: row.state for row in rows}
    by_state = Counter(states.values())
    assert set(by_state) <= set(ENDS), by_state
    events = Counter(entry.name for history in histories.values() for entry in history)
    missing = [name for _, name in names if name not in states]
    without = [n for n, state in states.items() if state == "succeeded" and not performed[n]]
    denied = [n for n, state in states.items() if state in NO_EFFECT and performed[n]]
    told_of = sum(performed[n] > 0 for n, state in states.items() if state == "handed_over")
    duplicates = sum(count - 1 for count in performed.values())
    settled = by_state["succeeded"] - len(without)
    return Figures(
        operations=len(states),
        succeeded=by_state["succeeded"],
        failed=sum(by_state[state] for state in NO_EFFECT),
        handed_over=by_state["handed_over"],
        effects=len(log.effects),
        requests=len(log.calls()),
        dispatches=events["Dispatching"],
        unknowns=events["OutcomeUnknown"],
        kills=chaos.kills,
        restarts=chaos.restarts,
        faults=chaos.faults,
        unparked=unparked,
        duplicates=duplicates,
        lost=len(missing) + len(without),
        untrue=len(denied) + sum(map(_contradicted, histories.values())),
        unaccounted=len(log.effects) - duplicates - len(denied) - settled - told_of,
        given_up=sum(given_up(stage.app.kinds[row.kind], histories[row.stream]) for row in rows),
        barren=_barren(rows),
        slowest_recovery_seconds=round(max(map(_recovery_seconds, histories.values())), 2),
        seconds=round(elapsed_seconds() - began_at, 1),
    )


def given_up(kind: Kind[Any], history: Sequence[HistoryEntry]) -> bool:
    """Tell whether an operation was handed over before all was tried that its provider offers."""
    handed = next((entry for entry in history if entry.name == "HandedOver"), None)
    if handed is None or kind.name == HELPLESS or handed.fields["rule"] in UNHELPED[kind.name]:
        return False
    sent = sum(entry.name == "Dispatching" for entry in history)
    return sent < kind.retry.attempts and handed.at - history[0].at < kind.within


def _contradicted(history: Sequence[HistoryEntry]) -> bool:
    """Tell whether evidence disagreed with how it was settled: here only settled settles."""
    return any(entry.name == "Contradicted" for entry in history)


def _barren(rows: Iterable[AgendaRow]) -> int:
    """Count the kinds of which more than a few operations were begun, and none succeeded."""
    states: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        states[row.kind][row.state] += 1
    return sum(of.total() >= FEW and not of["succeeded"] for of in states.values())


def _recovery_seconds(history: Sequence[HistoryEntry]) -> float:
    """Return how long it took from the dispatch whose outcome was lost first to the end."""
    dispatched_at = None
    for entry in history:
        if entry.name == "Dispatching":
            dispatched_at = entry.at
        elif entry.name == "OutcomeUnknown" and dispatched_at is not None:
            ends = [e.at for e in history if e.name in ("Succeeded", "Failed", "HandedOver")]
            return (ends[-1] - dispatched_at) / timedelta(seconds=1)
    return 0.0
