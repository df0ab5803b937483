"""What an operation costs as there are more of them: in work at once, in the store, by workers.

Everything is intended before, and then worked off, so that only what workers do is measured.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import psycopg

from settled.bench.draining import drained, intended, start_paused
from settled.bench.figure import Contenders, Experiment, Sample
from settled.bench.lab import Lab
from settled.bench.processes import WORKER
from settled.bench.template import make

CONCURRENT = (1, 10, 100, 1_000)
WORKERS = (1, 2, 4)
STORED = 100_000
"""The largest store of a curve, where nobody asks for more."""

_FEWEST = 200
_ROUNDS = 3

_COLUMNS = """
SELECT attname FROM pg_attribute
 WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attidentity = ''
 ORDER BY attnum"""

_FILL = """
CREATE TEMPORARY TABLE one_{table} AS SELECT * FROM settled.{table};
INSERT INTO settled.{table} ({columns})
SELECT {values} FROM one_{table} AS o, generate_series(1, {count}) AS n
 ORDER BY n, o.version"""
"""Each stored operation has the rows of a real one, under an id of its own."""

_OURS = {
    "stream": "md5('stored-' || n)::uuid",
    "identity": "'stored-' || n",
    "event_id": "gen_random_uuid()",
}


def curves(stored: int) -> list[Experiment]:
    """Return the three curves; `stored` is the largest store."""
    sizes = [size for size in (10**power for power in range(3, 10)) if size <= stored]
    return [
        Experiment("concurrent", "Operations in work at once", (), _by_concurrency, _ROUNDS),
        Experiment("stored", "Operations in the store", (), partial(_by_store, sizes), _ROUNDS),
        Experiment("workers", "Workers", (), _by_workers, _ROUNDS),
    ]


def _by_concurrency(lab: Lab) -> Contenders:
    return {f"{size:,}": partial(_point, lab, concurrency=size) for size in CONCURRENT}


def _by_store(sizes: list[int], lab: Lab) -> Contenders:
    return {f"{size:,}": partial(_point, lab, stored=size) for size in sizes}


def _by_workers(lab: Lab) -> Contenders:
    return {f"{size}": partial(_point, lab, workers=size) for size in WORKERS}


def _point(lab: Lab, *, concurrency: int = 100, stored: int = 0, workers: int = 1) -> Sample:
    count = min(lab.sizes.delayed, _FEWEST + 20 * concurrency)
    with lab.postgres() as url, ExitStack() as stack:
        if stored:
            make(url, lab.folder)
            fill(url, stored)
        intended(lab, url, count)
        words = (*WORKER, "--url", url, "--concurrency", str(concurrency))
        meter = start_paused(lab, url, [words] * workers, "0", stack)
        return drained(url, meter, count, stack)


def fill(url: str, count: int) -> None:
    """Put so many settled operations into a store that holds a single one."""
    with psycopg.connect(url) as connection:
        for table in ("events", "agenda"):
            names = [name for (name,) in connection.execute(_COLUMNS, (f"settled.{table}",))]
            values = ", ".join(_OURS.get(name, f"o.{name}") for name in names)
            columns = ", ".join(names)
            text = _FILL.format(table=table, columns=columns, values=values, count=count)
            connection.execute(text.encode())
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE settled.events, settled.agenda")
