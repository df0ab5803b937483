"""What each event of an operation changes in its row of the operations view.

The aggregate says the same of one operation, from its whole stream; this says it of a hundred
thousand, from one event after the other. A test folds every stream both ways and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

from settled.domain.machine.event import Event
from settled.domain.operation.events import EVENTS
from settled.domain.operation.lifecycle import LIFECYCLE
from settled.domain.operation.operation import KNOWN_THERE
from settled.domain.operation.terms import NEWS
from settled.projections.projection import LoggedEvent, Row
from settled.projections.reading import WIDTH, text_of
from settled.projections.words import more_words, texts_in

Fields = Mapping[str, Any]

COLUMNS: Mapping[str, str] = {
    "tenant": "text",
    "stream": "uuid",
    "kind": "text",
    "operation_id": "text",
    "state": "text",
    "version": "number",
    "position": "number",
    "label": "text",
    "provider": "text",
    "provider_key": "text",
    "since": "text",
    "changed_at": "text",
    "next_at": "text?",
    "give_up_at": "text?",
    "owner": "text?",
    "worker": "text?",
    "epoch": "number?",
    "attempts": "number",
    "concern": "text?",
    "reason": "text?",
    "rule": "text?",
    "reference": "text?",
    "theirs": "number",
    "cancel_requested": "number",
    "words": "text",
}
"""The columns of the view. Times are UTC texts of one width, so that both databases order them
alike. `since` is when the state was entered, `changed_at` the time of the last event; `concern` is
one word for what is wrong (contradicted, disputed, or why the outcome is unknown); `theirs` is 1
while `reference` is only what a refusal named; `words` are what it is found by, a blank between
them. Until a purge they only become more: it is found by each label and reference that it ever
had."""

BODIES = frozenset(
    f"settled.operation.{name}"
    for name in ("Proposed", "Revised", "Intended", "Rejected", "Cancelled", "Succeeded")
)
"""The topics of events of which the erasable part says something here."""

SETTLED = frozenset(name for name, state in LIFECYCLE.states.items() if state.settled)
HELD = frozenset(name for name, state in LIFECYCLE.states.items() if state.held)
LASTING = ("contradicted", "disputed")
"""Concerns that stay, whatever the state is, until a new generation begins."""


class OperationRow:
    """One row, while events are folded into it."""

    __slots__ = (*COLUMNS, "before", "texts")

    tenant: str
    stream: UUID
    kind: str
    operation_id: str
    state: str
    version: int
    position: int
    label: str
    provider: str
    provider_key: str
    since: str | datetime
    changed_at: str | datetime
    next_at: str | datetime | None
    give_up_at: str | None
    owner: str | None
    worker: str | None
    epoch: int | None
    attempts: int
    concern: str | None
    reason: str | None
    rule: str | None
    reference: str | None
    theirs: int
    cancel_requested: int
    words: str
    before: str | None
    """The state that the table has; None where it has no such row."""
    texts: list[str]
    """What was said that it is to be found by, since it was read."""

    @classmethod
    def stored(cls, values: Row) -> OperationRow:
        """Return a row as it lies in the table."""
        row = cls.__new__(cls)
        for name, value in zip(COLUMNS, values, strict=True):
            setattr(row, name, value)
        row.before, row.texts = row.state, []
        return row

    @classmethod
    def first(cls, event: LoggedEvent, fields: Fields) -> OperationRow:
        """Return the row before the stream's first event."""
        row = cls.__new__(cls)
        row.tenant, row.stream = event.tenant, event.stream
        row.kind, row.operation_id = fields["kind"], fields["identity"]
        row.state, row.version = "absent", 0
        row.since = row.changed_at = event.recorded_at
        row.provider_key = ""
        row.next_at = row.give_up_at = row.owner = row.worker = row.epoch = None
        row.concern = row.reason = row.rule = row.reference = None
        row.attempts = row.theirs = row.cancel_requested = 0
        row.before, row.words, row.texts = None, "", [row.operation_id]
        return row

    def take(self, event: LoggedEvent, form: Form, fields: Fields) -> None:
        """Fold the next event of the stream. Raises KeyError where it cannot follow."""
        state = self.state
        target = form.targets[state]
        form.fold(self, fields, event)
        if target != state:
            self.state, self.since = target, event.recorded_at
            if target not in HELD:
                self.worker = self.epoch = None
                if target in SETTLED:
                    self.next_at = None
            if target != "handed_over":
                self.owner = None
                if target != "outcome_unknown" and self.concern not in LASTING:
                    self.concern = None
        self._reach(event)

    def take_remains(self, event: LoggedEvent, fields: Fields) -> None:
        """Be what a purge left: the same row, whatever it was before, and if it never was."""
        left = fields["left"]
        self.state, self.since = left["state"], left["since"]
        self.label, self.provider = f"{self.kind} {self.operation_id}", fields["provider"]
        self.provider_key, self.attempts = left["provider_key"], len(left["attempts"])
        self.give_up_at = None if left["give_up_at"] is None else _written(left["give_up_at"])
        self.next_at = self.owner = self.worker = self.epoch = self.reason = None
        self.concern = "disputed" if left["disputed"] else None
        if left["contradicted"]:
            self.concern = "contradicted"
        self.rule = left["rule"]
        self.reference, self.theirs = left["reference"], int(left["reference_is_theirs"])
        self.cancel_requested = int(left["cancel_requested"])
        self.words = ""
        self.texts = [self.operation_id, *(reference for _, reference in left["references"])]
        if self.theirs and self.reference is not None:
            self.texts.append(self.reference)
        self._reach(event)

    def _reach(self, event: LoggedEvent) -> None:
        self.changed_at = event.recorded_at
        self.version = event.originator_version
        self.position = event.position or 0

    def values(self) -> Row:
        """Return the row as it is written."""
        together = self.since is self.changed_at
        self.changed_at = _written(self.changed_at)
        self.since = self.changed_at if together else _written(self.since)
        if self.texts:
            self.words = more_words(self.words, self.texts)
        if self.next_at is not None:
            self.next_at = _written(self.next_at)
        values: Row = _VALUES(self)
        return values

    def take_reference(self, reference: str | None) -> None:
        """Remember the provider's name for the effect."""
        if reference is not None and (reference != self.reference or self.theirs):
            self.reference, self.theirs = reference, 0
            self.texts.append(reference)

    def take_refusal(self, reference: str | None) -> None:
        """Remember what a refusal named, which may be somebody else's."""
        if reference is not None and self.reference is None:
            self.reference, self.theirs = reference, 1
            self.texts.append(reference)


