"""Business operations with an outside effect that end settled, whatever crashes.

Names are imported when they are first used: the command line starts in a tenth of a second, and
pays for a database driver only where it needs one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from settled.app import App, open
    from settled.budgets import Budgets, BudgetView
    from settled.declare import kind
    from settled.domain.budget import Budget
    from settled.domain.clock import Clock, Stamp
    from settled.domain.contract import presets
    from settled.domain.contract.vocabulary import ProviderContract
    from settled.domain.errors import (
        BudgetExceeded,
        CallFailed,
        DeadlineOver,
        DecisionRefused,
        DeclarationError,
        EffectPossible,
        InstallationChanged,
        InvalidContract,
        InvalidEvidence,
        InvalidIdentity,
        InvalidInput,
        InvalidKind,
        InvalidLifecycle,
        InvalidMoney,
        InvalidParams,
        InvalidStoreUrl,
        NotFound,
        NotPossible,
        ParametersChanged,
        PermissionDenied,
        SettledError,
        StoreError,
        StoreNotMigrated,
        StoreReadOnly,
        StoreTooNew,
        StoreUnavailable,
        StoreUnsafe,
        TooLarge,
        TransitionRefused,
        UnknownKind,
        WaitTimeout,
    )
    from settled.domain.identity import Identity, Principal, stream_id
    from settled.domain.journal.unit import RecordedEvent
    from settled.domain.kind import Kind
    from settled.domain.machine import ABSENT, Arrow, Event, Lifecycle, Refusal, State, StateMachine
    from settled.domain.money import Money
    from settled.domain.notifier import Notice, Notifier
    from settled.domain.params import Params, Remark
    from settled.domain.provider import Answered, Call, Echo, Finding, Lookup, SealedRequest, Via
    from settled.domain.reply import Reply
    from settled.domain.retry import FullJitter
    from settled.domain.run.kind import RunKind
    from settled.domain.run.records import OnRecovery, RunBudget, Usage
    from settled.infrastructure.function_provider import FunctionProvider
    from settled.infrastructure.http.json_provider import HttpProvider
    from settled.infrastructure.notify import CommandNotifier, LogNotifier
    from settled.operations import Operations
    from settled.processes.active_run import ActiveRun, ModelReply
    from settled.processes.ledger import Ledger
    from settled.processes.manager import (
        Decision,
        Perform,
        Position,
        ProcessManager,
        Record,
        Rest,
        Work,
    )
    from settled.processes.runner import ShutDown
    from settled.processes.worker import WorkerSettings
    from settled.projections.history import HistoryEntry
    from settled.projections.operation_view import OperationView
    from settled.projections.operations_view import OperationLine, OperationsView
    from settled.projections.projection import LoggedEvent, PageProjection, Projection, Rows, Table
    from settled.projections.projector import Projector
    from settled.projections.run_view import RunExplanation, RunView
    from settled.projections.why import Explanation
    from settled.runs import Runs

__version__ = "0.1.0"

__all__ = [
    "ABSENT",
    "ActiveRun",
    "Answered",
    "App",
    "Arrow",
    "Budget",
    "BudgetExceeded",
    "BudgetView",
    "Budgets",
    "Call",
    "CallFailed",
    "Clock",
    "CommandNotifier",
    "DeadlineOver",
    "Decision",
    "DecisionRefused",
    "DeclarationError",
    "Echo",
    "EffectPossible",
    "Event",
    "Explanation",
    "Finding",
    "FullJitter",
    "FunctionProvider",
    "HistoryEntry",
    "HttpProvider",
    "Identity",
    "InstallationChanged",
    "InvalidContract",
    "InvalidEvidence",
    "InvalidIdentity",
    "InvalidInput",
    "InvalidKind",
    "InvalidLifecycle",
    "InvalidMoney",
    "InvalidParams",
    "InvalidStoreUrl",
    "Kind",
    "Ledger",
    "Lifecycle",
    "LogNotifier",
    "LoggedEvent",
    "Lookup",
    "ModelReply",
    "Money",
    "NotFound",
    "NotPossible",
    "Notice",
    "Notifier",
    "OnRecovery",
    "OperationLine",
    "OperationView",
    "Operations",
    "OperationsView",
    "PageProjection",
    "ParametersChanged",
    "Params",
    "Perform",
    "PermissionDenied",
    "Position",
    "Principal",
    "ProcessManager",
    "Projection",
    "Projector",
    "ProviderContract",
    "Record",
    "RecordedEvent",
    "Refusal",
    "Remark",
    "Reply",
    "Rest",
    "Rows",
    "RunBudget",
    "RunExplanation",
    "RunKind",
    "RunView",
    "Runs",
    "SealedRequest",
    "SettledError",
    "ShutDown",
    "Stamp",
    "State",
    "StateMachine",
    "StoreError",
    "StoreNotMigrated",
    "StoreReadOnly",
    "StoreTooNew",
    "StoreUnavailable",
    "StoreUnsafe",
    "Table",
    "TooLarge",
    "TransitionRefused",
    "UnknownKind",
    "Usage",
    "Via",
    "WaitTimeout",
    "Work",
    "WorkerSettings",
    "kind",
    "open",
    "presets",
    "stream_id",
]

_HOMES = {
    "ActiveRun": "settled.processes.active_run",
    "ModelReply": "settled.processes.active_run",
    "RunBudget": "settled.domain.run.records",
    "Usage": "settled.domain.run.records",
    "OnRecovery": "settled.domain.run.records",
    "RunKind": "settled.domain.run.kind",
    "Runs": "settled.runs",
    "RunView": "settled.projections.run_view",
    "RunExplanation": "settled.projections.run_view",
    "BudgetExceeded": "settled.domain.errors",
    "DeadlineOver": "settled.domain.errors",
    "CallFailed": "settled.domain.errors",
    "ABSENT": "settled.domain.machine",
    "Answered": "settled.domain.provider",
    "App": "settled.app",
    "Arrow": "settled.domain.machine",
    "Budget": "settled.domain.budget",
    "BudgetView": "settled.budgets",
    "Budgets": "settled.budgets",
    "Call": "settled.domain.provider",
    "Clock": "settled.domain.clock",
    "CommandNotifier": "settled.infrastructure.notify",
    "Decision": "settled.processes.manager",
    "DecisionRefused": "settled.domain.errors",
    "DeclarationError": "settled.domain.errors",
    "Echo": "settled.domain.provider",
    "EffectPossible": "settled.domain.errors",
    "Event": "settled.domain.machine",
    "Finding": "settled.domain.provider",
    "FullJitter": "settled.domain.retry",
    "FunctionProvider": "settled.infrastructure.function_provider",
    "Explanation": "settled.projections.why",
    "HistoryEntry": "settled.projections.history",
    "HttpProvider": "settled.infrastructure.http.json_provider",
    "Identity": "settled.domain.identity",
    "InstallationChanged": "settled.domain.errors",
    "InvalidContract": "settled.domain.errors",
    "InvalidEvidence": "settled.domain.errors",
    "InvalidIdentity": "settled.domain.errors",
    "InvalidInput": "settled.domain.errors",
    "InvalidKind": "settled.domain.errors",
    "InvalidLifecycle": "settled.domain.errors",
    "InvalidMoney": "settled.domain.errors",
    "InvalidParams": "settled.domain.errors",
    "InvalidStoreUrl": "settled.domain.errors",
    "Kind": "settled.domain.kind",
    "Ledger": "settled.processes.ledger",
    "Lifecycle": "settled.domain.machine",
    "LogNotifier": "settled.infrastructure.notify",
    "LoggedEvent": "settled.projections.projection",
    "Lookup": "settled.domain.provider",
    "Money": "settled.domain.money",
    "NotFound": "settled.domain.errors",
    "NotPossible": "settled.domain.errors",
    "Notice": "settled.domain.notifier",
    "Notifier": "settled.domain.notifier",
    "OperationLine": "settled.projections.operations_view",
    "OperationView": "settled.projections.operation_view",
    "Operations": "settled.operations",
    "OperationsView": "settled.projections.operations_view",
    "PageProjection": "settled.projections.projection",
    "ParametersChanged": "settled.domain.errors",
    "Params": "settled.domain.params",
    "Perform": "settled.processes.manager",
    "PermissionDenied": "settled.domain.errors",
    "Position": "settled.processes.manager",
    "Principal": "settled.domain.identity",
    "ProcessManager": "settled.processes.manager",
    "Projection": "settled.projections.projection",
    "Projector": "settled.projections.projector",
    "ProviderContract": "settled.domain.contract.vocabulary",
    "Record": "settled.processes.manager",
    "RecordedEvent": "settled.domain.journal.unit",
    "Refusal": "settled.domain.machine",
    "Remark": "settled.domain.params",
    "Reply": "settled.domain.reply",
    "Rest": "settled.processes.manager",
    "Rows": "settled.projections.projection",
    "SealedRequest": "settled.domain.provider",
    "SettledError": "settled.domain.errors",
    "ShutDown": "settled.processes.runner",
    "Stamp": "settled.domain.clock",
    "State": "settled.domain.machine",
    "StateMachine": "settled.domain.machine",
    "StoreError": "settled.domain.errors",
    "StoreNotMigrated": "settled.domain.errors",
    "StoreReadOnly": "settled.domain.errors",
    "StoreTooNew": "settled.domain.errors",
    "StoreUnavailable": "settled.domain.errors",
    "StoreUnsafe": "settled.domain.errors",
    "Table": "settled.projections.projection",
    "TooLarge": "settled.domain.errors",
    "TransitionRefused": "settled.domain.errors",
    "UnknownKind": "settled.domain.errors",
    "Via": "settled.domain.provider",
    "WaitTimeout": "settled.domain.errors",
    "Work": "settled.processes.manager",
    "WorkerSettings": "settled.processes.worker",
    "kind": "settled.declare",
    "open": "settled.app",
    "stream_id": "settled.domain.identity",
}


def __getattr__(name: str) -> Any:
    if name == "presets":
        value: Any = import_module("settled.domain.contract.presets")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"settled has no {name!r}")
    globals()[name] = value
    return value
