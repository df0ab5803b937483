"""Replay: what today's code makes of what is stored, answered from records alone.

`historical` folds every stream and names those that today's code refuses or reads differently;
`what_if` decides one operation's history again, with the evidence that was recorded. Neither has a
provider to ask: the first makes none, the second gets a contract and nothing else.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn
from uuid import UUID

from settled.domain.contract.vocabulary import ProviderContract
from settled.domain.errors import NotPossible
from settled.domain.identity import Identity
from settled.domain.journal.mapper import READER, EventMapper
from settled.domain.journal.port import AgendaRow, Journal
from settled.domain.journal.unit import Head, RecordedEvent, is_purged
from settled.domain.kind import Kind
from settled.domain.kinds import Kinds
from settled.domain.machine.event import TOPICS
from settled.domain.machine.machine import StateMachine
from settled.domain.operation.deciding_again import Decision, decided_again, fold
from settled.domain.operation.operation import Operation
from settled.domain.provider import Call, Finding, Lookup, Provider, SealedRequest
from settled.domain.purges import Purges as Purges  # imported, it declares its events
from settled.domain.run.run import Run as Run  # imported, it declares its events
from settled.processes.ledger import head_of
from settled.processes.unserved import EVER

PAGE = 200
"""How many streams are read at once."""

SHOWN = 1_000
"""How many oddities a report holds; all are counted."""


class Odd(enum.StrEnum):
    """What is wrong with a stream, as today's code sees it."""

    UNKNOWN_TOPIC = "unknown_topic"
    """No class is declared for an event: a kind or machine that this code does not know."""
    TOO_NEW = "too_new"
    """An event was written by newer code."""
    NOT_UPCAST = "not_upcast"
    """An older event cannot be brought to today's schema."""
    UNREADABLE = "unreadable"
    """An event of today's schema cannot be read or folded."""
    REFUSED = "refused"
    """The lifecycle, or a guard of it, does not let an event happen that happened."""
    HEAD_DIFFERS = "head_differs"
    """The agenda says something else than the fold: its state, when it is due, its version."""
    HEAD_MISSING = "head_missing"
    """The log has a stream that the agenda does not have: nothing would ever look at it."""


