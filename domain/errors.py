"""Every error that settled raises, in one tree.

    SettledError
    ├── InvalidInput (ValueError)      what was given cannot be used; nothing was written
    │   ├── InvalidParams              101  the parameters do not validate
    │   ├── ParametersChanged          102  the identity exists with other parameters
    │   ├── InvalidMoney               103  not an exact amount in a known currency
    │   ├── InvalidIdentity            104  tenant, kind or operation id cannot be used as a name
    │   ├── UnknownKind                105  no kind of that name is declared here
    │   ├── TooLarge                   106  more bytes than a record may hold
    │   └── InvalidEvidence            107  evidence that names nothing it could be matched by
    ├── NotPossible                    the request is understood, and refused
    │   ├── NotFound                   201  no such operation for that tenant
    │   ├── TransitionRefused          202  the lifecycle has no such step from this state
    │   ├── EffectPossible             203  an effect may exist, so the step waits for the outcome
    │   ├── PermissionDenied           204  the principal may not do that
    │   ├── DecisionRefused            205  the decision does not fit the proposal that waits
    │   ├── BudgetExceeded             211  more was asked for than a budget has left
    │   ├── DeadlineOver (TimeoutError) 212  a deadline of a run has passed
    │   └── CallFailed                 213  a call of a run failed or was lost, and that is recorded
    ├── StoreError                     the database cannot serve, or must not
    │   ├── StoreUnavailable           301  no connection, or it was lost
    │   ├── StoreTooNew                302  written by a newer version of settled
    │   ├── StoreNotMigrated           303  the tables are missing or old
    │   ├── InvalidStoreUrl            304  the URL does not name a database
    │   ├── InstallationChanged        305  a copy or a restore: nothing dispatches until adopted
    │   ├── StoreUnsafe                306  settings under which a committed intent can be lost
    │   └── StoreReadOnly              307  the database accepts no writes, or its disk is full
    ├── DeclarationError               a kind, contract or lifecycle is declared wrongly
    │   ├── InvalidKind                401
    │   ├── InvalidContract            402
    │   └── InvalidLifecycle           403
    └── WaitTimeout (TimeoutError)     501  the operation is not settled yet; it goes on without you

The docstring of a class is its default message. Codes are stable: they are what a log search or a
support page refers to, so a code is never given to another meaning.
"""

from __future__ import annotations

from typing import ClassVar


class SettledError(Exception):
    """Something went wrong in settled."""

    code: ClassVar[int] = 0

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        """Take the message of this case and, where there is one, what to do about it."""
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.hint = hint
        super().__init__(self.message)

    def __str__(self) -> str:
        lines = [self.message]
        if self.hint:
            lines.append(f"  {self.hint}")
        if self.code:
            lines.append(f"  SETTLED-{self.code} · docs/errors.md#settled-{self.code}")
        return "\n".join(lines)


class InvalidInput(SettledError, ValueError):
    """What was given cannot be used. Nothing was written."""

    code = 100


class InvalidParams(InvalidInput):
    """The parameters do not validate."""

    code = 101


class ParametersChanged(InvalidInput):
    """The operation exists with other parameters."""

    code = 102


class InvalidMoney(InvalidInput):
    """Not an exact amount in a known currency."""

    code = 103


class InvalidIdentity(InvalidInput):
    """The tenant, kind or operation id cannot be used as a name."""

    code = 104


class UnknownKind(InvalidInput):
    """No kind of that name is declared here."""

    code = 105


class TooLarge(InvalidInput):
    """More bytes than a record may hold."""

    code = 106


class InvalidEvidence(InvalidInput):
    """The evidence names nothing that it could be matched by."""

    code = 107


class NotPossible(SettledError):
    """The request is understood, and refused."""

    code = 200


class NotFound(NotPossible, LookupError):
    """There is no such operation for this tenant."""

    code = 201


class TransitionRefused(NotPossible):
    """The lifecycle has no such step from this state."""

    code = 202


class EffectPossible(NotPossible):
    """An effect may exist, so this waits until the outcome is known."""

    code = 203


class PermissionDenied(NotPossible):
    """The principal may not do that."""

    code = 204


class DecisionRefused(NotPossible):
    """The decision does not fit the proposal that waits."""

    code = 205


class BudgetExceeded(NotPossible):
    """More was asked for than a budget has left."""

    code = 206


class DeadlineOver(NotPossible, TimeoutError):
    """A deadline of the run has passed."""

    code = 212


class CallFailed(NotPossible):
    """A call of the run failed or was lost, and that is recorded."""

    code = 213


class StoreError(SettledError):
    """The database cannot serve, or must not."""

    code = 300


class StoreUnavailable(StoreError):
    """The database cannot be reached."""

    code = 301


class StoreTooNew(StoreError):
    """The store was written by a newer version of settled."""

    code = 302


class StoreNotMigrated(StoreError):
    """The tables are missing or belong to an older version."""

    code = 303


class InvalidStoreUrl(StoreError, ValueError):
    """The URL does not name a database."""

    code = 304


class InstallationChanged(StoreError):
    """This database is a copy or was restored; nothing dispatches until it is adopted."""

    code = 305


class StoreUnsafe(StoreError):
    """The database is set up so that a committed intent can be lost."""

    code = 306


class StoreReadOnly(StoreError):
    """The database accepts no writes, or its disk is full."""

    code = 307


class DeclarationError(SettledError, TypeError):
    """A kind, contract or lifecycle is declared wrongly."""

    code = 400


class InvalidKind(DeclarationError):
    """The kind is declared wrongly."""

    code = 401


class InvalidContract(DeclarationError):
    """The provider contract contradicts itself."""

    code = 402


class InvalidLifecycle(DeclarationError):
    """The lifecycle table has a hole or contradicts itself."""

    code = 403


class WaitTimeout(SettledError, TimeoutError):
    """The operation is not settled yet. It goes on without you."""

    code = 501
