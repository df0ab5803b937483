"""A proposal as it is put before whoever decides: what is asked, of whom, in what form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from settled.domain.approval import RecordedDecision, Requirement
from settled.domain.errors import NotPossible
from settled.domain.identity import Identity
from settled.domain.kinds import Kinds
from settled.domain.operation.operation import Operation
from settled.domain.params import model_of_version, thaw


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


def request_of(operation: Operation, kinds: Kinds) -> ApprovalRequest:
    """Return the request that an operation's present version makes, whatever became of it.

    Raises NotPossible for what was intended without a proposal.
    """
    if not operation.proposal_version:
        raise NotPossible(
            f"{operation.label} was intended without a proposal: nobody is asked for a decision.",
            hint="`settled ops show` shows it.",
        )
    params = operation.terms.params
    asked = operation.requirement or asked_today(operation, kinds)
    return ApprovalRequest(
        tenant=operation.tenant,
        kind=operation.kind,
        operation_id=operation.operation_id,
        label=operation.label,
        state=operation.state,
        proposal_version=operation.proposal_version,
        digest=operation.terms.digest.value,
        params=None if params is None else orjson.loads(params),
        schema=kinds[operation.kind].params.model_json_schema(),
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


def asked_today(operation: Operation, kinds: Kinds) -> Requirement:
    """Return what the policy asks that is declared today: for streams that recorded none.

    Raises UnknownKind where its version is not declared here, NotPossible without its parameters.
    """
    kind, params = kinds.of_operation(operation), operation.terms.params
    if params is None:
        raise NotPossible(f"The details of {operation.label} are gone: nothing is decided now.")
    model = model_of_version(kind.params, operation.terms.params_version)
    return kind.policy.asks(thaw(model, params.encode()))
