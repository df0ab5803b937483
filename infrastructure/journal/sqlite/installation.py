"""What the file is bound to: where it lies, and how far its log had come when last noted.

A copy is another file, so it has another number in its file system. A backup written over the file
keeps that number, so the last position is noted outside as well. Either way two logs may exist
that begin alike, and both would dispatch what is ready in them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

from settled.domain.errors import StoreUnavailable
from settled.domain.journal.port import Installation
from settled.infrastructure.journal.anchor import Anchor
from settled.infrastructure.journal.copies import (
    COPY_MARK,
    is_a_copy,
    refuse_to_adopt,
)
from settled.infrastructure.journal.sqlite.database import Database
from settled.infrastructure.journal.sqlite.reading import last_position
from settled.infrastructure.journal.sqlite.rows import to_text

_SECRET_BYTES = 32
_READ = "SELECT id, secret, created_at, file FROM installation"


def bind(database: Database) -> None:
    """Give a new database its identity; nothing for one that has it."""
    with database.reading() as connection:
        if connection.execute(_READ).fetchone() is not None:
            return
    with database.writing() as connection:
        connection.execute(
            "INSERT OR IGNORE INTO installation (one, id, secret, created_at, file)"
            " VALUES (1, ?, ?, ?, ?)",
            (
                uuid4().bytes,
                secrets.token_bytes(_SECRET_BYTES),
                to_text(datetime.now(UTC)),
                _file(database.path),
            ),
        )


def read(database: Database) -> Installation:
    """Return what the database is bound to, and what has changed since."""
    with database.reading() as connection:
        identity, secret, created_at, file = connection.execute(_READ).fetchone()
        position = last_position(connection)
    with _usable_anchor(database) as note:
        noted = note.position()
    copy_of = UUID(file.removeprefix(COPY_MARK)) if file.startswith(COPY_MARK) else None
    changed = is_a_copy(copy_of) if copy_of else _moved(database.path, file)
    if changed is None and position < noted:
        changed = f"The log ends at position {position}; it had come to {noted}."
    bound_at = datetime.fromisoformat(created_at)
    return Installation(UUID(bytes=identity), secret, bound_at, changed, copy_of)


def adopt(database: Database) -> None:
    """Bind the database to the file that it is now, and note its position afresh.

    Raises InstallationChanged for a copy, which is never worked on.
    """
    refuse_to_adopt(read(database).copy_of)
    with database.writing() as connection:
        connection.execute("UPDATE installation SET file = ?", (_file(database.path),))
        position = last_position(connection)
    with _usable_anchor(database) as note:
        note.reset(position)


def anchor(database: Database) -> None:
    """Note beside the file how far the log has come."""
    with database.reading() as connection:
        position = last_position(connection)
    with _usable_anchor(database) as note:
        note.advance(position)


@contextmanager
def _usable_anchor(database: Database) -> Generator[Anchor]:
    try:
        yield Anchor(database.path.name, database.path.parent)
    except OSError as error:
        raise StoreUnavailable(
            f"The anchor beside {database.path} cannot be used: {error}.",
            hint="Without it, a backup that was put in the database's place is not noticed.",
        ) from error


def _file(path: Path) -> str:
    """Name the file by its file system and its number there; a rename keeps both."""
    return f"{os.statvfs(path).f_fsid}:{path.stat().st_ino}"


def _moved(path: Path, bound: str) -> str | None:
    now = _file(path)
    return None if now == bound else f"The file is {now}; the database was bound to {bound}."
