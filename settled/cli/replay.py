"""`settled replay`: what today's code makes of what is stored. It can ask no provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from settled.cli.opening import locate, opened_journal
from settled.cli.options import json_option, kinds_option, tenant_option, url_option
from settled.cli.output import ExitCode, document_of, print_json
from settled.cli.telling import counted, moment

if TYPE_CHECKING:
    from settled.domain.operation.deciding_again import Decision
    from settled.processes.replay import Report

_TELL_EVERY = 10_000
"""After how many streams progress is told."""


@click.command()
@click.argument("operation_id", required=False)
@click.option("--kind", help="The kind, where several have an operation of this id.")
@click.option("--historical", is_flag=True, help="Fold every stream of the store.")
@click.option("--what-if", is_flag=True, help="Decide one operation's history again.")
@url_option
@tenant_option(required=False)
@kinds_option(required=False)
@json_option
def replay(
    operation_id: str | None,
    kind: str | None,
    historical: bool,
    what_if: bool,
    url: str,
    tenant: str | None,
    kinds_from: str | None,
    as_json: bool,
) -> int:
    """Replay what is stored through today's code, answered from records alone.

    --historical folds every stream and names those that this code refuses or reads differently:
    run it with new code before it takes over. With --kinds, streams of the machines that the module
    declares are read too. ID --what-if decides an operation's history again, with the evidence that
    was recorded and the contract that is declared now. Exit code 1 when anything differs.
    """
    if historical == what_if:
        raise click.UsageError("Give --historical, or an ID and --what-if.")
    if historical:
        if operation_id is not None:
            raise click.UsageError("--historical reads every stream; it takes no ID.")
        return _historical(url, kinds_from, as_json)
    if operation_id is None or tenant is None or kinds_from is None:
        raise click.UsageError("--what-if takes an ID, --tenant and --kinds.")
    return _what_if(url, tenant, operation_id, kind, kinds_from, as_json)


def _historical(url: str, kinds_from: str | None, as_json: bool) -> int:
    from settled.cli.loading import load_machines
    from settled.domain.journal.mapper import EventMapper
    from settled.domain.keys import DerivedKeys
    from settled.processes.replay import historical

    if kinds_from is not None:
        load_machines(kinds_from)
    told = 0

    def tell(streams: int, events: int) -> None:
        nonlocal told
        if streams - told >= _TELL_EVERY:
            told = streams
            click.echo(f"{counted(streams, 'stream')}, {counted(events, 'event')}…", err=True)

    with opened_journal(url) as journal:
        mapper = EventMapper(DerivedKeys(journal.installation().secret))
        report = historical(journal, mapper, tell)
    if as_json:
        odd = [document_of(oddity) for oddity in report.oddities]
        print_json({"same": not report.odd_count, **document_of(report), "oddities": odd})
    else:
        _print_report(report)
    return ExitCode.REFUSED if report.odd_count else ExitCode.DONE


def _print_report(report: Report) -> None:
    for one in report.oddities:
        at = f" version {one.version}" if one.version else ""
        name = f"{one.tenant}/{one.kind}/{one.identity}"
        click.echo(f"{one.odd.replace('_', ' ')}: {name}{at}: {one.message}")
    if report.odd_count > len(report.oddities):
        click.echo(f"There are {report.odd_count} in all; these are the first.")
    click.echo(f"{counted(report.events, 'event')} in {counted(report.streams, 'stream')}.")
    click.echo(
        f"{counted(report.odd_count, 'stream')} not read as written."
        if report.odd_count
        else "This code reads them all as they were written."
    )


def _what_if(
    url: str, tenant: str, operation_id: str, kind: str | None, kinds_from: str, as_json: bool
) -> int:
    from settled.cli.loading import load_kinds
    from settled.domain.journal.mapper import EventMapper
    from settled.domain.keys import DerivedKeys
    from settled.domain.kinds import Kinds
    from settled.domain.operation.operation import Operation
    from settled.processes.replay import what_if

    kinds = Kinds.of(load_kinds(kinds_from))
    with opened_journal(url) as journal:
        identity = locate(journal, tenant, operation_id, kind)
        records = journal.events(tenant, Operation.stream(identity))
        mapper = EventMapper(DerivedKeys(journal.installation().secret))
    operation, decisions = what_if(records, mapper, kinds)
    differing = sum(decision.differs for decision in decisions)
    if as_json:
        shown = [document_of(one) | {"differs": one.differs} for one in decisions]
        named = {"tenant": tenant, "kind": operation.kind, "id": operation_id}
        purged = {"purged_at": operation.purged_at}
        print_json({**named, **purged, "same": not differing, "decisions": shown})
    else:
        click.echo(f"{operation.label}\n{operation.business_identity}\n")
        if operation.purged_at is not None:
            click.echo(f"What was decided before {moment(operation.purged_at)} is purged.")
        for decision in decisions:
            _print_decision(decision)
        click.echo(
            f"{counted(len(decisions), 'decision')};"
            f" {differing or 'none'} would be another one today."
        )
    return ExitCode.REFUSED if differing else ExitCode.DONE


def _print_decision(decision: Decision) -> None:
    recorded, today = " and ".join(decision.recorded), " and ".join(decision.today)
    click.echo(f"#{decision.version}  {moment(decision.at)}  {decision.finding}")
    if not decision.differs:
        click.echo(f"  the same: {recorded}")
        return
    click.echo(f"  recorded: {recorded}")
    click.echo(f"  today:    {today or 'nothing'}: {decision.reason}")
