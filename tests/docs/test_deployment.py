"""The example of a machine of one's own, run as its reader runs it: copied out, by real workers.

If it needed anything of this repository, or lost a stage when a worker dies, it would teach that.
"""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

import settled
from docs.examples.deployment import (
    STAGES,
    Deployed,
    Deployment,
    DeploymentsNow,
    StageFailed,
    StageFinished,
    StageStarted,
    Started,
)
from settled import App, HistoryEntry, TransitionRefused, stream_id
from settled.domain.journal.port import AgendaRow
from settled.infrastructure.testing.journal_units import eventually
from settled.projections.history import history_of
from settled.testing import assert_idempotent

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "deployment.py"
SKEW = timedelta(milliseconds=100)
"""How far two processes' ideas of the store's time may be apart."""

CLUSTER = """
import os, pathlib, sys, time

folder = pathlib.Path(sys.argv[1])
service, version, stage = sys.argv[2:]


def log(word):
    line = f"{word} {service} {version} {stage}\\n"
    file = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())


log("begin")
give_up_at = time.monotonic() + 60
while (folder / f"hold-{stage}").exists() and time.monotonic() < give_up_at:
    time.sleep(0.01)
try:
    (folder / f"refuse-{stage}").unlink()
except FileNotFoundError:
    new = folder / f"{service}.{stage}.{os.getpid()}"
    new.write_text(version)
    new.replace(folder / f"{service}.{stage}")
    log("end")
else:
    sys.exit(3)
"""
"""A cluster that keeps in files what it was told; it can be held in the middle, or refuse once."""


