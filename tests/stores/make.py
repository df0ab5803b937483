"""Writes the store of this version: `python tests/stores/make.py [NAME]`.

It builds the wheel, installs it in an environment of its own, and has `drive.py` write a store on
SQLite and one on PostgreSQL with it. What is put into the folder NAME here (the version, unless it
is given) is opened by all later code: see `test_stores.py`. Needs what the tests need.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
import tempfile
import venv
from contextlib import closing
from pathlib import Path

import psycopg

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from settled.infrastructure.testing.postgres_server import PostgresServer  # noqa: E402
from tests.wheels import build_wheel  # noqa: E402

TABLES = ("events", "agenda", "guard", "reference", "lane", "worker", "installation")
"""Filled in this order; the tables of migrations are filled by their SQL."""

_COLUMNS = """
SELECT string_agg(quote_ident(column_name), ', ' ORDER BY ordinal_position),
       string_agg(format('quote_nullable(%%I::text)', column_name), ', '
                  ORDER BY ordinal_position)
  FROM information_schema.columns WHERE table_schema = 'settled' AND table_name = %s"""


def main(name: str = "") -> None:
    """Write both stores into the folder of this version."""
    with tempfile.TemporaryDirectory(prefix="settled-store-") as scratch:
        folder = Path(scratch)
        python = installed(folder)
        shop = folder / "shop"
        shop.mkdir()
        for script in ("shop.py", "drive.py"):
            shutil.copy(HERE / script, shop)
        file = folder / "store.db"
        written = driven(python, shop, f"sqlite:///{file}")
        with PostgresServer(fsync=True) as server:
            assert driven(python, shop, server.url())["states"] == written["states"]
            text = dumped(python, server.url())
        target = HERE / (name or str(written["settled"]))
        target.mkdir(exist_ok=True)
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("VACUUM")
        packed(target / "store.db.gz", file.read_bytes())
        packed(target / "store.sql.gz", text.encode())
    (target / "store.json").write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    size = sum(path.stat().st_size for path in target.iterdir())
    print(f"{target.relative_to(HERE.parents[1])}: {written['events']} events, {size} bytes")


def installed(folder: Path) -> Path:
    """Return the Python of an environment in which the wheel is installed.

    What the wheel depends on is that of the running interpreter; settled itself is the wheel's.
    """
    wheels = folder / "wheel"
    wheels.mkdir()
    built = build_wheel(wheels)
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", built], check=True
    )
    paths = {"base": str(folder / "venv"), "platbase": str(folder / "venv")}
    site = Path(sysconfig.get_path("purelib", vars=paths))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def driven(python: Path, shop: Path, url: str) -> dict[str, object]:
    """Have a store written, and return what is in it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, shop / "drive.py", url],
        cwd=shop,
        env=environment | {"SETTLED_STATE_DIR": str(shop / "state")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def dumped(python: Path, url: str) -> str:
    """Return a PostgreSQL store as SQL: that version's migrations, then its rows."""
    empty = f"{url.rpartition('?')[0].rpartition('/')[0]}/template1?{url.rpartition('?')[2]}"
    printed = subprocess.run(
        [python, "-m", "settled", "migrate", "--print", "--url", empty],
        cwd=python.parent,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    lines = [printed.stdout, "SET search_path = settled;"]
    with psycopg.connect(url) as connection:
        for table in TABLES:
            row = connection.execute(_COLUMNS, (table,)).fetchone()
            assert row is not None, table
            names, values = row
            rows = connection.execute(f"SELECT {values} FROM settled.{table}".encode())
            lines += [
                f"INSERT INTO {table} ({names}) OVERRIDING SYSTEM VALUE VALUES ({', '.join(row)});"
                for row in rows
            ]
        for table, column in (("events", "position"), ("worker", "epoch")):
            lines.append(
                f"SELECT setval(pg_get_serial_sequence('settled.{table}', '{column}'),"
                f" (SELECT max({column}) FROM {table}));"
            )
    return "\n".join(lines) + "\n"


def packed(path: Path, content: bytes) -> None:
    """Write a file compressed, the same bytes for the same content."""
    path.write_bytes(gzip.compress(content, mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
