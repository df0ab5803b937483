"""From a journal's URL to the store of its views, which lies beside it and never in it."""

from __future__ import annotations

from contextlib import closing

from settled.infrastructure.journal.opening import is_sqlite, sqlite_path
from settled.projections.projector import Views


def has_views(url: str) -> bool:
    """Say whether the journal that a URL names has a store of views yet. Makes nothing."""
    if is_sqlite(url):
        path = sqlite_path(url)
        return path.with_name(path.name + ".views").exists()
    from settled.infrastructure.journal.postgres.address import Address

    schema = f"{Address.of(url).schema}_views"
    with closing(Address.of(url).connect({})) as connection:
        found = connection.execute("SELECT to_regnamespace(%s) IS NOT NULL", (schema,)).fetchone()
    return found == (True,)


def open_views(url: str) -> Views:
    """Open the store of views of the journal that a URL names, and make it where it is new.

    On SQLite it is the file beside the journal with `.views` behind its name; on PostgreSQL the
    schema with `_views` behind its name. Raises InvalidStoreUrl, StoreUnavailable.
    """
    # A driver that is not used need not be installed, so each is imported where it is needed.
    if is_sqlite(url):
        from settled.infrastructure.views.sqlite import SqliteViews

        path = sqlite_path(url)
        return SqliteViews(path.with_name(path.name + ".views"))
    from settled.infrastructure.views.postgres import PostgresViews

    return PostgresViews(url)
