"""Routes: by which work finds code that knows it.

A stream waits in a lane, `tenant/route`, and a worker claims from the lanes of the routes that it
serves. An operation's route names its kind, the version of the kind under which it was authorised
and its provider, `refund@2/psp.example`, so that work of an old version waits for code that has
this version, and is never claimed by other code. What has no versions is routed by its kind alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from settled.domain.errors import InvalidInput


@dataclass(frozen=True, slots=True, order=True)
class Route:
    """A route taken apart. `version` is None where the kind has none."""

    kind: str
    version: int | None
    provider: str

    @classmethod
    def of_lane(cls, lane: str) -> Route:
        """Return the route of a lane, `tenant/kind@version/provider` or `tenant/kind/…`."""
        _, named, provider = lane.split("/", 2)
        kind, _, version = named.partition("@")
        return cls(kind, int(version) if version.isdecimal() else None, provider)

    @property
    def versioned(self) -> str:
        """The kind with its version, as people write it: `refund@2`."""
        return self.kind if self.version is None else f"{self.kind}@{self.version}"

    def __str__(self) -> str:
        """Return the route as workers name what they serve."""
        return f"{self.versioned}/{self.provider}"


def serves(lane: str, served: Collection[str]) -> bool:
    """Tell whether a worker that serves these claims from a lane.

    A worker names a whole route (`refund@2/psp.example`), or the part before the slash for all
    that is behind it (`deployment`).
    """
    route = lane.partition("/")[2]
    return route in served or route.partition("/")[0] in served


def parse_versioned(text: str) -> tuple[str, int]:
    """Return the kind and the version in `refund@2`. Raises InvalidInput."""
    kind, _, version = text.partition("@")
    if not kind or not version.isdecimal():
        raise InvalidInput(
            f"{text!r} names no version of a kind.", hint="Write the kind and its version: refund@1"
        )
    return kind, int(version)
