"""Where a run happens: for each check a schema of its own, or a file beside the user's.

A run that was killed cleans up nothing, so the next one does. Whose run is still alive is told by
locks that end with it: one on a file in its folder, and one in the user's PostgreSQL database.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING
from urllib.parse import quote

from settled.domain.errors import InvalidInput, InvalidStoreUrl
from settled.infrastructure.clock import chance
from settled.infrastructure.journal.opening import is_sqlite, sqlite_path
from settled.infrastructure.testing.postgres_server import PostgresServer
from settled.verify.remains import claim_folder, claim_run, drop_schema, sweep_folders

if TYPE_CHECKING:
    from settled.infrastructure.journal.postgres.address import Address

_STATE_DIRECTORY = "SETTLED_STATE_DIR"
_RUNS = 1 << 32


@dataclass(frozen=True)
class Ground:
    """The folder of one run, with its logs. `server` is one that the run may stop.

    `kept` names what is left of the run, and `removed` what was left of runs that were killed.
    """

    run: str
    db: str
    folder: Path
    keep: bool
    server: PostgresServer | None = None
    kept: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])

    @property
    def dialect(self) -> str:
        """The dialect of the journal there."""
        return "sqlite" if is_sqlite(self.db) else "postgresql"

    @contextmanager
    def store(self, name: str, *, own_server: bool = False) -> Generator[tuple[str, Path]]:
        """Give a URL where nothing is yet, and a folder; both are gone afterwards unless kept.

        What a host knows of its stores is kept in that folder too, for as long as this lasts.
        """
        folder = self.folder / name
        folder.mkdir()
        with ExitStack() as cleaning:
            if not self.keep:
                cleaning.callback(shutil.rmtree, folder)
            cleaning.enter_context(_state_in(folder))
            if self.dialect == "sqlite":
                yield f"sqlite:///{quote(str(folder / 'settled.db'))}", folder
                return
            schema = f"{self.folder.name}_{name}".replace("-", "_").lower()
            db = self.server.url() if own_server and self.server is not None else self.db
            url = _with_schema(db, schema)
            if not self.keep:
                cleaning.callback(drop_schema, url)
            elif db == self.db:
                self.kept.append(f"schema {schema}")
            if self.server is not None:
                cleaning.callback(self.server.start)  # a check that broke off may have stopped it
            yield url, folder

    def database(self) -> str:
        """Return the database and its version. Raises StoreUnavailable."""
        if self.dialect == "sqlite":
            return f"SQLite {sqlite3.sqlite_version}"
        with closing(_address(self.db).connect({})) as connection:
            return f"PostgreSQL {connection.info.parameter_status('server_version')}"


@contextmanager
def ground(db: str | None, *, keep: bool, own_server: bool = False) -> Generator[Ground]:
    """Make the folder of a run, on SQLite beside the file that the URL names.

    That file itself is neither made nor opened: what is tried out is the disk that it is on. With
    `own_server` a PostgreSQL server is brought, and without `db` everything happens there. Raises
    InvalidStoreUrl where no folder can be made, InvalidInput where no database is named.
    """
    if db is None and not own_server:
        raise InvalidInput("No database is named.", hint="Give --db, --own-server, or both.")
    on_file = db is not None and is_sqlite(db)
    run = f"{int(chance() * _RUNS):08x}"
    with ExitStack() as cleaning:
        server = None
        if own_server and not on_file:
            server = cleaning.enter_context(PostgresServer(fsync=True))
        removed: list[str] = []
        parent = sqlite_path(db).absolute().parent if db is not None and on_file else None
        folder = _folder(parent or Path(gettempdir()), run, keep, removed, cleaning)
        if server is not None and db is None:
            db = server.url()
        elif db is not None and not on_file:
            removed += cleaning.enter_context(claim_run(_address(db), run))
        assert db is not None
        kept = [str(folder)] if keep else []
        yield Ground(run, db, folder, keep, server, kept, removed)


def _folder(parent: Path, run: str, keep: bool, removed: list[str], cleaning: ExitStack) -> Path:
    folder = parent / f"settled-{'kept' if keep else 'verify'}-{run}"
    try:
        removed += sweep_folders(parent)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise InvalidStoreUrl(
            f"No file can be made beside the one that the URL names: {error}.",
            hint="Name a file in a folder that exists and that you may write to.",
        ) from error
    if not keep:
        cleaning.callback(shutil.rmtree, folder)
        cleaning.enter_context(claim_folder(folder))
    return folder


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


def _address(db: str) -> Address:
    from settled.infrastructure.journal.postgres.address import Address

    return Address.of(db)


def _with_schema(db: str, schema: str) -> str:
    """Return the URL with this schema in place of the one that it names."""
    base, _, query = db.partition("?")
    parts = [part for part in query.split("&") if part and not part.startswith("schema=")]
    return f"{base}?{'&'.join([*parts, f'schema={schema}'])}"
