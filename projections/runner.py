"""Runs projections for as long as they are wanted, each by one process at a time.

Whoever holds a projection's lock leads: it folds, and waits for what comes next. Its lock goes with
its process, and another takes over within a fraction of a second. The lock saves work; what keeps
an event from being applied twice is the position, not the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from settled.domain.errors import DeclarationError, StoreError, StoreTooNew
from settled.projections import register
from settled.projections.projection import Projecting
from settled.projections.projector import PAGE, Lead, Projector, told

FOLLOW_SECONDS = 0.2
"""How often a process that does not lead asks whether it may."""

IDLE_SECONDS = 0.1
"""How often the log is looked at, also where nobody says that it has grown."""

FORGET_LOOKS = 600
"""After how many looks at the log what is kept no longer is removed: a minute, when idle."""

PAUSE_SECONDS = 0.5
"""How long a leader waits where the store is away or its projection stands still."""

YIELD_SECONDS = 5.0
"""For how long code that is too old leaves the lead to others."""


class Telling(Protocol):
    """Where the runner says what happens: a logger with structlog's interface."""

    def info(self, event: str, **about: Any) -> Any:
        """Say what is worth knowing."""
        ...

    def error(self, event: str, **about: Any) -> Any:
        """Say what somebody has to look at."""
        ...


@dataclass
class Runner:
    """Runs several projections, each on a thread of its own, until it is told to stop."""

    projector: Projector
    projections: Sequence[Projecting]
    log: Telling
    _over: threading.Event = field(default_factory=threading.Event)
    _grown: dict[str, threading.Event] = field(default_factory=dict[str, threading.Event])
    _failed: list[BaseException] = field(default_factory=list[BaseException])

    def run(self) -> None:
        """Run until `stop`; raises what ended one of the projections for good."""
        for projection in self.projections:
            register.check_name(projection)
        self._grown.update({one.name: threading.Event() for one in self.projections})
        threads = [
            threading.Thread(target=self._follow, args=(one,), name=f"settled-{one.name}")
            for one in self.projections
        ]
        with closing(self.projector.journal.watch(self._wake)):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if self._failed:
            raise self._failed[0]

    def stop(self) -> None:
        """Let every projection end its page."""
        self._over.set()
        self._wake()

    def _wake(self) -> None:
        for grown in self._grown.values():
            grown.set()

    def _follow(self, projection: Projecting) -> None:
        try:
            while not self._over.is_set():
                self._over.wait(self._lead_if_free(projection))
        except BaseException as error:
            self._failed.append(error)
            self.stop()

    def _lead_if_free(self, projection: Projecting) -> float:
        """Lead for as long as that goes well; return after how many seconds to try again."""
        name = projection.name
        try:
            lead = self.projector.store(projection).lead(name)
            if lead is None:
                return FOLLOW_SECONDS
            with closing(lead):
                self.log.info("projection_led", projection=name)
                return self._lead(projection, lead)
        except StoreTooNew as error:
            self.log.error("projection_yielded", projection=name, error=told(error))
            return YIELD_SECONDS
        except StoreError as error:
            self.log.error("projection_interrupted", projection=name, error=told(error))
            return PAUSE_SECONDS

    def _lead(self, projection: Projecting, lead: Lead) -> float:
        grown, reached, tried = self._grown[projection.name], -1, False
        for look in count():
            if not lead.held():
                break
            if self._over.is_set():
                return 0.0
            grown.clear()
            # Asked each time: a rebuild may have changed over to other tables.
            live = self.projector.live(projection)
            # A new leader may have code under which the fold does not fail any more.
            if tried and self._stands_still(live):
                self._over.wait(PAUSE_SECONDS)
                continue
            tried = True
            try:
                before, reached = reached, self.projector.run_once(live, PAGE)
            except (StoreError, DeclarationError):
                raise
            except Exception as error:
                self.log.error("projection_stopped", projection=projection.name, error=told(error))
                continue
            if look % FORGET_LOOKS == 0:
                self.projector.forget(live)
            if reached == before:
                grown.wait(IDLE_SECONDS)
        return 0.0

    def _stands_still(self, projection: Projecting) -> bool:
        """Say whether a projection waits for somebody's decision on an event."""
        with self.projector.store(projection).reading() as rows:
            found = register.standing(rows, projection)
        return found is not None and found.halted == "stopped"
