"""Old and new code on one store: work goes to code that knows it, and nothing is guessed at.

Real stores, workers on threads of this process; what releases are, several applications with
different declarations stand for here. Processes of old and new code are the battery's (A20, A30).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar

import pytest

import settled
from settled import (
    App,
    InvalidParams,
    Kind,
    OperationView,
    ParametersChanged,
    Params,
    PermissionDenied,
    Principal,
    Reply,
    StoreTooNew,
    UnknownKind,
    WorkerSettings,
    presets,
)
from settled.domain.journal.mapper import hash_of
from settled.domain.journal.port import AgendaRow
from settled.domain.journal.unit import Committed, RecordedEvent, Unit
from settled.domain.operation import events as ev
from settled.domain.operation.operation import Operation
from settled.infrastructure.function_provider import FunctionProvider
from settled.infrastructure.testing.journal_units import eventually
from settled.processes import worker as worker_module

BY = Principal("acme", "support-agent")
APPROVER = Principal("acme", "grace", frozenset({"approver"}))
PACE = WorkerSettings(name="embedded", lease_seconds=2, idle_seconds=0.02, drain_seconds=2)
FIRST = {"to": "ada@acme.example"}


class MailParams(Params):
    """A message, as the first release had it."""

    to: str


class MailParams2(Params):
    """As the second has it: one more optional field, which changes no digest."""

    to: str
    copy_to: str | None = None


class MailParams3(Params):
    """As the third has it: a field that must be given."""

    PARAMS_VERSION: ClassVar[int] = 2
    OLD: ClassVar[Mapping[int, type[Params]]] = {1: MailParams2}
    to: str
    subject: str


def performed(call: settled.Call, params: Any) -> Reply:
    return Reply.performed({"params": type(params).__name__}, str(call.identity))


def kind(
    version: int = 1,
    params: type[Params] = MailParams,
    *,
    act: Callable[[settled.Call, Any], Reply] = performed,
    provider: str = "mail",
    **policy: Any,
) -> Kind[Any]:
    served = FunctionProvider(provider, presets.smtp, act)
    policy.setdefault("call_timeout", timedelta(seconds=20))
    return Kind("mail", params, served, "support-lead", version=version, **policy)


OLD, NEW = kind(), kind(2, MailParams2)


@contextmanager
def release(url: str, *kinds: Kind[Any], works: bool = False, **settings: Any) -> Generator[App]:
    """Open the store as a release with these kinds does."""
    with settled.open(url, kinds=kinds, migrate=True, require_fsync=False) as app:
        if works:
            app.start_worker(replace(PACE, **settings))
        yield app


def intend(app: App, name: str = "mail-1", **params: Any) -> OperationView:
    return app.operations.intend("mail", name, {**FIRST, **params}, by=BY)


def row_of(app: App, name: str = "mail-1") -> AgendaRow:
    stream = Operation.stream(settled.Identity("acme", "mail", name))
    row = app.journal.head("acme", stream)
    assert row is not None
    return row


def done(app: App, operation: OperationView) -> OperationView:
    return app.operations.wait(operation, timeout_seconds=20)


# Work finds code that knows it.


def test_each_version_is_done_by_code_that_has_it(store_url: str) -> None:
    """New workers never take what old ones have authorised, and the other way round."""
    with release(store_url, OLD) as app:
        old = intend(app)
    with release(store_url, NEW, works=True, leave_to_others=True) as app:
        new = done(app, intend(app, "mail-2", copy_to="grace@acme.example"))
        assert new.receipt == {"params": "MailParams2"}
        waiting = row_of(app)
        assert (waiting.owner, waiting.takes, waiting.parked_at) == (None, 0, None)
        assert waiting.lane == "acme/mail@1/mail"
    with release(store_url, OLD, works=True) as app:
        assert done(app, old).receipt == {"params": "MailParams"}


def test_one_worker_has_both_versions(store_url: str) -> None:
    """Declared side by side, each is performed with the parameters that it was authorised with."""
    with release(store_url, OLD) as app:
        old = intend(app)
    with release(store_url, kind(3, MailParams3), kind(2, MailParams2), OLD, works=True) as app:
        assert done(app, old).receipt == {"params": "MailParams"}
        third = app.operations.intend("mail", "mail-3", {**FIRST, "subject": "72"}, by=BY)
        assert done(app, third).receipt == {"params": "MailParams3"}
        second = app.operations.intend(kind(2, MailParams2), "mail-2", FIRST, by=BY)
        assert done(app, second).receipt == {"params": "MailParams2"}


def test_another_provider_under_the_same_version_is_other_work(store_url: str) -> None:
    """What was authorised for one provider is never sent to another."""
    with release(store_url, OLD) as app:
        old = intend(app)
    moved = kind(provider="other-mail")
    with release(store_url, moved, works=True, leave_to_others=True) as app:
        assert done(app, intend(app, "mail-2")).state == "succeeded"
        assert row_of(app).takes == 0
    with release(store_url, OLD, works=True) as app:
        assert done(app, old).state == "succeeded"


def test_parameters_that_old_code_cannot_read_are_left_to_new_code(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody has added a field and left the version: old workers send nothing of it."""
    unraised = kind(1, MailParams2)
    with release(store_url, unraised) as app:
        new = intend(app, copy_to="grace@acme.example")
    with release(store_url, OLD, works=True) as app:
        assert done(app, intend(app, "mail-2")).state == "succeeded"
        eventually(lambda: "left_to_others" in caplog.text and row_of(app).owner is None)
        assert (row_of(app).takes, row_of(app).version) == (0, 1)
    with release(store_url, unraised, works=True) as app:
        assert done(app, new).receipt == {"params": "MailParams2"}


