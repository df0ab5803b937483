"""One operation as a caller sees it: a frozen picture of what its stream says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from settled.domain.identity import Identity
from settled.domain.operation.operation import Operation


@dataclass(frozen=True, slots=True)
class OperationView:
    """What is known about an operation at one version of its stream.

    `receipt` is the provider's object once it succeeded; `reason` says in words why the operation
    is where it is; `next_at` is when somebody looks at it again (None when settled); `owner` is the
    person or queue it was handed over to. `digest` is what a decision on a proposal refers to.
    Once its details were purged, at `purged_at`, there are no parameters, receipt or reason.
    """

    tenant: str
    kind: str
    operation_id: str
    state: str
    label: str
    version: int
    settled: bool
    receipt: Mapping[str, Any] | None
    reference: str | None
    reason: str | None
    rule: str | None
    owner: str | None
    attempts: int
    next_at: datetime | None
    since: datetime
    proposal_version: int
    digest: str
    approved_by: str | None
    cancel_requested: bool
    params: str | None
    provider_key: str
    provider: str
    purged_at: datetime | None

    @property
    def identity(self) -> Identity:
        """Tenant, kind and operation id together."""
        return Identity(self.tenant, self.kind, self.operation_id)


def view_of(operation: Operation) -> OperationView:
    """Return the picture of an operation."""
    return OperationView(
        tenant=operation.tenant,
        kind=operation.kind,
        operation_id=operation.operation_id,
        state=operation.state,
        label=operation.label,
        version=operation.version,
        settled=operation.settled,
        receipt=operation.receipt,
        reference=operation.reference,
        reason=operation.last_reason,
        rule=operation.last_rule,
        owner=operation.owner_name if operation.state == "handed_over" else None,
        attempts=len(operation.attempts),
        next_at=operation.next_due(),
        since=operation.since,
        proposal_version=operation.proposal_version,
        digest=operation.terms.digest.value,
        approved_by=operation.approved_by,
        cancel_requested=operation.cancel_requested,
        params=operation.terms.params,
        provider_key=operation.provider_key,
        provider=operation.terms.provider,
        purged_at=operation.purged_at,
    )
