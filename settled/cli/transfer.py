"""`settled schema`, `export` and `import`: what events look like, and histories in files."""

from __future__ import annotations

from pathlib import Path

import click

from settled.cli.opening import opened_journal
from settled.cli.options import json_option, kinds_option, url_option
from settled.cli.output import document_of, print_json
from settled.cli.telling import counted


@click.command()
@kinds_option(required=False)
def schema(kinds_from: str | None) -> None:
    """Print the JSON Schema of every event, by topic and schema version.

    With --kinds, those too of the state machines that this module declares.
    """
    from settled.infrastructure.transfer.schema import event_schemas

    if kinds_from is not None:
        from settled.cli.loading import load_machines

        load_machines(kinds_from)
    print_json(event_schemas())


@click.command()
@click.option("--stream", "streams", multiple=True, metavar="TENANT/KIND/ID", help="One stream.")
@click.option("--all", "everything", is_flag=True, help="The whole log.")
@click.option(
    "--to", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The file to make."
)
@url_option
@json_option
def export(streams: tuple[str, ...], everything: bool, to: Path, url: str, as_json: bool) -> None:
    """Write streams, or the whole log, as JSON Lines: one event a line, with every column.

    The file holds parameters, evidence and receipts in the clear, where they were not erased.
    """
    from settled.infrastructure.transfer.exporting import export as run

    if everything == bool(streams):
        raise click.UsageError("Give --stream, once or more, or --all.")
    with opened_journal(url) as journal:
        count = run(journal, url, to, streams)
    if as_json:
        print_json({"events": count, "file": str(to)})
    else:
        click.echo(f"Wrote {counted(count, 'event')} to {to}.")


@click.command("import")
@click.option(
    "--from",
    "source",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="What `settled export` wrote.",
)
@kinds_option(required=False)
@url_option
@json_option
def import_(source: Path, kinds_from: str | None, url: str, as_json: bool) -> None:
    """Put an export into an empty store, as a copy to look at: nothing is dispatched from it.

    With --kinds, streams of the state machines that this module declares can be listed there too.
    """
    from settled.infrastructure.transfer.importing import import_copy

    if kinds_from is not None:
        from settled.cli.loading import load_machines

        load_machines(kinds_from)
    with opened_journal(url) as journal:
        done = import_copy(journal, url, source)
    if as_json:
        print_json(document_of(done))
        return
    click.echo(
        f"Imported {counted(done.events, 'event')} in {counted(done.streams, 'stream')}: a copy of"
        f" installation {done.original}, from which nothing is dispatched."
    )
    for name in done.unread:
        click.echo(f"It has no row in the agenda, because it cannot be read here: {name}")
    if done.unread_count > len(done.unread):
        click.echo(f"There are {done.unread_count} such streams in all; these are the first.")
