"""Given what happened, when a command is given, then these events: tests that read as sentences.

    given(Errand, [happened(Asked, tenant="acme", identity="errand-1"), timedelta(hours=1)])
        .when(lambda errand, stamp: errand.give_up(stamp))
        .then(happened(GivenUp, reason="nobody came"))

No store, no thread and no time of the machine's. The lifecycle and its guards are asked for the
history as well, so a history that cannot have happened is refused where it is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, Self, TypeVar, cast
from uuid import UUID

from settled.domain.clock import Stamp
from settled.domain.errors import SettledError
from settled.domain.identity import stream_id
from settled.domain.journal.mapper import EventMapper
from settled.domain.journal.unit import RecordedEvent
from settled.domain.keys import DerivedKeys
from settled.domain.machine.event import Event
from settled.domain.machine.machine import StateMachine
from settled.infrastructure.testing.manual_clock import ManualClock
from settled.processes.ledger import head_of
from settled.processes.manager import Decision, Perform, Position, ProcessManager, Work

M = TypeVar("M", bound=StateMachine)

ACTOR = "ada"
"""Who gives the commands, and whose deed the history is."""


@dataclass(frozen=True, slots=True)
class Happened:
    """An event without its envelope: a class, and the fields of its own."""

    event_class: type[Event]
    fields: dict[str, Any]

    @property
    def name(self) -> str:
        """The event's name in its lifecycle."""
        return self.event_class.name()

    def __str__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.fields.items())
        return f"{self.name}({fields})"


def happened(event_class: type[Event], **fields: Any) -> Happened:
    """Name an event that happened, or that is expected, by its class and all its own fields.

    Fields left out have their defaults. Stream, version, time and actor are the kit's.
    """
    return Happened(event_class, fields)


class Recorded(Generic[M]):
    """What a command came to: the `machine` as it is now, and the `events` that it recorded.

    `returned` is what the command returned, and `refused` the error with which it was refused.
    """

    def __init__(
        self,
        machine: M,
        events: tuple[Event, ...],
        returned: Any = None,
        refused: SettledError | None = None,
    ) -> None:
        self.machine = machine
        self.events = events
        self.returned = returned
        self.refused = refused

    def then(self, *expected: type[Event] | Happened) -> Self:
        """Check that exactly these events were recorded, in this order; none: nothing was.

        A class says which event, `happened(…)` also each of its own fields.
        """
        assert self.refused is None, f"it was refused: {self.refused!r}"
        found = [str(_told(event)) for event in self.events]
        assert len(self.events) == len(expected), f"recorded {found}, not {_names(expected)}"
        for event, wanted in zip(self.events, expected, strict=True):
            if isinstance(wanted, Happened):
                assert type(event) is wanted.event_class, f"recorded {found}, not {wanted}"
                assert event == _in_place_of(event, wanted), (
                    f"recorded {_told(event)}, not {wanted}"
                )
            else:
                assert type(event) is wanted, f"recorded {found}, not {_names(expected)}"
        return self

    def then_refused(self, error: type[SettledError], saying: str = "") -> Self:
        """Check that the command was refused with this error, and what its message says."""
        assert self.refused is not None, f"it was not refused, and recorded {_names(self.events)}"
        assert isinstance(self.refused, error), f"refused as {self.refused!r}, not {error.__name__}"
        assert saying in str(self.refused), f"{saying!r} is not in {self.refused}"
        assert not self.events, f"refused, and {_names(self.events)} recorded before"
        return self

    def then_is(self, state: str, *, due: datetime | None = None) -> Self:
        """Check the state in which the stream is now and, with `due`, when it is due."""
        assert self.machine.state == state, f"it is {self.machine.state}, not {state}"
        at = self.machine.next_due()
        assert due is None or at == due, f"it is due at {at}, not at {due}"
        return self


class Decided(Recorded[M]):
    """What a process manager decided, and the events that it recorded with that.

    `decision` is a Record, Rest or Perform. The events are committed before a Perform is performed.
    """

    def __init__(
        self, history: Given[M], machine: M, events: tuple[Event, ...], decision: Decision
    ) -> None:
        super().__init__(machine, events)
        self.decision = decision
        self._history = history

    def then_performs(self, work: Work, detail: str | None = None) -> Self:
        """Check that it decided to perform this kind of work."""
        decision = self._performing()
        assert decision.work is work, f"it performs a {decision.work}, not a {work}"
        assert detail in (None, decision.detail), f"it performs {decision.detail}, not {detail}"
        return self

    def performed(self) -> Recorded[M]:
        """Perform what was decided, and return what the manager concludes from its result."""
        return self.came(asyncio.run(_result(self._performing())))

    def came(self, result: Any) -> Recorded[M]:
        """Return what the manager concludes from this result; an exception is a result too."""
        decision = self._performing()
        return self._history.recording(
            self.machine, lambda machine, stamp: decision.conclude(machine, result, stamp)
        )

    def _performing(self) -> Perform:
        assert isinstance(self.decision, Perform), f"it decided {self.decision}, not to perform"
        return self.decision


