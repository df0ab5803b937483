"""Where a run happens: for each check a schema of its own, or a file beside the user's."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import quote

from settled.domain.errors import InvalidStoreUrl
from settled.infrastructure.journal.opening import is_sqlite, sqlite_path

_PREFIX = "settled-verify-"
_STATE_DIRECTORY = "SETTLED_STATE_DIR"


@dataclass(frozen=True)
class Ground:
    """The folder of one run, with its logs; `kept` names what is left of the run."""

    db: str
    folder: Path
    keep: bool
    kept: list[str] = field(default_factory=list[str])

    @property
    def dialect(self) -> str:
        """The dialect of the journal there."""
        return "sqlite" if is_sqlite(self.db) else "postgresql"

    @contextmanager
    def store(self, name: str) -> Generator[tuple[str, Path]]:
        """Give a URL where nothing is yet, and a folder; both are gone afterwards unless kept."""
        folder = self.folder / name
        folder.mkdir()
        with ExitStack() as cleaning:
            if not self.keep:
                cleaning.callback(shutil.rmtree, folder)
            if self.dialect == "sqlite":
                yield f"sqlite:///{quote(str(folder / 'settled.db'))}", folder
                return
            schema = f"{self.folder.name}_{name}".replace("-", "_").lower()
            url = _with_schema(self.db, schema)
            if self.keep:
                self.kept.append(f"schema {schema}")
            else:
                cleaning.callback(_drop_schema, url)
            yield url, folder

    def database(self) -> str:
        """Return the database and its version. Raises StoreUnavailable."""
        if self.dialect == "sqlite":
            return f"SQLite {sqlite3.sqlite_version}"
        from settled.infrastructure.journal.postgres.address import Address

        with closing(Address.of(self.db).connect({})) as connection:
            return f"PostgreSQL {connection.info.parameter_status('server_version')}"


@contextmanager
def ground(db: str, *, keep: bool) -> Generator[Ground]:
    """Make the folder of a run, on SQLite beside the file that the URL names.

    That file itself is neither made nor opened: what is tried out is the disk that it is on. Raises
    InvalidStoreUrl where no folder can be made.
    """
    parent = sqlite_path(db).absolute().parent if is_sqlite(db) else None
    try:
        folder = Path(mkdtemp(prefix=_PREFIX, dir=parent))
    except OSError as error:
        raise InvalidStoreUrl(
            f"No file can be made beside the one that the URL names: {error}.",
            hint="Name a file in a folder that exists and that you may write to.",
        ) from error
    with ExitStack() as cleaning:
        if not keep:
            cleaning.callback(shutil.rmtree, folder)
        cleaning.enter_context(_state_in(folder))
        yield Ground(db, folder, keep, [str(folder)] if keep else [])


@contextmanager
def _state_in(folder: Path) -> Generator[None]:
    """Keep what a host knows of its stores in this folder: these stores are soon gone."""
    before = os.environ.get(_STATE_DIRECTORY)
    os.environ[_STATE_DIRECTORY] = str(folder / "state")
    try:
        yield
    finally:
        del os.environ[_STATE_DIRECTORY]
        if before is not None:
            os.environ[_STATE_DIRECTORY] = before


def _with_schema(db: str, schema: str) -> str:
    """Return the URL with this schema in place of the one that it names."""
    base, _, query = db.partition("?")
    parts = [part for part in query.split("&") if part and not part.startswith("schema=")]
    return f"{base}?{'&'.join([*parts, f'schema={schema}'])}"


def _drop_schema(url: str) -> None:
    from psycopg import sql

    from settled.infrastructure.journal.postgres.address import Address

    address = Address.of(url)
    with closing(address.connect({})) as connection:
        connection.execute(
            sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(address.schema))
        )
