"""Views on PostgreSQL: a schema of their own, so that nothing of the journal is ever in reach."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from settled.domain.errors import DeclarationError, InvalidInput, StoreUnavailable
from settled.infrastructure.journal.postgres.address import NEVER_BY_ITSELF, Address, Connection
from settled.infrastructure.journal.postgres.errors import translating
from settled.infrastructure.journal.postgres.migrating import PostgresTarget
from settled.infrastructure.journal.postgres.pool import AGAIN_SECONDS, Pool
from settled.infrastructure.views.stores import Stores, behind, schemas_in
from settled.projections.projection import Row, Table
from settled.projections.register import TABLES

PATIENCE_SECONDS = 10.0
"""How long a server that went away is waited for before that is reported."""

_CONNECTIONS = 4
_SETTINGS = {
    "lock_timeout": "30s",
    # Long enough for the index of a large view, which is made in one statement.
    "statement_timeout": "15min",
    # A runner that stopped in the middle of a page holds up the others for no longer than this.
    "idle_in_transaction_session_timeout": "30s",
}
_LEADER = {"statement_timeout": "5s", "tcp_user_timeout": "2000"}

_BEGIN = b"BEGIN"
_BEGIN_FLEETING = b"BEGIN; SET LOCAL synchronous_commit = off"
_BEGIN_READING = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

_SCHEMAS = (
    b"SELECT n.nspname FROM pg_namespace n WHERE has_schema_privilege(n.oid, 'USAGE') AND EXISTS"
    b" (SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'projection')"
)
_LET_READ = (
    "GRANT USAGE ON SCHEMA {schema} TO {reader}",
    "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {reader}",
    # A rebuild makes new tables.
    "ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT ON TABLES TO {reader}",
)
_LOCK = b"SELECT pg_try_advisory_lock('projection'::regclass::oid::int4, hashtext(%(name)s))"

_PARTS = re.compile(
    r"""'(?:[^']|'')*' | "[^"]*" | --[^\n]* | :: | :(?P<name>[A-Za-z_][A-Za-z0-9_]*) | %""",
    re.VERBOSE,
)

_ARRAYS = {"text": "text[]", "number": "bigint[]", "uuid": "uuid[]"}


class PostgresViews:
    """The stores of views beside a journal's schema. Safe to use from several threads."""

    dialect = "postgresql"

    def __init__(self, url: str) -> None:
        self._url = url
        self._journal = Address.of(url)
        self._name = f"{self._journal.schema}_views"
        self._stores = Stores(lambda schema: PostgresStore(self._beside(schema)))

    def of(self, schema: str = "") -> PostgresStore:
        """Return the store of a schema, made where it is new."""
        return self._stores.of(schema)

    def schemas(self) -> list[str]:
        """Return the schemas that there are, and that this role may use."""
        with closing(self._journal.connect({})) as connection, translating():
            found = connection.execute(_SCHEMAS).fetchall()
        return schemas_in(self._name, (str(name) for (name,) in found))

    def close(self) -> None:
        """Close every connection."""
        self._stores.close()

    def _beside(self, schema: str) -> str:
        # Of several schemas in a URL the last one counts.
        return f"{self._url}{'&' if '?' in self._url else '?'}schema={self._name}{behind(schema)}"


class PostgresStore:
    """The projections of one schema of a database. Safe to use from several threads."""

    def __init__(self, url: str) -> None:
        with PostgresTarget(url) as target, target.exclusively():
            # Asked first: IF NOT EXISTS takes the right to make tables even where it makes none.
            for table, sql in TABLES.items():
                if not target.has_table(table):
                    target.run(sql)
        self._address = Address.of(url)
        self._pool = Pool(
            self._address.conninfo,
            min_size=0,
            max_size=_CONNECTIONS,
            kwargs={
                "autocommit": True,
                "options": self._address.options(_SETTINGS),
                "prepare_threshold": NEVER_BY_ITSELF,
            },
            check=Pool.check_connection,  # one may have been cut while it was idle
            timeout=PATIENCE_SECONDS,
            reconnect_timeout=AGAIN_SECONDS / 2,
            name="settled-views",
            open=True,
        )

    @contextmanager
    def changing(self, *, durable: bool = True) -> Generator[PostgresRows]:
        """Open a transaction that commits at the end of the block, and else leaves nothing."""
        with self._transaction(_BEGIN if durable else _BEGIN_FLEETING) as rows:
            yield rows

    @contextmanager
    def reading(self) -> Generator[PostgresRows]:
        """Open a transaction in which nothing can be changed, on one state of the store."""
        with self._transaction(_BEGIN_READING) as rows:
            yield rows

    def lead(self, name: str) -> PostgresLead | None:
        """Become the one that runs a projection; None while another process is."""
        connection = self._address.connect(_LEADER)
        try:
            with translating():
                row = connection.execute(_LOCK, {"name": name}).fetchone()
        except BaseException:
            connection.close()
            raise
        if row == (True,):
            return PostgresLead(connection)
        connection.close()
        return None

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()

    def let_read(self, role: str) -> None:
        """Let a role read these tables, and those that this role makes here from now on."""
        schema, reader = Identifier(self._address.schema), Identifier(role)
        with translating(), closing(self._address.connect({})) as connection:
            try:
                with connection.transaction():
                    for statement in _LET_READ:
                        connection.execute(SQL(statement).format(schema=schema, reader=reader))
            except psycopg.errors.UndefinedObject as error:
                raise InvalidInput(
                    f"The server has no role {role}.", hint="CREATE ROLE makes one."
                ) from error

    @contextmanager
    def _transaction(self, begin: bytes) -> Generator[PostgresRows]:
        with translating(), self._pool.connection() as connection:
            connection.execute(begin)
            try:
                yield PostgresRows(connection)
            except BaseException:
                if not connection.closed:
                    connection.execute(b"ROLLBACK")
                raise
            connection.execute(b"COMMIT")


