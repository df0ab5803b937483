"""Whether a store survives a restart of its host: what it is on, and how it is set up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from settled.domain.answers import StoreFacts
from settled.domain.errors import StoreUnsafe
from settled.infrastructure.journal.opening import is_sqlite, open_journal, sqlite_path

VOLATILE = frozenset({"devtmpfs", "hugetlbfs", "ramfs", "tmpfs"})
"""The types of file systems that are gone when the host restarts."""

_UNLOGGED = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relkind = 'r' AND c.relpersistence = 'u' ORDER BY c.relname"""


def store_facts(url: str) -> StoreFacts:
    """Look at the store of a URL. Raises StoreError where it cannot be looked at at all.

    Which disk a PostgreSQL server writes to cannot be seen from here.
    """
    on_file = is_sqlite(url)
    name = f"the SQLite file {sqlite_path(url)}" if on_file else "PostgreSQL"
    found = list(_of_the_file(url) if on_file else _of_the_tables(url))
    try:
        with closing(open_journal(url, require_fsync=False)) as journal:
            found += [one.message for one in journal.examine() if one.severity == "fail"]
    except StoreUnsafe as error:
        found.append(error.message)
    return StoreFacts(name, tuple(dict.fromkeys(found)))


def _of_the_file(url: str) -> Iterator[str]:
    from settled.infrastructure.journal.sqlite.database import file_system

    path = sqlite_path(url)
    kind = file_system(path)
    if kind in VOLATILE:
        yield f"{path} is on {kind}, which is memory: it is gone when the host restarts"


def _of_the_tables(url: str) -> Iterator[str]:
    from settled.infrastructure.journal.postgres.address import Address
    from settled.infrastructure.journal.postgres.errors import translating

    address = Address.of(url)
    with translating(), closing(address.connect({})) as connection:
        for (table,) in connection.execute(_UNLOGGED, (address.schema,)).fetchall():
            yield f"the table {table} is UNLOGGED: PostgreSQL empties it after a crash"
