"""What goes wrong at random: workers die, a provider misbehaves, a server of ours crashes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from settled.infrastructure.clock import elapsed_seconds
from settled.verify.stage import READY_SECONDS, Stage
from settled.verify.worker import WorkerProcess

LEASE_SECONDS = 2.0
CONCURRENCY = 50
LIFE_SECONDS = (0.2, 5.0)
"""The shortest and the longest time for which a worker works until it is killed.

Counted from when it has its place among the others: on a busy machine, with kills by the clock,
workers would be killed before they had begun anything, and that again and again.
"""

FAULT_SECONDS = (0.02, 0.2)
PENDING_SECONDS = (1.0, 3.0)
RESTART_SECONDS = (8.0, 16.0)
_END_SECONDS = 5.0
"""How long a worker that has closed its output may take to be gone."""

_STORE_IS_AWAY = 3
"""The exit code of a worker that found no database: whoever runs workers starts it again."""

_SAID = {"code": "planned"}
FAULTS: tuple[tuple[int, dict[str, Any]], ...] = (
    (4, {"reply": "close"}),
    (3, {"reply": "reset"}),
    (2, {"reply": "cut_body"}),
    (1, {"reply": "cut_status_line"}),
    (1, {"reply": "garbage"}),
    (4, {"status": 503, "body": {"error": _SAID}}),
    (3, {"status": 500, "body": "Internal Server Error"}),
    (3, {"execute": False}),
    (2, {"execute": False, "reply": "close"}),
    (3, {"execute": False, "status": 429, "headers": {"Retry-After": "0"}}),
    (2, {"status": 409, "body": {"error": {"code": "in_progress"}}}),
    (2, {"status": 409, "body": {"error": {"code": "duplicate"}}}),
    (1, {"execute": False, "status": 400, "body": {"error": {"code": "invalid_request"}}}),
    (3, {"delay_before_seconds": 0.3}),
    (3, {"delay_after_seconds": 0.3}),
    (1, {"delay_after_seconds": 1.5}),
    (2, {"on": "reads", "reply": "close"}),
    (1, {"on": "reads", "status": 503, "body": {"error": _SAID}}),
)
"""How often, compared with the others, and what the provider does: performed or not, in each way in
which an answer can be lost, late, wrong or no answer."""


@dataclass
class Chaos:
    """Everything that goes wrong on one stage. `turn` does what is due, and is called in a loop."""

    stage: Stage
    workers: int
    restarts_wanted: bool
    kills: int = 0
    restarts: int = 0
    faults: int = 0
    _crew: dict[int, WorkerProcess] = field(default_factory=dict[int, WorkerProcess])
    _dies_at: dict[int, float] = field(default_factory=dict[int, float])
    _due: dict[str, float] = field(default_factory=dict[str, float])
    _pending: bool = False

    def turn(self) -> None:
        """Do what is due, and replace the workers that are gone."""
        acts: dict[str, tuple[tuple[float, float], Callable[[], None]]] = {
            "fault": (FAULT_SECONDS, self._plan_fault),
            "pending": (PENDING_SECONDS, self._toggle_pending),
        }
        if self.restarts_wanted:
            acts["restart"] = (RESTART_SECONDS, self._restart)
        for name, (seconds, act) in acts.items():
            due = self._due.setdefault(name, self._later(seconds))
            if elapsed_seconds() >= due:
                act()
                self._due[name] = self._later(seconds)
        for place in range(self.workers):
            self._kill_or_replace(place)

    def stop(self) -> None:
        """Let the workers drain, and see that each of them ends well.

        One that has only just been started is waited for: it would not hear of the end before.
        """
        for worker in self._crew.values():
            if worker.ready(READY_SECONDS):
                code = worker.terminate()
                assert code == 0, f"a worker drained to {code}:\n{self.stage.log_of(worker)}"
            else:
                self._expect_no_store(worker)

    def _later(self, seconds: tuple[float, float]) -> float:
        return elapsed_seconds() + self.stage.chance.uniform(*seconds)

    def _plan_fault(self) -> None:
        fault = self._drawn() | {"times": self.stage.chance.randint(1, 3)}
        self.stage.simulator.clear_faults()  # what struck nobody meanwhile must not pile up
        self.stage.simulator.fault(**fault)
        self.faults += 1

    def _drawn(self) -> dict[str, Any]:
        weights = [weight for weight, _ in FAULTS]
        (_, fault), *_ = self.stage.chance.choices(FAULTS, weights)
        return fault

    def _toggle_pending(self) -> None:
        self._pending = not self._pending
        self.stage.simulator.conduct(pending={"polls": 2} if self._pending else None)

    def _restart(self) -> None:
        self.stage.crash_server()
        self.restarts += 1

    def _kill_or_replace(self, place: int) -> None:
        worker = self._crew.get(place)
        if worker is None:
            self._crew[place] = self.stage.start_worker(
                f"worker-{place + 1}", lease_seconds=LEASE_SECONDS, concurrency=CONCURRENCY
            )
        elif not worker.running:
            self._expect_no_store(worker)
            self._bury(place)
        elif worker.ready(0):
            dies_at = self._dies_at.setdefault(place, self._later(LIFE_SECONDS))
            if elapsed_seconds() >= dies_at:
                worker.kill()
                self.kills += 1
                self._bury(place)

    def _expect_no_store(self, worker: WorkerProcess) -> None:
        """Check that a worker ended by itself because a server that crashed was not there."""
        try:
            code = worker.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            said = self.stage.log_of(worker)
            raise AssertionError(f"{worker.name} did not start:\n{said}") from None
        early = code == _STORE_IS_AWAY and self.restarts_wanted
        assert early, f"a worker ended with {code}:\n{self.stage.log_of(worker)}"

    def _bury(self, place: int) -> None:
        self._crew.pop(place).end()
        self._dies_at.pop(place, None)
