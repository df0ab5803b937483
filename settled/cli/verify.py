"""`settled verify`: kills real workers on a user's own database, and says which promises hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from settled.cli.options import json_option
from settled.cli.output import ExitCode, print_fields, print_json, print_table

if TYPE_CHECKING:
    from settled.verify.check import Check
    from settled.verify.runner import Report, Result

NOT_BUILT = 3
"""The exit code when nothing fell short and some of what was asked for has no check yet."""

_SEEDS = 1 << 32


@click.command()
@click.option(
    "--db",
    envvar="SETTLED_URL",
    required=True,
    help="Where to check: sqlite:///shop.db or postgresql://… What is there is not touched."
    " [env: SETTLED_URL]",
)
@click.option("--only", metavar="IDS", help="Some checks only, such as A4,A22.")
@click.option("--seed", type=int, help="The seed of an earlier run, to draw what it drew.")
@click.option("--keep", is_flag=True, help="Keep the stores and the logs, and say where they are.")
@json_option
def verify(db: str, only: str | None, seed: int | None, keep: bool, as_json: bool) -> int:
    """Kill real workers on your own database, and see which promises hold there.

    Each check has a schema of its own on PostgreSQL, and a file of its own beside yours on SQLite,
    which are gone afterwards. The provider is simulated by a process of its own, which writes down
    what it sees. Progress goes to standard error. The exit code is 0 when all that was asked for
    holds, 1 when anything falls short, and 3 when only what is not built yet is missing.
    """
    import signal

    from settled.infrastructure.clock import chance
    from settled.infrastructure.simulator.client import running_simulator
    from settled.verify.check import registered
    from settled.verify.ground import ground
    from settled.verify.runner import run

    ids = [name.strip().upper() for name in only.split(",")] if only else []
    drawn = int(chance() * _SEEDS) if seed is None else seed
    # Whoever stops a run, with whichever signal, finds none of its workers and schemas afterwards.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ground(db, keep=keep) as place, running_simulator() as simulator:
        report = run(place, simulator, registered(), only=ids, seed=drawn, begin=_begin, tell=_tell)
    if as_json:
        print_json(report.document())
    else:
        _print(report)
    return exit_code(report)


def exit_code(report: Report) -> int:
    """Return the exit code for what a run found."""
    from settled.verify.runner import Verdict

    codes = {Verdict.FALLS_SHORT: ExitCode.REFUSED, Verdict.NOT_BUILT: NOT_BUILT}
    return codes.get(report.verdict, ExitCode.DONE)


def _begin(check: Check) -> None:
    click.echo(f"{check.id:4}{check.title} … ", nl=False, err=True)


def _tell(result: Result) -> None:
    click.echo(f"{result.verdict}, {result.seconds:.1f} s", err=True)


def _print(report: Report) -> None:
    click.echo()
    names = ("id", "check", "verdict", "attempts", "requests", "effects", "receipt", "seconds")
    print_table(names, [_row(result) for result in report.results])
    click.echo()
    for result in report.results:
        if result.why:
            click.echo(f"{result.id} {result.title}: {result.why}")
            for stream, events in result.streams.items():
                click.echo(f"    {stream}: {' '.join(events)}")
    versions = ", ".join(f"{name} {number}" for name, number in report.versions.items())
    kept = ", ".join(report.kept)
    seconds = sum(result.seconds for result in report.results)
    print_fields(
        [
            ("verdict", f"{report.verdict}: {_counted(report)}, in {seconds:.0f} s"),
            ("versions", versions),
            ("seed", str(report.seed)),
            ("kept", kept),
        ]
    )


def _row(result: Result) -> tuple[str, ...]:
    found = result.evidence
    counted = (found.attempts, found.requests, found.effects, found.receipt) if found else ()
    cells = [str(value) for value in counted] or [""] * 4
    seconds = f"{result.seconds:.1f}" if found else ""
    return (result.id, result.title, str(result.verdict), *cells, seconds)


def _counted(report: Report) -> str:
    """Return how often each verdict was given."""
    from collections import Counter

    counts = Counter(result.verdict for result in report.results)
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
