"""The stage of a check: a database, a provider in a process of its own, workers that really die."""

from __future__ import annotations

import importlib
import os
import random
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import settled
from settled import Identity, Money, OperationView, Principal
from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.simulator.client import SimulatorClient
from settled.infrastructure.testing.postgres_server import PostgresServer
from settled.verify.invariant import check_invariant
from settled.verify.provider import PROVIDER_VARIABLE
from settled.verify.worker import WorkerProcess

KINDS = "settled.verify.kinds"
AGENT = Principal("acme", "support-agent")
OPERATOR = Principal("acme", "ada", frozenset({"operator"}))
APPROVER = Principal("acme", "grace", frozenset({"approver"}))
CREW_SIZE = 3
"""How many workers a check has that is about several, unless the run was asked for others."""

READY_SECONDS = 30.0


@dataclass
class Stage:
    """What a check needs. `app` is the service's side, in this process and without a worker.

    `boundaries` says where something was killed, frozen or lost, in the order in which it was
    planned. `cleaning` is done when the stage is closed. `crew_size` is how many workers a check
    has that is about several.
    """

    url: str
    simulator: SimulatorClient
    folder: Path
    app: settled.App
    chance: random.Random
    own_server: PostgresServer | None = None
    crew_size: int = CREW_SIZE
    workers: list[WorkerProcess] = field(default_factory=list[WorkerProcess])
    boundaries: list[str] = field(default_factory=list[str])
    cleaning: ExitStack = field(default_factory=ExitStack)
    _commits: int = 0

    @property
    def server(self) -> PostgresServer:
        """The server that this stage may stop. Only checks with `own_server` have one."""
        assert self.own_server is not None, "the check says that it needs no server of its own"
        return self.own_server

    def crash_server(self) -> None:
        """Stop the database without a checkpoint, and start it again."""
        self.strike("PostgreSQL stopped (immediate)")
        self.server.stop("immediate")
        self.server.start()

    def strike(self, boundary: str) -> None:
        """Note where something was killed, frozen or lost."""
        self.boundaries.append(boundary)

    def move(self, url: str) -> None:
        """Go on at another store, or at the same one when it was put in the place of another."""
        self.app.close()
        self.url = url
        self.app = _open(url)

    def crew(self, **settings: Any) -> list[WorkerProcess]:
        """Start several workers, as many as the run was asked for."""
        names = [f"worker-{number}" for number in range(1, self.crew_size + 1)]
        crew = [self.start_worker(name, **settings) for name in names]
        for worker in crew:
            self._wait_ready(worker, fault="")
        return crew

    def worker(self, name: str = "worker", *, fault: str = "", **settings: Any) -> WorkerProcess:
        """Start a worker and wait until it is enrolled; `settings` as in `start_worker`."""
        worker = self.start_worker(name, fault=fault, **settings)
        self._wait_ready(worker, fault)
        return worker

    def start_worker(
        self,
        name: str,
        *,
        fault: str = "",
        lease_seconds: float = 1.0,
        concurrency: int = 20,
        kinds: str = "",
        environment: dict[str, str] | None = None,
        options: tuple[str, ...] = (),
    ) -> WorkerProcess:
        """Start a worker. `kinds` names one kind to serve alone."""
        env = {**self.environment(), **(environment or {})}
        if kinds:
            env["SETTLED_KINDS"] = f"{KINDS}:{kinds}"
            options = (*options, "--leave-to-others")
        if fault:
            env["SETTLED_FAULT"] = fault
            self.strike(fault)
        command = ["-m", "settled.verify.minded", "worker", "--json"]
        command += ["--name", name, "--idle-seconds", "0.02", "--concurrency", str(concurrency)]
        command += ["--lease-seconds", str(lease_seconds), *options]
        return self.start_process(name, *command, environment=env)

    def start_process(
        self, name: str, *command: str, environment: dict[str, str] | None = None
    ) -> WorkerProcess:
        """Start Python with this command, as a worker that is ended with the stage."""
        with self._log_file(name, len(self.workers)).open("w") as log:
            process = subprocess.Popen(
                [sys.executable, *command],
                env=environment or self.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.folder,
            )
        worker = WorkerProcess(name, process, self.strike)
        self.workers.append(worker)
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
        if worker.ready(READY_SECONDS):
            return
        if "=kill" in fault and worker.process.wait(READY_SECONDS) == -signal.SIGKILL:
            return  # the fault was faster than the announcement
        raise AssertionError(f"{worker.name} did not start:\n{self.log_of(worker)}")

    def log_of(self, worker: WorkerProcess) -> str:
        """Return what a worker wrote to its standard error."""
        return self._log_file(worker.name, self.workers.index(worker)).read_text()

    def _log_file(self, name: str, number: int) -> Path:
        return self.folder / f"{name}-{number}.log"

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
        """Each request the provider saw has a Dispatching of its own, recorded before it.

        These have to be all operations that sent anything; a check that sends something itself, as
        if from elsewhere, counts for itself instead. `unsent` is how many Dispatchings of all these
        operations were followed by no request, where the check knows: those that it killed in
        between.
        """
        histories = [
            self.app.operations.history(operation, by=Principal(operation.tenant, "reader"))
            for operation in operations
        ]
        missing = check_invariant(histories, self.simulator.log().calls()).missing
        assert unsent in (None, missing), f"{missing} dispatches without a request"

    def end_workers(self) -> None:
        """Kill the workers that are still running: from then on nothing is sent."""
        for worker in self.workers:
            worker.end()

    def close(self) -> None:
        """End what is still running, and clean up."""
        self.end_workers()
        self.app.close()
        self.cleaning.close()


@contextmanager
def staged(
    url: str,
    simulator: SimulatorClient,
    folder: Path,
    *,
    seed: str = "",
    server: PostgresServer | None = None,
    crew_size: int = CREW_SIZE,
) -> Generator[Stage]:
    """Open a stage on a fresh database; whatever still runs is ended at the end.

    One process works with one simulator: its kinds know where that is from the environment.
    """
    os.environ[PROVIDER_VARIABLE] = simulator.url
    chance = random.Random(seed)
    stage = Stage(url, simulator, folder, _open(url), chance, server, crew_size)
    try:
        yield stage
    finally:
        stage.close()


def _open(url: str) -> settled.App:
    from settled.verify import kinds as declared

    if os.environ[PROVIDER_VARIABLE] != declared.PSP_URL:
        importlib.reload(declared)  # somebody had it loaded before there was a simulator
    found: list[Any] = list(vars(declared).values())
    kinds: list[settled.Kind[Any]] = [kind for kind in found if isinstance(kind, settled.Kind)]
    return settled.open(url, kinds=kinds, migrate=True)