# Nothing waits in silence.


def test_a_worker_does_not_start_over_work_that_nobody_knows(store_url: str) -> None:
    """It says which, and by which names; only what runs, or somebody's word, lets it start."""
    with release(store_url, OLD) as app:
        intend(app)
    with release(store_url, NEW) as app:
        with pytest.raises(UnknownKind, match=r"mail@1/mail \(acme/mail/mail-1\)") as caught:
            app.start_worker(PACE)
        assert "--leave-to-others" in caught.value.hint
    with release(store_url, NEW, works=True, leave_to_others=True) as app:
        assert done(app, intend(app, "mail-2")).state == "succeeded"


def test_work_that_a_running_worker_serves_is_nobody_elses_concern(store_url: str) -> None:
    """A rolling deployment: old workers finish while new ones start beside them."""
    go = threading.Event()

    def wait(call: settled.Call, params: Any) -> Reply:
        go.wait(20)
        return performed(call, params)

    with release(store_url, kind(act=wait), works=True, name="old") as before:
        old = intend(before)
        with release(store_url, NEW, works=True, name="new") as app:
            assert [row.serves[0] for row in app.journal.workers()] == [
                "mail@1/mail",
                "mail@2/mail",
            ]
            assert done(app, intend(app, "mail-2")).state == "succeeded"
            go.set()
            assert done(app, old).receipt == {"params": "MailParams"}


