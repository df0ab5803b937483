"""`settled audit`: a key, anchors outside the store, and a verdict on the history in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from settled.cli.opening import opened_journal
from settled.cli.options import Command, Decorator, json_option, url_option
from settled.cli.output import ExitCode, document_of, print_json
from settled.cli.telling import counted

if TYPE_CHECKING:
    from settled.infrastructure.audit.auditor import AuditReport


def _file(*names: str, required: bool, help: str) -> Decorator:
    return click.option(
        *names, required=required, type=click.Path(dir_okay=False, path_type=Path), help=help
    )


def _key_option(*, required: bool) -> Decorator:
    def add(command: Command) -> Command:
        return click.option(
            "--key",
            envvar="SETTLED_AUDIT_KEY",
            required=required,
            type=click.Path(dir_okay=False, path_type=Path),
            help="The auditor's key, in a file. [env: SETTLED_AUDIT_KEY]",
        )(command)

    return add


@click.group()
def audit() -> None:
    """Find what was changed in the stored history, and anchor it outside the store."""


@audit.command()
@_file("--to", required=True, help="The file to make.")
@json_option
def key(to: Path, as_json: bool) -> None:
    """Make the key under which anchors are signed. It belongs to the auditor alone."""
    from settled.infrastructure.audit.keys import make_key

    made = make_key(to)
    if as_json:
        print_json({"key": made.name, "file": str(to)})
    else:
        click.echo(f"Made key {made.name} in {to}. Keep it where the store cannot be reached from.")


@audit.command()
@_file("--to", required=True, help="The file of anchors, which is added to.")
@_key_option(required=True)
@url_option
@json_option
def anchor(to: Path, key: Path, url: str, as_json: bool) -> None:
    """Add a signed anchor of what is new in the log to a file outside the store.

    It says what is there now. So verify first, against the anchors before: what was changed and
    then anchored is not found any more.
    """
    from settled.infrastructure.audit.auditor import anchor as run
    from settled.infrastructure.audit.keys import read_key

    held = read_key(key)
    with opened_journal(url) as journal:
        done = run(journal, url, to, held)
    if as_json:
        print_json(document_of(done))
    else:
        click.echo(
            f"Anchor {done.number}: the log up to position {done.position},"
            f" {counted(done.events, 'new event')}."
        )


@audit.command()
@_file("--against", required=False, help="The file of anchors.")
@_key_option(required=False)
@url_option
@json_option
def verify(against: Path | None, key: Path | None, url: str, as_json: bool) -> int:
    """Read the whole log, and name each stream and version that is not what was written.

    Without --against, what somebody changed together with everything behind it is not found, nor
    an end that was cut off. Exit code 1 when anything is wrong.
    """
    from settled.domain.errors import InvalidInput
    from settled.infrastructure.audit.auditor import verify as run
    from settled.infrastructure.audit.keys import read_key

    if against is not None and key is None:
        raise InvalidInput("Anchors are read with their key.", hint="Name its file with --key.")
    held = read_key(key) if against is not None and key is not None else None
    with opened_journal(url) as journal:
        report = run(journal, url, against=against, key=held)
    if as_json:
        breaches = [document_of(breach) for breach in report.breaches]
        print_json({"sound": not breaches, **document_of(report), "breaches": breaches})
    else:
        _print(report)
    return ExitCode.REFUSED if report.breach_count else ExitCode.DONE


def _print(report: AuditReport) -> None:
    for breach in report.breaches:
        place = "the log"
        if breach.stream is not None:
            place = f"{breach.tenant} {breach.stream} version {breach.version}"
        click.echo(f"{breach.wrong.replace('_', ' ')}: {place}: {breach.message}")
    if report.breach_count > len(report.breaches):
        click.echo(f"There are {report.breach_count} in all; these are the first.")
    click.echo(
        f"{counted(report.events, 'event')} in {counted(report.streams, 'stream')},"
        f" up to position {report.position}; against {counted(report.anchors, 'anchor')}."
    )
    if report.erased:
        click.echo(f"The details of {counted(report.erased, 'event')} were erased.")
    if report.purged:
        click.echo(f"{counted(report.purged, 'event')} were purged; what stands for them is whole.")
    if report.bodies_unchecked:
        click.echo(
            f"The details of {counted(report.bodies_unchecked, 'event')} were not checked:"
            " their key is not here."
        )
    click.echo(
        f"{counted(report.breach_count, 'breach').replace('breachs', 'breaches')} found."
        if report.breach_count
        else "Nothing is wrong."
    )