@dataclass
class Place:
    """A folder with a copy of the example and its cluster, and the workers that run there."""

    folder: Path
    url: str
    app: App
    soak_seconds: float = 0.5
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "deployment.py", *words]

    @property
    def environment(self) -> dict[str, str]:
        cluster = [sys.executable, str(self.folder / "cluster.py"), str(self.folder)]
        return {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "CLUSTER": shlex.join(cluster),
            "SOAK_SECONDS": str(self.soak_seconds),
        }

    def run(self, what: str, *words: str) -> str:
        done = subprocess.run(
            self.command(what, self.url, *words),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def worker(self) -> subprocess.Popen[bytes]:
        with open(self.folder / f"worker-{len(self.workers)}.log", "wb") as log:
            process = subprocess.Popen(
                self.command("worker", self.url),
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        self.workers.append(process)
        return process

    def until(self, question: Callable[[], bool]) -> None:
        try:
            eventually(question, 60)
        except AssertionError as error:
            logs = [path.read_text() for path in sorted(self.folder.glob("worker-*.log"))]
            raise AssertionError("\n".join([str(error), *self.log, *logs])) from error

    @property
    def log(self) -> list[str]:
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []

    def running(self, stage: str) -> str:
        return (self.folder / f"checkout.{stage}").read_text()

    def head(self, name: str = "checkout-1.7.0") -> AgendaRow:
        row = self.app.journal.head("acme", stream_of(name))
        assert row is not None
        return row

    def history(self, name: str = "checkout-1.7.0") -> list[HistoryEntry]:
        return history_of(self.app.journal.events("acme", stream_of(name)))

    def happened(self, name: str = "checkout-1.7.0") -> list[str]:
        entries = self.history(name)
        return [f"{e.name} {e.fields.get('stage', '')}".strip() for e in entries]

    def deployed(self, name: str = "checkout-1.7.0") -> bool:
        return self.head(name).state == "deployed"

    def hold(self, stage: str) -> Path:
        path = self.folder / f"hold-{stage}"
        path.touch()
        return path

    def check_history(self, name: str = "checkout-1.7.0") -> None:
        """Complete, each stage no sooner than it was due, and soon after."""
        entries = self.history(name)
        assert [entry.version for entry in entries] == list(range(1, len(entries) + 1))
        assert self.head(name).version == len(entries)
        due = entries[0].at
        for entry in entries:
            if entry.name == "StageStarted":
                assert due - SKEW <= entry.at <= due + timedelta(seconds=30)
            if "next_at" in entry.fields:
                due = datetime.fromisoformat(entry.fields["next_at"])
                assert due == entry.at + timedelta(seconds=self.soak_seconds)


def stream_of(name: str) -> UUID:
    return stream_id("acme", "deployment", "deployment", name)


@pytest.fixture
def place(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """The example outside of the repository, on a fresh database."""
    monkeypatch.setenv("SETTLED_STATE_DIR", str(tmp_path / "state"))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    shutil.copy(EXAMPLE, folder)
    (folder / "cluster.py").write_text(CLUSTER)
    with settled.open(store_url, migrate=True) as app:
        here = Place(folder, store_url, app)
        try:
            yield here
        finally:
            for held in folder.glob("hold-*"):
                held.unlink()
            for worker in here.workers:
                worker.kill()
                worker.wait()


IN_ORDER = [
    "Started -",
    *("StageStarted build", "StageFinished build"),
    *("StageStarted canary", "StageFinished canary"),
    *("StageStarted everywhere", "Deployed everywhere"),
]


def test_a_worker_killed_in_the_middle_of_a_stage(place: Place) -> None:
    """The stage is run again by the next worker: at least once, with the effect of once."""
    held = place.hold("canary")
    assert place.run("start", "checkout", "1.7.0") == "waiting\n"
    assert place.run("start", "checkout", "1.7.0") == "waiting\n"
    first = place.worker()
    place.until(lambda: "begin checkout 1.7.0 canary" in place.log)
    first.kill()
    first.wait()
    assert place.head().state == "rolling"
    place.worker()
    place.until(lambda: place.log.count("begin checkout 1.7.0 canary") == 2)
    held.unlink()
    place.until(place.deployed)
    place.until(lambda: place.log.count("end checkout 1.7.0 canary") == 2)
    assert place.happened() == [*IN_ORDER[:3], "StageStarted canary", *IN_ORDER[3:]]
    place.check_history()
    canaries = [e for e in place.history() if e.fields.get("stage") == "canary"]
    assert [e.fields["worker"] for e in canaries[:2]] == [
        f"deployer-{worker.pid}" for worker in place.workers
    ]
    assert [line for line in place.log if "canary" not in line] == [
        f"{word} checkout 1.7.0 {stage}"
        for stage in ("build", "everywhere")
        for word in ("begin", "end")
    ]
    assert {stage: place.running(stage) for stage in STAGES} == dict.fromkeys(STAGES, "1.7.0")
    assert place.run("show") == "checkout-1.7.0 everywhere Deployed\n"


def test_a_worker_killed_between_two_stages(place: Place) -> None:
    """Nobody runs while the stage soaks; the agenda wakes up whoever is there when it is due."""
    place.soak_seconds = 3
    place.run("start", "checkout", "1.7.0")
    first = place.worker()
    place.until(lambda: "StageFinished build" in place.happened())
    first.kill()
    first.wait()
    head, finished = place.head(), place.history()[-1]
    assert (head.state, head.owner) == ("waiting", None)
    assert head.due_at == datetime.fromisoformat(finished.fields["next_at"])
    assert place.run("show") == "checkout-1.7.0 build StageFinished\n"
    second = place.worker()
    place.until(place.deployed)
    assert place.happened() == IN_ORDER
    place.check_history()
    lines = [f"{word} checkout 1.7.0 {stage}" for stage in STAGES for word in ("begin", "end")]
    assert place.log == lines
    assert (place.head().owner, place.head().due_at) == (None, None)
    second.terminate()
    assert second.wait(30) == 0


def test_two_workers_never_own_one_deployment(place: Place) -> None:
    """Many deployments, two workers that live: each stage of each is started exactly once."""
    place.soak_seconds = 0.05
    names = [f"checkout-1.7.{number}" for number in range(8)]
    for name in names:
        service, _, version = name.partition("-")
        stamp = place.app.ledger.stamp("ada")
        fields = {"tenant": "acme", "identity": name, "service": service, "version": version}
        place.app.ledger.begin(Deployment.begin(Started, stream_of(name), stamp, **fields))
    place.worker()
    place.worker()
    place.until(lambda: all(place.deployed(name) for name in names))
    workers: set[str] = set()
    for name in names:
        assert place.happened(name) == IN_ORDER
        place.check_history(name)
        workers |= {e.fields["worker"] for e in place.history(name) if "worker" in e.fields}
    assert len(place.log) == len(set(place.log)) == len(names) * len(STAGES) * 2
    assert workers <= {f"deployer-{worker.pid}" for worker in place.workers}


def test_a_stage_that_fails_is_run_again_later(place: Place) -> None:
    """What went wrong comes back to the manager as a value, and becomes an event with a reason."""
    (place.folder / "refuse-canary").touch()
    place.run("start", "checkout", "1.7.0")
    place.worker()
    place.until(place.deployed)
    again = ["StageStarted canary", "StageFailed canary"]
    assert place.happened() == [*IN_ORDER[:3], *again, *IN_ORDER[3:]]
    (failed,) = [entry for entry in place.history() if entry.name == "StageFailed"]
    assert failed.fields["reason"] == "checkout 1.7.0 canary ended with status 3"
    place.check_history()


def test_its_view_and_its_guard(place: Place) -> None:
    """The example keeps the rules that it stands for."""
    app, stamp = place.app, place.app.ledger.stamp("ada")
    fields = {"tenant": "acme", "identity": "checkout-1.7.0", "service": "c", "version": "1"}
    stream = stream_of("checkout-1.7.0")
    app.ledger.begin(Deployment.begin(Started, stream, stamp, **fields))

    def command(deployment: Deployment) -> None:
        for stage in STAGES:
            deployment.record(StageStarted, stamp, stage=stage, worker="deployer-1")
            again = {"stage": stage, "next_at": stamp.at}
            deployment.record(StageFailed, stamp, **again, reason="a full disk")
            deployment.record(StageStarted, stamp, stage=stage, worker="deployer-1")
            if stage != STAGES[-1]:
                with pytest.raises(TransitionRefused, match="is not the last stage"):
                    deployment.record(Deployed, stamp, stage=stage)
                deployment.record(StageFinished, stamp, **again)
        deployment.record(Deployed, stamp, stage=STAGES[-1])

    app.ledger.execute("acme", stream, command)
    assert_idempotent(app.projector(), DeploymentsNow())
    assert place.run("show") == "checkout-1.7.0 everywhere Deployed\n"


def test_it_is_short() -> None:
    """What a reader is shown has to fit in a head: the machine and its manager in 120 lines."""
    text = EXAMPLE.read_text(encoding="utf-8")
    lines = text.splitlines()
    kept = [
        line
        for part in ast.parse(text).body
        if getattr(part, "name", "") not in ("DeploymentsNow", "main")
        for line in lines[part.lineno - 1 : part.end_lineno]
        if line.strip()
    ]
    assert 50 < len(kept) < 120
