"""`settled budgets`: what may be reserved and used in all, and who draws on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from settled.cli.opening import opened_app
from settled.cli.options import (
    accept_unsafe_option,
    actor_option,
    json_option,
    reason_option,
    tenant_option,
    url_option,
)
from settled.cli.output import document_of, print_json, print_table
from settled.domain.errors import StoreNotMigrated

if TYPE_CHECKING:
    from settled.budgets import BudgetView
    from settled.domain.money import Money

_COLUMNS = ("budget", "allows", "reserved", "consumed", "left")
_DRAW_COLUMNS = ("kind", "id", "amount", "holds", "since (UTC)")


@click.group()
def budgets() -> None:
    """Look at budgets, and say what they allow."""


@budgets.command("list")
@url_option
@tenant_option(required=True)
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@json_option
def list_budgets(url: str, tenant: str, limit: int, as_json: bool) -> None:
    """List the budgets of a tenant, and what is left of each."""
    from settled.domain.identity import Principal

    with opened_app(url, accept_unsafe_store=True) as app:
        found = app.budgets.all(by=Principal(tenant, "reader"), limit=limit)
    if as_json:
        print_json({"budgets": [_document(one) for one in found]})
    else:
        print_table(_COLUMNS, [_row(one) for one in found])


@budgets.command()
@click.argument("budget")
@url_option
@tenant_option(required=True)
@json_option
def show(budget: str, url: str, tenant: str, as_json: bool) -> None:
    """Show a budget, such as 'captured:payment-7 USD', and the operations that draw on it.

    The operations come from the view `budgets`: somebody has to run its projection.
    """
    from settled.domain.identity import Principal

    by = Principal(tenant, "reader")
    with opened_app(url, accept_unsafe_store=True) as app:
        found = app.budgets.get(budget, by=by)
        try:
            draws = app.budgets.draws(budget, by=by)
        except StoreNotMigrated:
            draws = None
    if as_json:
        operations = [document_of(one.identity) | document_of(one) for one in draws or ()]
        print_json(_document(found) | {"draws": operations})
        return
    print_table(_COLUMNS, [_row(found)])
    if draws is None:
        begin = "run `settled projections run budgets`"
        click.echo(f"\nNobody has begun the view budgets in this store: {begin}.")
    elif draws:
        click.echo()
        rows = [
            (
                *(one.identity.kind, one.identity.operation_id),
                *(found.words(one.amount), one.holds, one.since[:19]),
            )
            for one in draws
        ]
        print_table(_DRAW_COLUMNS, rows)


@budgets.command()
@click.argument("name")
@click.argument("ceiling")
@click.option("--currency", help="The currency of CEILING; without one it counts pieces.")
@url_option
@tenant_option(required=True)
@actor_option
@reason_option
@accept_unsafe_option
@json_option
def allow(
    name: str,
    ceiling: str,
    currency: str | None,
    url: str,
    tenant: str,
    actor: str,
    reason: str,
    accept_unsafe_store: bool,
    as_json: bool,
) -> None:
    """Say what a budget allows in all: `allow captured:payment-7 100.00 --currency USD`.

    NAME is that of a kind's budget with its parameters filled in.
    """
    from settled.domain.identity import Principal

    by = Principal(tenant, actor, frozenset({"operator"}))
    allowed = _ceiling(ceiling, currency)
    with opened_app(url, accept_unsafe_store=accept_unsafe_store) as app:
        found = app.budgets.allow(name, allowed, by=by, reason=reason)
    if as_json:
        print_json(_document(found))
    else:
        left = f"{found.words(found.remaining)} left"
        click.echo(f"{found.key} allows {found.words(found.ceiling)}: {left}")


def _ceiling(text: str, currency: str | None) -> Money | int:
    from settled.domain.errors import InvalidInput
    from settled.domain.money import Money

    if currency is not None:
        return Money(text, currency)
    if not text.isdecimal():
        raise InvalidInput(
            f"{text!r} is no number of pieces.", hint="For money, name its --currency."
        )
    return int(text)


def _row(one: BudgetView) -> tuple[str, ...]:
    amounts = (one.ceiling, one.reserved, one.consumed, one.remaining)
    return (one.key, *(one.words(amount) for amount in amounts))


def _document(one: BudgetView) -> dict[str, Any]:
    return document_of(one) | {"remaining": one.remaining}
