"""The service's side: intend, decide, ask, wait, give evidence, settle by hand.

Every method is synchronous and safe to call from several threads; from asyncio call them through
`asyncio.to_thread`. Every command is given by a `Principal`, and reaches the operations of its
tenant alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from settled.commanding import Given, P, missing, name_of
from settled.deciding import Deciding
from settled.domain.clock import Stamp
from settled.domain.errors import (
    EffectPossible,
    InvalidEvidence,
    NotPossible,
    PermissionDenied,
    TransitionRefused,
    UnknownKind,
    WaitTimeout,
)
from settled.domain.identity import Identity, Principal, provider_key
from settled.domain.inbox import receive, testimony
from settled.domain.journal.unit import Committed, Exists
from settled.domain.kind import Kind
from settled.domain.operation import events as ev
from settled.domain.operation.operation import Operation, intend
from settled.processes.ledger import unanswered
from settled.processes.purging import purge
from settled.projections.history import HistoryEntry, history_of
from settled.projections.operation_view import OperationView, view_of
from settled.projections.why import Explanation, why_now

Outcome = Literal["succeeded", "failed", "absent"]


class Operations(Deciding):
    """Commands and questions about operations."""

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
        if declared.needs_approval:
            raise PermissionDenied(
                f"A {declared.name} needs an approval before it is intended.",
                hint="Use propose(…); it is intended when it is approved.",
            )
        stamp = self._stamp(by)
        terms = declared.terms(identity, parsed, self._keys, origin or {})
        machine = intend(terms, stamp, provider_key(self._installation.id, identity, 1))
        return self._begin(machine, declared, parsed, connection)

    # Asking.

    def get(self, kind: Kind[Any] | str, operation_id: str, *, by: Principal) -> OperationView:
        """Return an operation as it stands. Raises NotFound."""
        identity = Identity(by.tenant, name_of(kind), operation_id)
        return view_of(self._load(identity))

    def history(self, operation: OperationView | Identity, *, by: Principal) -> list[HistoryEntry]:
        """Return every event of an operation, in order. Raises NotFound."""
        identity = self._identity(operation, by)
        records = self._ledger.journal.events(identity.tenant, Operation.stream(identity))
        if not records:
            raise missing(identity)
        return history_of(records)

    def why(self, operation: OperationView | Identity, *, by: Principal) -> Explanation:
        """Explain why an operation is where it is, who has it, and what comes next.

        Nothing is sent or decided: it is read from the records. Raises NotFound.
        """
        identity = self._identity(operation, by)
        told = why_now(self._ledger.journal, self._ledger.mapper, identity, self._kinds)
        if told is None:
            raise missing(identity)
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
                raise missing(identity)
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
            kind=name_of(kind) if kind is not None else None,
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
        """Begin a new generation of a failed operation, under a new provider key.

        What earlier generations have sent is named in the event.
        """
        identity = self._identity(operation, by)
        self._must_be_operator(by, "reissue an operation")
        stamp = self._stamp(by)

        def command(machine: Operation) -> None:
            if self._kinds.of_operation(machine).needs_approval:
                raise PermissionDenied(
                    f"A {identity.kind} needs an approval, and reissuing asks for none.",
                    hint="Propose a new operation instead.",
                )
            generation = machine.generation + 1
            machine.record(
                ev.Reissued,
                stamp,
                generation=generation,
                fired=tuple(str(attempt) for attempt in machine.attempts),
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
            raise missing(identity)
        return view_of(purged)


def _must_be_over(machine: Operation, outcome: Outcome, stamp: Stamp) -> None:
    """Refuse to send again what is absent now, while a request for it may still arrive."""
    until = max((attempt.may_arrive_until for attempt in machine.out), default=stamp.at)
    if outcome == "absent" and stamp.at < until:
        raise EffectPossible(
            f"A request of {machine.label} may still arrive until {until.isoformat()}.",
            hint="What is absent now may be performed until then: look again after that.",
        )
