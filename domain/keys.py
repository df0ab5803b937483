"""Keys under which digests are made, one a tenant: equal values of two tenants look different."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol


class Keys(Protocol):
    """The key ring: hands out a tenant's key by its id."""

    def current(self, tenant: str) -> str:
        """Return the id of the key under which new digests are made."""
        ...

    def key(self, tenant: str, key_id: str) -> bytes:
        """Return a key; KeyError when it is unknown or was destroyed."""
        ...


@dataclass(frozen=True)
class DerivedKeys:
    """Keys derived from the installation's secret with HMAC-SHA-256.

    They keep a digest from being guessed by whoever sees it alone (a tombstone, a log line). They
    do not protect from somebody who holds the database, where the secret lies too.
    """

    secret: bytes

    def current(self, tenant: str) -> str:
        """Return the id of the one key there is so far."""
        return "k1"

    def key(self, tenant: str, key_id: str) -> bytes:
        """Return the tenant's key."""
        if key_id != "k1":
            raise KeyError(key_id)
        return _derive(self.secret, tenant)


@lru_cache(maxsize=1024)
def _derive(secret: bytes, tenant: str) -> bytes:
    return hmac.digest(secret, b"settled/tenant/" + tenant.encode(), hashlib.sha256)
