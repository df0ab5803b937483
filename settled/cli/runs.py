"""`settled runs`: look at runs, decide what they wait on, and end them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from settled.cli.opening import kinds_of, opened_app, opened_journal
from settled.cli.options import (
    Command,
    accept_unsafe_option,
    actor_option,
    json_option,
    kinds_option,
    reason_option,
    tenant_option,
    url_option,
)
from settled.cli.output import document_of, print_fields, print_json, print_table
from settled.cli.telling import due, duration, event_name, moment, told

if TYPE_CHECKING:
    from settled.domain.identity import Identity
    from settled.domain.journal.mapper import EventMapper
    from settled.domain.journal.port import Journal
    from settled.domain.run.run import Run

_COLUMNS = ("tenant", "kind", "run", "state", "for", "due", "version", "waits for")
_HISTORY_COLUMNS = ("#", "time (UTC)", "event", "by", "what")


def _run_arguments(command: Command) -> Command:
    """Take a run id, and its kind where the id alone does not say which one."""
    with_kind = click.option("--kind", help="The run kind, where several have a run of this id.")
    return click.argument("run_id")(with_kind(command))


@click.group()
def runs() -> None:
    """Look at runs, decide what they wait on, and end them."""


@runs.command("list")
@url_option
@tenant_option(required=False)
@click.option("--kind", help="Only of this run kind.")
@click.option("--state", "states", multiple=True, help="Only in this state; may be repeated.")
@click.option("--state-version", type=int, help="Only those whose state has this version.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@json_option
def list_runs(
    url: str,
    tenant: str | None,
    kind: str | None,
    states: tuple[str, ...],
    state_version: int | None,
    limit: int,
    as_json: bool,
) -> None:
    """List runs that have not ended, or those in the states that are named.

    With --state-version, what an older release has left: its pending work, by name.
    """
    from settled.domain.run.lifecycle import OPEN
    from settled.runs import listed

    with opened_journal(url) as journal:
        now = journal.time()
        kinds = [kind] if kind else kinds_of(journal, tenant)
        found = listed(
            journal, _mapper(journal), tenant, kinds, states or OPEN, state_version, limit
        )
    if as_json:
        print_json({"at": now, "runs": [document_of(view) for view in found]})
        return
    if not found:
        click.echo("There is no such run.")
        return
    rows = [
        (
            *(view.tenant, view.kind, view.run_id, view.state, duration(now - view.since)),
            *(due(view.next_at, now), str(view.state_version), view.waits_for or ""),
        )
        for view in found
    ]
    print_table(_COLUMNS, rows)


@runs.command()
@_run_arguments
@url_option
@tenant_option(required=True)
@json_option
def show(url: str, tenant: str, run_id: str, kind: str | None, as_json: bool) -> None:
    """Show one run as it stands."""
    from settled.projections.run_view import view_of_run

    with opened_journal(url) as journal:
        now = journal.time()
        view = view_of_run(_run(journal, _located(journal, tenant, run_id, kind)))
    if as_json:
        print_json(document_of(view))
        return
    next_at = f"{due(view.next_at, now)}, {moment(view.next_at)}" if view.next_at else None
    click.echo(f"{view.identity}\n")
    print_fields(
        [
            ("state", f"{view.state} for {duration(now - view.since)}, since {moment(view.since)}"),
            ("reason", view.last_reason),
            ("waits for", view.waits_for),
            ("until", moment(view.waits_until) if view.waits_until else None),
            ("session until", moment(view.session_until)),
            ("next", next_at),
            ("owner epoch", f"{view.epoch} {view.worker or ''}".strip()),
            ("started as", view.reason + (f" of {view.parent}" if view.parent else "")),
            ("state version", str(view.state_version)),
            ("used", _amounts(view.used)),
            ("left", _amounts(view.left)),
            ("calls", ", ".join(f"{name} {state}" for name, state in view.calls.items())),
            ("operations", ", ".join(f"{kind} {name}" for kind, name in view.operations)),
            ("checkpoints", ", ".join(view.boundaries)),
            ("events", str(view.version)),
        ]
    )


@runs.command()
@_run_arguments
@url_option
@tenant_option(required=True)
@json_option
def history(url: str, tenant: str, run_id: str, kind: str | None, as_json: bool) -> None:
    """Show every event of one run."""
    from settled.domain.run.run import Run
    from settled.projections.history import history_of

    with opened_journal(url) as journal:
        identity = _located(journal, tenant, run_id, kind)
        entries = history_of(journal.events(tenant, Run.stream(identity)))
    if as_json:
        events = [document_of(entry) for entry in entries]
        print_json({"tenant": tenant, "kind": identity.kind, "id": run_id, "events": events})
        return
    rows = [
        (
            *(str(entry.version), moment(entry.at).removesuffix(" UTC"), event_name(entry.name)),
            *(entry.actor, str(entry.fields.get("call_id") or told(entry))),
        )
        for entry in entries
    ]
    print_table(_HISTORY_COLUMNS, rows)


@runs.command()
@_run_arguments
@url_option
@tenant_option(required=True)
@json_option
def why(url: str, tenant: str, run_id: str, kind: str | None, as_json: bool) -> None:
    """Say why a run stands where it stands, what it waits for, and what comes next."""
    from settled.domain.run.run import Run
    from settled.projections.run_view import why_run

    with opened_journal(url) as journal:
        now = journal.time()
        identity = _located(journal, tenant, run_id, kind)
        head = journal.head(tenant, Run.stream(identity))
        assert head is not None, "it was found a moment ago, and streams do not end"
        explained = why_run(_run(journal, identity), head, now)
    if as_json:
        print_json({"at": now, **document_of(explained)})
        return
    click.echo(f"{identity}  {explained.state} for {duration(now - explained.since)}")
    at = f", {moment(explained.next_at)}" if explained.next_at else ""
    print_fields(
        [
            ("happened", explained.happened),
            ("known", explained.known),
            ("next", f"{explained.next}{at}"),
            *(("note", note) for note in explained.notes),
        ]
    )


@runs.command()
@_run_arguments
@click.option("--operation", required=True, metavar="KIND/ID", help="What the run waits on.")
@click.option("--version", type=int, required=True, help="The version of the proposal, as shown.")
@click.option("--digest", required=True, help="Its digest, as `ops show` shows it.")
@click.option("--role", "roles", multiple=True, help="A role of the actor's; may be repeated.")
@url_option
@tenant_option(required=True)
@actor_option
@kinds_option(required=True)
@accept_unsafe_option
@json_option
def resume(
    run_id: str,
    kind: str | None,
    operation: str,
    version: int,
    digest: str,
    roles: tuple[str, ...],
    url: str,
    tenant: str,
    actor: str,
    kinds_from: str,
    accept_unsafe_store: bool,
    as_json: bool,
) -> None:
    """Approve the proposal that a run waits on, and wake the run.

    The decision is one on the operation, by its version and digest; a run id alone permits nothing.
    """
    from settled.domain.identity import Identity, Principal

    by = Principal(tenant, actor, frozenset(roles))
    operation_kind, _, operation_id = operation.partition("/")
    wanted = Identity(tenant, operation_kind, operation_id)
    with opened_app(url, kinds_from, accept_unsafe_store=accept_unsafe_store) as app:
        run = _located(app.journal, tenant, run_id, kind)
        view = app.runs.resume(run, wanted, proposal_version=version, digest=digest, by=by)
    if as_json:
        print_json(document_of(view))
    else:
        click.echo(f"{view.label}: {view.state}, approved by {view.approved_by}")


@runs.command()
@_run_arguments
@reason_option
@url_option
@tenant_option(required=True)
@actor_option
@accept_unsafe_option
@json_option
def cancel(
    run_id: str,
    kind: str | None,
    reason: str,
    url: str,
    tenant: str,
    actor: str,
    accept_unsafe_store: bool,
    as_json: bool,
) -> None:
    """End a run. What it had intended is not cancelled by that: an effect may exist."""
    from settled.domain.identity import Principal

    with opened_app(url, accept_unsafe_store=accept_unsafe_store) as app:
        run = _located(app.journal, tenant, run_id, kind)
        view = app.runs.cancel(run, by=Principal(tenant, actor), reason=reason)
    if as_json:
        print_json(document_of(view))
    else:
        asked = ", a cancel is requested" if view.cancel_requested and not view.settled else ""
        click.echo(f"{view.identity}: {view.state}{asked}")


def _amounts(amounts: Any) -> str:
    return ", ".join(f"{amount} {unit}" for unit, amount in amounts.items())


def _mapper(journal: Journal) -> EventMapper:
    from settled.domain.journal.mapper import EventMapper
    from settled.domain.keys import DerivedKeys

    return EventMapper(DerivedKeys(journal.installation().secret))


def _run(journal: Journal, identity: Identity) -> Run:
    from settled.domain.run.run import Run

    run = _mapper(journal).fold(journal.events(identity.tenant, Run.stream(identity)))
    assert isinstance(run, Run), "the stream of a run holds one"
    return run


def _located(journal: Journal, tenant: str, run_id: str, kind: str | None) -> Identity:
    """Return the identity of a run that was named by its id, and by its kind if need be."""
    from settled.domain.errors import InvalidInput
    from settled.domain.identity import Identity
    from settled.domain.run.run import Run
    from settled.runs import missing_run

    kinds = [kind] if kind else kinds_of(journal, tenant)
    wanted = [Identity(tenant, one, run_id) for one in kinds]
    found = [one for one in wanted if journal.head(tenant, Run.stream(one)) is not None]
    if not found:
        raise missing_run(Identity(tenant, kind or "any", run_id))
    if len(found) > 1:
        raise InvalidInput(
            f"{run_id} is the id of several: {', '.join(one.kind for one in found)}.",
            hint="Say which one with --kind.",
        )
    return found[0]
