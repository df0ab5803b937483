"""What stands in the way of a resend, of a look-up, and of believing that nothing is there.

Each function returns the first obstacle in plain words, or None where there is none. Everything
that is not known is an obstacle.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from settled.domain.contract.vocabulary import ProviderContract
from settled.domain.contract.words import (
    Dedup,
    DuplicateInFlight,
    KeySupport,
    MatchingKind,
    Pin,
    RetentionKind,
)
from settled.domain.situation import Situation, in_words, later

_ONE_IS_PERFORMED = frozenset(
    {DuplicateInFlight.BLOCKS, DuplicateInFlight.SIGNAL, DuplicateInFlight.EITHER_MAY_FAIL}
)
"""What two requests at once may meet without being performed twice."""


def sending_obstacle(situation: Situation, contract: ProviderContract, at: datetime) -> str | None:
    """Return why nothing may be sent any more at that moment."""
    limits = contract.limits
    attempts = min(situation.attempts_allowed, limits.max_attempts or situation.attempts_allowed)
    if situation.dispatched >= attempts:
        return f"all {attempts} attempts are used"
    if at >= situation.give_up_at:
        return "its time for automatic steps is over"
    if limits.deadline is not None and situation.age(at) >= limits.deadline:
        return f"the provider's limit of {in_words(limits.deadline)} is over"
    return None


def resend_at(
    situation: Situation,
    contract: ProviderContract,
    earliest: datetime,
    attempt_until: datetime | None = None,
) -> datetime | None:
    """Return when a resend cannot be performed beside an earlier request, or None for never."""
    if contract.duplicate_in_flight in _ONE_IS_PERFORMED:
        return earliest
    quiet = quiet_from(situation, contract, attempt_until)
    return None if quiet is None else max(earliest, quiet)


def resend_obstacle(situation: Situation, contract: ProviderContract, at: datetime) -> str | None:
    """Return why the same request with the same key must not be sent at that moment."""
    return (
        sending_obstacle(situation, contract, at)
        or _key_obstacle(situation, contract)
        or _pin_obstacle(situation, contract)
        or _comparison_obstacle(contract)
        or _window_obstacle(situation, contract, at)
    )


def _key_obstacle(situation: Situation, contract: ProviderContract) -> str | None:
    if not contract.keyed:
        return "the provider deduplicates nothing that can be relied on"
    if contract.dedup is Dedup.CLIENT_KEY:
        if contract.key_support is KeySupport.UNKNOWN:
            return "no document says that the provider honours the key"
        if contract.key_support is KeySupport.MUST_BE_ENABLED and not contract.key_enabled_ref:
            return "nobody has stated that keys are enabled at the provider"
    if not situation.key_on_every_attempt:
        return "an earlier attempt went without this key"
    return None


def _pin_obstacle(situation: Situation, contract: ProviderContract) -> str | None:
    if not situation.request_identical:
        return "the request is not the one that was sent"
    if not situation.scope_unchanged:
        return "the key may not be known there: address, region, version or account changed"
    if not situation.credential_unchanged and contract.pins(Pin.CREDENTIAL):
        return "the key may not be known there: the credential changed"
    return None


def _comparison_obstacle(contract: ProviderContract) -> str | None:
    if contract.matching.kind is MatchingKind.UNKNOWN and not contract.echo:
        return "neither the provider nor an echo tells our effect from a foreign one"
    return None


def _window_obstacle(situation: Situation, contract: ProviderContract, at: datetime) -> str | None:
    retention, age = contract.retention, situation.age(at)
    if retention.kind is RetentionKind.UNKNOWN:
        return "it is not known how long the provider keeps keys"
    if retention.kind is RetentionKind.LAST_N:
        return "the provider keeps the last keys only, however old they are"
    if situation.clock_went_back:
        return "the clock went back, so the age of the key is not known"
    if situation.first_sent_at is None:
        return "it is not known when the first request left"
    # The request may take its whole timeout to arrive, and must still find the key.
    if age >= retention.window - situation.timeout:
        return (
            f"the provider keeps keys for {in_words(retention.minimum)} less a margin of "
            f"{in_words(retention.safety_margin)}, and this one would be {in_words(age)} old"
        )
    return None


def way_obstacle(
    situation: Situation, contract: ProviderContract, handle: str | None
) -> str | None:
    """Return why there is no way to look: by the object's name, or by a look-up that reaches."""
    if handle is not None:
        return None
    if not contract.lookups:
        return "the provider offers no look-up"
    # An age that is not known is no reason not to look: a find is a find.
    age = timedelta() if situation.clock_went_back else situation.age(situation.now)
    if contract.lookup_for(age) is None:
        return "no look-up is granted and reaches back far enough"
    return None


def quiet_from(
    situation: Situation, contract: ProviderContract, attempt_until: datetime | None = None
) -> datetime | None:
    """Return from when on nothing that was sent can still be performed; None: never certain."""
    if situation.nothing_arrives_after is None or contract.max_in_flight is None:
        return None
    last = max(situation.nothing_arrives_after, attempt_until or situation.nothing_arrives_after)
    return later(last, contract.max_in_flight)


def absence_obstacle(
    situation: Situation, contract: ProviderContract, attempt_until: datetime | None
) -> str | None:
    """Return why "not found" does not prove yet, or at all, that there was no effect."""
    if situation.handle is not None:
        return f"the provider has named {situation.handle} before"
    if situation.known_there:
        return "the provider has said that it had this request"
    if situation.clock_went_back:
        return "the clock went back"
    obstacle = _pin_obstacle(situation, contract)
    if obstacle:
        return obstacle
    lookup = contract.lookup_for(situation.age(situation.now))
    if lookup is None or lookup.horizon is None:
        return "it is not known how far back the look-up reaches"
    lag = lookup.absence_counts_after
    if lag is None:
        return "it is not known how long the look-up may lag"
    deduplicated = contract.keyed and situation.key_on_every_attempt
    if not deduplicated and not situation.sender_known:
        return "the sender has not reported and is not proven dead"
    quiet = quiet_from(situation, contract, attempt_until)
    if quiet is None:
        return "it is not known how long the provider may work on a request"
    # The provider may have looked as early as one timeout before its answer was read.
    if situation.now <= later(quiet, lag + situation.timeout):
        return "a request may still arrive, or be performed and not be seen yet"
    return None
