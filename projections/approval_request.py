"""A proposal as it is put before whoever decides: what is asked, of whom, in what form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from settled.domain.approval import RecordedDecision
from settled.domain.errors import NotPossible
from settled.domain.identity import Identity
from settled.domain.kind import Kind
from settled.domain.operation.operation import Operation
from settled.domain.params import thaw


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What a person, or a form made for one, needs for a decision on one version of a proposal.

    A decision names `proposal_version` and `digest`. `params` are the exact parameters as JSON has
    them, and `schema` is the JSON Schema by which an edit of them is checked: an edit is a
    revision, whose version needs a decision of its own. `authors` have proposed or revised it.
    `count` people with one of `roles` have to approve, with `four_eyes` none of the authors, and
    `missing` of them have not; `decisions` are those on this version. It waits until `expires_at`.
    """

    tenant: str
    kind: str
    operation_id: str
    label: str
    state: str
    proposal_version: int
    digest: str
    params: Mapping[str, Any] | None
    schema: Mapping[str, Any]
    authors: tuple[str, ...]
    roles: tuple[str, ...]
    count: int
    four_eyes: bool
    policy_version: int
    missing: int
    decisions: tuple[RecordedDecision, ...]
    expires_at: datetime | None
    reason: str | None

    @property
    def identity(self) -> Identity:
        """Tenant, kind and operation id together."""
        return Identity(self.tenant, self.kind, self.operation_id)


def request_of(operation: Operation, kind: Kind[Any]) -> ApprovalRequest:
    """Return the request that an operation's present version makes, whatever became of it.

    Raises NotPossible for what was intended without a proposal.
    """
    if not operation.proposal_version:
        raise NotPossible(
            f"{operation.label} was intended without a proposal: nobody is asked for a decision.",
            hint="`settled ops show` shows it.",
        )
    params = operation.terms.params
    asked = operation.requirement
    if asked is None:  # from before it was recorded: today's policy is what counts for it
        assert params is not None, "open operations keep their parameters"
        asked = kind.policy.asks(thaw(kind.params, params.encode()))
    return ApprovalRequest(
        tenant=operation.tenant,
        kind=operation.kind,
        operation_id=operation.operation_id,
        label=operation.label,
        state=operation.state,
        proposal_version=operation.proposal_version,
        digest=operation.terms.digest.value,
        params=None if params is None else orjson.loads(params),
        schema=kind.params.model_json_schema(),
        authors=tuple(sorted(operation.authors)),
        roles=asked.roles,
        count=asked.count,
        four_eyes=asked.four_eyes,
        policy_version=asked.policy_version,
        missing=operation.approvals_missing,
        decisions=operation.decisions,
        expires_at=operation.expires_at if operation.state == "proposed" else None,
        reason=operation.last_reason if operation.state == "proposed" else None,
    )
