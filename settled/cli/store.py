"""The commands about the store as a whole: `settled migrate`, `doctor` and `adopt`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from settled.cli.opening import open_kinds, opened_app, opened_journal
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
    from settled.domain.journal.port import Journal

_SHOWN_ROWS = 100
_OVERDUE_GRACE_SECONDS = 5
"""What has been due for less than this is about to be looked at."""


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
@json_option
def doctor(url: str, kinds_from: str | None, as_json: bool) -> int:
    """Look for what can lose commits, and for what does not move.

    With --kinds it names the kinds too that have open operations and are not declared there. The
    exit code is 1 when something was found under which commits can be lost or effects doubled.
    """
    with opened_journal(url) as journal:
        report = _examined(journal, kinds_from)
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    failing = any(finding["severity"] == "fail" for finding in report["findings"])
    return ExitCode.REFUSED if failing else ExitCode.DONE


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


def _examined(journal: Journal, kinds_from: str | None) -> dict[str, Any]:
    from datetime import timedelta

    now = journal.time()
    late = now - timedelta(seconds=_OVERDUE_GRACE_SECONDS)
    overdue = journal.heads(overdue_at=late, limit=_SHOWN_ROWS)
    parked = journal.heads(parked=True, limit=_SHOWN_ROWS)
    findings = [document_of(finding) for finding in journal.examine()]
    unread: list[str] = []
    if kinds_from is not None:
        from settled.cli.loading import load_kinds

        declared = {kind.name for kind in load_kinds(kinds_from)}
        unread = [name for name in open_kinds(journal) if name not in declared]
    return {
        "at": now,
        "dialect": journal.dialect,
        "findings": findings,
        "workers": [document_of(row) for row in journal.workers()],
        "overdue": [document_of(row) for row in overdue],
        "parked": [document_of(row) for row in parked],
        "kinds_not_declared": unread,
    }


def _print_report(report: dict[str, Any]) -> None:
    now = report["at"]
    for finding in report["findings"]:
        click.echo(f"{finding['severity'].ljust(5)} {finding['subject']}: {finding['message']}")
    for name in report["kinds_not_declared"]:
        click.echo(f"warn  kind: {name} has open operations and is not declared in --kinds.")
    for title, rows in (("overdue", report["overdue"]), ("parked", report["parked"])):
        for row in rows:
            name = f"{row['tenant']}/{row['kind']}/{row['identity']}"
            click.echo(f"warn  {title}: {name} is {row['state']}, {due(row['due_at'], now)}")
    for row in report["workers"]:
        if row["lapsed"]:
            state = f"lease over for {duration(now - row['lease_until'])}"
        else:
            state = f"at work for {duration(now - row['started_at'])}"
        click.echo(f"ok    worker: {row['name']} (epoch {row['epoch']}), {state}")
    if not report["findings"]:
        click.echo(f"ok    store: commits are safe here ({report['dialect']})")
