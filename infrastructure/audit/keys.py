"""The auditor's key, in a file of its own that only its owner can read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from settled.domain.errors import InvalidInput, NotPossible
from settled.domain.journal.anchors import AuditKey

_PREFIX = "settled-audit-key-1:"
_SECRET_BYTES = 32


def make_key(path: Path) -> AuditKey:
    """Make a key and write it where no file is yet. Raises NotPossible, InvalidInput."""
    key = AuditKey(secrets.token_bytes(_SECRET_BYTES))
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(f"{_PREFIX}{key.secret.hex()}\n")
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as error:
        raise NotPossible(
            f"{path} is there already, and is not replaced.",
            hint="What was anchored under a key can only be checked with it. Name another file.",
        ) from error
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error}.") from error
    return key


def read_key(path: Path) -> AuditKey:
    """Read a key. Raises InvalidInput for a file that holds none."""
    hint = "`settled audit key --to FILE` makes one."
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"No key can be read from {path}: {error}.", hint=hint) from error
    try:
        secret = bytes.fromhex(text.removeprefix(_PREFIX))
    except ValueError:
        secret = b""
    if not text.startswith(_PREFIX) or len(secret) != _SECRET_BYTES:
        raise InvalidInput(f"{path} holds no key for anchors.", hint=hint)
    return AuditKey(secret)
