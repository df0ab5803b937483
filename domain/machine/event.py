"""The base of every event: a frozen pydantic model under an explicit, stable topic."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from eventsourcing.domain import (
    CanMutateAggregate,
    OriginatorIDError,
    OriginatorVersionError,
)
from eventsourcing.utils import register_topic
from pydantic import BaseModel, ConfigDict

from settled.domain.errors import DeclarationError

A = TypeVar("A")

TOPICS: dict[str, type[Event]] = {}
"""Every event class by its topic."""


class Event(BaseModel, CanMutateAggregate[UUID]):
    """Something that happened to a stream.

    A subclass that is recorded states its `TOPIC`, which never changes, whatever becomes of module
    and class names; its last part is the event's `NAME` in its lifecycle. `SCHEMA_VERSION` counts
    the shapes of the event's fields; `MIN_READER` is the lowest reader number that understands its
    meaning. The fields named in `BODY` may have to be erased one day and are stored apart.
    `PROGRESS` is False for events that only take or return a stream, so that a worker killed by it
    again and again is noticed. An event that is `WHOLE` says all that is known of its stream: a
    fold may begin with it, and whatever was folded before counts no more.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    TOPIC: ClassVar[str] = ""
    NAME: ClassVar[str] = ""
    SCHEMA_VERSION: ClassVar[int] = 1
    MIN_READER: ClassVar[int] = 1
    BODY: ClassVar[frozenset[str]] = frozenset()
    PROGRESS: ClassVar[bool] = True
    WHOLE: ClassVar[bool] = False

    originator_id: UUID
    originator_version: int
    timestamp: datetime
    actor: str
    correlation: str | None = None
    causation: UUID | None = None

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Register the topic; two classes under one topic are a mistake in the declaration."""
        topic = cls.__dict__.get("TOPIC", "")
        if not topic:
            return
        cls.NAME = topic.rpartition(".")[2]
        other = TOPICS.setdefault(topic, cls)
        if _full_name(other) != _full_name(cls):
            raise DeclarationError(
                f"The topic {topic} belongs to {_full_name(other)} already.",
                hint=f"Give {_full_name(cls)} a topic of its own.",
            )
        if other is cls:
            register_topic(topic, cls)

    @classmethod
    def name(cls) -> str:
        """Return the event's name in its lifecycle."""
        return cls.NAME

    @property
    def progress(self) -> bool:
        """Whether the count of takes starts afresh with this event."""
        return type(self).PROGRESS

    @classmethod
    def upcast(cls, fields: dict[str, Any], version: int) -> dict[str, Any]:
        """Turn fields stored under an older schema version into today's. Overridden per event."""
        return fields

    def apply(  # pyright: ignore[reportIncompatibleMethodOverride]  # subclasses name it
        self, aggregate: Any, /
    ) -> None:
        """Fold this event into its aggregate, beyond the state that the lifecycle gives it."""

    def mutate(self, aggregate: A | None) -> A | None:
        """Fold the event into its aggregate, or make the aggregate when this is its first event.

        The lifecycle decides the next state; `apply` of the event does the rest.
        """
        machine: Any = aggregate
        if machine is None:
            if self.originator_version != 1 and not type(self).WHOLE:
                raise OriginatorVersionError(self.originator_version, 1)
            machine = machine_class(self).shell(self)
        elif self.originator_id != machine.id:
            raise OriginatorIDError(self.originator_id, machine.id)
        elif self.originator_version != machine.version + 1:
            raise OriginatorVersionError(self.originator_version, machine.version + 1)
        if type(self).WHOLE:
            return self._stand_for_all(machine)  # type: ignore[no-any-return]
        target = machine.LIFECYCLE.step(machine.state, self.NAME).target
        self.apply(machine)
        machine.enter(target, self)
        return machine  # type: ignore[no-any-return]

    def _stand_for_all(self, machine: Any) -> Any:
        """Fold an event that is WHOLE: the same machine comes of it, whatever was there before."""
        if machine.version:
            machine.LIFECYCLE.step(machine.state, self.NAME)  # raises where it may not happen
            machine.forget(self)
        self.apply(machine)
        machine.enter(machine.LIFECYCLE.step(machine.state, self.NAME).target, self)
        return machine


def _full_name(kind: type[Any]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


_MACHINES: dict[str, Any] = {}


def bind(topics: Mapping[str, Any]) -> None:
    """Remember which machine class a topic's first event makes."""
    _MACHINES.update(topics)


def machine_kinds() -> frozenset[str]:
    """Return what the streams of every declared machine are called, unless they say otherwise."""
    return frozenset(machine.LIFECYCLE.name for machine in _MACHINES.values())


def machine_class(event: Event) -> Any:
    """Return the aggregate class that an event belongs to."""
    try:
        return _MACHINES[type(event).TOPIC]
    except KeyError:
        raise DeclarationError(
            f"No state machine is declared for {type(event).TOPIC}.",
            hint="Name the event class in the machine's EVENTS.",
        ) from None
