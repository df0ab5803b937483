"""The service's side: intend, decide, ask, wait, give evidence, settle by hand.

Every method is synchronous and safe to call from several threads; from asyncio call them through
`asyncio.to_thread`. Every command is given by a `Principal`, and reaches the operations of its
tenant alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal, TypeVar

import orjson

from settled.domain.clock import Stamp
from settled.domain.digest import differing_fields, same_request
from settled.domain.errors import (
    DecisionRefused,
    EffectPossible,
    InvalidEvidence,
    NotFound,
    NotPossible,
    ParametersChanged,
    PermissionDenied,
    TransitionRefused,
    UnknownKind,
    WaitTimeout,
)
from settled.domain.identity import Identity, Principal, provider_key
from settled.domain.inbox import receive, testimony
from settled.domain.journal.port import Installation
from settled.domain.journal.unit import Committed, Exists
from settled.domain.keys import Keys
from settled.domain.kind import Kind
from settled.domain.kinds import Kinds
from settled.domain.operation import events as ev
from settled.domain.operation.operation import Operation, fields, intend, propose
from settled.domain.params import Params, parse
from settled.processes.joiner import Joiner
from settled.processes.ledger import Ledger, unanswered
from settled.processes.purging import purge
from settled.projections.history import HistoryEntry, history_of
from settled.projections.operation_view import OperationView, view_of
from settled.projections.why import Explanation, why_now

P = TypeVar("P", bound=Params)
Given = Params | Mapping[str, Any] | str | bytes
Outcome = Literal["succeeded", "failed", "absent"]

OPERATOR = "operator"
"""The role that may settle by hand, resume, reissue and purge."""


class Operations:
    """Commands and questions about operations."""

    def __init__(
        self, ledger: Ledger, kinds: Kinds, keys: Keys, installation: Installation, joiner: Joiner
    ) -> None:
        self._ledger = ledger
        self._kinds = kinds
        self._keys = keys
        self._installation = installation
        self._joiner = joiner

    # Coming into being.

    def intend(
        self,
        kind: Kind[P] | str,
        operation_id: str,
        params: Given,
        *,
        by: Principal,
        origin: Mapping[str, str] | None = None,
        connection: Any = None,
    ) -> OperationView:
        """Make an operation durable, to be performed once. The same call again returns the same.

        `kind` is a name, for the newest version declared here, or the declaration of one version.
        `params` is an instance of the kind's model, a mapping or JSON. `origin` keeps other
        identifiers of the request beside the identity. With `connection`, a psycopg or sqlite3
        connection in an open transaction, the intent commits or rolls back with it; make it the
        last thing before COMMIT.

        Raises InvalidParams, InvalidIdentity, UnknownKind; ParametersChanged when the operation
        exists with other parameters; PermissionDenied when its kind needs an approval first.
        """
        declared, identity, parsed = self._request(kind, operation_id, params, by)
        if declared.approvers:
            raise PermissionDenied(
                f"A {declared.name} needs an approval before it is intended.",
                hint="Use propose(…); it is intended when somebody approves it.",
            )
        stamp = self._stamp(by)
        terms = declared.terms(identity, parsed, self._keys, origin or {})
        machine = intend(terms, stamp, provider_key(self._installation.id, identity, 1))
        return self._begin(machine, declared, parsed, connection)

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
        """Put an operation up for a decision. Raises as `intend` does."""
        declared, identity, parsed = self._request(kind, operation_id, params, by)
        stamp = self._stamp(by)
        terms = declared.terms(identity, parsed, self._keys, origin or {})
        machine = propose(terms, stamp, stamp.at + declared.decide_within)
        return self._begin(machine, declared, parsed, connection)

    def revise(
        self, operation: OperationView | Identity, params: Given, *, by: Principal
    ) -> OperationView:
        """Give a proposal new terms under its next version; it needs a new decision.

        The terms are those of the newest version of its kind, so this is also how what was never
        sent moves to it. Raises EffectPossible once anything may have been sent.
        """
        identity = self._identity(operation, by)
        declared = self._kinds[identity.kind]
        parsed = parse(declared.params, params)
        stamp = self._stamp(by)
        terms = declared.terms(identity, parsed, self._keys, {})

        def command(machine: Operation) -> None:
            machine.record(
                ev.Revised,
                stamp,
                **fields(terms),
                proposal_version=machine.proposal_version + 1,
                expires_at=stamp.at + declared.decide_within,
            )

        return self._command(identity, command)

    # Deciding.

    def approve(
        self,
        operation: OperationView | Identity,
        *,
        proposal_version: int,
        digest: str,
        by: Principal,
    ) -> OperationView:
        """Approve this version of a proposal, by its digest; it is intended in the same commit.

        The first decision stands: approving again returns it. Raises DecisionRefused for another
        version or digest, after expiry and after a rejection; PermissionDenied without the role.
        """
        identity = self._identity(operation, by)
        stamp = self._stamp(by)

        def command(machine: Operation) -> None:
            self._must_be_approver(machine, by, "approve")
            if (
                machine.approved_version == proposal_version
                and machine.terms.digest.value == digest
            ):
                return
            _must_be_this(machine, proposal_version, digest)
            if machine.expires_at is not None and stamp.at >= machine.expires_at:
                raise DecisionRefused("The time to decide on this proposal is over.")
            machine.record(
                ev.Approved,
                stamp,
                proposal_version=proposal_version,
                digest=digest,
                roles=tuple(sorted(by.roles)),
            )
            machine.record(
                ev.Intended,
                stamp,
                **fields(machine.terms),
                provider_key=provider_key(self._installation.id, identity, 1),
                generation=1,
                give_up_at=stamp.at + timedelta(seconds=machine.terms.within_seconds),
            )

        return self._command(identity, command)

    def reject(
        self,
        operation: OperationView | Identity,
        *,
        proposal_version: int,
        digest: str,
        by: Principal,
        reason: str,
    ) -> OperationView:
        """Decline this version of a proposal. Rejecting again returns the first decision."""
        identity = self._identity(operation, by)
        stamp = self._stamp(by)

        def command(machine: Operation) -> None:
            self._must_be_approver(machine, by, "reject")
            if machine.state == "rejected" and machine.proposal_version == proposal_version:
                return
            _must_be_this(machine, proposal_version, digest)
            machine.record(ev.Rejected, stamp, proposal_version=proposal_version, reason=reason)

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
            identity.tenant, Operation.stream(identity), command, lambda: _missing(identity)
        )
        if requested:
            raise EffectPossible(
                f"A request of {machine.label} may be out, so it is not cancelled.",
                hint="The cancel is recorded as a request and acted on when nothing is out.",
            )
        return view_of(machine)

    # Asking.

    def get(self, kind: Kind[Any] | str, operation_id: str, *, by: Principal) -> OperationView:
        """Return an operation as it stands. Raises NotFound."""
        identity = Identity(by.tenant, _name(kind), operation_id)
        return view_of(self._load(identity))

    def history(self, operation: OperationView | Identity, *, by: Principal) -> list[HistoryEntry]:
        """Return every event of an operation, in order. Raises NotFound."""
        identity = self._identity(operation, by)
        records = self._ledger.journal.events(identity.tenant, Operation.stream(identity))
        if not records:
            raise _missing(identity)
        return history_of(records)

    def why(self, operation: OperationView | Identity, *, by: Principal) -> Explanation:
        """Explain why an operation is where it is, who has it, and what comes next.

        Nothing is sent or decided: it is read from the records. Raises NotFound.
        """
        identity = self._identity(operation, by)
        told = why_now(self._ledger.journal, self._ledger.mapper, identity, self._kinds)
        if told is None:
            raise _missing(identity)
        return told

    def wait(self, operation: OperationView, *, timeout_seconds: float) -> OperationView:
        """Wait until an operation is settled or handed over; WaitTimeout when it takes longer."""
        identity = operation.identity
        stream = Operation.stream(identity)
        deadline = self._ledger.clock.monotonic() + timeout_seconds
        pause_seconds = 0.005
        while True:
            head = self._ledger.journal.head(identity.tenant, stream)
            if head is None:
                raise _missing(identity)
            if head.due_at is None or head.state == "handed_over":
                return view_of(self._load(identity))
            if self._ledger.clock.monotonic() >= deadline:
                raise WaitTimeout(
                    f"{identity.operation_id} is {head.state} after {timeout_seconds:g} s.",
                    hint="It goes on without you: ask again, or see `settled ops show`.",
                )
            time.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 1.5, 0.1)

    # Evidence, and what only a person can do.

    def record_evidence(
        self,
        *,
        by: Principal,
        provider: str,
        answered: str,
        kind: Kind[Any] | str | None = None,
        operation_id: str | None = None,
        reference: str | None = None,
        receipt: Mapping[str, Any] | None = None,
        reason: str = "reported by the provider",
        event_id: str | None = None,
    ) -> OperationView | None:
        """Keep what a webhook or report says, and let it settle what it settles.

        Names its operation by kind and operation id, or by the provider's reference. `answered` is
        a word of `settled.Answered` (performed, pending, failed, reversed). `receipt` is the
        provider's object; fields in it that the contract compares are compared with the intent.
        Returns the operation, or None when none is known yet: the evidence is stored and joined
        when it appears. Once this returns, the evidence is durable: acknowledge the webhook then.
        """
        said = testimony(
            tenant=by.tenant,
            provider=provider,
            kind=_name(kind) if kind is not None else None,
            operation_id=operation_id,
            reference=reference,
            answered=answered,
            receipt=receipt,
            reason=reason,
            event_id=event_id,
        )
        stamp = self._stamp(by)
        try:
            stream = self._joiner.give(said, stamp)
        except UnknownKind:
            stream = None  # kept until a worker that knows the kind joins it
        if stream is not None:
            return self._view(by.tenant, stream)
        machine = receive(said, stamp)
        answer = self._ledger.append(self._ledger.unit(machine))
        if not isinstance(answer, Committed | Exists):
            raise unanswered(answer)
        return None

    def settle(
        self,
        operation: OperationView | Identity,
        *,
        outcome: Outcome,
        evidence: Mapping[str, Any],
        by: Principal,
        reason: str,
        reference: str | None = None,
        receipt: Mapping[str, Any] | None = None,
    ) -> OperationView:
        """Settle by hand what no automatic step can: with an actor, a reason and evidence.

        `outcome` is succeeded, failed (definitively no effect), or absent (no effect exists, and it
        may be dispatched again under the same key). `receipt` is the provider's object, where
        a person has it. Raises PermissionDenied without the role "operator", InvalidEvidence
        without evidence, TransitionRefused for a settled operation, EffectPossible for "absent"
        while a request may still arrive.
        """
        identity = self._identity(operation, by)
        self._must_be_operator(by, "settle an operation by hand")
        if not evidence:
            raise InvalidEvidence(
                "A settlement by hand needs evidence.",
                hint="Say what was seen and where, such as {'statement': 'line 7 of 2026-11-30'}.",
            )
        stamp = self._stamp(by)
        by_hand: dict[str, Any] = {"via": "hand", "reason": reason, "evidence": dict(evidence)}

        def command(machine: Operation) -> None:
            if machine.state not in ("handed_over", "outcome_unknown", "accepted"):
                raise TransitionRefused(
                    f"{machine.label} is {machine.state}: there is nothing to settle by hand."
                )
            _must_be_over(machine, outcome, stamp)
            match outcome:
                case "succeeded":
                    machine.record(
                        ev.Succeeded,
                        stamp,
                        reference=reference,
                        replayed=False,
                        rule="settled by hand",
                        receipt=dict(receipt) if receipt is not None else None,
                        **by_hand,
                    )
                case "failed":
                    machine.record(ev.Failed, stamp, rule="settled by hand", **by_hand)
                case "absent":
                    machine.record(
                        ev.ConfirmedAbsent,
                        stamp,
                        rule="settled by hand",
                        due_at=stamp.at,
                        **by_hand,
                    )

        return self._command(identity, command)

    def resume(
        self, operation: OperationView | Identity, *, by: Principal, reason: str
    ) -> OperationView:
        """Give an operation that was handed over back to the automatic steps."""
        identity = self._identity(operation, by)
        self._must_be_operator(by, "resume a reconciliation")
        stamp = self._stamp(by)

        def command(machine: Operation) -> None:
            give_up_at = stamp.at + timedelta(seconds=machine.terms.within_seconds)
            machine.record(ev.ReconciliationResumed, stamp, reason=reason, give_up_at=give_up_at)

        return self._command(identity, command)

    def unpark(self, operation: OperationView | Identity, *, by: Principal) -> OperationView:
        """Let workers take an operation again that was parked: taken too often without progress.

        Raises NotPossible when it is not parked.
        """
        identity = self._identity(operation, by)
        self._must_be_operator(by, "unpark an operation")
        if not self._ledger.journal.unpark(identity.tenant, Operation.stream(identity)):
            raise NotPossible(f"{identity.operation_id} is not parked.")
        return view_of(self._load(identity))

    def reissue(
        self, operation: OperationView | Identity, *, by: Principal, reason: str
    ) -> OperationView:
        """Begin a new generation of a failed operation, under a new provider key."""
        identity = self._identity(operation, by)
        self._must_be_operator(by, "reissue an operation")
        stamp = self._stamp(by)

        def command(machine: Operation) -> None:
            if self._kinds.of_operation(machine).approvers:
                raise PermissionDenied(
                    f"A {identity.kind} needs an approval, and reissuing asks for none.",
                    hint="Propose a new operation instead.",
                )
            generation = machine.generation + 1
            machine.record(
                ev.Reissued,
                stamp,
                generation=generation,
                provider_key=provider_key(self._installation.id, identity, generation),
                give_up_at=stamp.at + timedelta(seconds=machine.terms.within_seconds),
                reason=reason,
            )

        return self._command(identity, command)

    def purge(
        self, operation: OperationView | Identity, *, by: Principal, reason: str
    ) -> OperationView:
        """Drop the details of a settled operation for good: parameters, requests, answers, texts.

        What is left answers a late duplicate, evidence that comes late, and an audit. Purging what
        is purged already, and to which nothing has happened since, changes nothing. Raises
        PermissionDenied without the role "operator", TransitionRefused for an open operation, and
        NotPossible while its provider's contract has a use for the details.
        """
        identity = self._identity(operation, by)
        self._must_be_operator(by, "purge an operation")
        stamp = self._stamp(by)
        purged = purge(self._ledger, identity, self._kinds, stamp, reason)
        if purged is None:
            raise _missing(identity)
        return view_of(purged)

    # Inside.

    def _request(
        self, kind: Kind[P] | str, operation_id: str, params: Given, by: Principal
    ) -> tuple[Kind[Any], Identity, Any]:
        declared = self._kinds.named(kind)
        identity = Identity(by.tenant, declared.name, operation_id)
        return declared, identity, parse(declared.params, params)

    def _begin(
        self, machine: Operation, kind: Kind[Any], params: Params, connection: Any
    ) -> OperationView:
        begun = self._ledger.begin(machine, connection)
        if begun is not machine:
            self._must_be_same(begun, kind, params)
        return view_of(begun)

    def _must_be_same(self, existing: Operation, kind: Kind[Any], params: Params) -> None:
        stored = existing.terms.digest
        key = self._keys.key(existing.tenant, stored.key_id)
        if same_request(stored, params, kind.mode, key):
            return
        raise ParametersChanged(
            f"{existing.operation_id} exists with {_difference(existing, params, kind)}.",
            hint="Nothing was sent. Use a new operation id for a new request, or revise the "
            "proposal while it waits for a decision.",
        )

    def _command(self, identity: Identity, command: Any) -> OperationView:
        machine, _ = self._ledger.execute(
            identity.tenant, Operation.stream(identity), command, lambda: _missing(identity)
        )
        return view_of(machine)

    def _load(self, identity: Identity) -> Operation:
        machine = self._ledger.load(identity.tenant, Operation.stream(identity))
        if machine is None:
            raise _missing(identity)
        assert isinstance(machine, Operation)
        return machine

    def _view(self, tenant: str, stream: Any) -> OperationView:
        machine = self._ledger.load(tenant, stream)
        assert isinstance(machine, Operation)
        return view_of(machine)

    def _identity(self, operation: OperationView | Identity, by: Principal) -> Identity:
        identity = operation if isinstance(operation, Identity) else operation.identity
        if identity.tenant != by.tenant:
            raise PermissionDenied(f"{by.actor} acts for another tenant than {identity.tenant}.")
        return identity

    def _must_be_approver(self, machine: Operation, by: Principal, what: str) -> None:
        kind = self._kinds.of_operation(machine)
        if kind.approvers and not kind.approvers & by.roles:
            raise PermissionDenied(
                f"{by.actor} may not {what} a {kind.name}.",
                hint=f"One of these roles may: {', '.join(sorted(kind.approvers))}.",
            )

    def _must_be_operator(self, by: Principal, what: str) -> None:
        if OPERATOR not in by.roles:
            raise PermissionDenied(
                f"{by.actor} may not {what}.",
                hint=f'Principal(…, roles=frozenset({{"{OPERATOR}"}})) may.',
            )

    def _stamp(self, by: Principal) -> Stamp:
        self._ledger.clock.refresh(older_than_seconds=10)
        return self._ledger.stamp(by.actor)


def _name(kind: Kind[Any] | str) -> str:
    return kind if isinstance(kind, str) else kind.name


def _missing(identity: Identity) -> NotFound:
    return NotFound(
        f"Tenant {identity.tenant} has no {identity.kind} {identity.operation_id}.",
        hint="Check tenant, kind and operation id; `settled ops list` shows what is there.",
    )


def _must_be_this(machine: Operation, version: int, digest: str) -> None:
    if machine.state != "proposed":
        decided = f", approved by {machine.approved_by}" if machine.approved_by else ""
        raise DecisionRefused(
            f"{machine.label} is {machine.state}{decided}; it waits for no decision.",
            hint="The first decision stands.",
        )
    if (version, digest) != (machine.proposal_version, machine.terms.digest.value):
        raise DecisionRefused(
            f"The decision is about version {version}, and version {machine.proposal_version} "
            "with its own digest waits for one.",
            hint="Look at the proposal as it is now, and decide on that.",
        )


def _must_be_over(machine: Operation, outcome: Outcome, stamp: Stamp) -> None:
    """Refuse to send again what is absent now, while a request for it may still arrive."""
    until = max((attempt.may_arrive_until for attempt in machine.out), default=stamp.at)
    if outcome == "absent" and stamp.at < until:
        raise EffectPossible(
            f"A request of {machine.label} may still arrive until {until.isoformat()}.",
            hint="What is absent now may be performed until then: look again after that.",
        )


def _difference(existing: Operation, params: Params, kind: Kind[Any]) -> str:
    if existing.terms.params is None:
        return "other parameters (its details have been erased)"
    stored: Mapping[str, object] = orjson.loads(existing.terms.params)
    found = differing_fields(stored, params)
    if not found:
        return f"another mode: stored {existing.terms.mode}, given {kind.mode}"
    return "; ".join(f"another {d.name}: stored {d.stored}, given {d.given}" for d in found)
