"""From a journal's URL to the stores of its views, which lie beside it and never in it."""

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
    """Return the stores of views of the journal that a URL names; each is opened when it is used.

    On SQLite the file beside the journal with `.views` behind its name, on PostgreSQL the schema
    with `_views` behind its name; projections that declare a schema have a file or schema of their
    own, with an underscore and that behind it. Raises InvalidStoreUrl.
    """
    # A driver that is not used need not be installed, so each is imported where it is needed.
    if is_sqlite(url):
        from settled.infrastructure.views.sqlite import SqliteViews

        return SqliteViews(sqlite_path(url))
    from settled.infrastructure.views.postgres import PostgresViews

    return PostgresViews(url)
