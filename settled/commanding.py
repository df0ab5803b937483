"""What every command on operations needs: whose it is, what was given, and the commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import orjson

from settled.domain.clock import Stamp
from settled.domain.digest import differing_fields, same_request
from settled.domain.errors import NotFound, ParametersChanged, PermissionDenied
from settled.domain.identity import Identity, Principal
from settled.domain.journal.port import Installation
from settled.domain.keys import Keys
from settled.domain.kind import Kind
from settled.domain.kinds import Kinds
from settled.domain.operation.operation import Operation
from settled.domain.params import Params, parse
from settled.processes.joiner import Joiner
from settled.processes.ledger import Ledger
from settled.projections.approval_request import ApprovalRequest
from settled.projections.operation_view import OperationView, view_of

P = TypeVar("P", bound=Params)
Given = Params | Mapping[str, Any] | str | bytes

OPERATOR = "operator"
"""The role that may settle by hand, resume, reissue and purge."""


class Commanding:
    """Gives commands to operations and commits what they record."""

    def __init__(
        self, ledger: Ledger, kinds: Kinds, keys: Keys, installation: Installation, joiner: Joiner
    ) -> None:
        self._ledger = ledger
        self._kinds = kinds
        self._keys = keys
        self._installation = installation
        self._joiner = joiner

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
            identity.tenant, Operation.stream(identity), command, lambda: missing(identity)
        )
        return view_of(machine)

    def _load(self, identity: Identity) -> Operation:
        machine = self._ledger.load(identity.tenant, Operation.stream(identity))
        if machine is None:
            raise missing(identity)
        assert isinstance(machine, Operation)
        return machine

    def _view(self, tenant: str, stream: Any) -> OperationView:
        machine = self._ledger.load(tenant, stream)
        assert isinstance(machine, Operation)
        return view_of(machine)

    def _identity(
        self, operation: OperationView | ApprovalRequest | Identity, by: Principal
    ) -> Identity:
        identity = operation if isinstance(operation, Identity) else operation.identity
        if identity.tenant != by.tenant:
            raise PermissionDenied(f"{by.actor} acts for another tenant than {identity.tenant}.")
        return identity

    def _must_be_operator(self, by: Principal, what: str) -> None:
        if OPERATOR not in by.roles:
            raise PermissionDenied(
                f"{by.actor} may not {what}.",
                hint=f'Principal(…, roles=frozenset({{"{OPERATOR}"}})) may.',
            )

    def _stamp(self, by: Principal) -> Stamp:
        self._ledger.clock.refresh(older_than_seconds=10)
        return self._ledger.stamp(by.actor)


def name_of(kind: Kind[Any] | str) -> str:
    """Return the name of a kind that was given by itself or by its name."""
    return kind if isinstance(kind, str) else kind.name


def missing(identity: Identity) -> NotFound:
    """Return the error for an operation that is not there."""
    return NotFound(
        f"Tenant {identity.tenant} has no {identity.kind} {identity.operation_id}.",
        hint="Check tenant, kind and operation id; `settled ops list` shows what is there.",
    )


def _difference(existing: Operation, params: Params, kind: Kind[Any]) -> str:
    if existing.terms.params is None:
        return "other parameters (its details have been erased)"
    stored: Mapping[str, object] = orjson.loads(existing.terms.params)
    found = differing_fields(stored, params)
    if not found:
        return f"another mode: stored {existing.terms.mode}, given {kind.mode}"
    return "; ".join(f"another {d.name}: stored {d.stored}, given {d.given}" for d in found)
