"""Where the tables are: the database's URL, the schema in it, and the connections to it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from settled.domain.errors import InvalidStoreUrl
from settled.infrastructure.journal.postgres.errors import translating

SCHEMA = "settled"
"""The schema of the tables where the URL names none."""

Connection = psycopg.Connection[tuple[Any, ...]]
Row = tuple[Any, ...]

NEVER_BY_ITSELF = sys.maxsize
"""Only what says so is prepared: a plan that is kept must be right for a table of any size."""

_SCHEMES = ("postgresql", "postgres")
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")

_CLIENT = {
    "application_name": "settled",
    "connect_timeout": "5",
    # A server whose host vanished answers nothing, not even with an error.
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
"""What a connection has where the URL does not say otherwise."""


class Texts(dict[str, bytes]):
    """Statement texts with every table named in full, so that no search_path matters.

    In the texts of this package `{schema}` stands for the schema.
    """

    def __init__(self, schema: str) -> None:
        super().__init__()
        self._schema = f'"{schema}"'

    def __missing__(self, text: str) -> bytes:
        full = self[text] = text.replace("{schema}", self._schema).encode()
        return full


@dataclass(frozen=True, slots=True)
class Address:
    """A database and a schema in it. `conninfo` may hold a password: it belongs in no message."""

    conninfo: str
    schema: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Read a URL such as postgresql://user@host/shop?schema=settled.

        Everything but `schema` means what libpq takes it for. Raises InvalidStoreUrl.
        """
        scheme = url.partition("://")[0]
        if scheme not in _SCHEMES:
            raise InvalidStoreUrl(
                f"A PostgreSQL URL begins with postgresql://, not with {scheme[:20]!r}.",
                hint="For example postgresql://user@host/shop?schema=settled.",
            )
        # Cut apart as text: urllib would read a plus sign as a space, and libpq does not.
        base, _, query = url.partition("?")
        ours: list[str] = []
        rest: list[str] = []
        for part in query.split("&"):
            (ours if part.startswith("schema=") else rest).append(part)
        schema = unquote(ours[-1].removeprefix("schema=")) if ours else SCHEMA
        if not _NAME.fullmatch(schema):
            raise InvalidStoreUrl(
                f"{schema!r} cannot be the name of the schema.",
                hint="It begins with a letter and has lower-case letters, digits and _ only.",
            )
        try:
            known = conninfo_to_dict(f"{base}?{'&'.join(rest)}" if any(rest) else base)
        except psycopg.ProgrammingError as error:
            raise InvalidStoreUrl(
                f"The URL cannot be read: {str(error).strip()}.",
                hint="For example postgresql://user@host/shop?schema=settled.",
            ) from error
        return cls(make_conninfo("", **(_CLIENT | known)), schema)

    def options(self, settings: Mapping[str, str]) -> str:
        """Return the server settings of a session, after those that the URL gives."""
        ours = {"search_path": f'"{self.schema}"', "TimeZone": "UTC", "jit": "off", **settings}
        given = conninfo_to_dict(self.conninfo).get("options") or ""
        return " ".join([str(given), *(f"-c {name}={ours[name]}" for name in ours)]).strip()

    def connect(self, settings: Mapping[str, str]) -> Connection:
        """Open a connection in autocommit mode; raises StoreUnavailable."""
        with translating():
            return psycopg.connect(
                self.conninfo,
                autocommit=True,
                options=self.options(settings),
                prepare_threshold=NEVER_BY_ITSELF,
            )
