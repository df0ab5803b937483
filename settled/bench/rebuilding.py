"""One builder of a rebuild: `python -m settled.bench.rebuilding WHO URL VERSION PART PARTS`.

It opens everything, says that it is ready, and builds when it is told to. WHO is `settled`; or it
is `raw`, which reads the same pages of events by the driver alone, and copies as many finished
rows, read before.
"""

from __future__ import annotations

import os
import sys
from contextlib import closing

import psycopg
from psycopg import sql

from settled.bench.figure import OURS
from settled.bench.processes import mind, say, serve
from settled.infrastructure.views.building import opened_projector
from settled.infrastructure.views.log import open_log
from settled.projections import register
from settled.projections.operations import OperationsProjection
from settled.projections.projection import Row
from settled.projections.reading import Sought, settled_position
from settled.projections.rebuild import PAGE, build_part

_MINE = sql.SQL(
    "SELECT * FROM settled_views.{}"
    " WHERE get_byte(uuid_send(stream), 15) %% %s = %s ORDER BY position"
)


def main(who: str, url: str, version: str, part: str, parts: str) -> None:
    """Build one part, as settled does or by the driver alone."""
    building = _ours if who == OURS else _raw
    building(url, OperationsProjection(version=int(version)), int(part), int(parts))


def _ours(url: str, projection: OperationsProjection, part: int, parts: int) -> None:
    with opened_projector(url) as projector, closing(open_log(url)) as log:
        with projector.store(projection).reading() as rows:
            register.standing(rows, projection)  # opened, as the log is
        serve()
        mind()
        build_part(projector, log, projection, part)
        say({"done": True})


def _raw(url: str, projection: OperationsProjection, part: int, parts: int) -> None:
    """Read and copy. `projection` is the version whose rows are copied."""
    sought = Sought.by(projection)
    with opened_projector(url) as projector:
        upto = settled_position(projector.journal)
    with closing(open_log(url)) as log, psycopg.connect(url) as connection:
        connection.execute("SET synchronous_commit = off")
        source, target = (
            sql.Identifier(projection.operations.name),
            sql.Identifier(f"raw_{os.getpid()}"),
        )
        rows = connection.execute(_MINE.format(source), (parts, part)).fetchall()
        connection.execute(
            sql.SQL("CREATE TABLE {} (LIKE settled_views.{}, PRIMARY KEY (tenant, stream))").format(
                target, source
            )
        )
        connection.commit()
        serve()
        mind()
        after, copied = 0, 0
        while after < upto:
            events = log.page(sought, after=after, upto=upto, limit=PAGE, part=part, parts=parts)
            after = events[-1].position if len(events) == PAGE else upto
            share = len(rows) * after // upto
            _copy(connection, target, rows[copied:share])
            copied = share
        say({"done": True})


def _copy(connection: psycopg.Connection[Row], target: sql.Identifier, rows: list[Row]) -> None:
    with (
        connection.cursor() as cursor,
        cursor.copy(sql.SQL("COPY {} FROM STDIN").format(target)) as copy,
    ):
        for row in rows:
            copy.write_row(row)
    connection.commit()


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # the thread that minds us reads on
