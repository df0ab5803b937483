"""The service's side of runs: start, answer, decide, cancel, replace, ask.

Every method is synchronous and safe to call from several threads; from asyncio call them through
`asyncio.to_thread`. Every command is given by a `Principal`, and reaches the runs of its tenant
alone. A run's name permits nothing: what a person decides is decided on the operation, by its
version and digest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from settled.domain.clock import Stamp
from settled.domain.errors import (
    DeadlineOver,
    DecisionRefused,
    InvalidKind,
    NotFound,
    NotPossible,
    ParametersChanged,
    PermissionDenied,
    StoreTooNew,
    UnknownKind,
    WaitTimeout,
)
from settled.domain.identity import Identity, Principal
from settled.domain.journal.mapper import EventMapper
from settled.domain.journal.port import Journal
from settled.domain.journal.unit import Committed, Exists, Stale
from settled.domain.operation.operation import Operation
from settled.domain.run import events as ev
from settled.domain.run.kind import RunKind
from settled.domain.run.lifecycle import OPEN
from settled.domain.run.records import Reason, text_of
from settled.domain.run.run import Run, descend, start
from settled.operations import Operations
from settled.processes.ledger import Ledger, unanswered
from settled.processes.runs import seen_of
from settled.projections.history import HistoryEntry, history_of
from settled.projections.operation_view import OperationView
from settled.projections.run_view import RunExplanation, RunView, view_of_run, why_run

T = TypeVar("T")
Named = RunView | Identity


class Runs:
    """Commands and questions about runs."""

    def __init__(
        self, ledger: Ledger, kinds: Mapping[str, RunKind], operations: Operations
    ) -> None:
        self._ledger = ledger
        self._kinds = kinds
        self._operations = operations

    # Coming into being.

    def start(
        self,
        kind: RunKind | str,
        run_id: str,
        *,
        by: Principal,
        input: Any = None,
        connection: Any = None,
    ) -> RunView:
        """Make a run durable; a worker that serves its kind takes it. The same call again returns
        the same run.

        `input` is a JSON value of at most 64 KiB. With `connection`, the start commits or rolls
        back with the caller's transaction. Raises ParametersChanged where the run exists with
        another input, UnknownKind, InvalidIdentity, TooLarge.
        """
        declared = self._declared(kind)
        identity = Identity(by.tenant, declared.name, run_id)
        text = text_of("The input", input)
        machine = start(
            self._stamp(by),
            identity,
            agent_build=declared.agent_build,
            state_version=declared.state_version,
            session=declared.session,
            budget=declared.budget,
            input=text,
        )
        begun = self._ledger.begin(machine, connection)
        if begun.started.input not in (None, text):
            raise ParametersChanged(
                f"The run {run_id} exists with another input.",
                hint="Nothing was started. Use a new run id for a new run.",
            )
        return view_of_run(begun)

    def replace(self, run: Named, run_id: str, *, by: Principal, reason: str) -> RunView:
        """End a run and begin another in its place, in one commit.

        It has the same input and session deadline, the last checkpoint, and what is left of the
        budgets; what the first still writes is refused. The same call again returns the same.
        Raises DeadlineOver when the session is over, TransitionRefused for a run that has ended.
        """
        identity, stamp = self._identity(run, by), self._stamp(by)
        kind = self._declared(identity.kind)
        while True:
            old = self._load(identity)
            if old.state == "replaced" and (there := self._find(identity, run_id)):
                return view_of_run(there)
            if stamp.at >= old.started.session_until:
                raise DeadlineOver(
                    f"The session of {old.run_id} is over.", hint="Start a new run instead."
                )
            old.record(ev.Replaced, stamp, by=run_id, reason=reason)
            new = self._descend(old, run_id, Reason.REPLACEMENT, stamp, kind)
            answer = self._ledger.append(self._ledger.unit(old, new))
            if isinstance(answer, Committed):
                return view_of_run(new)
            if isinstance(answer, Exists):
                raise NotPossible(
                    f"There is a run {run_id} already.", hint="Give the replacement a new name."
                )
            if not isinstance(answer, Stale):
                raise unanswered(answer)

    def fork(self, run: Named, run_id: str, *, by: Principal) -> RunView:
        """Begin another run from where a run stands; that one goes on too.

        It starts with the last checkpoint, the session deadline, and what was used by now. What
        both want done under one identity is one operation.
        """
        return self._branch(run, run_id, Reason.FORK, by)

    def replay(self, run: Named, run_id: str, *, by: Principal) -> RunView:
        """Begin a run that answers every call from the records of another, and does nothing new."""
        return self._branch(run, run_id, Reason.HISTORICAL_REPLAY, by)

    # What others give it.

    def answer(
        self, run: Named, name: str, value: Any, *, by: Principal, rpc_id: str | None = None
    ) -> RunView:
        """Give a run an input, whether it waits for it yet or not. The first answer stands.

        Raises NotPossible when the run has ended, TooLarge over 64 KiB.
        """
        text, stamp = text_of("The input", value), self._stamp(by)
        Identity(by.tenant, "input", name)  # raises for what is no name

        def command(machine: Run) -> None:
            if name in machine.inputs:
                return
            _must_be_open(machine)
            machine.receive(stamp, name, text, rpc_id)

        return self._command(run, by, command)

    def resume(
        self,
        run: Named,
        operation: OperationView | Identity,
        *,
        proposal_version: int,
        digest: str,
        by: Principal,
    ) -> OperationView:
        """Approve the proposal that a run waits on, by its version and digest, and wake the run.

        The decision is one on the operation, and everything that it asks of an approval is asked:
        the role, the version, the digest, the time. Deciding again returns the first decision.
        Raises PermissionDenied, DecisionRefused, NotFound.
        """
        identity = self._operation_of(run, operation, by)
        decided = self._operations.approve(
            identity, proposal_version=proposal_version, digest=digest, by=by
        )
        self._tell(run, identity, by)
        return decided

    def decline(
        self,
        run: Named,
        operation: OperationView | Identity,
        *,
        proposal_version: int,
        digest: str,
        by: Principal,
        reason: str,
    ) -> OperationView:
        """Decline the proposal that a run waits on, and wake the run. As `resume` otherwise."""
        identity = self._operation_of(run, operation, by)
        decided = self._operations.reject(
            identity, proposal_version=proposal_version, digest=digest, by=by, reason=reason
        )
        self._tell(run, identity, by)
        return decided

    def cancel(self, run: Named, *, by: Principal, reason: str) -> RunView:
        """End a run; one that a worker has is ended by it at its next step.

        What the run had intended is not cancelled by that: an effect may exist.
        """
        stamp = self._stamp(by)
        return self._command(run, by, lambda machine: machine.cancel(stamp, reason))

    # Asking.

    def get(self, kind: RunKind | str, run_id: str, *, by: Principal) -> RunView:
        """Return a run as it stands. Raises NotFound."""
        name = kind if isinstance(kind, str) else kind.name
        return view_of_run(self._load(Identity(by.tenant, name, run_id)))

    def listed(
        self,
        *,
        tenant: str | None,
        kind: RunKind | str | None = None,
        states: Sequence[str] = OPEN,
        state_version: int | None = None,
        limit: int = 100,
    ) -> list[RunView]:
        """Return runs, by default those that have not ended; a tenant of None asks about all.

        With `state_version` only those whose state has that version, such as an old one.
        """
        name = kind if isinstance(kind, str) or kind is None else kind.name
        kinds = [name] if name is not None else list(self._kinds)
        ledger = self._ledger
        return listed(ledger.journal, ledger.mapper, tenant, kinds, states, state_version, limit)

    def history(self, run: Named, *, by: Principal) -> list[HistoryEntry]:
        """Return every event of a run, in order. Raises NotFound."""
        identity = self._identity(run, by)
        records = self._ledger.journal.events(identity.tenant, Run.stream(identity))
        if not records:
            raise missing_run(identity)
        return history_of(records)

    def why(self, run: Named, *, by: Principal) -> RunExplanation:
        """Explain why a run stands where it stands, and what comes next. Raises NotFound."""
        identity = self._identity(run, by)
        machine = self._load(identity)
        head = self._ledger.journal.head(identity.tenant, machine.id)
        assert head is not None, "a stream has an agenda row"
        return why_run(machine, head, self._ledger.journal.time())

    def wait(self, run: Named, *, timeout_seconds: float, states: Sequence[str] = ()) -> RunView:
        """Wait until a run has ended, or is in one of `states`; WaitTimeout when it takes longer.

        Raises NotFound.
        """
        identity = run if isinstance(run, Identity) else run.identity
        give_up_at = self._ledger.clock.monotonic() + timeout_seconds
        pause_seconds = 0.005
        while True:
            head = self._ledger.journal.head(identity.tenant, Run.stream(identity))
            if head is None:
                raise missing_run(identity)
            if head.due_at is None or head.state in states:
                return view_of_run(self._load(identity))
            if self._ledger.clock.monotonic() >= give_up_at:
                raise WaitTimeout(
                    f"{identity.operation_id} is {head.state} after {timeout_seconds:g} s.",
                    hint="It goes on without you: ask again, or see `settled runs show`.",
                )
            time.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 1.5, 0.1)

    # Inside.

    def _declared(self, kind: RunKind | str) -> RunKind:
        name = kind if isinstance(kind, str) else kind.name
        try:
            return self._kinds[name]
        except KeyError:
            raise UnknownKind(
                f"No run kind {name} is declared here.", hint="settled.open(…, runs=[…])"
            ) from None

    def _branch(self, run: Named, run_id: str, reason: Reason, by: Principal) -> RunView:
        identity, stamp = self._identity(run, by), self._stamp(by)
        parent, kind = self._load(identity), self._declared(identity.kind)
        begun = self._ledger.begin(self._descend(parent, run_id, reason, stamp, kind))
        if (begun.started.parent, begun.started.reason) != (parent.run_id, reason):
            raise NotPossible(f"There is a run {run_id} already.", hint="Give it a new name.")
        return view_of_run(begun)

    def _descend(
        self, parent: Run, run_id: str, reason: Reason, stamp: Stamp, kind: RunKind
    ) -> Run:
        # Its checkpoint is the parent's, so it begins under the parent's version and is migrated.
        version = kind.state_version if parent.checkpoint is None else parent.state_version
        return descend(
            parent, stamp, run_id, reason, agent_build=kind.agent_build, state_version=version
        )

    def _operation_of(
        self, run: Named, operation: OperationView | Identity, by: Principal
    ) -> Identity:
        """Return the operation's identity, where the run is bound to it."""
        machine = self._load(self._identity(run, by))
        identity = operation if isinstance(operation, Identity) else operation.identity
        if identity.tenant != by.tenant:
            raise PermissionDenied(f"{by.actor} acts for another tenant than {identity.tenant}.")
        if Operation.stream(identity) not in machine.bound:
            raise DecisionRefused(
                f"The run {machine.run_id} waits on no {identity.kind} {identity.operation_id}.",
                hint="A run's name alone permits nothing: name the proposal that it waits on.",
            )
        return identity

    def _tell(self, run: Named, identity: Identity, by: Principal) -> None:
        """Wake the run by what the operation's stream says now."""
        stamp, stream = self._stamp(by), Operation.stream(identity)
        operation = self._ledger.load(identity.tenant, stream)
        assert isinstance(operation, Operation), "it was decided on a moment ago"
        seen = seen_of(operation)
        self._command(run, by, lambda machine: machine.see(stamp, machine.bound[stream], seen))

    def _command(self, run: Named, by: Principal, command: Callable[[Run], T]) -> RunView:
        identity = self._identity(run, by)
        machine, _ = self._ledger.execute(
            identity.tenant, Run.stream(identity), command, lambda: missing_run(identity)
        )
        return view_of_run(machine)

    def _find(self, near: Identity, run_id: str) -> Run | None:
        machine = self._ledger.load(
            near.tenant, Run.stream(Identity(near.tenant, near.kind, run_id))
        )
        return machine if isinstance(machine, Run) else None

    def _load(self, identity: Identity) -> Run:
        machine = self._find(identity, identity.operation_id)
        if machine is None:
            raise missing_run(identity)
        return machine

    def _identity(self, run: Named, by: Principal) -> Identity:
        identity = run if isinstance(run, Identity) else run.identity
        if identity.tenant != by.tenant:
            raise PermissionDenied(f"{by.actor} acts for another tenant than {identity.tenant}.")
        return identity

    def _stamp(self, by: Principal) -> Stamp:
        self._ledger.clock.refresh(older_than_seconds=10)
        return self._ledger.stamp(by.actor)


