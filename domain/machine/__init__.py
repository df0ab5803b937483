"""Event-sourced state machines: a lifecycle as data, events under stable topics, a base to fold."""

from settled.domain.machine.event import Event
from settled.domain.machine.lifecycle import ABSENT, Arrow, Lifecycle, Refusal, State
from settled.domain.machine.machine import StateMachine
from settled.domain.machine.tombstone import Tombstone

__all__ = [
    "ABSENT",
    "Arrow",
    "Event",
    "Lifecycle",
    "Refusal",
    "State",
    "StateMachine",
    "Tombstone",
]
