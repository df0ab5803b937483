"""`settled version`."""

from __future__ import annotations

import platform

import click

import settled
from settled.cli.options import json_option
from settled.cli.output import print_json


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Show the versions that matter in a bug report."""
    from importlib.metadata import version as installed

    versions = {
        "settled": settled.__version__,
        "python": platform.python_version(),
        **{name: installed(name) for name in ("eventsourcing", "psycopg", "pydantic")},
    }
    if as_json:
        print_json(versions)
        return
    for name, number in versions.items():
        click.echo(f"{name} {number}")