@dataclass(frozen=True, slots=True)
class Oddity:
    """One stream that today's code refuses or reads differently; `version` where it is an event."""

    odd: Odd
    tenant: str
    kind: str
    identity: str
    stream: UUID
    version: int | None
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a replay of the whole store found. `oddities` are the first thousand of `odd_count`."""

    streams: int
    events: int
    odd_count: int
    oddities: tuple[Oddity, ...]


Tell = Callable[[int, int], None]
"""Hears how many streams and events were folded so far."""


def historical(
    journal: Journal, mapper: EventMapper, tell: Tell = lambda streams, events: None
) -> Report:
    """Fold every stream of the store through today's code, a page of streams at a time.

    It may run while others write: a stream is compared with the agenda at the version of its row.
    """
    streams = events = found = 0
    shown: list[Oddity] = []
    for rows in _pages(journal):
        stored = journal.streams([(row.tenant, row.stream) for row in rows])
        for row in rows:
            records = stored.get(row.stream, [])
            events += len(records)
            for oddity in _oddities(journal, mapper, row, records):
                found += 1
                shown += [oddity] if found <= SHOWN else []
        streams += len(rows)
        tell(streams, events)
    for oddity in _without_head(journal, streams):
        found += 1
        shown += [oddity] if found <= SHOWN else []
    return Report(streams, events, found, tuple(shown))


def sampled(journal: Journal, mapper: EventMapper, most: int) -> Report:
    """Do the same with up to `most` of the streams that are open, spread over all lanes."""
    lanes = journal.open_lanes()
    each = max(1, most // max(1, len(lanes)))
    streams = events = 0
    found: list[Oddity] = []
    for lane in lanes[:most]:
        rows = journal.heads(lane.partition("/")[0], lane=lane, overdue_at=EVER, limit=each)
        stored = journal.streams([(row.tenant, row.stream) for row in rows])
        for row in rows:
            records = stored.get(row.stream, [])
            events += len(records)
            found += _oddities(journal, mapper, row, records)
        streams += len(rows)
    return Report(streams, events, len(found), tuple(found[:SHOWN]))


def _pages(journal: Journal) -> Iterator[list[AgendaRow]]:
    after: tuple[str, UUID] | None = None
    while rows := journal.heads(after=after, limit=PAGE):
        yield rows
        after = rows[-1].tenant, rows[-1].stream


def _oddities(
    journal: Journal, mapper: EventMapper, row: AgendaRow, records: Sequence[RecordedEvent]
) -> Iterator[Oddity]:
    folded = _Fold(mapper)
    head: Head | None = None
    for record in records:
        wrong = folded.take(record)
        if wrong is not None:
            odd, message = wrong
            yield _odd(odd, row, message, record.originator_version)
            return
        if record.originator_version == row.version:
            head = folded.head()
    last = records[-1].originator_version if records else 0
    if last > row.version:
        # Somebody may have appended since the row was read; if so, it has gone on by now.
        now = journal.head(row.tenant, row.stream)
        last = row.version if now is not None and now.version >= last else last
    if last != row.version:
        message = f"the agenda has version {row.version}, and the log ends at {last}"
        yield _odd(Odd.HEAD_DIFFERS, row, message)
    elif head is None:
        yield _odd(Odd.UNREADABLE, row, f"it cannot be said when it is due: {folded.failed}")
    else:
        differing = [
            f"{name} is {was} in the agenda, and {is_} by the fold"
            for name, was, is_ in _compared(row, head)
            if was != is_
        ]
        if differing:
            yield _odd(Odd.HEAD_DIFFERS, row, "; ".join(differing), row.version)


def _compared(row: AgendaRow, head: Head) -> Iterator[tuple[str, Any, Any]]:
    """Yield what the agenda has from the events alone: owner, takes and gates it has not."""
    for name in ("kind", "identity", "state", "due_at", "lane", "priority"):
        yield name, getattr(row, name), getattr(head, name)


def _odd(odd: Odd, row: AgendaRow, message: str, version: int | None = None) -> Oddity:
    return Oddity(odd, row.tenant, row.kind, row.identity, row.stream, version, message)


def _without_head(journal: Journal, heads: int) -> Iterator[Oddity]:
    """Find streams of the log that the agenda has lost.

    Each stream has one first event, which is its Purged once it was purged, so counting those is
    enough while nothing is lost; only where the log has more is the agenda asked stream by stream.
    """
    if sum(1 for _ in _first_events(journal)) <= heads:
        return
    for record in _first_events(journal):
        if journal.head(record.tenant, record.stream) is None:
            message = "the log has this stream, and the agenda does not"
            kind, identity = record.topic.rpartition(".")[0], str(record.stream)
            yield Oddity(
                Odd.HEAD_MISSING, record.tenant, kind, identity, record.stream, None, message
            )


def _first_events(journal: Journal) -> Iterator[RecordedEvent]:
    after, more = 0, True
    while more:
        page = journal.read(after, 10 * PAGE)
        yield from (
            event
            for event in page.events
            if event.originator_version == 1 or is_purged(event.topic)
        )
        more, after = page.more, page.upto


class _Fold:
    """Folds a stream event by event, and says what it was that could not be folded."""

    def __init__(self, mapper: EventMapper) -> None:
        self._mapper = mapper
        self.machine: StateMachine | None = None
        self.failed: Exception | None = None

    def take(self, record: RecordedEvent) -> tuple[Odd, str] | None:
        """Fold one more event; returns what is wrong with it, or None."""
        known = TOPICS.get(record.topic)
        if known is None:
            return Odd.UNKNOWN_TOPIC, f"{record.topic} is not declared here"
        if record.min_reader > READER or record.schema_version > known.SCHEMA_VERSION:
            return Odd.TOO_NEW, (
                f"{record.topic} has schema {record.schema_version} and needs reader"
                f" {record.min_reader}; this code has {known.SCHEMA_VERSION} and {READER}"
            )
        try:
            event = self._mapper.to_domain_event(record)
        except Exception as error:
            if record.schema_version < known.SCHEMA_VERSION:
                return Odd.NOT_UPCAST, f"{record.topic}, schema {record.schema_version}: {error}"
            return Odd.UNREADABLE, f"{record.topic}: {error}"
        try:
            self._guarded(known.NAME)
            self.machine = event.mutate(self.machine)
        except NotPossible as error:
            return Odd.REFUSED, f"{known.NAME}: {error.message}"
        except Exception as error:
            return Odd.UNREADABLE, f"{record.topic}: {type(error).__name__}: {error}"
        return None

    def _guarded(self, name: str) -> None:
        """Ask the guard as well that a command would have asked."""
        if self.machine is None:
            return
        step = self.machine.LIFECYCLE.step(self.machine.state, name)
        if step.guard is not None:
            getattr(self.machine, step.guard)()

    def head(self) -> Head | None:
        """Return the agenda row that the events so far ask for; None where that fails."""
        assert self.machine is not None, "an event was folded"
        try:
            return head_of(self.machine)
        except Exception as error:
            self.failed = error
            return None


@dataclass(frozen=True)
class RecordsOnly:
    """A provider that has its name and contract, and can be asked for nothing else."""

    of: Provider

    @property
    def name(self) -> str:
        """The provider's name."""
        return self.of.name

    @property
    def contract(self) -> ProviderContract:
        """What the provider promises."""
        return self.of.contract

    def seal(self, identity: Identity, key: str, params: Any, secret: bytes) -> SealedRequest:
        """Refuse: a replay makes no request."""
        self._refuse("make a request for")

    async def send(self, call: Call) -> Finding:
        """Refuse: a replay sends nothing."""
        self._refuse("send to")

    async def look_up(self, lookup: Lookup) -> Finding:
        """Refuse: a replay answers from records."""
        self._refuse("ask")

    def _refuse(self, what: str) -> NoReturn:
        raise NotPossible(
            f"A replay does not {what} {self.name}.", hint="It answers from what is recorded."
        )


def from_records(kind: Kind[Any]) -> Kind[Any]:
    """Return a kind whose provider answers nothing: what a replay works with."""
    return replace(kind, provider=RecordsOnly(kind.provider))


def what_if(
    records: Sequence[RecordedEvent], mapper: EventMapper, kinds: Kinds
) -> tuple[Operation, list[Decision]]:
    """Decide an operation's history again: today's code, today's contract, recorded evidence.

    Returns the operation and its decisions. Raises UnknownKind where its kind is not declared, or
    stands for another provider now, and what a fold raises for what cannot be read.
    """
    events = [mapper.to_domain_event(record) for record in records]
    operation = fold(events)
    kind = from_records(kinds.serving(operation))
    return operation, decided_again(events, kind)