class PostgresLead:
    """A lock that the server drops with its session, so a killed leader holds up nobody."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def held(self) -> bool:
        """Say whether the session that holds it is still there."""
        try:
            with translating():
                self._connection.execute(b"SELECT")
        except StoreUnavailable:
            return False
        return True

    def close(self) -> None:
        """Give it up."""
        self._connection.close()


class PostgresRows:
    """Statements on one connection, inside its transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, **values: Any) -> int:
        """Run one statement and return how many rows it changed."""
        return max(self._run(sql, values).rowcount, 0)

    def fetch(self, sql: str, **values: Any) -> list[dict[str, Any]]:
        """Run one query and return its rows by their columns' names."""
        cursor = self._run(sql, values)
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def get(self, table: Table, keys: Sequence[Row]) -> list[Row]:
        """Return the rows that have one of these keys, by one walk of the index for each."""
        if not keys:
            return []
        arrays = ", ".join(f"%s::{_ARRAYS[table.columns[name].rstrip('?')]}" for name in table.key)
        same = " AND ".join(f"t.{name} = k.{name}" for name in table.key)
        # A plain join may read the whole table, as long as nobody has counted its rows.
        sql = (
            f"SELECT t.* FROM unnest({arrays}) AS k({', '.join(table.key)}) CROSS JOIN LATERAL"
            f" (SELECT {', '.join(table.names)} FROM {table.name} t WHERE {same} LIMIT 1) t"
        )
        columns = [list(column) for column in zip(*keys, strict=True)]
        cursor = self._connection.cursor(binary=True)
        return cursor.execute(sql.encode(), columns).fetchall()

    def put(self, table: Table, new: Sequence[Row], changed: Sequence[Row] = ()) -> None:
        """Write whole rows: new ones straight into the table, changed ones over a staging table."""
        self._copy(table.name, table, new)
        if not changed:
            return
        staged = f"staged_{table.name}"
        self._connection.execute(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS {staged} (LIKE {table.name})"
            " ON COMMIT DELETE ROWS".encode()
        )
        self._copy(staged, table, changed)
        names = ", ".join(table.names)
        updates = ", ".join(f"{n} = excluded.{n}" for n in table.names if n not in table.key)
        self._connection.execute(
            f"WITH moved AS (DELETE FROM {staged} RETURNING *)"
            f" INSERT INTO {table.name} ({names}) SELECT {names} FROM moved"
            f" ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {updates}".encode()
        )

    def _copy(self, target: str, table: Table, rows: Sequence[Row]) -> None:
        if not rows:
            return
        copying = f"COPY {target} ({', '.join(table.names)}) FROM STDIN"
        with self._connection.cursor() as cursor, cursor.copy(copying.encode()) as copy:
            write = copy.write_row
            for row in rows:
                write(row)

    def _run(self, sql: str, values: Mapping[str, Any]) -> psycopg.Cursor[tuple[Any, ...]]:
        try:
            if not values:
                return self._connection.execute(sql.encode())
            return self._connection.execute(placed(sql), values)
        except psycopg.errors.InsufficientPrivilege:
            raise  # the statement is right; its role is not
        except psycopg.ProgrammingError as error:
            raise DeclarationError(f"{error}: {sql}", hint="Correct the statement.") from error


def placed(sql: str) -> bytes:
    """Return a statement with psycopg's placeholders for `:name`.

    What stands in quotes, behind `--` and a cast such as `::text` is left as it is.
    """

    def part(found: re.Match[str]) -> str:
        if found["name"]:
            return f"%({found['name']})s"
        return found[0].replace("%", "%%")

    return _PARTS.sub(part, sql).encode()
