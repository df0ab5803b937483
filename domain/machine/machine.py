"""The base of every state machine: an aggregate of the library, guarded by its lifecycle."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Self
from uuid import UUID

from eventsourcing.domain import BaseAggregate

from settled.domain.clock import Stamp
from settled.domain.errors import DeclarationError, InvalidLifecycle
from settled.domain.journal.unit import FIRST_HASH, GuardChange
from settled.domain.machine.event import Event, bind
from settled.domain.machine.lifecycle import ABSENT, Lifecycle


class StateMachine(BaseAggregate[UUID]):
    """A stream of events that a lifecycle leads from state to state.

    A subclass names its `LIFECYCLE`, its `EVENTS` and its `TOPIC`, and says in `next_due` when
    somebody has to look at it again. Commands are its methods: they call `record`, which asks the
    lifecycle and its guards first. The first event has the fields `tenant` and `identity`, and
    `kind` where that is not the lifecycle's name.
    """

    LIFECYCLE: ClassVar[Lifecycle]
    EVENTS: ClassVar[tuple[type[Event], ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Check that the lifecycle and the events speak of the same things."""
        if "EVENTS" in cls.__dict__ and not cls.__dict__.get("TOPIC"):
            raise DeclarationError(
                f"{cls.__name__} has no TOPIC.",
                hint='A machine is known by a name that never changes: TOPIC = "deployment".',
            )
        super().__init_subclass__(**kwargs)
        if "EVENTS" not in cls.__dict__:
            return
        named = {event.name() for event in cls.EVENTS}
        if named != set(cls.LIFECYCLE.events):
            odd = ", ".join(sorted(named ^ set(cls.LIFECYCLE.events)))
            raise InvalidLifecycle(f"{cls.__name__}: EVENTS and LIFECYCLE do not both name {odd}.")
        bind({event.TOPIC: cls for event in cls.EVENTS})

    @classmethod
    def shell(cls, event: Event) -> Self:
        """Return the stream before its first event, for that event to fold itself into."""
        machine = cls.__new__(cls)
        machine.__base_init__(
            originator_id=event.originator_id,
            originator_version=0,
            timestamp=event.timestamp,
        )
        machine.prepare()
        machine._name(event)
        return machine

    def prepare(self) -> None:
        """Give the subclass's attributes their first values. Called before the first event."""
        self.state: str = ABSENT
        self.since: datetime  # when the state was entered
        self.chain: bytes = FIRST_HASH  # the hash of the last event, on which the next one builds
        self.tenant: str = ""
        self.kind: str = ""
        self.identity: str = ""
        self.min_reader: int = 1
        # Pairs of (provider, reference) by which evidence finds the stream, not yet committed.
        self.new_references: list[tuple[str, str]] = []
        # Changes of guard rows that go with the events, not yet committed.
        self.new_guards: list[GuardChange] = []

    def forget(self, event: Event) -> None:
        """Forget all but the place in the chain: an event follows that says everything anew."""
        chain = self.chain
        self.prepare()
        self.chain = chain
        self._name(event)

    def _name(self, event: Event) -> None:
        first: Any = event
        try:
            self.tenant, self.identity = first.tenant, first.identity
        except AttributeError as error:
            raise DeclarationError(
                f"{type(self).__name__} begins with {event.name()}: {error}.",
                hint="The first event of a stream has the fields tenant and identity.",
            ) from error
        self.kind = getattr(first, "kind", self.LIFECYCLE.name)

    @classmethod
    def begin(cls, event_class: type[Event], stream: UUID, stamp: Stamp, **fields: Any) -> Self:
        """Record the first event of a new stream. Raises TransitionRefused for another event."""
        cls.LIFECYCLE.step(ABSENT, event_class.name())
        event = _make(event_class, stream, 1, stamp, fields)
        machine: Any = event.mutate(None)
        assert isinstance(machine, cls)
        machine.pending_events.append(event)
        return machine

    def record(self, event_class: type[Event], stamp: Stamp, **fields: Any) -> None:
        """Record one more event, where the lifecycle and its guard let it happen.

        Raises the error that the lifecycle names for the pair of state and event, or the guard's.
        """
        step = self.LIFECYCLE.step(self.state, event_class.NAME)
        if step.guard is not None:
            getattr(self, step.guard)()
        if stamp.at < self.modified_on:
            stamp = stamp.later(self.modified_on)  # a stream's times never go back
        event = _make(event_class, self.id, self.version + 1, stamp, fields)
        event.mutate(self)
        self.pending_events.append(event)

    def enter(self, state: str, event: Event) -> None:
        """Take the state, version and time that an event leads to."""
        if self.version == 0:
            self._created_on = event.timestamp
        if state != self.state:
            self.state, self.since = state, event.timestamp
        self.version = event.originator_version
        self.modified_on = event.timestamp
        self.min_reader = max(self.min_reader, type(event).MIN_READER)

    @property
    def settled(self) -> bool:
        """Whether nothing is due any more."""
        return self.LIFECYCLE.states[self.state].settled

    @property
    def held(self) -> bool:
        """Whether the stream stays with the worker that claimed it."""
        return self.LIFECYCLE.states[self.state].held

    @property
    def lane(self) -> str:
        """The lane in which the stream waits for a worker: tenant/kind/what it is served by.

        See `settled.domain.route` for how a worker says what it serves.
        """
        return f"{self.tenant}/{self.kind}/-"

    @property
    def priority(self) -> int:
        """0 goes first, then 1, then 2."""
        return 1

    def next_due(self) -> datetime | None:
        """Return when somebody has to look at the stream again; None when it is settled.

        A pure function of what was recorded: an open stream always has exactly one such moment.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say when it is due")


def _make(
    event_class: type[Event], stream: UUID, version: int, stamp: Stamp, fields: dict[str, Any]
) -> Event:
    return event_class(
        originator_id=stream,
        originator_version=version,
        timestamp=stamp.at,
        actor=stamp.actor,
        correlation=stamp.correlation,
        causation=stamp.causation,
        **fields,
    )
