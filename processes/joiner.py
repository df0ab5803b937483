"""Joins evidence that came by itself with the operation that it is about."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog

from settled.domain.clock import Stamp
from settled.domain.errors import NotFound
from settled.domain.identity import Identity
from settled.domain.inbox import Evidence, Joined, Lapsed, NotFoundYet, Testimony
from settled.domain.machine.machine import StateMachine
from settled.domain.operation.judgement import admit
from settled.domain.operation.operation import Operation
from settled.processes.ledger import Ledger
from settled.processes.manager import Decision, Perform, Position, Rest, Work
from settled.processes.operations import Desk
from settled.processes.runner import ShutDown


@dataclass(frozen=True)
class Joiner:
    """Looks for the operation of waiting evidence, and gives it the evidence."""

    desk: Desk
    ledger: Ledger
    name: str = "joiner"

    def interested(self, machine: StateMachine) -> bool:
        """Evidence that waits."""
        return isinstance(machine, Evidence) and not machine.settled

    def decide(self, machine: Evidence, stamp: Stamp, position: Position) -> Decision:
        """Look for the operation; the evidence is given to it before this row is closed."""
        if position.draining:
            return Rest()
        return Perform(Work.LOOKUP, "evidence", lambda: self._join(machine, stamp), self._conclude)

    async def _join(self, machine: Evidence, stamp: Stamp) -> UUID | None:
        assert machine.testimony is not None, "waiting evidence keeps its body"
        return await asyncio.to_thread(self.give, machine.testimony, stamp)

    def give(self, said: Testimony, stamp: Stamp) -> UUID | None:
        """Give testimony to its operation; None when there is none yet. Safe to repeat."""
        stream = self._find(said)
        if stream is None:
            return None

        def command(operation: Operation) -> None:
            kind = self.desk.kinds[operation.kind]
            contract = kind.provider.contract
            finding = said.finding(contract, self.desk.intended(kind, operation))
            admit(operation, contract, finding, stamp, timedelta())

        self.ledger.execute(said.tenant, stream, command, missing=NotFound)
        return stream

    def _find(self, said: Testimony) -> UUID | None:
        if said.kind and said.operation_id:
            stream = Operation.stream(Identity(said.tenant, said.kind, said.operation_id))
            return stream if self.ledger.journal.head(said.tenant, stream) else None
        assert said.reference, "testimony names its operation"
        return self.ledger.journal.referenced(said.tenant, said.provider, said.reference)

    def _conclude(self, machine: Evidence, result: Any, stamp: Stamp) -> None:
        if isinstance(result, ShutDown):
            return
        if isinstance(result, Exception):
            structlog.get_logger("settled.joiner").warning(
                "not_joined", evidence=machine.identity, error=str(result)
            )
        if isinstance(result, UUID):
            machine.record(Joined, stamp, stream=result)
        elif stamp.at >= machine.keep_until:
            machine.record(Lapsed, stamp)
        else:
            machine.record(NotFoundYet, stamp)
