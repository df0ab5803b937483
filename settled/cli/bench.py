"""`settled bench`: what an operation costs, beside the bars, the floors and other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from settled.cli.options import json_option
from settled.cli.output import ExitCode, print_fields, print_json, print_table

if TYPE_CHECKING:
    from settled.bench.lab import Sizes
    from settled.bench.runner import Measured, Report, Result


@click.command()
@click.option("--quick", is_flag=True, help="Measure less, in a minute or two: a first look.")
@click.option("--only", multiple=True, metavar="NAME", help="One figure only; may be repeated.")
@click.option("--curve", is_flag=True, help="Instead of the figures: the cost as there is more.")
@click.option(
    "--db",
    help="A PostgreSQL server whose role may make databases; without it one is brought (extra"
    " pg-local).",
)
@click.option(
    "--operations",
    type=click.IntRange(1_000),
    help="How many operations a worker has worked off when its memory is told.",
)
@click.option("--stored", type=click.IntRange(1_000), help="The largest store of a curve.")
@click.option(
    "--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw the result in this file."
)
@json_option
def bench(
    quick: bool,
    only: tuple[str, ...],
    curve: bool,
    db: str | None,
    operations: int | None,
    stored: int | None,
    svg: Path | None,
    as_json: bool,
) -> int:
    """Measure what an operation costs, and see whether the bars are met.

    Every floor is measured in the same rounds, and so are other libraries where the extra `bench`
    is installed. Progress goes to standard error. The exit code is 1 when a bar is missed.
    """
    import signal
    from dataclasses import replace

    from settled.bench.curve import STORED, curves
    from settled.bench.figure import registered
    from settled.bench.lab import FULL, QUICK, laboratory
    from settled.bench.picture import draw
    from settled.bench.runner import choose, run

    if curve and (only or operations):
        raise click.UsageError("--curve measures no figures: leave out --only and --operations.")
    if stored and not curve:
        raise click.UsageError("--stored belongs to --curve.")
    sizes: Sizes = QUICK if quick else FULL
    sizes = replace(sizes, worked_off=operations or sizes.worked_off)
    largest = stored or (sizes.worked_off if quick else STORED)
    experiments = curves(largest) if curve else choose(registered(), only)
    # Whoever stops a run, with whichever signal, finds none of its databases afterwards.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with laboratory(db, sizes) as lab:
        report = run(lab, experiments, quick=quick, tell=_say)
    if svg is not None:
        svg.write_text(draw(report), encoding="utf-8")
    if as_json:
        print_json(report.document())
    else:
        _print(report)
    return ExitCode.DONE if report.met else ExitCode.REFUSED


def _say(line: str) -> None:
    click.echo(line, err=True)


def _print(report: Report) -> None:
    if report.results:
        names = ("name", "figure", "measured", "bar", "verdict", "floor", "to floor")
        print_table(names, [_row(result) for result in report.results])
        click.echo()
    for result in report.results:
        if result.why:
            click.echo(f"{result.figure.name}: {result.why}")
    for measured in report.measured:
        click.echo(f"{measured.experiment.title}: median of {len(measured.rounds)} rounds")
        print_table(("", *_metrics(measured)), _costs(measured))
        click.echo()
    print_fields([(name, value) for name, value in report.about.items()])


def _row(result: Result) -> tuple[str, ...]:
    from settled.bench.words import bar_of, number, spread_of

    figure = result.figure
    ratio = "" if result.to_floor is None else f"{number(result.to_floor)} ×"
    measured = f"{spread_of(result.spread)} {figure.unit}".strip() if result.spread else ""
    named = (figure.name, figure.title, measured, bar_of(figure), str(result.verdict))
    return (*named, spread_of(result.floor), ratio)


def _metrics(measured: Measured) -> list[str]:
    found = (name for one in measured.rounds for sample in one.values() for name in sample)
    return list(dict.fromkeys(found))


def _costs(measured: Measured) -> list[tuple[str, ...]]:
    from settled.bench.words import number

    names = dict.fromkeys(name for one in measured.rounds for name in one)
    rows: list[tuple[str, ...]] = []
    for name in names:
        spreads = [measured.spread(name, metric) for metric in _metrics(measured)]
        cells = [number(spread.median) if spread else "" for spread in spreads]
        rows.append((name, *cells))
    return rows
