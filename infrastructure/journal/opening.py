"""From a URL to a journal: which database, and whether it is ready."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from settled.domain.errors import InvalidStoreUrl
from settled.domain.journal.port import Journal
from settled.infrastructure.journal.migrate import Target
from settled.infrastructure.journal.migrate import migrate as run_migrations

_EXAMPLES = (
    "Such as sqlite:///shop.db (beside you), sqlite:////var/lib/shop/shop.db (anywhere),"
    " or postgresql://user@host/shop."
)


def open_journal(url: str, *, migrate: bool = False, require_fsync: bool = True) -> Journal:
    """Open the journal that a URL names; with `migrate`, bring its tables up to the code first.

    A PostgreSQL server that does not write through to its disk is refused, unless it is one that
    is thrown away after a test: `require_fsync=False`. An SQLite file is always written through.
    Raises InvalidStoreUrl, StoreUnavailable, StoreNotMigrated, StoreTooNew or StoreUnsafe.
    """
    if migrate:
        with open_target(url) as target:
            run_migrations(target)
    # A driver that is not used need not be installed, so each is imported where it is needed.
    if is_sqlite(url):
        from settled.infrastructure.journal.sqlite.journal import SqliteJournal

        return SqliteJournal(sqlite_path(url))
    from settled.infrastructure.journal.postgres.journal import PostgresJournal

    return PostgresJournal(url, require_fsync=require_fsync)


def open_target(url: str) -> AbstractContextManager[Target]:
    """Open what `migrate` and `script` work on for a URL; closed at the end of the block."""
    if is_sqlite(url):
        from settled.infrastructure.journal.sqlite.migrating import SqliteTarget

        return SqliteTarget(sqlite_path(url))
    from settled.infrastructure.journal.postgres.migrating import PostgresTarget

    return PostgresTarget(url)


def is_sqlite(url: str) -> bool:
    """Say which of the two databases a URL names; raises InvalidStoreUrl when it is neither."""
    scheme, separator, _ = url.partition("://")
    if separator and scheme == "sqlite":
        return True
    if separator and scheme in ("postgresql", "postgres"):
        return False
    raise InvalidStoreUrl(f"{url!r} names no database that settled knows.", hint=_EXAMPLES)


def sqlite_path(url: str) -> Path:
    """Return the path of an sqlite:/// URL; raises InvalidStoreUrl when it names no file."""
    parts = urlsplit(url)
    path = unquote(parts.path[1:])
    if parts.netloc or not path or "\0" in path:
        raise InvalidStoreUrl(f"{url!r} names no file.", hint=_EXAMPLES)
    if path.startswith(":memory:"):
        raise InvalidStoreUrl(
            "A journal in memory would not survive the process, which is all that it is for.",
            hint="Use a file, for example in a temporary folder.",
        )
    if parts.query or parts.fragment:
        raise InvalidStoreUrl(
            f"{url!r} has options, and a file has none here.",
            hint="Write ? and # in a file's name as %3F and %23.",
        )
    return Path(path)
