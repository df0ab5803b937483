"""`ProviderContract`: what one operation of one provider promises, as data with its sources.

Facts and marks are those of the provider's own documents. A field that nobody could fill stays
UNKNOWN, and recovery then takes the conservative branch. The parts are in `parts`, the words in
`words`; a provider's signals (in progress, mismatch, throttling, store down) are `rules`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta

from settled.domain.contract.parts import (
    EchoField,
    Guards,
    Key,
    Limits,
    LookupPromise,
    Matching,
    Outcomes,
    ReplayMarker,
    Retention,
    Rule,
    Severity,
    check_declared,
)
from settled.domain.contract.words import (
    Cached,
    Dedup,
    DuplicateCompleted,
    DuplicateInFlight,
    KeySupport,
    OnExpired,
    Pin,
    PreExecution,
    RetentionKind,
)
from settled.domain.errors import InvalidContract

KEYED = frozenset({Dedup.CLIENT_KEY, Dedup.NATURAL_KEY, Dedup.PRECONDITION})
"""The ways of deduplication that can be relied on, within their window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderContract:
    """What is promised about a request that is sent twice, and how its outcome is learned.

    - `sources` are the documents that say so, `verified_on` is when they were last read.
    - `key_scope` is what a key is unique within; None: unknown, so everything is pinned.
    - `max_in_flight` is how long the provider may work on a request that has arrived; None:
      unknown, so "nothing can still arrive" is never certain.
    - `cached` are the outcomes that are kept under a key; None: unknown, read as "all".
    - `uncached_pre_execution` are the refusals that come before anything is performed. With
      RATE_LIMIT in it, a 429 is free of side effects.
    - `lookups` stand in the order of preference: the first one that is usable and reaches back
      far enough is the one that counts, for adapters and for recovery.
    - `reference` is the path of the provider's name for its object; `echo` what it repeats.
    - `cancel_path` is where a cancel can be *requested*; it is never an undo.
    - `sdk_autokey`: the provider's own client makes a key if it gets none, so ours must be passed.

    Raises `InvalidContract` where two statements contradict each other.
    """

    provider: str
    operation: str
    version: int = 1
    sources: tuple[str, ...] = ()
    verified_on: date | None = None

    dedup: Dedup = Dedup.NONE
    key: Key | None = None
    key_scope: frozenset[Pin] | None = None
    key_support: KeySupport = KeySupport.UNKNOWN
    key_enabled_ref: str = ""
    retention: Retention = field(default_factory=Retention)
    on_expired: OnExpired = OnExpired.UNKNOWN
    matching: Matching = field(default_factory=Matching)
    duplicate_completed: DuplicateCompleted = DuplicateCompleted.UNKNOWN
    replay_marker: ReplayMarker | None = None
    duplicate_in_flight: DuplicateInFlight = DuplicateInFlight.UNKNOWN
    max_in_flight: timedelta | None = None
    cached: frozenset[Cached] | None = None
    uncached_pre_execution: frozenset[PreExecution] = frozenset()

    lookups: tuple[LookupPromise, ...] = ()
    outcomes: Outcomes = field(default_factory=Outcomes)
    rules: tuple[Rule, ...] = ()
    reference: str = ""
    echo: tuple[EchoField, ...] = ()

    guards: Guards = field(default_factory=Guards)
    limits: Limits = field(default_factory=Limits)
    severity: Severity = field(default_factory=Severity)
    cancel_path: str = ""
    sdk_autokey: bool = False

    def __post_init__(self) -> None:
        """Refuse a contract that contradicts itself."""
        check_declared(self)
        for problem, hint in _contradictions(self):
            raise InvalidContract(
                f"The contract of {self.provider or '?'} {self.operation or '?'}: {problem}.",
                hint=hint,
            )

    @property
    def keyed(self) -> bool:
        """Whether a repeated request is recognised by something exact."""
        return self.dedup in KEYED

    def pins(self, pin: Pin) -> bool:
        """Tell whether a key may be worth nothing once this has changed."""
        return self.key_scope is None or pin in self.key_scope

    def lookup_for(self, age: timedelta) -> LookupPromise | None:
        """Return the look-up that counts for an operation first sent so long ago, or None."""
        for lookup in self.lookups:
            if lookup.usable and (lookup.horizon is None or age <= lookup.horizon):
                return lookup
        return None


def _contradictions(contract: ProviderContract) -> Iterator[tuple[str, str]]:
    """Yield each contradiction with what to do about it."""
    if not contract.provider or not contract.operation:
        yield "it names no provider or no operation", 'provider="psp", operation="refund".'
    yield from _about_deduplication(contract)
    yield from _about_answers(contract)


def _about_deduplication(contract: ProviderContract) -> Iterator[tuple[str, str]]:
    if contract.dedup is Dedup.CLIENT_KEY and contract.key is None:
        yield "it deduplicates by a client key and names none", "Add key=Key(...)."
    if contract.keyed and contract.duplicate_completed is DuplicateCompleted.EXECUTES_AGAIN:
        yield "a provider that executes again does not deduplicate", "Use dedup=Dedup.NONE."
    if not contract.keyed:
        if contract.retention.kind is not RetentionKind.UNKNOWN:
            yield "keys are kept, and nothing is deduplicated", "Declare how: dedup=..."
        if contract.duplicate_completed not in (
            DuplicateCompleted.UNKNOWN,
            DuplicateCompleted.EXECUTES_AGAIN,
        ):
            yield "duplicates are recognised, and nothing deduplicates", "Declare dedup=..."
        if contract.replay_marker is not None or contract.matching.compares:
            yield "repeated requests are compared or replayed, without a key", "Declare dedup=..."
    if contract.key_enabled_ref and contract.key_support is not KeySupport.MUST_BE_ENABLED:
        yield "key_enabled_ref is for MUST_BE_ENABLED", "Drop it, or change key_support."
    if contract.guards.optimistic_total_field and contract.dedup is not Dedup.PRECONDITION:
        yield "an expected total is a precondition", "Use dedup=Dedup.PRECONDITION."


def _about_answers(contract: ProviderContract) -> Iterator[tuple[str, str]]:
    known = {rule.answered.value for rule in contract.rules}
    if contract.duplicate_completed is DuplicateCompleted.ERROR_WITH_REF:
        if "duplicate_of" not in known:
            yield "duplicates name an object, and no rule reads it", "Add a DUPLICATE_OF rule."
    if contract.duplicate_in_flight is DuplicateInFlight.SIGNAL and "in_progress" not in known:
        yield "running requests are signalled, and no rule knows how", "Add an IN_PROGRESS rule."
    if "in_progress" in known and contract.duplicate_in_flight is DuplicateInFlight.BLOCKS:
        yield "running requests block, and a rule reads them as refused", "Use SIGNAL."
    if len({echo.field for echo in contract.echo}) < len(contract.echo):
        yield "a field is compared twice", "Name each field of the intent once in `echo`."
