"""A worker lives on: with providers that answer anything, hooks that hang, and errors of all kinds.

Real stores, a worker on a thread of this process; nothing here is killed (the battery does that).
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import settled
from settled import InstallationChanged, Params, Principal, Reply, WorkerSettings, presets
from settled.infrastructure.function_provider import FunctionProvider
from settled.infrastructure.testing.journal_units import eventually

BY = Principal("acme", "support-agent")
PACE = WorkerSettings(name="embedded", lease_seconds=0.6, idle_seconds=0.02, drain_seconds=2)


class MailParams(Params):
    """A message."""

    to: str


def kind_of(
    function: Callable[[settled.Call, MailParams], Reply], name: str = "mail", **policy: Any
) -> settled.Kind[MailParams]:
    provider = FunctionProvider("mail", presets.smtp, function)
    policy.setdefault("call_timeout", timedelta(seconds=20))
    return settled.Kind(name, MailParams, provider, "support-lead", **policy)


@contextmanager
def working(url: str, *kinds: settled.Kind[Any]) -> Generator[settled.App]:
    with settled.open(url, kinds=kinds, migrate=True) as app:
        app.start_worker(PACE)
        yield app


def intend(app: settled.App, name: str = "mail-1", kind: str = "mail") -> settled.OperationView:
    return app.operations.intend(kind, name, {"to": "ada@acme.example"}, by=BY)


@pytest.mark.parametrize(
    "reference", ["a\0b", "x" * 3000, "\ud800"], ids=["nul", "long", "surrogate"]
)
def test_a_name_that_cannot_be_kept_does_not_lose_the_receipt(
    store_url: str, reference: str
) -> None:
    """A provider may call its object anything; what it says of the outcome is recorded."""
    kind = kind_of(lambda call, params: Reply.performed({"seen": "yes"}, reference))
    with working(store_url, kind) as app:
        done = app.operations.wait(intend(app), timeout_seconds=20)
        assert (done.state, done.reference, done.receipt) == ("succeeded", None, {"seen": "yes"})


def test_a_receipt_that_is_too_large_does_not_lose_the_outcome(store_url: str) -> None:
    """The journal takes a megabyte an event; the outcome is worth more than the object."""
    kind = kind_of(lambda call, params: Reply.performed({"blob": "x" * 2_000_000}, "m1"))
    with working(store_url, kind) as app:
        done = app.operations.wait(intend(app), timeout_seconds=20)
        assert (done.state, done.reference, done.receipt) == ("succeeded", "m1", None)


def test_two_operations_cannot_both_succeed_on_one_object(store_url: str) -> None:
    """The second reply names what is the first one's effect: a person has to look."""
    kind = kind_of(lambda call, params: Reply.performed({"id": "m1"}, "m1"))
    with working(store_url, kind) as app:
        one = app.operations.wait(intend(app, "mail-1"), timeout_seconds=20)
        two = app.operations.wait(intend(app, "mail-2"), timeout_seconds=20)
        assert (one.state, two.state) == ("succeeded", "handed_over")
        assert two.reason is not None and "another operation" in two.reason


def test_hooks_that_hang_hold_nobody_else_up(store_url: str) -> None:
    """A dozen revalidations that never end: another kind is served, and the worker still stops."""
    never = threading.Event()

    def wait_for_ever(params: MailParams) -> None:
        never.wait(60)

    hung = kind_of(
        lambda call, params: Reply.performed({}),
        name="hung",
        revalidate=wait_for_ever,
        call_timeout=timedelta(seconds=30),
    )
    mail = kind_of(lambda call, params: Reply.performed({"id": "m1"}, "m1"))
    with working(store_url, hung, mail) as app:
        for number in range(12):
            intend(app, f"hung-{number}", "hung")
        assert app.operations.wait(intend(app), timeout_seconds=15).state == "succeeded"
        never.set()


def test_a_request_that_cannot_be_made_is_put_off_and_made_later(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vault that is away for a moment parks nothing."""
    monkeypatch.setattr("settled.processes.dispatcher.PAUSE_SECONDS", 0.1)
    tries = 0

    class Vault(FunctionProvider):
        def seal(
            self, identity: settled.Identity, key: str, params: Any, secret: bytes
        ) -> settled.SealedRequest:
            nonlocal tries
            tries += 1
            if tries < 9:
                raise ConnectionError("the vault is away")
            return super().seal(identity, key, params, secret)

    provider = Vault("mail", presets.smtp, lambda call, params: Reply.performed({"id": "m"}, "m1"))
    kind = settled.Kind("mail", MailParams, provider, "support-lead")
    with working(store_url, kind) as app:
        assert app.operations.wait(intend(app), timeout_seconds=20).state == "succeeded"
    assert tries == 9, "more often than a row may be taken without progress"


def test_a_heart_that_fails_makes_the_worker_take_another_place(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a lease a worker claims nothing; it must not stay like that."""
    from settled.processes.worker import Heart

    failures = {"sweep": 1, "renew": 8}  # renewing fails for longer than a lease
    originals: dict[str, Callable[[Heart], None]] = {
        name: getattr(Heart, f"_{name}") for name in failures
    }
    over = threading.Event()

    def failing(name: str) -> Callable[[Heart], None]:
        def act(self: Heart) -> None:
            if failures[name] > 0:
                failures[name] -= 1
                raise OSError("too many open files")
            if name == "renew":
                over.set()
            originals[name](self)

        act.__name__ = name
        return act

    for name in failures:
        monkeypatch.setattr(Heart, f"_{name}", failing(name))
    kind = kind_of(lambda call, params: Reply.performed({"id": call.key}, call.key))
    with working(store_url, kind) as app:
        assert over.wait(20)
        assert app.operations.wait(intend(app), timeout_seconds=20).state == "succeeded"


def test_an_embedded_worker_that_may_not_work_says_so_at_once(tmp_path: Path) -> None:
    """On a copy nothing dispatches; a caller that waits in vain would not learn why."""
    kind = kind_of(lambda call, params: Reply.performed({"id": "m1"}, "m1"))
    with settled.open(f"sqlite:///{tmp_path / 'shop.db'}", kinds=[kind]) as app:
        intend(app)
    shutil.copy(tmp_path / "shop.db", tmp_path / "copy.db")
    with pytest.raises(InstallationChanged):
        settled.open(f"sqlite:///{tmp_path / 'copy.db'}", kinds=[kind], worker=True)


def test_evidence_of_a_kind_that_is_not_declared_here_is_kept(store_url: str) -> None:
    """The process that takes webhooks need not know the kinds; a worker that does joins them."""
    kind = kind_of(lambda call, params: Reply.accepted("m1"))
    with settled.open(store_url, kinds=[kind], migrate=True) as app:
        intend(app)
    with settled.open(store_url) as receiver:
        kept = receiver.operations.record_evidence(
            by=BY,
            provider="mail",
            kind="mail",
            operation_id="mail-1",
            answered="performed",
            receipt={"id": "m1"},
            reference="m1",
        )
        assert kept is None
    with working(store_url, kind) as app:
        eventually(lambda: app.journal.heads("acme", kind="evidence", states=["joined"]))