class Given(Generic[M]):
    """A stream with a history, and a clock that stands where the history ended.

    The history goes on: the next command is given to what the last one left.
    """

    def __init__(self, machine: M, clock: ManualClock) -> None:
        self.clock = clock
        self._mapper = EventMapper(DerivedKeys(b"the secret of a test installation"))
        self._records: list[RecordedEvent] = []
        self._commit(machine)

    def when(self, command: Callable[[M, Stamp], Any]) -> Recorded[M]:
        """Give a command, with a stamp of now. What refuses it is kept for `then_refused`."""
        return self.recording(self._folded(), command)

    def decides(
        self,
        manager: ProcessManager,
        *,
        at: datetime | None = None,
        worker: str = "worker-1",
        epoch: int = 1,
        draining: bool = False,
    ) -> Decided[M]:
        """Ask a process manager, at a moment (by default when the stream is due).

        `epoch` is the membership of the worker that asks: another one is another
        worker.
        """
        machine = self._folded()
        self.clock.at = at or max(self.clock.at, machine.next_due() or self.clock.at)
        state = machine.state
        assert manager.interested(machine), f"{manager.name} is not interested in what is {state}"
        stamp = Stamp(self.clock.at, manager.name)
        decision = manager.decide(machine, stamp, Position(worker, epoch, draining))
        return Decided(self, machine, self._recorded(machine), decision)

    def recording(self, machine: M, command: Callable[[M, Stamp], Any]) -> Recorded[M]:
        """Give a command to a machine of this history, and keep what it recorded."""
        try:
            returned = command(machine, Stamp(self.clock.at, ACTOR))
        except SettledError as error:
            return Recorded(machine, _pending(machine), refused=error)
        return Recorded(machine, self._recorded(machine), returned)

    def _folded(self) -> M:
        return cast(M, self._mapper.fold(self._records))

    def _recorded(self, machine: M) -> tuple[Event, ...]:
        """Take the pending events, as the journal would, and check that they can be told again."""
        events = self._commit(machine)
        folded = self._mapper.fold(self._records)
        assert folded is not None and head_of(folded) == head_of(machine), (
            f"folded it is {folded and folded.state}, and after the command {machine.state}: "
            "a command changes nothing but by its events"
        )
        return events

    def _commit(self, machine: M) -> tuple[Event, ...]:
        events = _pending(machine)
        self._records += self._mapper.seal(machine, self.clock.new_ids)
        return events


Step = Happened | timedelta | Callable[[Any, Stamp], Any]
"""Something in a history: an event, time that passed, or a command that was given."""


def given(
    machine_class: type[M],
    history: Sequence[Step],
    *,
    clock: ManualClock | None = None,
    stream: UUID | None = None,
) -> Given[M]:
    """Return a stream of this class to which this happened, in this order.

    The first step is the first event. A `timedelta` lets time pass, and a function of machine and
    stamp is a command. `stream` is its id where it is not the one of its lifecycle's name, kind and
    identity. Raises what the lifecycle and its guards refuse a step with.
    """
    clock = clock or ManualClock()
    if not history or not isinstance(history[0], Happened):
        raise ValueError("A history begins with its first event: happened(SomeEvent, tenant=…, …).")
    first, name = history[0], machine_class.LIFECYCLE.name
    tenant, identity = first.fields["tenant"], first.fields["identity"]
    kind = first.fields.get("kind", name)
    machine = machine_class.begin(
        first.event_class,
        stream or stream_id(tenant, name, kind, identity),
        Stamp(clock.at, ACTOR),
        **first.fields,
    )
    for step in history[1:]:
        if isinstance(step, Happened):
            machine.record(step.event_class, Stamp(clock.at, ACTOR), **step.fields)
        elif isinstance(step, timedelta):
            clock.advance(step)
        else:
            step(machine, Stamp(clock.at, ACTOR))
    return Given(machine, clock)


async def _result(decision: Perform) -> Any:
    try:
        return await decision.act()
    except Exception as error:
        return error


def _pending(machine: StateMachine) -> tuple[Event, ...]:
    return tuple(cast("Sequence[Event]", machine.pending_events))


def _in_place_of(event: Event, wanted: Happened) -> Event:
    """Return the expected event under the envelope of the one that was recorded."""
    envelope = {name: getattr(event, name) for name in Event.model_fields}
    return wanted.event_class(**envelope, **wanted.fields)


def _told(event: Event) -> Happened:
    own = {n: getattr(event, n) for n in type(event).model_fields if n not in Event.model_fields}
    return Happened(type(event), own)


def _names(events: Sequence[Event | Happened | type[Event]]) -> list[str]:
    return [str(one) if isinstance(one, Happened) else one.name() for one in events]
