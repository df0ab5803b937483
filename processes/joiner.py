"""Joins evidence that came by itself with the operation that it is about."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from settled.domain.clock import Stamp
from settled.domain.identity import Identity
from settled.domain.inbox import Evidence, Joined, Lapsed, NotFoundYet, Testimony
from settled.domain.kind import Kind
from settled.domain.machine.machine import StateMachine
from settled.domain.operation.evidence import admit
from settled.domain.operation.operation import Operation
from settled.domain.provider import Via
from settled.processes.ledger import ForeignReference, Ledger
from settled.processes.log import logger
from settled.processes.manager import Decision, Perform, Position, Rest, Work
from settled.processes.operations import Desk, fields_of, understood
from settled.processes.runner import Foreign, ShutDown


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

        def command(operation: Operation, foreign: bool = False) -> None:
            kind = self.desk.kinds.judging(operation)
            contract = kind.provider.contract
            finding = said.finding(contract, self._intended(kind, operation))
            told = understood(Foreign(finding) if foreign else finding, Via.WEBHOOK)
            admit(operation, contract, told, stamp, timedelta())

        try:
            self.ledger.execute(said.tenant, stream, command)
        except ForeignReference:
            self.ledger.execute(said.tenant, stream, partial(command, foreign=True))
        return stream

    def _intended(self, kind: Kind[Any], operation: Operation) -> Mapping[str, Any]:
        """Return what an echo is compared with: nothing, once the details are purged."""
        if operation.terms.params is None:
            return {}
        return fields_of(self.desk.params(kind, operation))

    def _find(self, said: Testimony) -> UUID | None:
        if said.kind and said.operation_id:
            stream = Operation.stream(Identity(said.tenant, said.kind, said.operation_id))
            row = self.ledger.journal.head(said.tenant, stream)
            # What another provider says of it is no evidence about the one it goes to.
            return stream if row is not None and row.lane.endswith(f"/{said.provider}") else None
        assert said.reference, "testimony names its operation"
        return self.ledger.journal.referenced(said.tenant, said.provider, said.reference)

    def _conclude(self, machine: Evidence, result: Any, stamp: Stamp) -> None:
        if isinstance(result, ShutDown):
            return
        if isinstance(result, Exception):
            # Such as a kind that is not declared here: another worker may know it.
            logger("settled.joiner").warning(
                "not_joined", evidence=machine.identity, error=str(result)
            )
            machine.record(NotFoundYet, stamp, failed=repr(result)[:500])
        elif isinstance(result, UUID):
            machine.record(Joined, stamp, stream=result)
        elif stamp.at >= machine.keep_until:
            machine.record(Lapsed, stamp)
        else:
            machine.record(NotFoundYet, stamp)
