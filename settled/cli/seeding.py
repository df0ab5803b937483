"""`settled seed`: a store full of operations that never happened."""

from __future__ import annotations

import click

from settled.cli.opening import opened_journal
from settled.cli.options import json_option, url_option
from settled.cli.output import print_json


@click.command()
@url_option
@click.option("--operations", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--seed", "drawn_by", type=int, default=0, show_default=True, help="What is drawn.")
@json_option
def seed(url: str, operations: int, drawn_by: int, as_json: bool) -> None:
    """Fill an empty store with operations to look at: refunds of two tenants that never happened.

    Most went well; some were retried, refused, unknown for a while, handed over or contradicted.
    Nothing is sent. Use a store of its own: workers with a kind `refund` would go on with them.
    """
    from settled.infrastructure.seeding import seed as run

    with opened_journal(url) as journal:
        events = run(journal, operations, seed=drawn_by)
    if as_json:
        print_json({"operations": operations, "events": events})
    else:
        click.echo(f"{operations} operations with {events} events.")
