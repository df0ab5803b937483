"""`settled ops`: the commands that only look. They need no module of kinds."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from settled.cli.opening import locate, opened_journal
from settled.cli.options import identity_arguments, json_option, tenant_option, url_option
from settled.cli.output import document_of, print_fields, print_json, print_table
from settled.cli.telling import due, duration, event_name, moment, told

if TYPE_CHECKING:
    from settled.domain.journal.port import AgendaRow, Journal
    from settled.projections.history import HistoryEntry
    from settled.projections.operation_view import OperationView
    from settled.projections.operations_view import OperationLine

_COLUMNS = ("tenant", "kind", "id", "state", "due", "worker", "remark")
_FOUND_COLUMNS = ("tenant", "kind", "id", "state", "for", "next", "owner", "what")
_HISTORY_COLUMNS = ("#", "time (UTC)", "gap", "event", "by", "what")


@click.command("list")
@url_option
@tenant_option(required=False)
@click.option("--kind", help="Only of this kind.")
@click.option("--state", "states", multiple=True, help="Only in this state; may be repeated.")
@click.option("--overdue", is_flag=True, help="Only what is due and not yet looked at.")
@click.option("--parked", is_flag=True, help="Only what was taken again and again in vain.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@json_option
def list_operations(
    url: str,
    tenant: str | None,
    kind: str | None,
    states: tuple[str, ...],
    overdue: bool,
    parked: bool,
    limit: int,
    as_json: bool,
) -> None:
    """List operations, and what else waits in the agenda, as it is due."""
    with opened_journal(url) as journal:
        now = journal.time()
        rows = journal.heads(
            tenant,
            kind=kind,
            states=states,
            overdue_at=now if overdue else None,
            parked=True if parked else None,
            limit=limit + 1,
        )
        workers = {worker.epoch: worker.name for worker in journal.workers()}
    if not rows:
        _refuse_what_is_no_name(tenant, kind)
    more = len(rows) > limit
    rows = sorted(
        rows[:limit], key=lambda row: (row.due_at is None, row.due_at or now, row.identity)
    )
    if as_json:
        shown = [document_of(row) | {"worker": workers.get(row.owner or 0)} for row in rows]
        print_json({"at": now, "operations": shown, "more": more})
        return
    if not rows:
        click.echo(_nothing(tenant, kind, states, overdue, parked))
        return
    print_table(_COLUMNS, [_row(row, now, workers) for row in rows])
    if more:
        click.echo(f"There are more than these {limit}; --limit shows more, filters show fewer.")


@click.command()
@click.argument("query", default="")
@url_option
@tenant_option(required=False)
@click.option("--kind", help="Only of this kind.")
@click.option("--list", "name", help="One of the ready-made lists instead, such as handed_over.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@json_option
def find(
    url: str,
    query: str,
    tenant: str | None,
    kind: str | None,
    name: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Find operations by words of their ids, labels, references and receipts.

    Every word of the QUERY counts, without case; the beginning of a word is enough. It asks the
    view, so `settled projections run` has to run, or to have run.
    """
    from settled.infrastructure.clock import StoreClock
    from settled.infrastructure.views.building import opened_projector
    from settled.projections.operations_view import OperationsView

    if bool(query) == bool(name):
        raise click.UsageError("Give a QUERY, or --list.")
    with opened_projector(url) as projector:
        now = projector.journal.time()
        view = OperationsView(projector, StoreClock(projector.journal.time))
        if name:
            lines = view.listed(name, tenant, kind=kind, limit=limit)
        else:
            lines = view.find(query, tenant, kind=kind, limit=limit)
    if as_json:
        print_json({"at": now, "operations": [document_of(line) for line in lines]})
    elif lines:
        print_table(_FOUND_COLUMNS, [_found_row(line, now) for line in lines])
    else:
        click.echo(f"Nothing is on the list {name}." if name else f"Nothing is found by {query!r}.")


@click.command()
@identity_arguments
@url_option
@tenant_option(required=True)
@json_option
def show(url: str, tenant: str, operation_id: str, kind: str | None, as_json: bool) -> None:
    """Show one operation as it stands."""
    with opened_journal(url) as journal:
        now = journal.time()
        view, _ = read_operation(journal, tenant, operation_id, kind)
    if as_json:
        print_json(document_of(view))
    else:
        _print_view(view, now)


