"""What providers promise: the vocabulary of contracts, and the contracts of known providers.

How an answer is read under a contract is in `rules`, ready contracts are in `presets`. Both need
the port in `settled.domain.provider`, which needs these names, so they are imported by module.
"""

from settled.domain.contract.parts import (
    FOREVER,
    EchoField,
    Guards,
    Key,
    Limits,
    LookupPromise,
    Matching,
    Outcomes,
    Poll,
    ReplayMarker,
    Retention,
    Rule,
    Severity,
)
from settled.domain.contract.vocabulary import KEYED, ProviderContract
from settled.domain.contract.words import (
    Anchor,
    Cached,
    Consistency,
    Dedup,
    DuplicateCompleted,
    DuplicateInFlight,
    EchoAs,
    KeyCarrier,
    KeySupport,
    LookupBy,
    MatchingKind,
    OnExpired,
    Outcome,
    Pin,
    PreExecution,
    RetentionKind,
)

__all__ = [
    "FOREVER",
    "KEYED",
    "Anchor",
    "Cached",
    "Consistency",
    "Dedup",
    "DuplicateCompleted",
    "DuplicateInFlight",
    "EchoAs",
    "EchoField",
    "Guards",
    "Key",
    "KeyCarrier",
    "KeySupport",
    "Limits",
    "LookupBy",
    "LookupPromise",
    "Matching",
    "MatchingKind",
    "OnExpired",
    "Outcome",
    "Outcomes",
    "Pin",
    "Poll",
    "PreExecution",
    "ProviderContract",
    "ReplayMarker",
    "Retention",
    "RetentionKind",
    "Rule",
    "Severity",
]
