"""The store of views: a schema of its own on PostgreSQL, a second file on SQLite."""
