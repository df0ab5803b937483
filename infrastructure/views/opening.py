"""From a journal's URL to the stores of its views, which lie beside it and never in it."""

from __future__ import annotations

from settled.infrastructure.journal.opening import is_sqlite, sqlite_path
from settled.projections.projector import Views


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
