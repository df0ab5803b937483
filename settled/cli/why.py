"""`settled ops why` and `settled ops diff`: what an operation's history comes to, in words."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from settled.cli.opening import locate, opened_journal
from settled.cli.options import (
    identity_arguments,
    json_option,
    kinds_option,
    tenant_option,
    url_option,
)
from settled.cli.output import document_of, print_fields, print_json
from settled.cli.telling import due, duration, moment

if TYPE_CHECKING:
    from settled.projections.why import Explanation


@click.command()
@identity_arguments
@url_option
@tenant_option(required=True)
@kinds_option(required=False)
@json_option
def why(
    url: str,
    tenant: str,
    operation_id: str,
    kind: str | None,
    kinds_from: str | None,
    as_json: bool,
) -> None:
    """Say why an operation is where it is, who has it, and what comes next, by which rule.

    Nothing is sent or decided. With --kinds it says too until when the provider keeps the key, and
    what would be decided now without new evidence.
    """
    from settled.cli.loading import load_kinds
    from settled.domain.journal.mapper import EventMapper
    from settled.domain.keys import DerivedKeys
    from settled.domain.kinds import Kinds
    from settled.projections.why import why_now

    declared = Kinds.of(load_kinds(kinds_from) if kinds_from else ())
    with opened_journal(url) as journal:
        now = journal.time()
        identity = locate(journal, tenant, operation_id, kind)
        mapper = EventMapper(DerivedKeys(journal.installation().secret))
        told = why_now(journal, mapper, identity, declared)
    assert told is not None, "it was found a moment ago, and streams do not end"
    if as_json:
        print_json({"at": now, **document_of(told)})
    else:
        _print(told, now)


@click.command()
@identity_arguments
@click.argument("before")
@click.argument("after")
@url_option
@tenant_option(required=True)
@json_option
def diff(
    url: str,
    tenant: str,
    operation_id: str,
    kind: str | None,
    before: str,
    after: str,
    as_json: bool,
) -> None:
    """Say what differs between two versions of an operation: BEFORE and AFTER.

    Each is a version, as `ops history` counts them, or a time (UTC).
    """
    from settled.cli.ops import read_operation
    from settled.projections.past import changes

    with opened_journal(url) as journal:
        was, _ = read_operation(journal, tenant, operation_id, kind, before)
        now, entries = read_operation(journal, tenant, operation_id, kind, after)
    found = changes(was, now)
    erased = [entry.version for entry in entries if entry.erased]
    if as_json:
        print_json(
            {
                **{"tenant": tenant, "kind": now.kind, "id": operation_id},
                **{"before": was.version, "after": now.version, "erased": erased},
                "changes": [document_of(change) for change in found],
            }
        )
        return
    click.echo(f"{now.label}\n{now.identity}, version {was.version} and version {now.version}\n")
    for change in found:
        click.echo(str(change))
    if not found:
        click.echo("Nothing differs.")
    if erased:
        click.echo(f"The details of event {', '.join(map(str, erased))} were erased.")


def _print(told: Explanation, now: datetime) -> None:
    upcoming = told.next
    if told.next_at is not None:
        upcoming += f" ({due(told.next_at, now)}, {moment(told.next_at)})"
    rule = f"{told.rule}: {told.rule_means}" if told.rule else None
    today = told.today
    if today and told.today_rule:
        today += f" ({told.today_rule})"
    stayed = duration(max(now - told.since, timedelta()))
    click.echo(f"{told.label}\n{told.identity}, {told.state} for {stayed}\n")
    print_fields(
        [
            ("happened", told.happened),
            ("rule", rule),
            ("known", told.known),
            ("owner", told.holder),
            ("next", upcoming),
            ("then", told.then),
            ("key", told.key),
            ("now", today),
            *(("note", note) for note in told.notes),
        ]
    )
