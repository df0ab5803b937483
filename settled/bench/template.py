"""The rows of one real operation, to be written again under other ids by the floors.

`python -m settled.bench.template URL` performs one operation on a store and says where its rows
are kept: what the floors write is as large as what we write, column by column.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import settled
from settled.bench.kinds import AGENT, PARAMS, refund
from settled.bench.processes import running, say
from settled.domain.journal.unit import RecordedEvent
from settled.infrastructure.journal.opening import is_sqlite, open_journal, sqlite_path

Column = dict[str, Any]


@dataclass(frozen=True)
class Template:
    """One settled operation: its events and its agenda row, as the tables hold them.

    `agenda` is the row as it was when the operation had been intended. `records` are the events as
    the journal gives them.
    """

    events: Sequence[Column]
    agenda: Column
    records: Sequence[RecordedEvent]

    @classmethod
    def read(cls, path: str) -> Template:
        """Read what `make` has kept."""
        found = pickle.loads(Path(path).read_bytes())  # written by this run, in its own folder
        assert isinstance(found, cls)
        return found


def make(url: str, folder: Path) -> str:
    """Perform one operation on a store, and return the path of the file with its rows."""
    with running(folder, "settled.bench.template", url, str(folder / "template")):
        return str(folder / "template")


def main(url: str, path: str) -> None:
    """Perform an operation, and keep its rows."""
    from settled.cli.logs import configure_logging

    configure_logging()  # standard output is for our answer
    with settled.open(url, kinds=[refund], worker=True) as app:
        begun = app.operations.intend(refund, "template", PARAMS, by=AGENT)
        app.operations.wait(begun, timeout_seconds=30)
    journal = open_journal(url)
    (head,) = journal.heads()
    records = journal.events(head.tenant, head.stream)
    journal.close()
    events, (agenda,) = _rows(url, "events", "version"), _rows(url, "agenda", "stream")
    agenda |= {"version": 1, "state": "ready", "due_at": events[0]["recorded_at"]}
    kept = _named(Template(events, agenda, records))
    Path(path).write_bytes(pickle.dumps(kept))
    say({"ready": True})


def _named(template: Template) -> Any:
    """Return the template as an instance of the class under its importable name."""
    from settled.bench import template as module

    return module.Template(template.events, template.agenda, template.records)


def _rows(url: str, table: str, order: str) -> list[Column]:
    text = f"SELECT * FROM {{}}{table} ORDER BY {order}"
    if is_sqlite(url):
        import sqlite3

        with closing(sqlite3.connect(sqlite_path(url))) as file:
            found: Any = file.execute(text.format(""))
            names = [column[0] for column in found.description]
            return [dict(zip(names, row, strict=True)) for row in found]
    import psycopg

    with closing(psycopg.connect(url)) as connection:
        found = connection.execute(text.format("settled.").encode())
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]


if __name__ == "__main__":
    main(*sys.argv[1:])
