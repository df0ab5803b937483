"""The stage of a check: a database, a provider in a process of its own, workers that really die."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import settled
from settled import HistoryEntry, Identity, Money, OperationView, Principal
from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.simulator.client import SimulatorClient

KINDS = "settled.verify.kinds"
PROVIDER_VARIABLE = "PSP_URL"
AGENT = Principal("acme", "support-agent")
OPERATOR = Principal("acme", "ada", frozenset({"operator"}))
APPROVER = Principal("acme", "grace", frozenset({"approver"}))
CLOCK_SLACK_SECONDS = 0.05
"""How far the provider's clock and the store's may be apart on one host."""


class WorkerProcess:
    """A `settled worker` in a process of its own."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self.process = process

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def kill(self) -> None:
        """SIGKILL: no handler runs."""
        self.process.kill()
        self.process.wait(10)

    def freeze(self) -> None:
        """SIGSTOP: it stands still between two instructions."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def terminate(self, timeout_seconds: float = 30) -> int:
        """SIGTERM, and wait for the drained end; returns the exit status."""
        self.process.terminate()
        return self.process.wait(timeout_seconds)

    def wait_killed(self, timeout_seconds: float = 30) -> None:
        """Wait until a fault point has killed it."""
        assert self.process.wait(timeout_seconds) == -signal.SIGKILL


@dataclass
class Stage:
    """What a check needs. `app` is the service's side, in this process and without a worker."""

    url: str
    simulator: SimulatorClient
    folder: Path
    app: settled.App
    chance: random.Random
    workers: list[WorkerProcess] = field(default_factory=list[WorkerProcess])
    _commits: int = 0

    def worker(
        self,
        name: str = "worker",
        *,
        fault: str = "",
        lease_seconds: float = 1.0,
        concurrency: int = 20,
        kinds: str = "",
        environment: dict[str, str] | None = None,
        options: tuple[str, ...] = (),
        program: tuple[str, ...] = ("-m", "settled"),
    ) -> WorkerProcess:
        """Start a worker and wait until it is enrolled. `kinds` names one kind to serve alone."""
        env = {**self.environment(), **(environment or {})}
        if kinds:
            env["SETTLED_KINDS"] = f"{KINDS}:{kinds}"
        if fault:
            env["SETTLED_FAULT"] = fault
        command = [sys.executable, *program, "worker", "--json", "--name", name]
        command += ["--lease-seconds", str(lease_seconds), "--concurrency", str(concurrency)]
        log = open(self.folder / f"{name}-{len(self.workers)}.log", "w")  # noqa: SIM115
        process = subprocess.Popen(
            [*command, "--idle-seconds", "0.02", *options],
            env=env,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=self.folder,
        )
        log.close()
        worker = WorkerProcess(name, process)
        self.workers.append(worker)
        self._wait_ready(worker, fault)
        return worker

    def environment(self) -> dict[str, str]:
        """Return the environment of a command that works on this stage's store."""
        ours = str(Path(settled.__file__).resolve().parents[1])
        path = os.environ.get("PYTHONPATH")
        return {
            **os.environ,
            "PYTHONPATH": f"{ours}{os.pathsep}{path}" if path else ours,
            PROVIDER_VARIABLE: self.simulator.url,
            "SETTLED_URL": self.url,
            "SETTLED_KINDS": KINDS,
        }

    def _wait_ready(self, worker: WorkerProcess, fault: str) -> None:
        assert worker.process.stdout is not None
        ready, _, _ = select.select([worker.process.stdout], [], [], 30)
        line = worker.process.stdout.readline() if ready else ""
        if not line and "=kill" in fault and worker.process.wait(10) == -signal.SIGKILL:
            return  # the fault was faster than the announcement
        if not line:
            raise AssertionError(f"{worker.name} did not start:\n{self.log_of(worker)}")
        json.loads(line)

    def log_of(self, worker: WorkerProcess) -> str:
        """Return what a worker wrote to its standard error."""
        number = self.workers.index(worker)
        return (self.folder / f"{worker.name}-{number}.log").read_text()

    def intend(
        self,
        operation_id: str = "refund-request-9",
        *,
        kind: str = "refund",
        amount: str = "30.00",
        order: str = "order-72",
    ) -> OperationView:
        """Intend a refund."""
        params = {"order": order, "amount": Money(amount, "USD")}
        return self.app.operations.intend(kind, operation_id, params, by=AGENT)

    def get(self, operation: OperationView | Identity) -> OperationView:
        """Return the operation as it stands."""
        identity = operation if isinstance(operation, Identity) else operation.identity
        by = Principal(identity.tenant, "reader")
        return self.app.operations.get(identity.kind, identity.operation_id, by=by)

    def wait(
        self, operation: OperationView | Identity, *states: str, timeout_seconds: float = 20
    ) -> OperationView:
        """Wait until the operation is in one of these states, looking at the store."""
        deadline = elapsed_seconds() + timeout_seconds
        while True:
            view = self.get(operation)
            if view.state in states:
                return view
            if elapsed_seconds() > deadline:
                logs = "\n".join(self.log_of(worker)[-3000:] for worker in self.workers)
                raise AssertionError(f"{view.state}, not {states}: {self.names(view)}\n{logs}")
            select.select([], [], [], 0.01)

    def wait_event(
        self, operation: OperationView, name: str, times: int = 1, timeout_seconds: float = 20
    ) -> None:
        """Wait until the operation has so many events of a name."""
        deadline = elapsed_seconds() + timeout_seconds
        while self.names(operation).count(name) < times:
            if elapsed_seconds() > deadline:
                raise AssertionError(f"no {name}: {self.names(operation)}")
            select.select([], [], [], 0.01)

    def wait_log(
        self, worker: WorkerProcess, event: str, times: int = 1, timeout_seconds: float = 20
    ) -> None:
        """Wait until a worker has logged an event so many times."""
        deadline = elapsed_seconds() + timeout_seconds
        while self.log_of(worker).count(f'"event":"{event}"') < times:
            if elapsed_seconds() > deadline:
                raise AssertionError(f"{worker.name} logged no {event}:\n{self.log_of(worker)}")
            select.select([], [], [], 0.01)

    def freeze(self, worker: WorkerProcess) -> None:
        """SIGSTOP a worker, in a moment in which it holds no lock of the database.

        A process that is stopped within a transaction stops everybody who needs its rows (with
        SQLite, everybody); that is true of any program, and not what a check is about.
        """
        for _ in range(20):
            worker.freeze()
            if self._takes_commits():
                return
            worker.thaw()
        raise AssertionError(f"{worker.name} always holds a lock")

    def _takes_commits(self) -> bool:
        """Tell whether a commit goes through within a second."""
        done = threading.Event()

        def commit() -> None:
            self._commits += 1
            params = {"order": "probe", "amount": Money("1.00", "USD")}
            by = Principal("probe", "stage")
            self.app.operations.propose("decided", f"probe-{self._commits}", params, by=by)
            done.set()

        threading.Thread(target=commit, daemon=True).start()
        return done.wait(1)

    def wait_until(self, moment: datetime) -> None:
        """Wait until the store's clock has passed a moment."""
        while True:
            self.app.clock.refresh()
            left_seconds = (moment - self.app.clock.now()).total_seconds()
            if left_seconds < 0:
                return
            select.select([], [], [], left_seconds + 0.001)

    def names(self, operation: OperationView) -> list[str]:
        """Return the names of the operation's events."""
        by = Principal(operation.tenant, "reader")
        return [entry.name for entry in self.app.operations.history(operation, by=by)]

    def fields(self, operation: OperationView, name: str) -> list[dict[str, Any]]:
        """Return the fields of each event of one name."""
        by = Principal(operation.tenant, "reader")
        entries = self.app.operations.history(operation, by=by)
        return [dict(entry.fields) for entry in entries if entry.name == name]

    def dispatches(self, operation: OperationView) -> list[datetime]:
        """Return until when each request was permitted to begin, in order."""
        found = self.fields(operation, "Dispatching")
        return [datetime.fromisoformat(fields["permit_until"]) for fields in found]

    def requests(self) -> int:
        """Return how many requests that can have an effect the provider has seen."""
        return sum(not seen.reads for seen in self.simulator.log().requests)

    def effects(self) -> int:
        """Return how many effects the provider holds."""
        return len(self.simulator.effects())

    def expect(self, *, requests: int, effects: int) -> None:
        """Check how many requests the provider has seen and how many effects it holds."""
        seen = (self.requests(), self.effects())
        assert seen == (requests, effects), (
            f"the provider saw {seen[0]} requests and has {seen[1]} effects,"
            f" where {requests} and {effects} were to be expected"
        )

    def check_invariant(self, *operations: OperationView, unsent: int | None = None) -> None:
        """Per key: requests ≤ Dispatching, each after its own; one key and one body an operation.

        `unsent` is how many Dispatchings of all these operations were followed by no request,
        where the check knows: those that it killed in between.
        """
        seen = [request for request in self.simulator.log().requests if not request.reads]
        by_body: dict[str | None, set[str]] = {}
        for request in seen:
            by_body.setdefault(request.key, set()).add(request.body_sha256)
        differing = [key for key, bodies in by_body.items() if key and len(bodies) > 1]
        assert not differing, f"requests of one key differ: {differing}"
        missing = 0
        for operation in operations:
            by = Principal(operation.tenant, "reader")
            history = self.app.operations.history(operation, by=by)
            sent = [entry for entry in history if entry.name == "Dispatching"]
            keys = {entry.fields["key"] for entry in sent}
            bodies = {entry.fields["request_digest"] for entry in sent}
            assert len(keys) <= 1, "one generation has one key"
            requests = [
                r for r in seen if r.key in keys or (r.key is None and r.body_sha256 in bodies)
            ]
            assert len(requests) <= len(sent), (
                f"{len(requests)} requests after {len(sent)} Dispatching events"
            )
            for request, entry in zip(requests, sent, strict=False):
                early = entry.at.timestamp() - request.at
                assert early <= CLOCK_SLACK_SECONDS, f"a request {early} s before its commit"
            proven = sum(
                before.name == "Dispatching" and _never_sent(after)
                for before, after in zip(history, history[1:], strict=False)
            )
            missing += len(sent) - proven - len(requests)
        assert unsent in (None, missing), f"{missing} dispatches without a request"

    def end_workers(self) -> None:
        """Kill the workers that are still running: from then on nothing is sent."""
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.thaw()
                worker.kill()
            if worker.process.stdout is not None:
                worker.process.stdout.close()

    def close(self) -> None:
        """End what is still running."""
        self.end_workers()
        self.app.close()


def _never_sent(entry: HistoryEntry) -> bool:
    """Tell whether an event says that the attempt before it was proven not sent."""
    evidence: dict[str, Any] = entry.fields.get("evidence") or {}
    unsent = evidence.get("phase") == "not begun"
    return unsent and entry.name in ("RetryScheduled", "OutcomeUnknown")


@contextmanager
def staged(
    url: str, simulator: SimulatorClient, folder: Path, *, seed: str = ""
) -> Generator[Stage]:
    """Open a stage on a fresh database; whatever still runs is ended at the end.

    One process works with one simulator: its kinds know where that is from the environment.
    """
    os.environ[PROVIDER_VARIABLE] = simulator.url
    from settled.verify import kinds as declared

    found: list[Any] = list(vars(declared).values())
    kinds: list[settled.Kind[Any]] = [kind for kind in found if isinstance(kind, settled.Kind)]
    app = settled.open(url, kinds=kinds, migrate=True)
    stage = Stage(url, simulator, folder, app, random.Random(seed))
    try:
        yield stage
    finally:
        stage.close()
