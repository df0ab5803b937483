"""Who is admitted and what the others are told: the part of a commit that no database decides.

A committer locks what a group of units touches, reads it, lets `judge` decide unit by unit, and
writes for the admitted ones alone. Nothing is written for a loser, so it burns no position. Both
databases use this one text, and that is why they mean the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from settled.domain.journal.unit import (
    PURGED,
    Answer,
    Busy,
    Change,
    Committed,
    Exists,
    GuardChange,
    Invalid,
    Lost,
    ReferenceTaken,
    Refused,
    Stale,
    Unit,
    is_purged,
)

MAX_EVENT_BYTES = 1 << 20
MAX_GROUP_BYTES = 8 << 20
MAX_TEXT_LENGTH = 2000
PRIORITIES = (0, 1, 2)
"""A claim probes each of them by itself, so there are few, and they are fixed."""

_MAX_SMALL = (1 << 15) - 1
_MAX_AMOUNT = 1 << 62
_ACTS = {"reserve": (1, 0), "recount": (1, 0), "release": (-1, 0), "consume": (-1, 1)}


@dataclass(slots=True)
class Seen:
    """One stream as the transaction sees it.

    `free` says that the transaction holds its row, or the right to create it. `events` are the
    (event id, position) pairs above the expected version, as many as the change would write.
    """

    free: bool
    version: int
    owner: int | None = None
    events: Sequence[tuple[UUID, int]] = ()


@dataclass(slots=True)
class Balance:
    """One guard row as the transaction sees it; `touched` once an admitted unit changes it."""

    free: bool
    ceiling: int
    reserved: int
    consumed: int
    touched: bool = False

    @property
    def remaining(self) -> int:
        """What can still be reserved; negative where evidence was counted past the ceiling."""
        return self.ceiling - self.reserved - self.consumed

    def after(self, act: str, amount: int) -> Balance | None:
        """Return the balance with one more act, or None where the guard refuses it."""
        available = self.reserved if act in ("release", "consume") else self.remaining
        if act != "recount" and amount > available:
            return None
        reserve, consume = _ACTS[act]
        return Balance(
            self.free,
            self.ceiling,
            self.reserved + reserve * amount,
            self.consumed + consume * amount,
            touched=True,
        )


@dataclass(slots=True)
class Holding:
    """One provider's reference as the transaction sees it: the stream that has it, or None.

    `free` says that the transaction holds the right to give it; `touched` once an admitted unit
    takes it.
    """

    free: bool
    stream: UUID | None = None
    touched: bool = False


Streams = dict[UUID, Seen]
Balances = dict[tuple[str, str], Balance]
"""Guard rows by (tenant, key)."""
Holdings = dict[tuple[str, str, str], Holding]
"""References by (tenant, provider, reference): one for each that a unit of the group names."""


def judge(unit: Unit, streams: Streams, balances: Balances, holdings: Holdings) -> Answer | None:
    """Return the answer to a unit that is not admitted; None admits it.

    An admitted unit's guard changes are taken into `balances` and its references into `holdings`,
    so that the next unit of the group meets what is left. What is final is said first: a version
    only ever rises and a reference never moves, so Exists, Stale and ReferenceTaken hold whoever
    has the row locked.
    """
    pairs = [(change, streams[change.stream]) for change in unit.changes]
    if all(_is_written(change, seen) for change, seen in pairs):
        return Committed(
            tuple(tuple(position for _, position in seen.events) for _, seen in pairs), found=True
        )
    for change, seen in pairs:
        if seen.version != change.expected:
            answer = Stale if change.expected else Exists
            return answer(change.stream, seen.version)
    for change, seen in pairs:
        if change.fence is not None and seen.owner != change.fence:
            return Lost(change.stream, seen.owner)
    taking = _take(unit, holdings)
    if isinstance(taking, ReferenceTaken):
        return taking
    for change, seen in pairs:
        if not seen.free:
            return Busy(str(change.stream))
    for (_, _, reference), holding in taking.items():
        if not holding.free:
            return Busy(reference)
    refusal = _judge_guards(unit, balances)
    if refusal is None:
        holdings.update(taking)
    return refusal


def _is_written(change: Change, seen: Seen) -> bool:
    return [event_id for event_id, _ in seen.events] == [event.event_id for event in change.events]


def _take(unit: Unit, holdings: Holdings) -> Holdings | ReferenceTaken:
    """Return what of a unit's references is new to its streams, or the one it cannot have."""
    taking: Holdings = {}
    for reference in unit.references:
        key = unit.tenant, reference.provider, reference.reference
        holding = taking.get(key) or holdings[key]
        if holding.stream is None:
            taking[key] = Holding(holding.free, reference.stream, touched=True)
        elif holding.stream != reference.stream:
            return ReferenceTaken(reference.provider, reference.reference, holding.stream)
    return taking


def _judge_guards(unit: Unit, balances: Balances) -> Answer | None:
    wanted: Balances = {}
    for guard in unit.guards:
        key = unit.tenant, guard.key
        balance = wanted.get(key) or balances.get(key)
        if balance is None:
            return Refused(guard.key, 0)
        if not balance.free:
            return Busy(guard.key)
        after = balance.after(guard.act, guard.amount)
        if after is None:
            reserving = guard.act == "reserve"
            return Refused(guard.key, balance.remaining if reserving else balance.reserved)
        wanted[key] = after
    balances.update(wanted)
    return None


