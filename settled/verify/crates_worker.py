"""A process of one release of the crates: `python -m settled.verify.crates_worker old pack 3`.

`pack` begins so many crates and ends; `work NAME` is a worker; `project` folds them into a view.
The store is that of SETTLED_URL. As a worker of the battery it does not outlive whoever started it.
"""

from __future__ import annotations

import os
import sys
import threading
from importlib import import_module
from typing import Any

import settled
from settled.cli.logs import configure_logging
from settled.cli.output import print_json
from settled.verify.crates import KIND, Packed, stream_of
from settled.verify.minded import mind


class Weights:
    """How often each crate was weighed, and what it weighed altogether."""

    name, version, topics = "weights", 1, ("verify.crate.",)

    def tables(self, dialect: str) -> list[str]:
        """Return one table, with an event a row."""
        return ["CREATE TABLE weights_1 (at bigint PRIMARY KEY, grams bigint NOT NULL)"]

    def apply(self, event: Any, record: settled.RecordedEvent, rows: settled.Rows) -> None:
        """Keep each weight under its position."""
        if event.name() != "Weighed":
            return
        grams = event.grams if hasattr(event, "grams") else event.kilos * 1000
        rows.execute(
            "INSERT INTO weights_1 VALUES (:at, :grams) ON CONFLICT (at) DO NOTHING",
            at=record.position,
            grams=grams,
        )


def main(release: str, what: str, named: str = "") -> None:
    """Be one release's process."""
    module = import_module(f"settled.verify.crates_{release}")
    configure_logging()
    with settled.open(
        os.environ["SETTLED_URL"],
        machines=[KIND],
        managers=lambda _: [module.MANAGER],
        migrate=False,
        require_fsync=False,
    ) as app:
        if what == "pack":
            stamp = app.ledger.stamp("packer")
            for number in range(int(named)):
                name = f"crate-{number}"
                fields = {"tenant": "acme", "identity": name}
                app.ledger.begin(module.Crate.begin(Packed, stream_of(name), stamp, **fields))
        elif what == "project":
            weights = Weights()
            app.projector().catch_up(weights)
            (row,) = app.projector().fetch("SELECT count(*) AS n, sum(grams) AS g FROM weights_1")
            print_json({"weighed": row["n"], "grams": int(row["g"] or 0)}, one_line=True)
        else:
            threading.Thread(target=mind, daemon=True).start()
            print_json({"ready": True, "worker": named}, one_line=True)
            app.run_worker(
                settled.WorkerSettings(
                    name=named, lease_seconds=1.0, idle_seconds=0.02, leave_to_others=True
                )
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
