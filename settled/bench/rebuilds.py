"""Building the operations view anew, and who runs it when its leader is killed; on PostgreSQL.

A store is filled once. Each round builds the next version of the view, by one process and by two,
and what is timed is the building: from a word to processes that have opened everything, until the
last of them is done. Indexes, comparison and change-over come behind it, and are in `whole`. The
floor reads the same pages of events and copies as many finished rows, without folding.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count

import settled
from settled.bench.figure import OURS, RAW, Better, Contenders, Figure, Sample, experiment
from settled.bench.kinds import AGENT, PARAMS, refund
from settled.bench.lab import Lab
from settled.bench.meter import cpu_seconds, server_cpu_seconds
from settled.bench.processes import READY_SECONDS, pause_seconds, running, started
from settled.bench.settling import wait_until
from settled.bench.takeover import UNDISTURBED
from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.journal.opening import open_journal
from settled.infrastructure.seeding import seed
from settled.infrastructure.views.building import build, opened_projector
from settled.projections.operations import OperationsProjection
from settled.projections.projector import Projector
from settled.projections.rebuild import rebuild

_RUN = ("settled", "projections", "run", "operations", "--json")
_DECLARED = OperationsProjection()


@dataclass
class Filled:
    """A store of events, and how many there are."""

    lab: Lab
    url: str
    events: int

    def built(self, who: str, version: int, parts: int) -> tuple[float, Sample]:
        """Have a version built by so many processes; return the seconds, and the CPU they took."""
        with ExitStack() as stack:
            builders = [
                stack.enter_context(
                    started(
                        self.lab.folder,
                        *("settled.bench.rebuilding", who, self.url),
                        *(str(version), str(part), str(parts)),
                    )
                )
                for part in range(parts)
            ]
            for builder in builders:
                builder.answer(READY_SECONDS)
            cpu, server = [cpu_seconds(one.pid) for one in builders], self._server()
            begun = elapsed_seconds()
            for builder in builders:
                builder.go()
            for builder in builders:
                builder.answer()
            seconds = elapsed_seconds() - begun
            used = sum(cpu_seconds(one.pid) for one in builders) - sum(cpu)
            found = {"builder_us": used / self.events * 1e6}
            if server is not None:
                found["server_us"] = ((self._server() or 0) - server) / self.events * 1e6
            return seconds, found

    def _server(self) -> float | None:
        return server_cpu_seconds(self.lab.server.pid) if self.lab.server else None


@experiment(
    "rebuild",
    "Rebuild of the operations view",
    Figure(
        *("rebuild", "Rebuild of the operations view, one process", "per_second", "events/s"),
        *(50_000, Better.HIGHER),
    ),
    Figure(
        *("rebuild-pair", "… two processes against one", "speed_up", "×", 1.6, Better.HIGHER),
    ),
    rounds=3,
)
def rebuilds(lab: Lab) -> Contenders:
    """Fill one store, and build its view again and again."""
    url = lab.cleaning.enter_context(lab.postgres())
    journal = open_journal(url)
    lab.cleaning.callback(journal.close)
    filled = Filled(lab, url, seed(journal, lab.sizes.seeded))
    with opened_projector(url) as projector:  # the first version: what the others are compared with
        rebuild(projector, _DECLARED, 1, lambda new: build(url, projector, new, 1, _unheard))
    return {OURS: partial(_ours, filled), RAW: partial(_raw, filled)}


def _ours(filled: Filled) -> Sample:
    found: dict[str, float] = {}
    with opened_projector(filled.url) as projector:
        one, two = (_rebuilt(filled, projector, parts, found) for parts in (1, 2))
    return {**_compared(filled, one, two), **found}


def _rebuilt(filled: Filled, projector: Projector, parts: int, found: dict[str, float]) -> float:
    """Rebuild the view and return the seconds of its building."""
    took: list[float] = []

    def timed(new: OperationsProjection) -> None:
        seconds, used = filled.built(OURS, new.version, parts)
        took.append(seconds)
        found.update({f"{name}_{parts}": value for name, value in used.items()})

    begun = elapsed_seconds()
    done = rebuild(projector, _DECLARED, parts, timed)
    assert not done.differences, done
    found[f"whole_{parts}_per_second"] = filled.events / (elapsed_seconds() - begun)
    return took[0]


def _raw(filled: Filled) -> Sample:
    with opened_projector(filled.url) as projector:
        version = projector.live(_DECLARED).version
    one, used = filled.built(RAW, version, 1)
    two, _ = filled.built(RAW, version, 2)
    return {**_compared(filled, one, two), **used}


def _unheard(built: int, of: int) -> None:
    """Nobody watches this one."""


def _compared(filled: Filled, one: float, two: float) -> dict[str, float]:
    return {
        "per_second": filled.events / one,
        "two_per_second": filled.events / two,
        "speed_up": one / two,
    }


@experiment(
    "leader",
    "Takeover of a projection",
    Figure(
        *("leader", "Takeover of a projection, after SIGKILL", "seconds", "s", 1, Better.LOWER),
        beside=UNDISTURBED,
    ),
    rounds=3,
)
def leader(lab: Lab) -> Contenders:
    """Measure until the view has what is committed when its leader is killed, and when it is not.

    Another process follows, and asks five times a second whether it may lead.
    """
    pauses = map(pause_seconds, count())
    return {
        OURS: lambda: _seen(lab, next(pauses), killed=True),
        UNDISTURBED: lambda: _seen(lab, next(pauses), killed=False),
    }


def _seen(lab: Lab, pause: float, *, killed: bool) -> Sample:
    with ExitStack() as stack:
        url = stack.enter_context(lab.postgres())
        app = stack.enter_context(settled.open(url, kinds=[refund]))
        view, projector = app.views.operations, app.projector()

        def intend(operation_id: str) -> int:
            return view.token(app.operations.intend(refund, operation_id, PARAMS, by=AGENT))

        def considered(token: int) -> bool:
            return projector.position(projector.live(_DECLARED)) >= token

        first = stack.enter_context(running(lab.folder, *_RUN, "--url", url))
        token = intend("first")
        wait_until(partial(considered, token))
        stack.enter_context(running(lab.folder, *_RUN, "--url", url))
        time.sleep(pause)  # the other one asks in its own time, not as it has just begun
        begun = elapsed_seconds()
        if killed:
            first.kill()
        token = intend("second")
        wait_until(partial(considered, token))
        return {"seconds": elapsed_seconds() - begun}
