"""What runs of the battery leave behind when they are killed, and how the next one finds it."""

from __future__ import annotations

import fcntl
import re
import shutil
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from settled.infrastructure.journal.postgres.address import Address, Connection

_LOCK = "run.lock"
_SCHEMA = re.compile("settled_verify_([0-9a-f]{8})_.*")

_OURS = """
SELECT nspname FROM pg_namespace
 WHERE nspname LIKE 'settled\\_verify\\_%' AND pg_has_role(current_user, nspowner, 'USAGE')
"""
_VIEWS = b"SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s)"
_KEY = "hashtextextended('settled verify ' || %s, 0)"


@contextmanager
def claim_folder(folder: Path) -> Generator[None]:
    """Hold the folder of a run: while this lasts, no other run takes it for a dead one's."""
    fresh = folder / f"{_LOCK}.new"
    with fresh.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fresh.rename(folder / _LOCK)  # it has its name only once it is locked
        yield


def sweep_folders(parent: Path) -> list[str]:
    """Delete the folders of runs that were killed, and return them. Raises OSError."""
    removed: list[str] = []
    for lock in sorted(parent.glob(f"settled-verify-*/{_LOCK}")):
        try:
            file = lock.open()
        except (FileNotFoundError, PermissionError):
            continue  # another run was faster, or it is another user's
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(lock.parent, ignore_errors=True)
            removed.append(str(lock.parent))
    return removed


@contextmanager
def claim_run(address: Address, run: str) -> Generator[list[str]]:
    """Hold the name of a run in the database, and give the schemas of dead runs, now dropped."""
    with closing(address.connect({})) as connection:
        connection.execute(f"SELECT pg_advisory_lock({_KEY})".encode(), (run,))
        removed: list[str] = []
        names = [str(name) for (name,) in connection.execute(_OURS)]
        found = [(name, of.group(1)) for name in names if (of := _SCHEMA.fullmatch(name))]
        for other in sorted({of for _, of in found}):
            free = connection.execute(f"SELECT pg_try_advisory_lock({_KEY})".encode(), (other,))
            if free.fetchone() != (True,):
                continue
            for name in (name for name, of in found if of == other):
                _drop(connection, name)
                removed.append(f"schema {name}")
            connection.execute(f"SELECT pg_advisory_unlock({_KEY})".encode(), (other,))
        yield removed


def drop_schema(url: str) -> None:
    """Drop the schema that a URL names, and those of its views."""
    from settled.infrastructure.journal.postgres.address import Address

    address = Address.of(url)
    with closing(address.connect({})) as connection:
        found = connection.execute(_VIEWS, (f"{address.schema}_views",)).fetchall()
        for (views,) in found:
            _drop(connection, str(views))
        _drop(connection, address.schema)


def _drop(connection: Connection, schema: str) -> None:
    from psycopg import sql

    connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
