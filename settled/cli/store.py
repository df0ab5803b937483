"""The commands about the store as a whole: `settled migrate`, `doctor` and `adopt`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from settled.cli.opening import opened_app, opened_journal
from settled.cli.options import (
    accept_unsafe_option,
    actor_option,
    json_option,
    kinds_option,
    url_option,
)
from settled.cli.output import ExitCode, document_of, print_json
from settled.cli.telling import counted, due, duration

if TYPE_CHECKING:
    from settled.doctor import Examination


@click.command()
@url_option
@click.option("--print", "print_only", is_flag=True, help="Print the SQL, and change nothing.")
@json_option
def migrate(url: str, print_only: bool, as_json: bool) -> None:
    """Bring the store's tables up to this version of settled."""
    from settled.infrastructure.journal.migrate import migrate as run
    from settled.infrastructure.journal.migrate import pending, script
    from settled.infrastructure.journal.opening import open_target

    with open_target(url) as target:
        dialect = target.dialect
        if print_only:
            steps, sql = pending(target), script(target)
        else:
            steps, sql = run(target), None
    names = [step.name for step in steps]
    if as_json:
        print_json({"dialect": dialect, "applied": [] if sql else names, "sql": sql})
    elif sql is not None:
        click.echo(sql, nl=False)
    elif names:
        click.echo(f"Applied {', '.join(names)} ({dialect}).")
    else:
        click.echo(f"Nothing to do: the tables are up to date ({dialect}).")


@click.command()
@url_option
@kinds_option(required=False)
@click.option(
    "--full", is_flag=True, help="Compare the agenda with every stream, and not with a sample."
)
@click.option(
    "--retiring",
    metavar="KIND@VERSION",
    help="List what still needs this version of a kind, such as refund@1, and no more.",
)
@json_option
def doctor(
    url: str, kinds_from: str | None, full: bool, retiring: str | None, as_json: bool
) -> int:
    """Look for what can lose commits, for what does not move, and for what nobody knows.

    With --kinds it names too what is open in kinds and versions that are not declared there, and
    contracts whose unknowns leave every lost reply to a person. The exit code is 1 when something
    was found that must not stay as it is: commits can be lost, the agenda is not what the log says,
    work is open that nobody serves. With --retiring it is 1 while anything is open under that
    version.
    """
    if retiring is not None:
        return _retiring(url, retiring, as_json)
    from settled.cli.loading import load_declared
    from settled.doctor import examine

    kinds, runs = load_declared(kinds_from) if kinds_from is not None else (None, [])
    with opened_journal(url) as journal:
        found = examine(url, journal, kinds, runs, full=full)
    if as_json:
        print_json(_document(found))
    else:
        _print_report(found)
    return ExitCode.REFUSED if found.failing else ExitCode.DONE


@click.command()
@url_option
@actor_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@accept_unsafe_option
@json_option
def adopt(url: str, actor: str, yes: bool, accept_unsafe_store: bool, as_json: bool) -> None:
    """Let a copied or restored store be worked on again.

    Whatever is ready in it may have been sent already from where it was before: each such
    operation becomes outcome_unknown, and is looked up or resent as its contract allows.
    """
    from settled.infrastructure.journal.copies import refuse_to_adopt
    from settled.processes.adoption import adopt as run

    with opened_app(url, accept_unsafe_store=accept_unsafe_store) as app:
        changed = app.installation.changed
        refuse_to_adopt(app.installation.copy_of)  # before anything is recorded
        if not yes:
            click.echo(changed or "Nothing shows that this store is not where it was.", err=True)
            click.confirm(
                "No other copy of it is worked on, and everything that is ready in it is to be"
                " treated as possibly sent?",
                abort=True,
                err=True,
            )
        count = run(app.ledger, actor)
    if as_json:
        print_json({"adopted": True, "changed": changed, "outcome_unknown": count})
    else:
        click.echo(
            f"Adopted. {counted(count, 'operation')} may have been sent: outcome_unknown now."
        )


def _document(found: Examination) -> dict[str, Any]:
    agenda = document_of(found.agenda)
    agenda["oddities"] = [document_of(oddity) for oddity in found.agenda.oddities]
    document = document_of(found)
    for name in ("findings", "workers", "overdue", "parked", "waiting", "projections"):
        document[name] = [document_of(one) for one in document[name]]
    document["agenda"] = agenda
    return document


def _print_report(found: Examination) -> None:
    now = found.at
    for finding in found.findings:
        click.echo(f"{finding.severity.ljust(5)} {finding.subject}: {finding.message}")
    for title, rows in (("overdue", found.overdue), ("parked", found.parked)):
        for row in rows:
            name = f"{row.tenant}/{row.kind}/{row.identity}"
            click.echo(f"warn  {title}: {name} is {row.state}, {due(row.due_at, now)}")
    for one in found.waiting:
        by = f"served by {', '.join(one.by)}" if one.by else "no running worker serves it"
        click.echo(f"ok    open: {counted(one.count, 'stream')} of {one.route}, {by}")
    for worker in found.workers:
        if not worker.lapsed:
            state = f"at work for {duration(now - worker.started_at)}"
            click.echo(f"ok    worker: {worker.name} (epoch {worker.epoch}), {state}")
    compared = "all" if found.full else "a sample of"
    if not found.agenda.odd_count:
        streams = counted(found.agenda.streams, "stream")
        click.echo(f"ok    agenda: {compared} {streams} agree with the log")
    if not any(finding.severity == "fail" for finding in found.findings):
        click.echo(f"ok    store: commits are safe here ({found.dialect})")


def _retiring(url: str, text: str, as_json: bool) -> int:
    """List what is open under one version of a kind, and which workers still serve it."""
    from settled.domain.route import parse_versioned
    from settled.processes.unserved import waiting_for

    kind, version = parse_versioned(text)
    with opened_journal(url) as journal:
        blocking = waiting_for(journal, kind, version)
        served = f"{kind}@{version}/"
        rows = [row for row in journal.workers() if not row.lapsed]
        workers = [row.name for row in rows if any(r.startswith(served) for r in row.serves)]
    if as_json:
        shown = [document_of(one) for one in blocking]
        print_json({"retiring": text, "blocked": bool(blocking), "by": shown, "workers": workers})
    else:
        for one in blocking:
            states = ", ".join(f"{count} {state}" for state, count in sorted(one.states.items()))
            click.echo(f"open    {one.route}: {states}: {', '.join(one.named)}")
        for name in workers:
            click.echo(f"worker  {name} serves {text}")
        if not blocking:
            click.echo(f"Nothing is open under {text}: it can be retired.")
    return ExitCode.REFUSED if blocking else ExitCode.DONE