def invalid(unit: Unit) -> str | None:
    """Return why no database would ever take this unit, as far as can be known beforehand."""
    if not unit.changes:
        return "A unit has at least one change: a guard is repeatable only together with an event."
    if len({change.stream for change in unit.changes}) < len(unit.changes):
        return "A stream appears twice in one unit."
    for change in unit.changes:
        if reason := _invalid_change(unit.tenant, change):
            return reason
    for guard in unit.guards:
        if reason := _invalid_guard(guard):
            return reason
    return _invalid_texts(list(_texts(unit)))


def _invalid_change(tenant: str, change: Change) -> str | None:
    head = change.head
    if change.expected < 0 or not change.events:
        return "A change has at least one event, and its expected version is 0 or more."
    if change.drops_older and not (change.expected and is_purged(change.events[0].topic)):
        return f"Older events are dropped for an event alone that stands for them: a {PURGED}."
    for version, event in enumerate(change.events, change.expected + 1):
        if event.originator_id != change.stream or event.originator_version != version:
            return (
                f"The events of a change are those of its stream {change.stream} with the versions"
                f" {change.expected + 1} to {change.last}; found version"
                f" {event.originator_version} of {event.originator_id}."
            )
        if event.tenant != tenant:
            return f"A unit never crosses tenants; an event of {event.tenant!r} is in it."
        if event.size > MAX_EVENT_BYTES:
            return f"An event has {event.size} bytes; at most {MAX_EVENT_BYTES} can be recorded."
        if _is_naive(event.recorded_at):
            return "The time at which an event was recorded has no time zone."
        if not 0 <= event.schema_version <= _MAX_SMALL or not 0 <= event.min_reader <= _MAX_SMALL:
            return f"Schema version and min_reader of an event are from 0 to {_MAX_SMALL}."
    if head.due_at is not None and _is_naive(head.due_at):
        return "The time at which a stream is due has no time zone."
    if head.due_at is not None and len(head.lane.split("/", 2)) < 3:
        return f"A stream that is due has a lane 'tenant/kind/provider', not {head.lane!r}."
    if head.priority not in PRIORITIES:
        return f"A priority is one of {PRIORITIES}, not {head.priority}."
    if not 0 <= head.min_reader <= _MAX_SMALL:
        return f"The min_reader of a head is from 0 to {_MAX_SMALL}."
    return None


def _invalid_guard(guard: GuardChange) -> str | None:
    if guard.act not in _ACTS:
        return f"A guard's act is one of {', '.join(_ACTS)}, not {guard.act!r}."
    if not 0 < guard.amount < _MAX_AMOUNT:
        return f"A guard's amount is positive and below 2^62, not {guard.amount}."
    return None


def _is_naive(at: datetime) -> bool:
    return at.utcoffset() is None


def _texts(unit: Unit) -> Iterator[str]:
    yield unit.tenant
    for change in unit.changes:
        head = change.head
        yield from (head.kind, head.identity, head.state, head.lane)
        for event in change.events:
            yield from (event.topic, event.actor, event.key_id, event.correlation or "")
    for guard in unit.guards:
        yield guard.key
    for reference in unit.references:
        yield from (reference.provider, reference.reference)


def _invalid_texts(texts: Sequence[str]) -> str | None:
    if max(map(len, texts)) > MAX_TEXT_LENGTH:
        return f"A text has more than {MAX_TEXT_LENGTH} characters."
    joined = "".join(texts)
    if "\0" in joined:
        return "A text holds a NUL character, which no database stores."
    if not joined.isascii() and any("\ud800" <= letter <= "\udfff" for letter in joined):
        return "A text holds half a surrogate pair, which is not a character."
    return None


def next_group(waiting: Sequence[Unit], size: int) -> tuple[list[Unit], list[Unit]]:
    """Split what waits into the next group and the rest, first come, first served.

    A stream appears once a group, and units on the same stream keep their order. Guard rows may
    repeat: `judge` keeps their balance. A group holds at most 8 MiB, or one unit.
    """
    group: list[Unit] = []
    rest: list[Unit] = []
    touched: set[UUID] = set()
    room = MAX_GROUP_BYTES
    for unit in waiting:
        streams = {change.stream for change in unit.changes}
        fits = len(group) < size and (unit.size <= room or not group)
        if fits and touched.isdisjoint(streams):
            group.append(unit)
            room -= unit.size
        else:
            rest.append(unit)
        touched |= streams
    return group, rest


def commit_group(
    attempt: Callable[[Sequence[Unit]], list[Answer]],
    units: Sequence[Unit],
    poison: tuple[type[BaseException], ...],
) -> list[Answer]:
    """Commit one group by `attempt`, a transaction; return one answer a unit, in order.

    What is knowably invalid never reaches the database. Where the database itself refuses a unit
    with one of the `poison` errors, the group is halved until that unit fails alone.
    """
    reasons = [invalid(unit) for unit in units]
    valid = [unit for unit, reason in zip(units, reasons, strict=True) if reason is None]
    answers = iter(_halve(attempt, valid, poison))
    return [Invalid(reason) if reason else next(answers) for reason in reasons]


def _halve(
    attempt: Callable[[Sequence[Unit]], list[Answer]],
    units: Sequence[Unit],
    poison: tuple[type[BaseException], ...],
) -> list[Answer]:
    if not units:
        return []
    try:
        return attempt(units)
    except poison as error:
        if len(units) == 1:
            return [Invalid(f"{type(error).__name__}: {error}")]
        half = len(units) // 2
        return _halve(attempt, units[:half], poison) + _halve(attempt, units[half:], poison)
