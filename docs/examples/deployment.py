"""A machine of one's own: a version of a service goes out in stages. See docs/state-machines.md.

python deployment.py start  sqlite:///deployments.db checkout 1.7.0
python deployment.py worker sqlite:///deployments.db
python deployment.py show   sqlite:///deployments.db
"""

import asyncio
import os
import shlex
import sys
from datetime import datetime, timedelta
from typing import Any, ClassVar

import settled
from settled import ABSENT, Arrow, Event, Perform, Position, Rest, Stamp, State, Work

STAGES = ("build", "canary", "everywhere")
SOAK = timedelta(seconds=float(os.environ.get("SOAK_SECONDS", "600")))
CLUSTER = shlex.split(os.environ.get("CLUSTER", "echo rollout"))  # + service, version, stage


class Started(Event):
    """Somebody wants this version everywhere; the first stage is due at once."""

    TOPIC: ClassVar[str] = "deployment.Started"
    tenant: str
    identity: str
    service: str
    version: str
    stage: str = "-"

    def apply(self, deployment: "Deployment") -> None:
        deployment.wanted, deployment.due = self, self.timestamp


class StageStarted(Event):
    """A worker is about to run the command. No progress: what kills every worker gets parked."""

    TOPIC: ClassVar[str] = "deployment.StageStarted"
    PROGRESS: ClassVar[bool] = False
    stage: str
    worker: str


class StageFinished(Event):
    """A stage is out, and soaks until the next one starts."""

    TOPIC: ClassVar[str] = "deployment.StageFinished"
    stage: str
    next_at: datetime

    def apply(self, deployment: "Deployment") -> None:
        deployment.finished, deployment.due = deployment.finished + 1, self.next_at


class StageFailed(Event):
    """The command failed; the same stage starts again later."""

    TOPIC: ClassVar[str] = "deployment.StageFailed"
    stage: str
    next_at: datetime
    reason: str

    def apply(self, deployment: "Deployment") -> None:
        deployment.due = self.next_at


class Deployed(Event):
    """The last stage is out."""

    TOPIC: ClassVar[str] = "deployment.Deployed"
    stage: str


WAITING = """The next stage has its moment: at once, when the last one has soaked, or some time
after a failure. Left when a worker starts it."""
ROLLING = """One worker runs the command of the stage. Left when the command has ended. When the
worker dies first, the next one starts the same stage again."""


class Deployment(settled.StateMachine):
    """One version of one service on its way out."""

    TOPIC = "deployment"
    EVENTS = (Started, StageStarted, StageFinished, StageFailed, Deployed)
    LIFECYCLE = settled.Lifecycle(
        "deployment",
        states=[
            State("waiting", WAITING),
            State("rolling", ROLLING, held=True),
            State("deployed", "The last stage is out.", settled=True),
        ],
        arrows=[
            Arrow((ABSENT,), "Started", "waiting"),
            Arrow(("waiting", "rolling"), "StageStarted", "rolling"),
            Arrow(("rolling",), "StageFinished", "waiting"),
            Arrow(("rolling",), "StageFailed", "waiting"),
            Arrow(("rolling",), "Deployed", "deployed", guard="must_be_in_its_last_stage"),
        ],
    )
    wanted: Started
    due: datetime
    finished = 0

    @property
    def stage(self) -> str:
        return STAGES[self.finished]

    def must_be_in_its_last_stage(self) -> None:
        if self.stage != STAGES[-1]:
            raise settled.TransitionRefused(f"{self.stage} is not the last stage.")

    def next_due(self) -> datetime | None:
        return None if self.settled else self.due


class Rollout:
    """Decides the next step of a deployment that is due."""

    name = "rollout"

    def interested(self, machine: settled.StateMachine) -> bool:
        return isinstance(machine, Deployment)

    def decide(self, machine: Deployment, stamp: Stamp, position: Position) -> settled.Decision:
        if position.draining:
            return Rest()
        machine.record(StageStarted, stamp, stage=machine.stage, worker=position.worker)
        return Perform(Work.CALL, machine.stage, lambda: roll_out(machine), self.conclude)

    def conclude(self, machine: Deployment, result: Any, stamp: Stamp) -> None:
        stage, next_at = machine.stage, stamp.at + SOAK
        if isinstance(result, settled.ShutDown):
            return  # cut short: whoever takes it next starts the stage again
        if isinstance(result, Exception):
            machine.record(StageFailed, stamp, stage=stage, next_at=next_at, reason=str(result))
        elif stage == STAGES[-1]:
            machine.record(Deployed, stamp, stage=stage)
        else:
            machine.record(StageFinished, stamp, stage=stage, next_at=next_at)


async def roll_out(deployment: Deployment) -> None:
    """Tell the cluster what to run: the same words again, however late, change nothing."""
    words = (deployment.wanted.service, deployment.wanted.version, deployment.stage)
    process = await asyncio.create_subprocess_exec(*CLUSTER, *words)
    if status := await process.wait():
        raise RuntimeError(f"{' '.join(words)} ended with status {status}")


class DeploymentsNow:
    """What happened last to each deployment: a view of the log, which never decides anything."""

    name, version, topics = "deployments_now", 1, ("deployment.",)

    def tables(self, dialect: str) -> list[str]:
        columns = "tenant text, stream text, name text, stage text, happened text"
        return [f"CREATE TABLE deployments_now_1 ({columns}, PRIMARY KEY (tenant, stream))"]

    def apply(self, event: Any, record: settled.RecordedEvent, rows: settled.Rows) -> None:
        name = getattr(event, "identity", "")  # the first event has it, and nothing changes it
        rows.execute(
            "INSERT INTO deployments_now_1 VALUES (:tenant, :stream, :name, :stage, :happened) ON"
            " CONFLICT (tenant, stream) DO UPDATE SET stage = :stage, happened = :happened",
            **{"tenant": record.tenant, "stream": str(record.stream), "name": name},
            **{"stage": event.stage, "happened": event.name()},
        )


def main(what: str = "", url: str = "", service: str = "", version: str = "") -> None:
    """Run one of the three commands."""
    if not url:
        return print(__doc__)
    with settled.open(url, machines=["deployment"], managers=lambda _: [Rollout()]) as app:
        if what == "start":
            wanted = {"identity": f"{service}-{version}", "service": service, "version": version}
            stream = settled.stream_id("acme", "deployment", "deployment", wanted["identity"])
            by = app.ledger.stamp("ada")
            new = Deployment.begin(Started, stream, by, tenant="acme", **wanted)
            print(app.ledger.begin(new).state)  # the same again is the same one
        elif what == "worker":
            app.run_worker(settled.WorkerSettings(name=f"deployer-{os.getpid()}"))
        elif what == "show":
            app.projector().catch_up(DeploymentsNow())
            for row in app.projector().fetch("SELECT * FROM deployments_now_1 ORDER BY name"):
                print(row["name"], row["stage"], row["happened"])


if __name__ == "__main__":
    main(*sys.argv[1:])
