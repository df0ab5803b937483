"""The port to people: who owns what settled could not resolve has to hear of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One operation is in somebody's hands.

    `reason` says why the automatic steps stopped, `since` when. `times` counts the notices about
    this hand-over, this one included. From the `second_owner` on, both are told.
    """

    tenant: str
    kind: str
    operation_id: str
    label: str
    owner: str
    reason: str
    since: datetime
    times: int = 1
    second_owner: str | None = None

    def as_json(self) -> dict[str, str | int | None]:
        """Return the notice as a JSON object, the moment in ISO 8601."""
        return {
            "tenant": self.tenant,
            "kind": self.kind,
            "operation_id": self.operation_id,
            "label": self.label,
            "owner": self.owner,
            "second_owner": self.second_owner,
            "reason": self.reason,
            "since": self.since.isoformat(),
            "times": self.times,
        }


class NotDelivered(Exception):
    """The notice did not reach anybody. It is tried again."""


class Notifier(Protocol):
    """Tells an owner. Called on a thread, so it may block, but not without end."""

    def notify(self, notice: Notice) -> None:
        """Deliver a notice, or raise `NotDelivered` with the cause."""
        ...
