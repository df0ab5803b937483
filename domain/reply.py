"""What a function that performs an effect says about it: one of five things.

A function knows best what happened, so it says so in as many words; what the words mean for the
operation is decided under the provider's contract.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class Said(enum.StrEnum):
    """The five things that a function can say about its call."""

    PERFORMED = "performed"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    NOT_SENT = "not_sent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of one call. Made by the classmethods, which say when to use each."""

    said: Said
    reason: str = ""
    reference: str | None = None
    receipt: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def performed(cls, receipt: Mapping[str, Any], reference: str | None = None) -> Reply:
        """Say that the effect exists.

        `receipt` is what is kept of the provider's answer, JSON-like; `reference` is the
        provider's name for the effect.
        """
        return cls(Said.PERFORMED, "the effect was performed", reference, dict(receipt))

    @classmethod
    def accepted(cls, handle: str, receipt: Mapping[str, Any] | None = None) -> Reply:
        """Say that the provider has taken the request; `handle` is what to ask for it by."""
        return cls(Said.ACCEPTED, "the provider accepted it", handle, dict(receipt or {}))

    @classmethod
    def refused(cls, reason: str) -> Reply:
        """Say that the provider refused this request and did nothing."""
        return cls(Said.REFUSED, reason)

    @classmethod
    def not_sent(cls, reason: str) -> Reply:
        """Say that nothing has left: only if that is certain, as with a refused connection."""
        return cls(Said.NOT_SENT, reason)

    @classmethod
    def unknown(cls, reason: str) -> Reply:
        """Say that it may have been performed or not, as when no answer came."""
        return cls(Said.UNKNOWN, reason)
