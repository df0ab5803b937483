"""Single appends from eight threads: our journal, the library's own recorder, bare inserts.

Each append creates a stream with one event, and returns when it is durable. The events are the same
bytes for all three, and are made before.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import count
from uuid import UUID, uuid4

from eventsourcing.persistence import StoredEvent
from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore
from psycopg.conninfo import conninfo_to_dict

from settled.bench.figure import OURS, RAW, Better, Contenders, Figure, Sample, experiment
from settled.bench.lab import Lab
from settled.bench.raw_postgres import Tables, connect
from settled.bench.template import Template, make
from settled.domain.journal.unit import Change, Committed, Head, Unit
from settled.infrastructure.clock import elapsed_seconds
from settled.infrastructure.journal.opening import open_journal
from settled.infrastructure.journal.queue import CommitQueue

STOCK = "eventsourcing"
WRITERS = 8

Append = Callable[[UUID], None]


@experiment(
    "appends",
    "Single appends from 8 writers",
    Figure(
        *("appends", "Single appends, 8 writers, against the stock recorder", "per_second"),
        *("×", 3, Better.HIGHER),
        over=STOCK,
    ),
)
def appends(lab: Lab) -> Contenders:
    """Measure the three one after the other, each on a fresh database."""
    writers = {OURS: _ours, RAW: _raw, STOCK: _stock}
    return {name: partial(_timed, lab, writer) for name, writer in writers.items()}


def _timed(lab: Lab, writer: Callable[[str, Template, ExitStack], list[Append]]) -> Sample:
    with ExitStack() as stack:
        url = stack.enter_context(lab.postgres())
        template = Template.read(make(url, lab.folder))
        ways = writer(url, template, stack)
        pool = stack.enter_context(ThreadPoolExecutor(WRITERS))
        for append in ways:
            append(uuid4())
        left = lab.sizes.appends // WRITERS

        def write(append: Append) -> None:
            for _ in range(left):
                append(uuid4())

        begun = elapsed_seconds()
        list(pool.map(write, ways))
        return {"per_second": left * WRITERS / (elapsed_seconds() - begun)}


def _ours(url: str, template: Template, stack: ExitStack) -> list[Append]:
    journal = open_journal(url)
    stack.callback(journal.close)
    queue = CommitQueue(journal.committer())
    stack.callback(queue.close)
    row, first = template.agenda, template.records[0]
    number = count()

    def append(stream: UUID) -> None:
        event = replace(first, originator_id=stream, event_id=uuid4(), position=None)
        identity = f"append-{next(number)}"
        head = Head(row["kind"], identity, row["state"], first.recorded_at, row["lane"])
        unit = Unit(row["tenant"], (Change(stream, 0, (event,), head),))
        answer = queue.submit(unit).result()
        assert isinstance(answer, Committed), answer

    return [append] * WRITERS


def _raw(url: str, template: Template, stack: ExitStack) -> list[Append]:
    def way() -> Append:
        connection = stack.enter_context(connect(url))
        tables = Tables(connection, template)
        connection.commit()

        def append(stream: UUID) -> None:
            tables.intend([stream])
            connection.commit()

        return append

    return [way() for _ in range(WRITERS)]


def _stock(url: str, template: Template, stack: ExitStack) -> list[Append]:
    known = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    datastore = PostgresDatastore(
        dbname=known["dbname"],
        host=known.get("host", ""),
        port=known.get("port", "5432"),
        user=known.get("user", ""),
        password=known.get("password", ""),
        pool_size=WRITERS,
        max_overflow=0,
    )
    stack.callback(datastore.close)
    recorder = PostgresApplicationRecorder(datastore, events_table_name="stored_events")
    recorder.create_table()
    first = template.records[0]
    state = first.state + (first.body or b"")

    def append(stream: UUID) -> None:
        recorder.insert_events([StoredEvent(stream, 1, first.topic, state)])

    return [append] * WRITERS
