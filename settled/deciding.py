"""Proposals and the decisions on them: propose, look, approve, reject, revoke, revise, cancel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from settled.commanding import Commanding, Given, P, missing, name_of
from settled.domain.approval import Requirement
from settled.domain.errors import EffectPossible
from settled.domain.identity import Identity, Principal, provider_key
from settled.domain.kind import Kind
from settled.domain.operation import deciding
from settled.domain.operation import events as ev
from settled.domain.operation.operation import Operation
from settled.domain.params import parse
from settled.projections.approval_request import ApprovalRequest, asked_today, request_of
from settled.projections.operation_view import OperationView, view_of


class Deciding(Commanding):
    """Commands on what waits for a decision, and on what was decided."""

    def propose(
        self,
        kind: Kind[P] | str,
        operation_id: str,
        params: Given,
        *,
        by: Principal,
        origin: Mapping[str, str] | None = None,
        connection: Any = None,
    ) -> OperationView:
        """Put an operation up for a decision; where its policy approves it, it is intended at once.

        Raises as `intend` does; PermissionDenied where the policy's limits say nothing about its
        currency.
        """
        declared, identity, parsed = self._request(kind, operation_id, params, by)
        terms = declared.terms(identity, parsed, self._keys, origin or {})
        key = self._first_key(identity)
        machine = deciding.begin_proposal(declared, terms, parsed, self._stamp(by), key)
        return self._begin(machine, declared, parsed, connection)

    def request(
        self, kind: Kind[Any] | str, operation_id: str, *, by: Principal
    ) -> ApprovalRequest:
        """Return what a decision needs: the parameters, their JSON Schema, by whom, until when.

        Raises NotFound; NotPossible for what was intended without a proposal.
        """
        identity = Identity(by.tenant, name_of(kind), operation_id)
        return request_of(self._load(identity), self._kinds)

    def revise(
        self, operation: OperationView | Identity, params: Given, *, by: Principal
    ) -> OperationView:
        """Give a proposal new terms under its next version; it needs a new decision.

        Whoever revises it counts as an author of it. The terms are those of the newest version of
        its kind, so this is also how what was never sent moves to it. Raises EffectPossible once
        anything may have been sent.
        """
        identity = self._identity(operation, by)
        declared = self._kinds[identity.kind]
        parsed = parse(declared.params, params)
        stamp, key = self._stamp(by), self._first_key(identity)

        def command(machine: Operation) -> None:
            deciding.revise(machine, declared, parsed, self._keys, stamp, key)

        return self._command(identity, command)

    def approve(
        self,
        operation: OperationView | ApprovalRequest | Identity,
        *,
        proposal_version: int,
        digest: str,
        by: Principal,
        reason: str | None = None,
        evidence: Sequence[str] = (),
        valid_until: datetime | None = None,
    ) -> OperationView:
        """Approve this version of a proposal, by its digest.

        It is intended in the same commit, once as many people have approved as its policy asks.
        `evidence` names what was looked at, and `valid_until` ends the approval sooner than the
        policy does. The first decision stands: approving again returns it.

        Raises DecisionRefused, with the decision that stands, for another version or digest, after
        expiry and after a rejection; PermissionDenied without the role, and for a proposal of
        one's own where the policy asks for somebody else; BudgetExceeded where the last approval
        would intend more than a budget has left, and then it is not recorded.
        """
        identity = self._identity(operation, by)
        stamp, key = self._stamp(by), self._first_key(identity)
        said = deciding.Said(by, proposal_version, digest, reason, tuple(evidence), valid_until)

        def command(machine: Operation) -> None:
            deciding.approve(machine, said, self._asked(machine), stamp, key)

        return self._command(identity, command)

    def reject(
        self,
        operation: OperationView | ApprovalRequest | Identity,
        *,
        proposal_version: int,
        digest: str,
        by: Principal,
        reason: str,
        evidence: Sequence[str] = (),
    ) -> OperationView:
        """Decline this version of a proposal: one who may approve it is enough.

        Rejecting again returns the first decision. Raises as `approve` does.
        """
        identity = self._identity(operation, by)
        stamp = self._stamp(by)
        said = deciding.Said(by, proposal_version, digest, reason, tuple(evidence))

        def command(machine: Operation) -> None:
            deciding.reject(machine, said, self._asked(machine), stamp)

        return self._command(identity, command)

    def revoke(
        self, operation: OperationView | Identity, *, by: Principal, reason: str
    ) -> OperationView:
        """Withdraw an approval before a worker has claimed the operation: it waits again.

        Raises PermissionDenied without a role that may approve it; TransitionRefused where there
        is no approval, or a worker has it; EffectPossible once anything may have been sent.
        """
        identity = self._identity(operation, by)
        declared = self._kinds[identity.kind]
        stamp = self._stamp(by)
        expires_at = stamp.at + declared.decide_within

        def command(machine: Operation) -> None:
            deciding.revoke(machine, by, reason, self._asked(machine), stamp, expires_at)

        return self._command(identity, command)

    def cancel(
        self, operation: OperationView | Identity, *, by: Principal, reason: str
    ) -> OperationView:
        """Withdraw an operation of which nothing is out.

        When a request may be out, the wish is recorded and EffectPossible raised: it is acted on
        when the outcome is known to be absent, and never reported as cancelled before.
        """
        identity = self._identity(operation, by)
        stamp = self._stamp(by)

        def command(machine: Operation) -> bool:
            if machine.state == "cancelled":
                return False
            requestable = machine.LIFECYCLE.allows(machine.state, "CancelRequested")
            if requestable and not machine.cancel_requested:
                machine.record(ev.CancelRequested, stamp, reason=reason)
            if not requestable:
                machine.record(ev.Cancelled, stamp, reason=reason)
            return requestable

        machine, requested = self._ledger.execute(
            identity.tenant, Operation.stream(identity), command, lambda: missing(identity)
        )
        if requested:
            raise EffectPossible(
                f"A request of {machine.label} may be out, so it is not cancelled.",
                hint="The cancel is recorded as a request and acted on when nothing is out.",
            )
        return view_of(machine)

    def _asked(self, machine: Operation) -> Requirement:
        """Return what was recorded as asked for it, or what today's policy asks.

        Raises UnknownKind where its version is not declared here: whoever cannot say what becomes
        of it, and whether anybody still serves it, decides nothing.
        """
        self._kinds.of_operation(machine)
        return machine.requirement or asked_today(machine, self._kinds)

    def _first_key(self, identity: Identity) -> str:
        return provider_key(self._installation.id, identity, 1)
