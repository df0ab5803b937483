"""What `HttpProvider` refuses when it is declared, so that no worker meets it on the way out."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from urllib.parse import urlsplit

from settled.domain.contract import Key, KeyCarrier, LookupBy, LookupPromise, ProviderContract
from settled.domain.errors import InvalidContract
from settled.infrastructure.http.body import CONTENT_TYPES, Encoding

_FIXED_HEADERS = {
    "accept": "application/json",
    "accept-encoding": "identity",
    "user-agent": "settled",
}
_CREDENTIALS = ("authorization", "cookie", "proxy-authorization", "x-api-key")


def is_header_value(value: str) -> bool:
    """Tell whether a value survives the way: a line end in it would end the header."""
    return value.isascii() and value.isprintable() and value == value.strip()


def checked_url(url: str) -> str:
    """Return the URL. Raises `InvalidContract` if it is none or holds a credential."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidContract(f"{url!r} is no URL of a provider.", hint="https://psp.example/v1/…")
    if parts.username or parts.password:
        raise InvalidContract(
            "The URL holds a credential, and URLs are stored and logged.", hint="Pass credential=."
        )
    return url


def checked_headers(headers: Mapping[str, str], encoding: Encoding) -> dict[str, str]:
    """Return the headers of each request. Raises `InvalidContract` for a credential in them."""
    lower = {name.lower(): value for name, value in headers.items()}
    for name in _CREDENTIALS:
        if name in lower:
            raise InvalidContract(
                f"The header {name} is a credential, and headers are stored.",
                hint="Pass credential=: a function that returns it.",
            )
    for name, value in lower.items():
        if not is_header_value(value):
            raise InvalidContract(
                f"{value!r} cannot be the value of the header {name}.",
                hint="Use printable ASCII without blanks around it.",
            )
    return _FIXED_HEADERS | {"content-type": CONTENT_TYPES[encoding]} | lower


def checked_key(contract: ProviderContract, url: str) -> Key | None:
    """Return how the key is carried. Raises `InvalidContract` if this adapter cannot."""
    key = contract.key
    if key is None:
        return None
    names = {name for _, name, _, _ in Formatter().parse(url) if name}
    if key.carrier is KeyCarrier.PATH and "key" not in names:
        raise InvalidContract(
            f"The key of {contract.provider} is part of the path, and {url} has no place for it.",
            hint="Write {key} where it belongs.",
        )
    if key.carrier not in (KeyCarrier.HEADER, KeyCarrier.BODY, KeyCarrier.PATH):
        raise InvalidContract(f"HttpProvider cannot carry a key as {key.carrier}.")
    return key


def check_lookup(promise: LookupPromise, key: Key | None, reference_field: str) -> None:
    """Refuse a look-up for something that the request does not carry.

    It would find nothing although the effect exists, and its "nothing" could count as proof.
    """
    if promise.by is LookupBy.KEY and key is None:
        raise InvalidContract(
            "The look-up is by key, and the contract has no key.",
            hint="Declare key=Key(…), or look up by a reference of ours: reference_field=….",
        )
    by_reference = promise.by not in (LookupBy.KEY, LookupBy.NATURAL_ID)
    if by_reference and not reference_field:
        raise InvalidContract(
            f"The look-up by {promise.by} searches for our reference, and none is sent.",
            hint=f'Name the field that carries it: reference_field="{promise.match or "…"}".',
        )