@click.command()
@identity_arguments
@url_option
@tenant_option(required=True)
@click.option("--as-of", metavar="TIME|VERSION", help="Only up to this time (UTC) or version.")
@json_option
def history(
    url: str, tenant: str, operation_id: str, kind: str | None, as_of: str | None, as_json: bool
) -> None:
    """Show every event of one operation, with the time between them."""
    from settled.projections.past import gaps

    with opened_journal(url) as journal:
        view, entries = read_operation(journal, tenant, operation_id, kind, as_of)
    found = gaps(entries)
    if as_json:
        events = [document_of(entry) for entry in entries]
        named = {"tenant": tenant, "kind": view.kind, "id": operation_id, "state": view.state}
        print_json({**named, "events": events, "gaps": [document_of(gap) for gap in found]})
        return
    then = f"{view.state} then" if as_of else view.state
    click.echo(f"{view.label}\n{view.identity}, {then}\n")
    print_table(_HISTORY_COLUMNS, _history_rows(entries))
    if found:
        click.echo()
    for gap in found:
        length = duration(timedelta(seconds=gap.seconds))
        click.echo(f"{gap.what} {length}, from #{gap.version} to #{gap.until}")


def read_operation(
    journal: Journal, tenant: str, operation_id: str, kind: str | None, until: str | None = None
) -> tuple[OperationView, list[HistoryEntry]]:
    """Return an operation and its history, up to a version or time where one is given."""
    from settled.domain.journal.mapper import EventMapper
    from settled.domain.keys import DerivedKeys
    from settled.domain.operation.operation import Operation
    from settled.projections.history import history_of
    from settled.projections.operation_view import view_of
    from settled.projections.past import as_of, moment_of

    moment = None if until is None else moment_of(until)
    identity = locate(journal, tenant, operation_id, kind)
    records = journal.events(tenant, Operation.stream(identity))
    if moment is not None:
        records = as_of(records, moment)
    operation = EventMapper(DerivedKeys(journal.installation().secret)).fold(records)
    assert isinstance(operation, Operation), "the stream of an operation holds one"
    return view_of(operation), history_of(records)


def _refuse_what_is_no_name(tenant: str | None, kind: str | None) -> None:
    """Raise InvalidIdentity for a name that nothing can have; "nothing has it" would hide that."""
    from settled.domain.identity import Identity

    Identity(tenant or "any", kind or "any", "any")


def _nothing(
    tenant: str | None, kind: str | None, states: tuple[str, ...], overdue: bool, parked: bool
) -> str:
    """Return what would be here, and which filters hide it."""
    filters = [f"kind {kind}"] if kind else []
    filters += [f"state {' or '.join(states)}"] if states else []
    filters += ["overdue"] if overdue else []
    filters += ["parked"] if parked else []
    whose = f"Tenant {tenant} has" if tenant else "The store has"
    return f"{whose} no operations{' with ' if filters else ''}{', '.join(filters)}."


def _row(row: AgendaRow, now: datetime, workers: dict[int, str]) -> tuple[str, ...]:
    worker = "" if row.owner is None else workers.get(row.owner, f"gone (epoch {row.owner})")
    remark = f"parked after {row.takes} takes" if row.parked_at else ""
    return (row.tenant, row.kind, row.identity, row.state, due(row.due_at, now), worker, remark)


def _found_row(line: OperationLine, now: datetime) -> tuple[str, ...]:
    return (
        *(line.tenant, line.kind, line.operation_id, line.state, duration(now - line.since)),
        *(due(line.next_at, now), line.owner or "", line.label),
    )


def _print_view(view: OperationView, now: datetime) -> None:
    import orjson

    def as_text(value: Any) -> str | None:
        return None if value is None else orjson.dumps(value).decode()

    next_at = f"{due(view.next_at, now)}, {moment(view.next_at)}" if view.next_at else None
    proposal = None
    if view.proposal_version:
        proposal = f"version {view.proposal_version}, digest {view.digest}"
    click.echo(f"{view.label}\n{view.identity}\n")
    print_fields(
        [
            ("state", f"{view.state} for {duration(now - view.since)}, since {moment(view.since)}"),
            ("reason", view.reason),
            ("rule", view.rule),
            ("owner", view.owner),
            ("next", next_at),
            ("cancel", "requested" if view.cancel_requested else None),
            ("proposal", proposal),
            ("approved by", view.approved_by),
            ("attempts", str(view.attempts)),
            ("provider", view.provider),
            ("key", view.provider_key),
            ("reference", view.reference),
            ("receipt", as_text(view.receipt)),
            ("parameters", view.params),
            ("events", str(view.version)),
            ("purged", f"its details, at {moment(view.purged_at)}" if view.purged_at else None),
        ]
    )


def _history_rows(entries: list[HistoryEntry]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    before: datetime | None = None
    for entry in entries:
        gap = "" if before is None else f"+{duration(entry.at - before)}"
        at = moment(entry.at).removesuffix(" UTC")
        name = event_name(entry.name)
        rows.append((str(entry.version), at, gap, name, entry.actor, told(entry)))
        before = entry.at
    return rows
