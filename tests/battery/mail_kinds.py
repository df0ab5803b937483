"""A mailer as a function, without key and look-up, as SMTP is. A kinds module for workers."""

from __future__ import annotations

import os
from datetime import timedelta

import httpx2

import settled
from settled import Call, Params, Reply, presets

PSP_URL = os.environ.get("PSP_URL", "http://127.0.0.1:9")
CLIENT_SECONDS = 1.0
"""How long the client waits for the answer to its message."""


class MailParams(Params):
    """A message."""

    to: str


@settled.kind(
    "mail",
    contract=presets.smtp,
    hand_over_to="support-lead",
    permit=timedelta(seconds=1),
    call_timeout=timedelta(seconds=2),
    notify_every=timedelta(seconds=5),
)
def mail(call: Call, params: MailParams) -> Reply:
    """Hand a message over; what goes wrong on the way is raised, and so an unknown outcome."""
    answer = httpx2.post(
        f"{PSP_URL}/v1/messages",
        json={"to": params.to},
        headers={"Message-ID": call.key},
        timeout=CLIENT_SECONDS,
        trust_env=False,
    ).raise_for_status()
    return Reply.performed({"accepted": True}, reference=str(answer.json()["id"]))
