"""`settled ops`: the commands that change an operation. Each is recorded with its actor."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from settled.cli.opening import locate, opened_app
from settled.cli.options import (
    Command,
    Decorator,
    accept_unsafe_option,
    actor_option,
    identity_arguments,
    json_option,
    kinds_option,
    reason_option,
    tenant_option,
    url_option,
)
from settled.cli.output import document_of, print_json
from settled.domain.errors import InvalidEvidence

if TYPE_CHECKING:
    from settled.domain.identity import Identity, Principal
    from settled.operations import Operations
    from settled.projections.operation_view import OperationView

    Act = Callable[[Operations, Principal], OperationView]
    ActOn = Callable[[Operations, Identity, Principal], OperationView]


@dataclass(frozen=True)
class Order:
    """What is the same for every command here: where, for whom, by whom, and how to answer."""

    url: str
    tenant: str
    actor: str
    accept_unsafe_store: bool
    as_json: bool
    kinds_from: str | None = None

    def carry_out(self, act: Act, *roles: str) -> None:
        """Do it on the open store, and print what became of the operation."""
        by = self._principal(roles)
        with opened_app(
            self.url, self.kinds_from, accept_unsafe_store=self.accept_unsafe_store
        ) as app:
            self._print(act(app.operations, by))

    def carry_out_on(self, operation_id: str, kind: str | None, act: ActOn, *roles: str) -> None:
        """Find the operation first."""
        by = self._principal(roles)
        with opened_app(
            self.url, self.kinds_from, accept_unsafe_store=self.accept_unsafe_store
        ) as app:
            identity = locate(app.journal, self.tenant, operation_id, kind)
            self._print(act(app.operations, identity, by))

    def _principal(self, roles: Iterable[str]) -> Principal:
        from settled.domain.identity import Principal

        return Principal(self.tenant, self.actor, frozenset(roles))

    def _print(self, view: OperationView) -> None:
        if self.as_json:
            print_json(document_of(view))
        else:
            click.echo(f"{view.label}: {view.state}")


def _ordered(*, with_kinds: bool) -> Decorator:
    """Add the options of an order, and call the command with it and with its own options."""

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def ordered(
            url: str,
            tenant: str,
            actor: str,
            accept_unsafe_store: bool,
            as_json: bool,
            kinds_from: str | None = None,
            **own: Any,
        ) -> None:
            command(Order(url, tenant, actor, accept_unsafe_store, as_json, kinds_from), **own)

        result = accept_unsafe_option(json_option(ordered))
        if with_kinds:
            result = kinds_option(required=True)(result)
        return url_option(tenant_option(required=True)(actor_option(result)))

    return add


def _request_arguments(command: Command) -> Command:
    for name in ("params", "operation_id", "kind"):
        command = click.argument(name)(command)
    return command


def _decision_options(command: Command) -> Command:
    version = click.option(
        "--version", type=int, required=True, help="The version of the proposal, as shown."
    )
    digest = click.option("--digest", required=True, help="Its digest, as `ops show` shows it.")
    return version(digest(command))


@click.command()
@_request_arguments
@_ordered(with_kinds=True)
def intend(order: Order, kind: str, operation_id: str, params: str) -> None:
    """Make an operation durable, to be performed once by a worker.

    PARAMS is a JSON object, @FILE, or - for standard input. The same command again returns the
    same operation.
    """
    given = _given(params)
    order.carry_out(lambda operations, by: operations.intend(kind, operation_id, given, by=by))


@click.command()
@_request_arguments
@_ordered(with_kinds=True)
def propose(order: Order, kind: str, operation_id: str, params: str) -> None:
    """Put an operation up for a decision.

    PARAMS is a JSON object, @FILE, or - for standard input.
    """
    given = _given(params)
    order.carry_out(lambda operations, by: operations.propose(kind, operation_id, given, by=by))


@click.command()
@identity_arguments
@_decision_options
@click.option("--role", "roles", multiple=True, help="A role to decide in; may be repeated.")
@_ordered(with_kinds=True)
def approve(
    order: Order,
    operation_id: str,
    kind: str | None,
    version: int,
    digest: str,
    roles: tuple[str, ...],
) -> None:
    """Approve this version of a proposal; it is intended in the same commit."""

    def act(operations: Operations, identity: Identity, by: Principal) -> OperationView:
        return operations.approve(identity, proposal_version=version, digest=digest, by=by)

    order.carry_out_on(operation_id, kind, act, *roles)


@click.command()
@identity_arguments
@_decision_options
@reason_option
@click.option("--role", "roles", multiple=True, help="A role to decide in; may be repeated.")
@_ordered(with_kinds=True)
def reject(
    order: Order,
    operation_id: str,
    kind: str | None,
    version: int,
    digest: str,
    reason: str,
    roles: tuple[str, ...],
) -> None:
    """Decline this version of a proposal."""

    def act(operations: Operations, identity: Identity, by: Principal) -> OperationView:
        return operations.reject(
            identity, proposal_version=version, digest=digest, by=by, reason=reason
        )

    order.carry_out_on(operation_id, kind, act, *roles)


@click.command()
@identity_arguments
@reason_option
@_ordered(with_kinds=False)
def cancel(order: Order, operation_id: str, kind: str | None, reason: str) -> None:
    """Withdraw an operation of which nothing is out; otherwise the wish is recorded."""

    def act(operations: Operations, identity: Identity, by: Principal) -> OperationView:
        return operations.cancel(identity, by=by, reason=reason)

    order.carry_out_on(operation_id, kind, act)


@click.command()
@identity_arguments
@click.option(
    "--outcome",
    type=click.Choice(["succeeded", "failed", "absent"]),
    required=True,
    help="The effect exists; it definitively does not; or it does not and may be sent again.",
)
@click.option("--evidence", required=True, help="What was seen, and where: a JSON object.")
@click.option("--reference", help="The provider's name for the effect.")
@reason_option
@_ordered(with_kinds=False)
def settle(
    order: Order,
    operation_id: str,
    kind: str | None,
    outcome: Any,
    evidence: str,
    reference: str | None,
    reason: str,
) -> None:
    """Settle by hand what no automatic step can, with evidence."""
    seen = _evidence(evidence)

    def act(operations: Operations, identity: Identity, by: Principal) -> OperationView:
        return operations.settle(
            identity, outcome=outcome, evidence=seen, by=by, reason=reason, reference=reference
        )

    # Whoever can use this command on the store itself is an operator; the name is recorded.
    order.carry_out_on(operation_id, kind, act, "operator")


@click.command()
@identity_arguments
@reason_option
@_ordered(with_kinds=False)
def resume(order: Order, operation_id: str, kind: str | None, reason: str) -> None:
    """Give an operation that was handed over back to the automatic steps."""

    def act(operations: Operations, identity: Identity, by: Principal) -> OperationView:
        return operations.resume(identity, by=by, reason=reason)

    order.carry_out_on(operation_id, kind, act, "operator")


@click.command()
@identity_arguments
@_ordered(with_kinds=False)
def unpark(order: Order, operation_id: str, kind: str | None) -> None:
    """Let workers take an operation again that was taken too often without progress."""

    def act(operations: Operations, identity: Identity, by: Principal) -> OperationView:
        return operations.unpark(identity, by=by)

    order.carry_out_on(operation_id, kind, act, "operator")


@click.command()
@identity_arguments
@reason_option
@_ordered(with_kinds=True)
def purge(order: Order, operation_id: str, kind: str | None, reason: str) -> None:
    """Drop the details of a settled operation for good; its outcome and the proof of them stay.

    Refused while it is open, and as long as its provider's contract has a use for the details.
    """

    def act(operations: Operations, identity: Identity, by: Principal) -> OperationView:
        return operations.purge(identity, by=by, reason=reason)

    order.carry_out_on(operation_id, kind, act, "operator")


def _given(params: str) -> bytes | str:
    """Return the JSON that was given; no more of it is read than it takes to refuse it."""
    from settled.domain.canonical import LIMIT_BYTES

    if params == "-":
        return sys.stdin.buffer.read(LIMIT_BYTES + 1)
    if not params.startswith("@"):
        return params
    try:
        with open(params[1:], "rb") as file:
            return file.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise click.BadParameter(f"{params[1:]}: {error.strerror}.", param_hint="PARAMS") from error


def _evidence(text: str) -> dict[str, object]:
    from settled.domain.canonical import problems
    from settled.domain.errors import InvalidParams
    from settled.domain.json_text import read_object

    try:
        seen = read_object(text)
    except InvalidParams as error:
        raise InvalidEvidence(error.message, hint=error.hint) from error
    for path, problem in problems(seen):
        raise InvalidEvidence(f"The evidence's {path} {problem}.")
    return seen