class RunActs:
    """The way of a run to operations: the service's own."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def begin(
        self, kind: str, operation_id: str, params: Any, by: Principal, origin: Mapping[str, str]
    ) -> OperationView:
        """Intend an operation; where its kind needs a decision, propose it."""
        ways = self._operations
        try:
            return ways.intend(kind, operation_id, params, by=by, origin=origin)
        except PermissionDenied:
            return ways.propose(kind, operation_id, params, by=by, origin=origin)

    def get(self, kind: str, operation_id: str, by: Principal) -> OperationView:
        """Return an operation as it stands."""
        return self._operations.get(kind, operation_id, by=by)


def run_kinds(runs: Iterable[RunKind], taken: Container[str]) -> dict[str, RunKind]:
    """Return run kinds by name. Raises InvalidKind for a name that two kinds have."""
    found: dict[str, RunKind] = {}
    for kind in runs:
        if kind.name in found or kind.name in taken:
            raise InvalidKind(
                f"Two kinds are called {kind.name}.", hint="A kind is known by its name."
            )
        found[kind.name] = kind
    return found


def listed(
    journal: Journal,
    mapper: EventMapper,
    tenant: str | None,
    kinds: Sequence[str],
    states: Sequence[str],
    state_version: int | None,
    limit: int,
) -> list[RunView]:
    """Return the runs of these kinds that are in one of these states.

    What is no run, or cannot be read by this code, is passed by.
    """
    found: list[RunView] = []
    for kind in kinds:
        after = None
        while rows := journal.heads(tenant, kind=kind, states=states, after=after):
            streams = journal.streams([(row.tenant, row.stream) for row in rows])
            for row in rows:
                with suppress(StoreTooNew):
                    machine = mapper.fold(streams[row.stream])
                    if isinstance(machine, Run) and state_version in (None, machine.state_version):
                        found.append(view_of_run(machine))
            if len(found) >= limit:
                return found[:limit]
            after = rows[-1].tenant, rows[-1].stream
    return found


def missing_run(identity: Identity) -> NotFound:
    """Return the error for a run that is not there."""
    return NotFound(
        f"Tenant {identity.tenant} has no run {identity.operation_id} of kind {identity.kind}.",
        hint="Check tenant, kind and run id; `settled runs list` shows what is there.",
    )


def _must_be_open(run: Run) -> None:
    if run.settled:
        raise NotPossible(
            f"The run {run.run_id} is {run.state}: it takes nothing more.",
            hint="Start another, or replace it while it has not ended.",
        )
