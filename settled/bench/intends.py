"""`intend` alone, one at a time: what a service waits for before it can say "it will be done"."""

from __future__ import annotations

from functools import partial

from settled.bench.figure import OURS, RAW, Better, Contenders, Figure, Sample, experiment
from settled.bench.lab import Lab
from settled.bench.processes import running
from settled.bench.settling import Words
from settled.bench.template import make
from settled.infrastructure.journal.opening import is_sqlite, sqlite_path


def _words(lab: Lab, name: str, url: str) -> Words:
    count = str(lab.sizes.singles)
    if name == OURS:
        return ("settled.bench.load", url, count, "1")
    template = make(url, lab.folder)
    if is_sqlite(url):
        return ("settled.bench.raw_sqlite", str(sqlite_path(url)), template, count, "1", "intend")
    return ("settled.bench.raw_postgres", "client", url, template, count, "1")


def _contenders(lab: Lab, dialect: str) -> Contenders:
    def once(name: str) -> Sample:
        with lab.store(dialect) as url, running(lab.folder, *_words(lab, name, url)) as client:
            client.go()
            told = client.answer()
        return {"p50_ms": told["p50"] * 1e3, "p95_ms": told["p95"] * 1e3}

    return {name: partial(once, name) for name in (OURS, RAW)}


@experiment(
    "intend-postgresql",
    "intend alone on PostgreSQL",
    Figure("intend", "intend alone, p50, PostgreSQL", "p50_ms", "ms", 1.5, Better.LOWER),
)
def on_postgresql(lab: Lab) -> Contenders:
    """Measure one intent at a time; the floor is one INSERT of each row and a COMMIT."""
    return _contenders(lab, "postgresql")


@experiment(
    "intend-sqlite",
    "intend alone on SQLite",
    Figure("intend-sqlite", "intend alone, p50, SQLite", "p50_ms", "ms", 0.7, Better.LOWER),
)
def on_sqlite(lab: Lab) -> Contenders:
    """Measure one intent at a time; the floor is one INSERT of each row and a COMMIT."""
    return _contenders(lab, "sqlite")
