"""CASE 6: a mail server that answers after its client has given up."""

from __future__ import annotations

import settled
from settled import EffectPossible, OperationView
from settled.infrastructure.testing.journal_units import eventually
from settled.verify.stage import AGENT, OPERATOR, Stage
from tests.battery import mail_kinds


def test_case_06_a_message_whose_answer_came_too_late(stage: Stage) -> None:
    """No key, no look-up: handed over, the refund untouched; a resend keeps the Message-ID."""
    stage.simulator.conduct(key="none")
    stage.worker("refunds")
    refund = stage.wait(stage.intend(), "succeeded")
    before = stage.names(refund)

    stage.simulator.fault(delay_after_seconds=3 * mail_kinds.CLIENT_SECONDS)
    stage.worker("mailer", environment={"SETTLED_KINDS": mail_kinds.__file__})
    with settled.open(stage.url, kinds=[mail_kinds.mail]) as app:
        sent = app.operations.intend(
            "mail", "refund-request-9/confirmation", {"to": "ada@acme.example"}, by=AGENT
        )
        handed = app.operations.wait(sent, timeout_seconds=30)
        assert (handed.state, handed.owner) == ("handed_over", "support-lead")
        assert stage.names(refund) == before, "the refund before it is untouched"
        assert len(messages(stage)) == 1, "nothing is sent again by itself"

        def ordered() -> OperationView | None:
            try:
                return app.operations.settle(
                    handed,
                    outcome="absent",
                    evidence={"asked": "the recipient has nothing"},
                    by=OPERATOR,
                    reason="send it again",
                )
            except EffectPossible:
                return None  # the first one may still be on its way

        eventually(ordered)
        done = app.operations.wait(sent, timeout_seconds=30)
    assert done.state == "succeeded"
    first, second = messages(stage)
    assert first == second == done.provider_key, "one Message-ID, whoever orders the resend"


def messages(stage: Stage) -> list[str]:
    seen = stage.simulator.log().requests
    return [one.headers["message-id"] for one in seen if one.path == "/v1/messages"]
