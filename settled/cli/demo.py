"""`settled demo`: kills a worker between an effect and its receipt, and shows what comes of it."""

from __future__ import annotations

import click

from settled.cli.options import json_option
from settled.cli.output import ExitCode, print_json


@click.command()
@click.option("--db", help="A PostgreSQL URL; the demo works in a schema of its own there.")
@click.option("--keep", is_flag=True, help="Keep the store and the logs, and say where they are.")
@json_option
def demo(db: str | None, keep: bool, as_json: bool) -> int:
    """Kill a worker after the provider performed and before the reply was recorded.

    Real processes, a real provider over HTTP (simulated, on 127.0.0.1), a real SIGKILL; on SQLite
    in a temporary folder unless --db names a server. The exit code is 1 when anything was not as
    it has to be.
    """
    from settled.demo.stage import stage
    from settled.demo.story import tell

    def say(line: str) -> None:
        if not as_json:
            click.echo(line)

    with stage(db, keep) as place:
        story = tell(place, say)
    if as_json:
        print_json(story.document() | {"kept": place.kept})
    elif place.kept:
        click.echo(f"kept           {', '.join(place.kept)}")
    for problem in story.problems:
        click.echo(f"not as it has to be: {problem}", err=True)
    return ExitCode.REFUSED if story.problems else ExitCode.DONE
