"""`settled verify`: kills real workers on a user's own database, and says which promises hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from settled.cli.options import json_option
from settled.cli.output import ExitCode, print_fields, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from settled.infrastructure.simulator.client import SimulatorClient
    from settled.verify.check import Check
    from settled.verify.ground import Ground
    from settled.verify.runner import Report, Result, SoakReport

NOT_SHOWN = 3
"""The exit code when nothing fell short, and not all that was asked for was shown to hold.

Some of it has no check yet, or none of it can be run here.
"""

_SEEDS = 1 << 32
_SOAK_OPERATIONS = 10_000
_SHOWN = 10


@click.command()
@click.option(
    "--db",
    envvar="SETTLED_URL",
    help="Where to check: sqlite:///shop.db or postgresql://… What is there is not touched."
    " [env: SETTLED_URL]",
)
@click.option(
    "--own-server",
    is_flag=True,
    help="Bring a PostgreSQL server (extra pg-local) for what would stop yours; without --db,"
    " for everything.",
)
@click.option("--only", metavar="IDS", help="Some checks only, such as A4,A22.")
@click.option("--seed", type=int, help="The seed of an earlier run, to draw what it drew.")
@click.option(
    "--workers",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="How many workers there are where a check is about several.",
)
@click.option("--soak", is_flag=True, help="Instead of the checks: A29 with many operations.")
@click.option(
    "--operations",
    type=click.IntRange(1),
    help=f"How many operations a soak has. [default: {_SOAK_OPERATIONS}]",
)
@click.option("--keep", is_flag=True, help="Keep the stores and the logs, and say where they are.")
@click.option("-v", "--verbose", is_flag=True, help="Show operations and event boundaries too.")
@json_option
def verify(
    db: str | None,
    own_server: bool,
    only: str | None,
    seed: int | None,
    workers: int,
    soak: bool,
    operations: int | None,
    keep: bool,
    verbose: bool,
    as_json: bool,
) -> int:
    """Kill real workers on your own database, and see which promises hold there.

    Each check has a schema of its own on PostgreSQL, and a file of its own beside yours on SQLite,
    which are gone afterwards. The provider is simulated by a process of its own, which writes down
    what it sees. Progress goes to standard error. The exit code is 0 when all that was asked for
    and can be run here holds, 1 when anything falls short, and 3 when only what is not built yet is
    missing, or when nothing of it can be run here.
    """
    import logging
    import signal

    from settled.infrastructure.clock import chance
    from settled.infrastructure.simulator.client import running_simulator
    from settled.verify.ground import ground

    if soak and only:
        raise click.UsageError("--soak runs no checks: leave out --only.")
    if operations is not None and not soak:
        raise click.UsageError("--operations belongs to --soak.")
    drawn = int(chance() * _SEEDS) if seed is None else seed
    # Whoever stops a run, with whichever signal, finds none of its workers and schemas afterwards.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ground(db, keep=keep, own_server=own_server) as place, running_simulator() as simulator:
        # What drivers say of connections that are broken on purpose belongs to the workers' logs.
        logging.basicConfig(filename=place.folder / "run.log")
        for what in place.removed:
            click.echo(f"removed what a run that was killed had left: {what}", err=True)
        if soak:
            count = operations or _SOAK_OPERATIONS
            return _soak(place, simulator, count, drawn, workers, as_json)
        return _check(place, simulator, only, drawn, workers, verbose, as_json)


def exit_code(report: Report | SoakReport) -> int:
    """Return the exit code for what a run found."""
    from settled.verify.runner import Verdict

    codes: dict[Verdict, int] = {
        Verdict.HOLDS: ExitCode.DONE,
        Verdict.FALLS_SHORT: ExitCode.REFUSED,
    }
    return codes.get(report.verdict, NOT_SHOWN)


def _check(
    place: Ground,
    simulator: SimulatorClient,
    only: str | None,
    seed: int,
    workers: int,
    verbose: bool,
    as_json: bool,
) -> int:
    from settled.verify.check import registered
    from settled.verify.runner import run

    ids = [name.strip().upper() for name in only.split(",")] if only else []
    report = run(
        place,
        simulator,
        registered(),
        only=ids,
        seed=seed,
        workers=workers,
        begin=_begin,
        tell=_tell,
    )
    if as_json:
        print_json(report.document())
    else:
        _print(report, verbose)
    return exit_code(report)


def _soak(
    place: Ground,
    simulator: SimulatorClient,
    operations: int,
    seed: int,
    workers: int,
    as_json: bool,
) -> int:
    from settled.verify.runner import run_soak

    report = run_soak(
        place, simulator, operations=operations, seed=seed, workers=workers, tell=_say
    )
    if as_json:
        print_json(report.document())
        return exit_code(report)
    figures = [(name.replace("_", " "), str(value)) for name, value in report.figures.items()]
    click.echo()
    print_fields([*figures, ("verdict", str(report.verdict)), ("why", report.why)])
    print_fields(_about(report))
    return exit_code(report)


def _begin(check: Check) -> None:
    click.echo(f"{check.id:4}{check.title} … ", nl=False, err=True)


def _tell(result: Result) -> None:
    click.echo(f"{result.verdict}, {result.seconds:.1f} s", err=True)


def _say(line: str) -> None:
    click.echo(line, err=True)


def _print(report: Report, verbose: bool) -> None:
    names = ("id", "check", "verdict", "attempts", "requests", "effects", "receipt", "seconds")
    click.echo()
    print_table((*names, "operation"), [_row(result) for result in report.results])
    click.echo()
    for result in report.results:
        if result.why or verbose and result.evidence:
            click.echo(f"{result.id} {result.title}: {result.why or result.verdict}")
            _print_evidence(result, all_operations=verbose)
    seconds = sum(result.seconds for result in report.results)
    verdict = f"{report.verdict}: {_counted(report)}, in {seconds:.0f} s"
    print_fields([("verdict", verdict), *_about(report)])


def _print_evidence(result: Result, *, all_operations: bool) -> None:
    found = result.evidence
    if found is not None and found.boundaries:
        click.echo(f"    struck at: {_listed(found.boundaries)}")
    if found is not None and all_operations and found.operations:
        click.echo(f"    operations: {_listed(found.operations)}")
    for stream, events in result.streams.items():
        click.echo(f"    {stream}: {' '.join(events)}")


def _listed(words: Sequence[str]) -> str:
    """Return the first of some words, each once, with how often it is there."""
    from collections import Counter

    counts = list(Counter(words).items())
    shown = [word if count == 1 else f"{word} × {count}" for word, count in counts[:_SHOWN]]
    more = len(counts) - _SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _about(report: Report | SoakReport) -> list[tuple[str, str | None]]:
    """Return what is said of any run, with what it takes to have it again."""
    return [
        ("versions", ", ".join(f"{name} {number}" for name, number in report.versions.items())),
        ("run", report.run),
        ("seed", str(report.seed)),
        ("kept", ", ".join(report.kept)),
    ]


def _row(result: Result) -> tuple[str, ...]:
    found = result.evidence
    if found is None:
        return (result.id, result.title, str(result.verdict), *[""] * 6)
    more = len(found.operations) - 1
    first = found.operations[0] if found.operations else ""
    counted = (found.attempts, found.requests, found.effects, found.receipt)
    return (
        *(result.id, result.title, str(result.verdict), *map(str, counted)),
        f"{result.seconds:.1f}",
        f"{first} and {more} more" if more > 0 else first,
    )


def _counted(report: Report) -> str:
    """Return how often each verdict was given."""
    from collections import Counter

    counts = Counter(result.verdict for result in report.results)
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
