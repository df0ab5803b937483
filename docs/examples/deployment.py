"""A machine of one's own: a version of a service goes out in stages. See docs/state-machines.md.

python deployment.py start  sqlite:///deployments.db checkout 1.7.0
python deployment.py worker sqlite:///deployments.db
python deployment.py show   sqlite:///deployments.db
"""

import asyncio
import os
import shlex
import signal
import sys
from datetime import datetime, timedelta
from typing import Any, ClassVar

import settled
from settled import ABSENT, Arrow, Event, Perform, Rest, State, Work

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
    """The command failed. The same stage starts again later."""

    TOPIC: ClassVar[str] = "deployment.StageFailed"
    stage: str
    reason: str
    next_at: datetime

    def apply(self, deployment: "Deployment") -> None:
        deployment.due = self.next_at


class Deployed(Event):
    """The last stage is out."""

    TOPIC: ClassVar[str] = "deployment.Deployed"
    stage: str


LIFECYCLE = settled.Lifecycle(
    "deployment",
    states=[
        State(
            "waiting",
            "The next stage has its moment: at once, when the last one has soaked, or some time"
            " after a failure. Left when a worker starts it.",
        ),
        State(
            "rolling",
            "One worker runs the command of the stage. Left when the command has ended. When the"
            " worker dies first, the next one starts the same stage again.",
            held=True,
        ),
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


class Deployment(settled.StateMachine):
    """One version of one service on its way out."""

    TOPIC = "deployment"
    LIFECYCLE = LIFECYCLE
    EVENTS = (Started, StageStarted, StageFinished, StageFailed, Deployed)
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
        return isinstance(machine, Deployment) and not machine.settled

    def decide(
        self, machine: Deployment, stamp: settled.Stamp, position: settled.Position
    ) -> settled.Decision:
        if position.draining:
            return Rest()
        machine.record(StageStarted, stamp, stage=machine.stage, worker=position.worker)
        return Perform(Work.CALL, machine.stage, lambda: roll_out(machine), self.conclude)

    def conclude(self, machine: Deployment, result: Any, stamp: settled.Stamp) -> None:
        next_at = stamp.at + SOAK
        if isinstance(result, Exception):
            machine.record(
                StageFailed, stamp, stage=machine.stage, reason=str(result), next_at=next_at
            )
        elif isinstance(result, settled.ShutDown):
            return  # cut short: whoever takes it next starts the stage again
        elif machine.stage == STAGES[-1]:
            machine.record(Deployed, stamp, stage=machine.stage)
        else:
            machine.record(StageFinished, stamp, stage=machine.stage, next_at=next_at)


async def roll_out(deployment: Deployment) -> None:
    """Tell the cluster what to run: the same words again, however late, change nothing."""
    words = (deployment.wanted.service, deployment.wanted.version, deployment.stage)
    process = await asyncio.create_subprocess_exec(*CLUSTER, *words)
    if status := await process.wait():
        raise RuntimeError(f"{' '.join(words)} ended with status {status}")


class DeploymentsNow:
    """What is where now: a view made from the log, which never decides anything."""

    name, version, topics = "deployments_now", 1, ("deployment.",)

    def tables(self, dialect: str) -> list[str]:
        return [
            "CREATE TABLE deployments_now_1 (tenant text, deployment text, stage text, state text,"
            " PRIMARY KEY (tenant, deployment))"
        ]

    def apply(self, event: Any, record: settled.RecordedEvent, rows: settled.Rows) -> None:
        key = {"tenant": record.tenant, "deployment": str(record.stream)}
        ...
