"""`settled projections`: what folds the log into views, and where it stands.

None of these commands opens an application: what they open can read the log and write views, and
has no provider to call.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from settled.cli.options import (
    Command,
    actor_option,
    json_option,
    reason_option,
    url_option,
)
from settled.cli.output import ExitCode, document_of, print_json, print_table
from settled.cli.telling import counted, duration

if TYPE_CHECKING:
    from settled.projections.parking import Resolved
    from settled.projections.projection import Projecting
    from settled.projections.rebuild import Rebuilt
    from settled.projections.status import ProjectionStatus

_COLUMNS = (
    "projection",
    "schema",
    "version",
    "state",
    "position",
    "behind",
    "lag",
    "parked",
    "error",
)


def _projections_option(command: Command) -> Command:
    return click.option(
        "--projections",
        "source",
        envvar="SETTLED_PROJECTIONS",
        metavar="MODULE",
        help="Where projections of your own are: package.module or path/file.py, and :name for one"
        " of them or a list. [env: SETTLED_PROJECTIONS]",
    )(command)


@click.group()
def projections() -> None:
    """Run, look at and rebuild what is folded from the log."""


@projections.command()
@url_option
@json_option
def status(url: str, as_json: bool) -> int:
    """Show where each projection stands, and how far it is behind the log.

    The exit code is 1 when one of them stands still, or has set streams aside.
    """
    from settled.infrastructure.views.building import opened_projector
    from settled.projections.status import statuses

    with opened_projector(url) as projector:
        found = statuses(projector)
    if as_json:
        print_json({"projections": [document_of(one) for one in found]})
    elif not found:
        click.echo("No projection was ever run on this store.")
    else:
        print_table(_COLUMNS, [_status_row(one) for one in found])
    amiss = any(one.state in ("stopped", "yielded") or one.parked for one in found)
    return ExitCode.REFUSED if amiss else ExitCode.DONE


@projections.command()
@click.argument("names", nargs=-1)
@url_option
@_projections_option
@json_option
def run(url: str, names: tuple[str, ...], source: str | None, as_json: bool) -> None:
    """Keep projections up with the log, until SIGTERM or SIGINT: all of them, or those named.

    Run as many of these as you like: of each projection one process is the leader, and another
    takes over at once when it is gone. One line on standard output says that it works; the log
    goes to standard error.
    """
    from settled.cli.logs import configure_logging
    from settled.infrastructure.views.building import opened_projector
    from settled.processes.log import logger
    from settled.projections.runner import Runner

    configure_logging()
    chosen = _chosen(source, names)
    with opened_projector(url) as projector:
        runner = Runner(projector, chosen, logger("settled.projections"))

        def stop(number: int, frame: object) -> None:
            runner.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        known = [one.name for one in chosen]
        if as_json:
            print_json({"ready": True, "projections": known}, one_line=True)
        else:
            click.echo(f"Projections run: {', '.join(known)}")
        runner.run()


@projections.command()
@click.argument("name")
@url_option
@_projections_option
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="How many processes share the streams out among them.",
)
@json_option
def rebuild(url: str, name: str, source: str | None, workers: int, as_json: bool) -> None:
    """Build a projection anew from the log, beside the one that is read, and change over to it.

    The two are compared first, and what differs is shown. Killed, it goes on where it was when it
    is called again. Nothing is sent to any provider: what rebuilds has none.
    """
    from settled.infrastructure.views.building import build, opened_projector
    from settled.projections.rebuild import rebuild as run_rebuild

    (declared,) = _chosen(source, (name,))
    line = _ProgressLine(name)
    with opened_projector(url) as projector:
        rebuilt = run_rebuild(
            projector,
            declared,
            workers,
            lambda new: build(url, projector, new, workers, line.tell),
        )
    line.end()
    if as_json:
        print_json(_rebuilt_document(rebuilt))
    else:
        _print_rebuilt(rebuilt)


@projections.command()
@click.argument("name")
@url_option
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@json_option
def parked(url: str, name: str, limit: int, as_json: bool) -> None:
    """List the events that a projection has set aside, in the order of the log.

    One without an error is fine, and waits behind one of its stream that failed.
    """
    from settled.infrastructure.views.building import opened_projector
    from settled.projections.status import set_aside

    with opened_projector(url) as projector:
        found = set_aside(projector, name)[:limit]
    if as_json:
        print_json({"events": [document_of(one) for one in found]})
    elif found:
        shown = [
            (one.tenant, str(one.stream), str(one.number), str(one.position), one.error or "")
            for one in found
        ]
        print_table(("tenant", "stream", "event", "position", "error"), shown)
    else:
        click.echo(f"{name} has set nothing aside.")


@projections.command()
@click.argument("name")
@click.argument("role")
@url_option
@_projections_option
@json_option
def grant(url: str, name: str, role: str, source: str | None, as_json: bool) -> None:
    """Let a ROLE of PostgreSQL read the schema that a projection lies in, and nothing else.

    Run it as the role that runs the projections: what that makes there later is readable too.
    """
    from contextlib import closing

    from settled.infrastructure.views.opening import open_views
    from settled.projections.projection import schema_of

    (declared,) = _chosen(source, (name,))
    with closing(open_views(url)) as views:
        views.of(schema_of(declared)).let_read(role)
    if as_json:
        print_json({"role": role, "schema": schema_of(declared)})
    else:
        click.echo(f"{role} may read what {name} and others in its schema have.")


def _deciding(command: Command) -> Command:
    for decorate in (
        json_option,
        reason_option,
        actor_option,
        _projections_option,
        url_option,
        click.argument("stream", type=click.UUID),
        click.argument("name"),
    ):
        command = decorate(command)
    return command


@projections.command()
@_deciding
def retry(
    url: str,
    name: str,
    stream: UUID,
    source: str | None,
    actor: str,
    reason: str,
    as_json: bool,
) -> int:
    """Fold again what was set aside of a STREAM. The exit code is 1 when that fails as before."""
    from settled.projections import parking

    return _decide(parking.retry, url, name, stream, source, actor, reason, as_json)


@projections.command()
@_deciding
def skip(
    url: str,
    name: str,
    stream: UUID,
    source: str | None,
    actor: str,
    reason: str,
    as_json: bool,
) -> int:
    """Pass by the event of a STREAM that cannot be folded, for good, and fold those behind it."""
    from settled.projections import parking

    return _decide(parking.skip, url, name, stream, source, actor, reason, as_json)


def _decide(
    decision: Callable[..., Resolved],
    url: str,
    name: str,
    stream: UUID,
    source: str | None,
    actor: str,
    reason: str,
    as_json: bool,
) -> int:
    from settled.infrastructure.views.building import opened_projector

    (declared,) = _chosen(source, (name,))
    with opened_projector(url) as projector:
        live = projector.live(declared)
        resolved = decision(projector, live, stream, actor=actor, reason=reason)
    if as_json:
        print_json(document_of(resolved))
    else:
        click.echo(
            f"{counted(resolved.applied, 'event')} applied, {resolved.skipped} passed by;"
            f" {f'set aside again: {resolved.error}' if resolved.error else 'nothing is set aside'}"
        )
    return ExitCode.REFUSED if resolved.error else ExitCode.DONE


def _chosen(source: str | None, names: Sequence[str]) -> list[Projecting]:
    """Return the projections that are named, or all. Raises InvalidInput for an unknown name."""
    from settled.cli.loading import load_projections
    from settled.domain.errors import InvalidInput
    from settled.projections.budgets import BudgetsProjection
    from settled.projections.operations import OperationsProjection
    from settled.projections.runs import RunsProjection

    declared: list[Projecting] = [OperationsProjection(), BudgetsProjection(), RunsProjection()]
    declared += load_projections(source) if source else []
    known = {one.name: one for one in declared}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidInput(
            f"There is no projection {unknown[0]} here.",
            hint=f"There are: {', '.join(known)}; --projections names a module with others.",
        )
    return [known[name] for name in names] or declared


def _status_row(one: ProjectionStatus) -> tuple[str, ...]:
    lag = duration(timedelta(seconds=one.lag_seconds)) if one.behind else ""
    where = f" (position {one.error_position})" if one.error_position else ""
    error = f"{one.error}{where}" if one.error else ""
    return (
        *(one.name, one.schema, str(one.version), one.state, str(one.position), str(one.behind)),
        *(lag, str(one.parked or ""), error),
    )


def _rebuilt_document(rebuilt: Rebuilt) -> dict[str, Any]:
    differences = [document_of(one) for one in rebuilt.differences]
    return document_of(rebuilt) | {"differences": differences}


def _print_rebuilt(rebuilt: Rebuilt) -> None:
    click.echo(f"{rebuilt.name} {rebuilt.version} is live, at position {rebuilt.position}.")
    if rebuilt.parked:
        click.echo(f"{counted(rebuilt.parked, 'stream')} could not be folded and is set aside.")
    if rebuilt.replaced is not None and not rebuilt.compared:
        click.echo(f"Version {rebuilt.replaced} was folded by other code and was not compared.")
    for what in rebuilt.compared:
        found = [one for one in rebuilt.differences if one.what == what]
        if not found:
            click.echo(f"{what}: the same as in version {rebuilt.replaced}")
        for one in found:
            click.echo(f"{what}: {one.only_before} only before, {one.only_after} only now")
            for sign, rows in (("-", one.before), ("+", one.after)):
                for row in rows:
                    click.echo(f"  {sign} {row}")


class _ProgressLine:
    """One line on standard error that is written over while a rebuild goes on."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._shown = sys.stderr.isatty()
        self._last = ""

    def tell(self, built: int, of: int) -> None:
        """Show how much is built."""
        line = f"{self._name}: {100 * built // (of or 1)} % of {of} positions"
        if self._shown and line != self._last:
            click.echo(f"\r{line}", err=True, nl=False)
            self._last = line

    def end(self) -> None:
        """Leave the line."""
        if self._last:
            click.echo(err=True)
