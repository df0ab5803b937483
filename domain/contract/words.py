"""The words of a provider contract: what a provider can promise about a repeated request.

Each family has a member for "nobody knows", and that is the default wherever a field uses it.
UNKNOWN never widens what recovery may do.
"""

from __future__ import annotations

import enum


class Dedup(enum.StrEnum):
    """How the provider recognises a request that it has had."""

    NONE = "none"
    """Not at all, or nobody knows: each request is a new one."""
    CLIENT_KEY = "client_key"
    """By a key that we choose and send with the request."""
    NATURAL_KEY = "natural_key"
    """By the name or id that we give the object: there is only one of each name."""
    PRECONDITION = "precondition"
    """By a version, an etag or an expected total that is only true once."""
    FUZZY = "fuzzy"
    """By likeness (same amount, same order, within seconds): neither promised nor exact."""


class KeyCarrier(enum.StrEnum):
    """Where in the request the key travels."""

    HEADER = "header"
    BODY = "body"
    PATH = "path"
    DIRECTIVE = "directive"
    MIME_HEADER = "mime_header"


class KeySupport(enum.StrEnum):
    """Why one may believe that the key is honoured: an arbitrary header deduplicates nothing."""

    UNKNOWN = "unknown"
    DOCUMENTED = "documented"
    DISCOVERABLE = "discoverable"
    """A server without support refuses the request (OASIS Repeatable Requests: 501)."""
    MUST_BE_ENABLED = "must_be_enabled"
    """Somebody has to switch it on; `key_enabled_ref` says who did, and where that is written."""


class Pin(enum.StrEnum):
    """What a key is only unique within, and so must not change between attempts."""

    ACCOUNT = "account"
    COMPANY = "company"
    CREDENTIAL = "credential"
    MODE = "mode"
    ENDPOINT = "endpoint"
    METHOD = "method"
    PARENT_RESOURCE = "parent_resource"
    REGION = "region"
    API_VERSION = "api_version"


class RetentionKind(enum.StrEnum):
    """What ends the provider's memory of a key."""

    UNKNOWN = "unknown"
    FIXED = "fixed"
    SLIDING = "sliding"
    """Begins again with each success."""
    AFTER_CLOSE = "after_close"
    """Begins when the object ends."""
    LAST_N = "last_n"
    """The last so many keys, whatever their age: nothing that a clock can tell."""
    FOREVER = "forever"


class Anchor(enum.StrEnum):
    """What the provider's clock of a key starts at. Ours starts at the earliest dispatch."""

    FIRST_SENT = "first_sent"
    FIRST_COMPLETED = "first_completed"
    LAST_SUCCESS = "last_success"
    CLOSED = "closed"


class OnExpired(enum.StrEnum):
    """What becomes of a request whose key has been forgotten."""

    UNKNOWN = "unknown"
    NEW_REQUEST = "new_request"
    """It is performed again, in silence."""
    REJECTED = "rejected"


class MatchingKind(enum.StrEnum):
    """Whether the provider compares a repeated request with the first one."""

    UNKNOWN = "unknown"
    NONE = "none"
    """It replays the first answer, whatever is asked now."""
    FULL = "full"
    FIELDS = "fields"
    """It compares some fields."""
    IDENTITY_EXTENDS = "identity_extends"
    """Some fields belong to the key: another value is another effect, without an error."""


class DuplicateCompleted(enum.StrEnum):
    """What a repeated request gets once the first one is done."""

    UNKNOWN = "unknown"
    REPLAY_STORED = "replay_stored"
    CURRENT_STATE = "current_state"
    RESUME = "resume"
    """Unfinished work is finished, and the answer is the updated one."""
    ERROR_WITH_REF = "error_with_ref"
    ERROR_NO_REF = "error_no_ref"
    SILENT_DROP = "silent_drop"
    """It is accepted, and nothing happens."""
    EXECUTES_AGAIN = "executes_again"


class DuplicateInFlight(enum.StrEnum):
    """What a repeated request gets while the first one is still running."""

    UNKNOWN = "unknown"
    BLOCKS = "blocks"
    """Only one is performed; the other waits, or gets its answer."""
    SIGNAL = "signal"
    """It is refused as in progress; a rule recognises the answer."""
    EITHER_MAY_FAIL = "either_may_fail"
    MAY_EXECUTE_TWICE = "may_execute_twice"


class Cached(enum.StrEnum):
    """Which outcomes the provider keeps under a key and gives again."""

    SUCCESS = "success"
    CLIENT_ERROR = "client_error"
    SERVER_ERROR = "server_error"


class PreExecution(enum.StrEnum):
    """Which refusals come before anything is performed, and leave no trace under the key."""

    VALIDATION = "validation"
    AUTH = "auth"
    RATE_LIMIT = "rate_limit"
    CONFLICT = "conflict"


class LookupBy(enum.StrEnum):
    """What an earlier attempt is looked for by."""

    KEY = "key"
    CLIENT_REF = "client_ref"
    NATURAL_ID = "natural_id"
    PARENT_LIST = "parent_list"
    """Among the children of the object it belongs to (the refunds of a payment)."""
    SEARCH = "search"
    EVENTS = "events"


class Consistency(enum.StrEnum):
    """How soon a look-up shows what was performed."""

    UNKNOWN = "unknown"
    STRONG = "strong"
    EVENTUAL = "eventual"


class Outcome(enum.StrEnum):
    """What a status of the provider's object means."""

    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REVERSED = "reversed"


class EchoAs(enum.StrEnum):
    """How the provider writes a value that it repeats."""

    TEXT = "text"
    """As it is: text, a whole number, true or false."""
    MINOR_UNITS = "minor_units"
    """An amount as a whole number of the currency's smallest unit: 3000 for 30.00 USD."""
    MAJOR_UNITS = "major_units"
    """An amount in the currency itself: "30.00" for 30.00 USD."""