Fold = Callable[[OperationRow, Fields, LoggedEvent], None]


@dataclass(frozen=True, slots=True)
class Form:
    """What is known of an event by its topic.

    The schema of its fields today, whether its erasable part is read, to which state it leads from
    which, and what else it changes; `whole` where it says all that there is to say.
    """

    schema_version: int
    has_body: bool
    targets: Mapping[str, str]
    fold: Fold
    whole: bool


_VALUES: Callable[[OperationRow], Row] = attrgetter(*COLUMNS)


def _written(at: str | datetime) -> str:
    """Return a moment in the one width: as events have it in JSON, or as the log had it."""
    if not isinstance(at, str):
        return text_of(at)
    if len(at) == 27 and at.endswith("Z"):
        return f"{at[:26]}+00:00"
    return at if len(at) == WIDTH and at.endswith("+00:00") else text_of(datetime.fromisoformat(at))


def _terms(row: OperationRow, fields: Fields) -> None:
    row.provider = fields["provider"]
    label = fields.get("label")
    row.label = label or f"{row.kind} {row.operation_id}"
    if label:
        row.texts.append(label)


def _proposal(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    _terms(row, fields)
    row.next_at = fields["expires_at"]


def _unchanged(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    pass


def _closed(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.reason = fields.get("reason")


def _proposal_expired(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.reason = "nobody decided in time"


def _expired(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.reason = "its time ran out while nothing was out"


def _revoked(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.next_at = fields["expires_at"]


def _intended(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    _terms(row, fields)
    row.provider_key = fields["provider_key"]
    row.give_up_at = fields["give_up_at"]
    row.next_at = event.recorded_at


def _claimed(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.worker, row.epoch = fields["worker"], fields["epoch"]
    row.next_at = fields["due_at"]


def _released(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.reason = fields["reason"]
    row.next_at = fields["due_at"]


def _dispatching(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.worker, row.epoch = fields["worker"], fields["epoch"]
    row.attempts += 1
    row.next_at = fields["call_deadline"]


def _retry(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.reason, row.rule = fields["reason"], fields["rule"]
    row.next_at = _written(fields["retry_at"])
    if row.give_up_at is not None:
        row.next_at = min(row.next_at, _written(row.give_up_at))


def _accepted(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.take_reference(fields["reference"])
    row.reason, row.rule = fields["reason"], fields["rule"]
    row.next_at = fields["next_at"]


def _progress(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.reason = fields["reason"]
    row.next_at = fields["next_at"]


def _unknown(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    if fields["answered"] in KNOWN_THERE:
        row.take_refusal(fields["reference"])
    if row.concern not in LASTING:
        row.concern = fields["cause"]
    row.reason, row.rule = fields["reason"], fields["rule"]
    row.next_at = fields["next_at"]


def _looked_up(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    if fields["answered"] in KNOWN_THERE:
        row.take_refusal(fields["reference"])
    else:
        row.take_reference(fields["reference"])
    row.reason, row.rule = fields["reason"], fields["rule"]
    if row.state != "handed_over":
        row.next_at = fields["next_at"]


def _scheduled(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.reason, row.rule = fields["reason"], fields["rule"]
    row.next_at = fields["next_at"]


def _absent(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.reference, row.theirs = None, 0
    row.reason, row.rule = fields["reason"], fields["rule"]
    row.next_at = fields["due_at"]


def _succeeded(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.take_reference(fields["reference"])
    row.reason = fields["reason"]
    receipt = fields.get("receipt")
    if receipt is not None:
        row.texts.append(" ".join(texts_in(receipt)))


def _failed(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.reference, row.theirs = None, 0
    row.reason = fields["reason"]


def _reissued(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.provider_key, row.give_up_at = fields["provider_key"], fields["give_up_at"]
    row.reference = row.concern = None
    row.theirs = row.cancel_requested = 0
    row.next_at = event.recorded_at


def _handed_over(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.owner = fields["to"]
    if fields.get("disputed") and row.concern != "contradicted":
        row.concern = "disputed"
    row.reason, row.rule = fields["reason"], fields["rule"]
    row.next_at = fields["next_at"]


def _contradicted(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.owner, row.concern = fields["to"], "contradicted"
    row.reason, row.rule = fields["reason"], "contradicted"
    row.next_at = fields["next_at"]


def _notified(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.next_at = fields["next_at"]


def _resumed(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.give_up_at = fields["give_up_at"]
    row.next_at = event.recorded_at


def _cancel_requested(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    row.cancel_requested = 1


def _evidence(row: OperationRow, fields: Fields, event: LoggedEvent) -> None:
    if row.state == "handed_over" and fields["answered"] in NEWS:
        row.next_at = event.recorded_at  # its owner hears of it


_FOLDS: Mapping[str, Fold] = {
    "Proposed": _proposal,
    "Revised": _proposal,
    "Approved": _unchanged,
    "Rejected": _closed,
    "ProposalExpired": _proposal_expired,
    "ApprovalRevoked": _revoked,
    "Intended": _intended,
    "Cancelled": _closed,
    "Expired": _expired,
    "Claimed": _claimed,
    "Released": _released,
    "Dispatching": _dispatching,
    "RetryScheduled": _retry,
    "Accepted": _accepted,
    "ProgressReported": _progress,
    "OutcomeUnknown": _unknown,
    "LookedUp": _looked_up,
    "ReconciliationScheduled": _scheduled,
    "ConfirmedAbsent": _absent,
    "Succeeded": _succeeded,
    "Failed": _failed,
    "Reversed": _closed,
    "Reissued": _reissued,
    "HandedOver": _handed_over,
    "Contradicted": _contradicted,
    "OwnerNotified": _notified,
    "ReconciliationResumed": _resumed,
    "CancelRequested": _cancel_requested,
    "EvidenceRecorded": _evidence,
    "Purged": _unchanged,  # the row takes it as a whole
}


def _form(event: type[Event]) -> Form:
    name = event.name()
    steps = {state: step for state, each, step in LIFECYCLE.pairs() if each == name and step}
    return Form(
        schema_version=event.SCHEMA_VERSION,
        has_body=event.TOPIC in BODIES,
        targets={state: step.target for state, step in steps.items()},
        fold=_FOLDS[name],
        whole=event.WHOLE,
    )


FORMS: Mapping[str, Form] = {event.TOPIC: _form(event) for event in EVENTS}
"""By topic. Each event has one: an event that is forgotten here fails at import."""
