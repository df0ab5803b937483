"""Searching a column of words by the beginnings of words, with the same answers on both databases.

The words are cut in one place (`words`), so all that the databases have to do is find rows by them,
each by its own kind of index: an inverted one over the column on PostgreSQL, a table of words on
SQLite, filled by a trigger.
"""

from __future__ import annotations

from typing import Any

from settled.domain.errors import InvalidInput
from settled.projections.projection import Rows
from settled.projections.words import sought_words

_UNTIL = "\U0010ffff"
"""Behind every character of a word: what begins with a text is between it and this."""

_VECTOR = "array_to_tsvector(string_to_array(words, ' '))"

_FEW = 1000
"""A word that this many rows have is not counted further."""


def indexes(table: str, dialect: str) -> list[str]:
    """Return what makes the column `words` of a table searchable, and keeps it so."""
    if dialect == "postgresql":
        return [f"CREATE INDEX {table}_words ON {table} USING gin ({_VECTOR})"]
    each = (
        "SELECT value, {row}.tenant, {row}.stream"
        " FROM json_each('[\"' || replace({row}.words, ' ', '\",\"') || '\"]')"
    )
    into = f"INSERT OR IGNORE INTO {table}_words (word, tenant, stream)"
    old = each.format(row="o").replace("FROM ", f"FROM {table} o, ")
    same = "o.tenant = NEW.tenant AND o.stream = NEW.stream"
    return [
        f"CREATE TABLE {table}_words (word text NOT NULL, tenant text NOT NULL,"
        " stream text NOT NULL, PRIMARY KEY (word, tenant, stream)) WITHOUT ROWID",
        f"{into} {old}",
        # Before a row is replaced by one with other words: a purge takes words away.
        f"CREATE TRIGGER {table}_words_before BEFORE INSERT ON {table}"
        f" WHEN EXISTS (SELECT 1 FROM {table} o WHERE {same} AND o.words <> NEW.words) BEGIN"
        f" DELETE FROM {table}_words WHERE (word, tenant, stream) IN ({old} WHERE {same}); END",
        f"CREATE TRIGGER {table}_words_of AFTER INSERT ON {table} BEGIN"
        f" {into} {each.format(row='NEW')}; END",
    ]


def condition(table: str, dialect: str, query: str, rows: Rows) -> tuple[str, dict[str, Any]]:
    """Return the condition that a row has every word of a query, or one that begins so.

    Raises InvalidInput for a query without a letter or a digit.
    """
    words = sought_words(query)
    if not words:
        raise InvalidInput(
            f"There is no word in {query[:60]!r}.", hint="A word has a letter or a digit."
        )
    if dialect == "postgresql":
        # Quoted, a word is taken as it is: letters and digits are all that it has.
        return f"{_VECTOR} @@ CAST(:sought AS tsquery)", {
            "sought": " & ".join(f"'{word}':*" for word in words)
        }
    rarest = min(words, key=lambda word: _count(table, word, rows))
    values: dict[str, Any] = {"rarest": rarest, "until": rarest + _UNTIL}
    conditions = [
        f"(tenant, stream) IN (SELECT tenant, stream FROM {table}_words"
        " WHERE word >= :rarest AND word < :until)"
    ]
    for number, word in enumerate(words):
        if word != rarest:
            conditions.append(f"instr(' ' || words, :word{number}) > 0")
            values[f"word{number}"] = f" {word}"
    return " AND ".join(conditions), values


def _count(table: str, word: str, rows: Rows) -> int:
    (found,) = rows.fetch(
        f"SELECT count(*) AS n FROM (SELECT 1 FROM {table}_words"
        " WHERE word >= :word AND word < :until LIMIT :few)",
        word=word,
        until=word + _UNTIL,
        few=_FEW,
    )
    return int(found["n"])
