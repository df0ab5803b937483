"""A notice that did not reach its owner must be known as such, or nobody reconciles anything."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from settled.domain.notifier import NotDelivered, Notice
from settled.infrastructure.notify import CommandNotifier, LogNotifier

NOTICE = Notice(
    tenant="acme",
    kind="refund",
    operation_id="refund-request-9",
    label="Refund 30.00 USD for order-72",
    owner="payments-oncall",
    second_owner="payments-lead",
    reason="no reply, and the window has ended",
    since=datetime(2026, 1, 5, 14, 3, 9, tzinfo=UTC),
    times=4,
)


def python(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", script, *arguments]


def test_the_log_has_all_of_it() -> None:
    """Where alerts read the log, the log is the notice."""
    structlog.configure()
    try:
        with capture_logs() as entries:
            LogNotifier().notify(NOTICE)
    finally:
        structlog.reset_defaults()
    assert entries == [
        {"event": "operation_handed_over", "log_level": "warning"} | NOTICE.as_json()
    ]


def test_an_application_that_logs_otherwise_sees_it_all_the_same(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """A library writes to the standard library's loggers, and never to standard output."""
    LogNotifier().notify(NOTICE)
    assert "refund-request-9" in caplog.text and "payments-oncall" in caplog.text
    assert capsys.readouterr().out == ""


def test_a_command_gets_the_notice_as_json(tmp_path: Path) -> None:
    """On its standard input, where no shell and no length limit can change it."""
    told = tmp_path / "told.json"
    copy = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())"
    CommandNotifier(python(copy, str(told))).notify(NOTICE)
    assert json.loads(told.read_text()) == {
        "tenant": "acme",
        "kind": "refund",
        "operation_id": "refund-request-9",
        "label": "Refund 30.00 USD for order-72",
        "owner": "payments-oncall",
        "second_owner": "payments-lead",
        "reason": "no reply, and the window has ended",
        "since": "2026-01-05T14:03:09+00:00",
        "times": 4,
    }


def test_a_command_that_fails_has_not_delivered() -> None:
    """With what it said, so that whoever reads the log can mend it."""
    notifier = CommandNotifier(python("import sys; sys.exit('the pager is down')"))
    with pytest.raises(NotDelivered, match="ended with 1: the pager is down"):
        notifier.notify(NOTICE)


def test_a_command_that_hangs_has_not_delivered() -> None:
    """It is ended, and the notice is tried again later."""
    notifier = CommandNotifier(
        python("import threading; threading.Event().wait()"), timeout_seconds=0.2
    )
    with pytest.raises(NotDelivered, match="took over 0.2 s"):
        notifier.notify(NOTICE)


def test_a_command_that_is_missing_has_not_delivered(tmp_path: Path) -> None:
    """The likeliest mistake of all."""
    with pytest.raises(NotDelivered, match="cannot be run: No such file"):
        CommandNotifier([str(tmp_path / "pager")]).notify(NOTICE)


def test_a_command_that_reads_nothing_may_still_deliver() -> None:
    """Whether it needs the notice is its own business; its exit status counts."""
    CommandNotifier(python("")).notify(NOTICE)
