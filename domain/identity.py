"""Who acts, what an operation is called, and the identifiers that follow from its name.

An operation is named by the business: (tenant, kind, operation id). Everything derived here is a
function of that name and of the installation, never of an attempt, a date or a process, so any
worker at any time arrives at the same stream and the same provider key.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from typing import cast
from uuid import UUID

from settled.domain.errors import InvalidIdentity

NAMESPACE = UUID("6d0f2f0e-6d8c-5f0b-9a53-3f5b0b1f7c11")
"""The RFC 9562 namespace of every stream id. Chosen once: changing it loses every stream."""

MAX_NAME_LENGTH = 63
MAX_ID_LENGTH = 200

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*", re.ASCII)
_PROVIDER_KEY_LABEL = "settled/provider-key/1"


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody, or something, that gives commands in one tenant.

    `actor` is a name that means something in an audit (`support-agent`, `ada@acme.example`);
    `roles` are what decisions and commands may require. Raises `InvalidIdentity`.
    """

    tenant: str
    actor: str
    roles: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuse what cannot be used as a name."""
        _check_name("tenant", self.tenant)
        _check_id("actor", self.actor)
        _check_roles(self.roles)


@dataclass(frozen=True, slots=True)
class Identity:
    """The name of one operation, unique for good. Raises `InvalidIdentity`.

    `tenant` and `kind` are up to 63 characters of a to z, 0 to 9, dot, underscore and hyphen,
    the first a letter or a digit. `operation_id` is up to 200 printable characters in Unicode
    form NFC, without blanks around it.
    """

    tenant: str
    kind: str
    operation_id: str

    def __post_init__(self) -> None:
        """Refuse what cannot be used as a name."""
        _check_name("tenant", self.tenant)
        _check_name("kind", self.kind)
        _check_id("operation id", self.operation_id)

    @classmethod
    def recorded(cls, tenant: str, kind: str, operation_id: str) -> Identity:
        """Return the name of an operation that exists: it was checked before it was recorded."""
        identity = object.__new__(cls)
        object.__setattr__(identity, "tenant", tenant)
        object.__setattr__(identity, "kind", kind)
        object.__setattr__(identity, "operation_id", operation_id)
        return identity

    def __str__(self) -> str:
        """Return the name as logs and messages write it."""
        return f"{self.tenant}/{self.kind}/{self.operation_id}"


def stream_id(tenant: str, category: str, kind: str, operation_id: str) -> UUID:
    """Return the id of a stream: `uuid.uuid5` in `NAMESPACE` over the four parts.

    `category` keeps streams of one name apart, such as "operation" and "run". Every part is
    preceded by its length, so no two lists of parts read alike. Two starts of one operation meet
    in the store because they arrive at one id here.
    """
    name = NAMESPACE.bytes + _with_lengths(tenant, category, kind, operation_id)
    return UUID(bytes=hashlib.sha1(name, usedforsecurity=False).digest()[:16], version=5)


def provider_key(installation: UUID, identity: Identity, generation: int) -> str:
    """Return the idempotency key for an operation's requests, in the form of a UUID.

    The installation is part of it so that a copy of the database for a test never uses up the
    keys of the original; the generation starts at 1 and is raised by an explicit reissue only.
    Written as version 4 because some providers check for that version (its bits are a SHA-256).
    """
    if isinstance(generation, bool) or generation < 1:
        raise InvalidIdentity(
            f"{generation!r} is not a generation.", hint="Generations count from 1."
        )
    parts = (identity.tenant, identity.kind, identity.operation_id, str(generation))
    name = _with_lengths(_PROVIDER_KEY_LABEL, str(installation), *parts)
    return str(UUID(bytes=hashlib.sha256(name).digest()[:16], version=4))


def _with_lengths(*parts: str) -> bytes:
    encoded = [part.encode() for part in parts]
    return b"".join(b"%d:%b" % (len(part), part) for part in encoded)


def _check_name(what: str, value: object) -> None:
    text = _text(what, value, MAX_NAME_LENGTH)
    if _NAME.fullmatch(text) is None:
        raise InvalidIdentity(
            f"The {what} {text[:60]!a} cannot be used as a name.",
            hint="Use a to z, 0 to 9, dot, underscore, hyphen; begin with a letter or a digit.",
        )


def _check_id(what: str, value: object) -> None:
    text = _text(what, value, MAX_ID_LENGTH)
    if not text.isprintable():
        bad = next(character for character in text if not character.isprintable())
        raise InvalidIdentity(
            f"The {what} holds U+{ord(bad):04X}, which cannot be printed.",
            hint="Use printable characters only.",
        )
    if text != text.strip():
        raise InvalidIdentity(
            f"The {what} {text[:60]!a} has blanks around it.", hint="Remove the blanks."
        )
    if not unicodedata.is_normalized("NFC", text):
        raise InvalidIdentity(
            f"The {what} {text[:60]!a} is not in Unicode form NFC.",
            hint='Pass unicodedata.normalize("NFC", …): one look must be one name.',
        )


def _check_roles(roles: object) -> None:
    if not isinstance(roles, frozenset):
        raise InvalidIdentity(
            f"Roles are given as a {type(roles).__name__}.",
            hint='Write roles=frozenset({"approver"}).',
        )
    for role in cast(frozenset[object], roles):
        _check_id("role", role)


def _text(what: str, value: object, limit: int) -> str:
    if not isinstance(value, str):
        raise InvalidIdentity(
            f"The {what} is a {type(value).__name__}, not text.", hint="Pass it as text."
        )
    if not value:
        raise InvalidIdentity(
            f"The {what} is empty.", hint="Name it after what the business calls it."
        )
    if len(value) > limit:
        raise InvalidIdentity(
            f"The {what} has {len(value)} characters; {limit} are allowed.",
            hint="Use the number the business gave it, and put content into the parameters.",
        )
    return value
