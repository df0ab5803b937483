"""Purging settled operations: their details go, and what answers whoever comes late stays.

One unit appends what is left to each stream, drops the stream's older events, and says so in the
tenant's record of purges. So a process that is killed at any point has purged all of it or nothing,
and no reader ever meets half of a stream.
"""

from __future__ import annotations

from collections.abc import Sequence

from settled.domain import purges
from settled.domain.clock import Stamp
from settled.domain.identity import Identity
from settled.domain.journal.unit import Committed, Exists, Stale, Unit
from settled.domain.kinds import Kinds
from settled.domain.operation import purge as purging
from settled.domain.operation.operation import Operation
from settled.domain.purges import Entry, Purges
from settled.processes.ledger import Ledger, unanswered


def purge(
    ledger: Ledger, identity: Identity, kinds: Kinds, stamp: Stamp, reason: str
) -> Operation | None:
    """Purge one settled operation, and return what is left of it; None where there is none.

    One that is purged already, and to which nothing has happened since, is returned as it is.
    Raises TransitionRefused for an open operation, NotPossible while its details may be needed as
    evidence, UnknownKind where its kind stands for another provider now.
    """
    while True:
        records = ledger.journal.events(identity.tenant, Operation.stream(identity))
        if not records:
            return None
        operation = ledger.mapper.fold(records)
        assert isinstance(operation, Operation), "the stream of an operation holds one"
        if operation.purged_at is not None and len(records) == 1:
            return operation
        contract = kinds.judging(operation).provider.contract
        purging.purge(operation, records, contract, stamp, reason)
        answer = ledger.append(unit_of(ledger, [operation], stamp, reason))
        if isinstance(answer, Committed):
            return operation
        if not isinstance(answer, Stale | Exists):
            raise unanswered(answer)


def unit_of(ledger: Ledger, operations: Sequence[Operation], stamp: Stamp, reason: str) -> Unit:
    """Return the unit that purges operations of one tenant, and says so in its record.

    Each of them has recorded its Purged just now. Of those who write the record at once one is
    admitted, and the others begin anew.
    """
    unit = ledger.unit(*operations)
    entries = tuple(
        Entry(
            kind=operation.kind,
            identity=operation.identity,
            stream=operation.id,
            version=operation.version,
            events=operation.purged_events,
            hash=operation.chain.hex(),
        )
        for operation in operations
    )
    record = purges.record(recorded(ledger, unit.tenant), unit.tenant, entries, stamp, reason)
    return Unit(unit.tenant, (*unit.changes, *ledger.unit(record).changes))


def recorded(ledger: Ledger, tenant: str) -> Purges | None:
    """Return a tenant's record of purges as it stands, from its last event alone."""
    stream = Purges.stream(tenant)
    head = ledger.journal.head(tenant, stream)
    if head is None:
        return None
    machine = ledger.mapper.fold(ledger.journal.events(tenant, stream, after=head.version - 1))
    assert isinstance(machine, Purges), "the stream of the record holds it"
    return machine
