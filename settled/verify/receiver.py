"""Where the provider's webhooks arrive: what an application's endpoint does, and no more.

It gives the event to `record_evidence` and acknowledges it when that has returned.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2

from settled import Identity, Money, OperationView, Principal
from settled.domain.identity import provider_key
from settled.verify.stage import Stage

ENDPOINT = Principal("acme", "webhook-endpoint")
WORDS = {
    "pending": "pending",
    "succeeded": "performed",
    "failed": "failed",
    "reversed": "reversed",
}
"""The provider's statuses in our words."""


def tell(
    stage: Stage, event: dict[str, Any], *, kind: str = "refund", operation_id: str = ""
) -> OperationView | None:
    """Give an event to the service; the order in it is the operation id unless one is given."""
    held = event["data"]
    return stage.app.operations.record_evidence(
        by=ENDPOINT,
        provider="simulator",
        answered=WORDS[held["status"]],
        kind=kind,
        operation_id=operation_id or held["order"],
        reference=held["id"],
        receipt=held,
        event_id=event["id"],
    )


def event_of(stage: Stage, effect_id: str) -> dict[str, Any]:
    """Return the event that the provider sends about one of its effects as it is now."""
    (effect,) = [held for held in stage.simulator.effects() if held.id == effect_id]
    return {"id": f"evt_{effect.id}_{effect.status}", "data": effect.shown()}


def perform_elsewhere(
    stage: Stage, operation_id: str, *, kind: str = "refund", client: httpx2.Client | None = None
) -> None:
    """Have the effect of an operation before this store knows the operation.

    So it is where a store was restored to a moment before the intent: the key and the bytes are
    those that the operation will have.
    """
    identity = Identity("acme", kind, operation_id)
    installation = stage.app.installation
    key = provider_key(installation.id, identity, 1)
    declared = stage.app.kinds[kind]
    params = declared.params(order=operation_id, amount=Money("30.00", "USD"))
    sealed = declared.provider.seal(identity, key, params, installation.secret)
    post = client.post if client is not None else httpx2.post
    post(sealed.url, headers=dict(sealed.headers), content=sealed.body).raise_for_status()


@contextmanager
def receiving(stage: Stage, kind: str = "refund") -> Generator[str]:
    """Run the endpoint; gives its URL. An event that could not be stored is answered with 503."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # noqa: N802 - the name that the library calls
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                tell(stage, json.loads(body), kind=kind)
                status = 200
            except Exception as error:
                self.log_error("%s", error)
                status = 503
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/webhooks"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