def test_a_worker_names_what_nobody_serves_any_more(
    store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever served it at the start may be stopped later."""
    monkeypatch.setattr(worker_module, "UNSERVED_SECONDS", 0.1)
    with release(store_url, OLD) as app:
        intend(app)
    with release(store_url, NEW, works=True, leave_to_others=True):
        eventually(lambda: "nobody_serves" in caplog.text)
    told = next(one for one in caplog.records if "nobody_serves" in one.getMessage())
    assert told.levelname == "ERROR"
    assert "route='mail@1/mail'" in told.getMessage()


# Duplicates, decisions and revisions across versions.


def test_a_newer_release_recognises_what_an_older_one_has_begun(store_url: str) -> None:
    """DESIGN 3: one more optional field is the same request; a duplicate is judged as stored."""
    third = kind(3, MailParams3)
    with release(store_url, OLD) as app:
        intend(app)
    with release(store_url, NEW) as app:
        assert intend(app).version == 1
        assert intend(app, copy_to=None).version == 1
        with pytest.raises(ParametersChanged, match="copy_to"):
            intend(app, copy_to="grace@acme.example")
        assert app.operations.intend("mail", "mail-2", FIRST, by=BY).state == "ready"
    with release(store_url, third) as app:
        with pytest.raises(ParametersChanged, match="another subject"):
            intend(app, subject="order-72")
        with pytest.raises(InvalidParams, match="subject is missing"):
            intend(app)
        intend(app, "mail-3", subject="order-72")
    with release(store_url, NEW) as app, pytest.raises(InvalidParams, match="params version 2"):
        intend(app, "mail-3")  # it cannot say what newer code has authorised, and says so


def test_revising_moves_what_was_never_sent_to_the_newest_version(store_url: str) -> None:
    """So that nobody has to keep old code for proposals alone."""
    with release(store_url, OLD) as app:
        proposed = app.operations.propose("mail", "mail-1", FIRST, by=BY)
    with release(store_url, NEW, works=True, leave_to_others=True) as app:
        revised = app.operations.revise(proposed, {**FIRST, "copy_to": "b@acme.example"}, by=BY)
        assert row_of(app).lane == "acme/mail@2/mail"
        approved = app.operations.approve(
            revised, proposal_version=2, digest=revised.digest, by=APPROVER
        )
        assert done(app, approved).receipt == {"params": "MailParams2"}


def test_a_decision_is_under_the_version_of_the_proposal(store_url: str) -> None:
    """Who had to approve then has to approve it now, and code that does not know refuses."""
    strict = replace(OLD, approvers=frozenset({"approver"}))
    with release(store_url, strict) as app:
        one = app.operations.propose("mail", "mail-1", FIRST, by=BY)
    decision: dict[str, Any] = {"proposal_version": 1, "digest": one.digest}
    with release(store_url, NEW) as app:
        with pytest.raises(UnknownKind, match="Version 1 of kind mail is not declared here"):
            app.operations.approve(one, **decision, by=APPROVER)
        with pytest.raises(UnknownKind, match="Version 1"):
            app.operations.reject(one, **decision, by=APPROVER, reason="no")
    with release(store_url, NEW, strict) as app:
        with pytest.raises(PermissionDenied, match="may not approve"):
            app.operations.approve(one, **decision, by=BY)
        assert app.operations.approve(one, **decision, by=APPROVER).state == "ready"


def test_news_of_a_retired_version_is_kept_and_judged(store_url: str) -> None:
    """A webhook comes when it comes: long after the code that sent the request has gone."""
    with release(store_url, OLD, works=True) as app:
        sent = done(app, intend(app))
    with release(store_url, NEW) as app:
        told = app.operations.record_evidence(
            by=BY,
            provider="mail",
            answered="performed",
            reference="another",
            kind="mail",
            operation_id="mail-1",
        )
        assert told is not None and told.state == "handed_over"
        assert sent.reference == "acme/mail/mail-1"


# Events of newer code.


def rewritten(unit: Unit, **columns: Any) -> Unit:
    """Return a unit as another release would have written it, hashes and all."""
    (change,) = unit.changes
    events: list[RecordedEvent] = []
    for event in change.events:
        previous = events[-1].hash if events else event.previous_hash
        changed = replace(event, previous_hash=previous, **columns)
        events.append(replace(changed, hash=hash_of(changed)))
    return replace(unit, changes=(replace(change, events=tuple(events)),))


def written_by_newer_code(app: App, name: str = "mail-1") -> None:
    """Add an event that this code does not know to the end of a stream."""
    stream = Operation.stream(settled.Identity("acme", "mail", name))
    machine = app.ledger.load("acme", stream)
    assert isinstance(machine, Operation)
    machine.record(
        ev.EvidenceRecorded,
        app.ledger.stamp("newer-code"),
        **{
            "via": "webhook",
            "answered": "pending",
            "reference": None,
            "reason": "said",
            "key": "k",
        },
    )
    unit = rewritten(app.ledger.unit(machine), schema_version=99)
    assert isinstance(app.ledger.append(unit), Committed)


def test_what_newer_code_wrote_is_left_to_it(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """LOG 6, 11: it is named, parked for nobody, appended to by nobody, and in nobody's way."""
    with release(store_url, OLD) as app:
        intend(app)
        written_by_newer_code(app)
        stored = app.journal.events("acme", row_of(app).stream)
        app.start_worker(PACE)
        for number in range(2, 9):
            assert done(app, intend(app, f"mail-{number}")).state == "succeeded"
        eventually(lambda: "left_to_others" in caplog.text and row_of(app).owner is None)
        assert app.journal.events("acme", row_of(app).stream) == stored
        row = row_of(app)
        assert (row.takes, row.parked_at, row.state) == (0, None, "ready")
    (left,) = [one for one in caplog.records if "left_to_others" in one.getMessage()]
    assert left.levelname == "ERROR"
    assert "identity='mail-1'" in left.getMessage() and "schema 99" in left.getMessage()


def test_a_word_of_newer_code_in_mid_call_ends_no_worker(store_url: str) -> None:
    """What the call brings back cannot be recorded here; the stream goes to code that can."""
    answer, sent = threading.Event(), threading.Event()

    def wait(call: settled.Call, params: Any) -> Reply:
        sent.set()
        answer.wait(20)
        return performed(call, params)

    with release(store_url, kind(act=wait), works=True) as app:
        intend(app)
        assert sent.wait(20)
        written_by_newer_code(app)
        stored = app.journal.events("acme", row_of(app).stream)
        answer.set()
        eventually(lambda: row_of(app).owner is None)
        row = row_of(app)
        assert (row.state, row.parked_at) == ("dispatching", None)
        assert app.journal.events("acme", row.stream) == stored
        assert done(app, intend(app, "mail-2")).state == "succeeded"


def test_a_worker_that_is_much_too_old_ends(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it can read hardly anything it is of no use, and whoever runs it has to hear of it."""
    monkeypatch.setattr(worker_module, "MOST_LEFT", 3)
    app = settled.open(store_url, kinds=[OLD], migrate=True, require_fsync=False)
    for number in range(4):
        intend(app, f"mail-{number}")
        written_by_newer_code(app, f"mail-{number}")
    app.start_worker(PACE)
    eventually(lambda: not app.journal.workers())
    with pytest.raises(StoreTooNew, match="Over 3 streams"):
        app.close()
