"""A service at work: threads that begin operations, and begin again what ended in an error."""

from __future__ import annotations

import select
import threading
from collections.abc import Sequence

from settled import OperationView, StoreReadOnly, StoreUnavailable
from settled.infrastructure.clock import elapsed_seconds
from settled.verify.stage import Stage

THREADS = 4
PATIENCE_SECONDS = 60.0
AGAIN_SECONDS = 0.01

Named = tuple[str, str]
"""The kind and the id of an operation; its order has the same id."""


class Service:
    """Begins operations in several threads. `room` is how many may be open at once."""

    def __init__(self, stage: Stage, names: Sequence[Named], *, room: int | None = None) -> None:
        self._stage = stage
        self._begun = threading.Semaphore(0)
        self._room = threading.Semaphore(len(names) if room is None else room)
        self._stopping = threading.Event()
        self._errors: list[BaseException] = []
        parts = [names[first::THREADS] for first in range(THREADS)]
        self._threads = [
            threading.Thread(target=self._begin, args=(part,), daemon=True) for part in parts
        ]
        for thread in self._threads:
            thread.start()

    def check(self) -> None:
        """Raise what one of the threads met, beyond an outage."""
        if self._errors:
            raise self._errors[0]

    def wait_begun(self, more: int) -> None:
        """Wait until so many more operations were begun."""
        for _ in range(more):
            assert self._begun.acquire(timeout=PATIENCE_SECONDS), "nothing is begun any more"

    def count_begun(self) -> int:
        """Return how many were begun since this was last asked."""
        count = 0
        while self._begun.acquire(blocking=False):
            count += 1
        return count

    def make_room(self, for_others: int) -> None:
        """Let so many more be open."""
        if for_others > 0:
            self._room.release(for_others)

    def join(self) -> None:
        """Wait until all are begun; raise what one of the threads met, beyond an outage."""
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
        self.check()
        assert not any(thread.is_alive() for thread in self._threads), "not all were begun"

    def stop(self) -> None:
        """Begin no more."""
        self._stopping.set()
        self._room.release(THREADS)
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)

    def _begin(self, names: Sequence[Named]) -> None:
        try:
            for kind, operation_id in names:
                self._room.acquire()
                if self._stopping.is_set():
                    return
                self._persist(kind, operation_id)
                self._begun.release()
        except BaseException as error:
            self._errors.append(error)

    def _persist(self, kind: str, operation_id: str) -> OperationView:
        """Begin an operation, again and again while the store is away: it is one operation."""
        give_up_at = elapsed_seconds() + PATIENCE_SECONDS
        while True:
            try:
                return self._stage.intend(operation_id, kind=kind, order=operation_id)
            except (StoreUnavailable, StoreReadOnly):
                if elapsed_seconds() > give_up_at:
                    raise
                select.select([], [], [], AGAIN_SECONDS)
