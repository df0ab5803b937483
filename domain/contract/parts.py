"""The parts of a provider contract: validated, frozen, and conservative until told otherwise."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from settled.domain.contract.words import (
    Anchor,
    Consistency,
    EchoAs,
    KeyCarrier,
    LookupBy,
    MatchingKind,
    Outcome,
    RetentionKind,
)
from settled.domain.errors import InvalidContract

if TYPE_CHECKING:  # The port names the contract, so at run time the contract cannot name the port.
    from settled.domain.provider import Answered, Via

ZERO = timedelta()
FOREVER = timedelta.max
"""Longer than anything: the horizon of a look-up that reaches back to the beginning."""

ScalarValue = str | int | bool


def check_declared(part: Any) -> None:
    """Refuse values that are no member of the field's enum, and negative durations.

    A plain string would equal a member and yet miss each table that is keyed by members.
    """
    for declared in fields(part):
        value = getattr(part, declared.name)
        if isinstance(declared.default, Enum) and not isinstance(value, type(declared.default)):
            raise InvalidContract(
                f"{declared.name} is {value!r}, which is no {type(declared.default).__name__}.",
                hint=f"Use one of: {', '.join(type(declared.default).__members__)}.",
            )
        if isinstance(value, timedelta) and value < ZERO:
            raise InvalidContract(
                f"{declared.name} is negative.", hint="Give a duration of zero or more."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """How the key is written into the request.

    `alphabet` is a regular expression of one allowed character. `quoted` says that the header is
    a structured-field string, in quotation marks (IETF Idempotency-Key).
    """

    carrier: KeyCarrier
    name: str
    max_len: int | None = None
    alphabet: str = ""
    case_sensitive: bool | None = None
    must_be_uuid: bool = False
    quoted: bool = False

    def __post_init__(self) -> None:
        """Refuse a key that no value could be written as."""
        check_declared(self)
        if not self.name:
            raise InvalidContract("The key has no name.", hint="Name its header, field or part.")
        if self.max_len is not None and self.max_len < (36 if self.must_be_uuid else 1):
            raise InvalidContract(f"No key fits into {self.max_len} characters.", hint="Widen it.")
        try:
            re.compile(self.alphabet)
        except re.error as error:
            raise InvalidContract(f"The alphabet of the key is no pattern: {error}.") from error

    def problem(self, key: str) -> str | None:
        """Return why the provider would not take this key, or None."""
        if self.max_len is not None and len(key) > self.max_len:
            return f"the key has {len(key)} characters, and {self.name} takes {self.max_len}"
        if self.alphabet and re.fullmatch(f"(?:{self.alphabet})+", key) is None:
            return f"the key has characters that {self.name} does not take"
        if self.must_be_uuid and not _is_uuid(key):
            return f"{self.name} takes only UUIDs"
        return None


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower() and UUID(text).int != 0
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Retention:
    """How long the provider remembers a key, at least.

    Where documents disagree, `minimum` is the smallest of them. `safety_margin` is left unused at
    its end, for clocks that differ and requests that travel.
    """

    kind: RetentionKind = RetentionKind.UNKNOWN
    minimum: timedelta = ZERO
    anchor: Anchor = Anchor.FIRST_SENT
    safety_margin: timedelta = ZERO

    def __post_init__(self) -> None:
        """Refuse a length where none is promised, and none where one is."""
        check_declared(self)
        timed = self.kind in _TIMED
        if timed and self.minimum <= self.safety_margin:
            raise InvalidContract(
                f"A retention of {self.minimum} less a margin of {self.safety_margin} is nothing.",
                hint="Give the published minimum and a smaller margin, or leave it UNKNOWN.",
            )
        if not timed and self.minimum:
            raise InvalidContract(
                f"A retention that is {self.kind} has no minimum of {self.minimum}.",
                hint="Use RetentionKind.FIXED for a published length.",
            )

    @property
    def window(self) -> timedelta:
        """How long after the earliest dispatch a request with the key may still arrive."""
        if self.kind is RetentionKind.FOREVER:
            return FOREVER
        return self.minimum - self.safety_margin if self.kind in _TIMED else ZERO


_TIMED = frozenset({RetentionKind.FIXED, RetentionKind.SLIDING, RetentionKind.AFTER_CLOSE})


@dataclass(frozen=True, slots=True)
class Matching:
    """Whether a repeated request is compared with the first one, and in what.

    `order_sensitive`: the order of the fields counts too (Shopify).
    """

    kind: MatchingKind = MatchingKind.UNKNOWN
    fields: frozenset[str] = frozenset()
    order_sensitive: bool = False

    def __post_init__(self) -> None:
        """Fields belong to the kinds that compare fields, and only to those."""
        check_declared(self)
        by_field = self.kind in (MatchingKind.FIELDS, MatchingKind.IDENTITY_EXTENDS)
        if by_field != bool(self.fields):
            raise InvalidContract(
                f"Matching {self.kind} {'names no' if by_field else 'names'} fields.",
                hint="FIELDS and IDENTITY_EXTENDS name what is compared; the others do not.",
            )

    @property
    def compares(self) -> bool:
        """Whether the provider itself would have refused or kept apart a foreign request."""
        return self.kind not in (MatchingKind.UNKNOWN, MatchingKind.NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupPromise:
    """One way to ask about an earlier attempt, and what "not found" is worth.

    `max_lag` is the longest that an effect stays unseen in normal operation; `outage_lag` comes on
    top. `complete_after` is when "not found" becomes evidence, where the provider says so itself.
    `horizon` is how far back it reaches (`FOREVER`: to the beginning); while it is unknown, a find
    counts and an absence does not. `requires` names a permission or a paid feature: the look-up is
    not used before `granted`. For a list, `items` is the path of the list, `match` the path in an
    item that holds our key or reference, `more` a path that is true while pages are left.
    """

    by: LookupBy
    consistency: Consistency = Consistency.UNKNOWN
    max_lag: timedelta | None = None
    outage_lag: timedelta | None = None
    complete_after: timedelta | None = None
    horizon: timedelta | None = None
    requires: str = ""
    granted: bool = False
    items: str = ""
    match: str = ""
    more: str = ""

    def __post_init__(self) -> None:
        """Refuse lags that the consistency denies."""
        check_declared(self)
        if self.max_lag is not None and self.consistency is not Consistency.EVENTUAL:
            raise InvalidContract(
                f"A look-up that is {self.consistency} has no lag.",
                hint="Declare Consistency.EVENTUAL, or leave max_lag out.",
            )
        if self.outage_lag is not None and self.max_lag is None:
            raise InvalidContract(
                "outage_lag comes on top of max_lag, which is not given.", hint="Give both."
            )
        if bool(self.items) != bool(self.match):
            raise InvalidContract(
                "A list is searched by a path in its items.", hint="Give `items` and `match`."
            )

    @property
    def usable(self) -> bool:
        """Whether it is there for us."""
        return self.granted or not self.requires

    @property
    def absence_counts_after(self) -> timedelta | None:
        """How long after the last possible arrival "not found" proves something; None: never."""
        stated = self.complete_after or ZERO
        if self.consistency is Consistency.STRONG:
            return stated
        if self.consistency is Consistency.EVENTUAL and self.max_lag is not None:
            return max(self.max_lag + (self.outage_lag or ZERO), stated)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class EchoField:
    """A value that the provider repeats: `field` of the intent, at `path` in the answer.

    For an amount, `currency_path` is where its currency stands.
    """

    field: str
    path: str
    written: EchoAs = EchoAs.TEXT
    currency_path: str = ""

    def __post_init__(self) -> None:
        """A comparison needs both its sides."""
        check_declared(self)
        if not self.field or not self.path:
            raise InvalidContract("An echo names a field of the intent and a path in the answer.")
        if self.currency_path and self.written is EchoAs.TEXT:
            raise InvalidContract(
                f"The echo of {self.field} is text and has no currency.",
                hint="Use EchoAs.MINOR_UNITS or EchoAs.MAJOR_UNITS for an amount.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayMarker:
    """The header by which the provider says that this answer was given before."""

    header: str
    value: str = "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One answer that the contract knows: if all that is named here is so, it means `answered`.

    `body` and `header` name values that must be equal, by path and by name. A rule that names a
    `reference` only fits answers that have something at that path. Rules are asked in order,
    before the generic reading of HTTP; one that asks nothing of the body also fits a body that
    cannot be read.
    """

    answered: Answered
    status: int | None = None
    body: Mapping[str, ScalarValue] = field(default_factory=dict[str, ScalarValue])
    header: Mapping[str, str] = field(default_factory=dict[str, str])
    reference: str = ""
    via: Via | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        """Refuse what no answer can mean."""
        if self.status is None and not self.body and not self.header:
            raise InvalidContract(
                f"The rule for {self.answered} fits every answer.",
                hint="Name a status, a value of the body, or a header.",
            )
        problem = self._problem(self.answered.value)
        if problem:
            raise InvalidContract(f"A rule for {self.answered}: {problem[0]}.", hint=problem[1])

    def _problem(self, answered: str) -> tuple[str, str] | None:
        if answered == "not_sent":
            return "an answer proves that it was sent", "Leave it to the transport."
        if answered == "absent" and (self.via is None or self.via.value != "lookup"):
            return "only a look-up finds nothing", "Add via=Via.LOOKUP."
        if answered == "duplicate_of" and not self.reference:
            return "no path leads to the object", "Name `reference`, or use Answered.DUPLICATE."
        good = self.status is not None and 200 <= self.status < 300
        if answered in ("performed", "pending") and not good:
            return (
                "a refusal alone never proves an effect",
                "Name a 2xx status; read a conflict as DUPLICATE, DUPLICATE_OF or NAME_TAKEN.",
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """When a pending outcome is asked for: after `first`, then ever later, at most `longest`."""

    first: timedelta = timedelta(minutes=1)
    longest: timedelta = timedelta(hours=1)

    def __post_init__(self) -> None:
        """Refuse to ask without a pause."""
        check_declared(self)
        if not ZERO < self.first <= self.longest:
            raise InvalidContract("A poll waits, and `first` is not over `longest`.")

    def wait(self, polled: int) -> timedelta:
        """Return the wait after `polled` questions: doubled each time."""
        doublings = min(max(polled, 0), 20)  # A million times `first` is past any `longest`.
        return min(self.first * (1 << doublings), self.longest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """What the provider's own statuses mean, and how a final one is learned.

    `meanings` maps the value at `status_path`; a value that it does not know is pending, never
    success. `acceptance_only`: what is promised is "handed to the provider", so a 2xx is all there
    will be (e-mail). `max_pending` is how long an outcome may stay open before a person looks.
    `webhook_object` is the path of the object within a webhook.
    """

    status_path: str = ""
    meanings: Mapping[str, Outcome] = field(default_factory=dict[str, Outcome])
    acceptance_only: bool = False
    success_may_reverse: bool | None = None
    max_pending: timedelta | None = None
    poll: Poll = field(default_factory=Poll)
    webhook_events: tuple[str, ...] = ()
    webhook_object: str = ""

    def __post_init__(self) -> None:
        """Refuse statuses without a place, and both ways of reading a 2xx at once."""
        check_declared(self)
        if bool(self.status_path) != bool(self.meanings):
            raise InvalidContract(
                "Statuses have a path and meanings, or neither.",
                hint='Outcomes(status_path="status", meanings={"succeeded": Outcome.SUCCEEDED}).',
            )
        if self.acceptance_only and self.meanings:
            raise InvalidContract(
                "acceptance_only says that no status follows, and statuses are declared.",
                hint="Drop one of the two.",
            )
        for status, meaning in self.meanings.items():
            if not isinstance(meaning, Outcome):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidContract(f"{status!r} means {meaning!r}, which is no Outcome.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """What else stands between two equal requests. None of it proves that ours was performed."""

    provider_enforces_remaining: bool | None = None
    optimistic_total_field: str = ""
    heuristic_duplicate_window: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of the provider's own. The kind's bounds hold too; the narrower one counts."""

    max_attempts: int | None = None
    deadline: timedelta | None = None
    min_spacing: timedelta = ZERO

    def __post_init__(self) -> None:
        """Refuse bounds that permit nothing."""
        check_declared(self)
        if self.max_attempts is not None and self.max_attempts < 1:
            raise InvalidContract("max_attempts permits nothing.", hint="Give 1 or more.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Severity:
    """What a mistake costs: for the person who decides, never for the decision table."""

    reversible: bool = False
    duplicate_cost: str = ""
    queue: str = ""
