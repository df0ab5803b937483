"""`settled ops proposal`: a proposal as it is put before whoever decides."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from settled.cli.opening import locate, opened_journal
from settled.cli.options import (
    identity_arguments,
    json_option,
    kinds_option,
    tenant_option,
    url_option,
)
from settled.cli.output import document_of, print_fields, print_json
from settled.cli.telling import due, moment

if TYPE_CHECKING:
    from settled.domain.approval import RecordedDecision
    from settled.projections.approval_request import ApprovalRequest


@click.command()
@identity_arguments
@url_option
@tenant_option(required=True)
@kinds_option(required=True)
@json_option
def proposal(
    url: str, tenant: str, operation_id: str, kind: str | None, kinds_from: str, as_json: bool
) -> None:
    """Show what is asked in a proposal, who may decide on it and until when, and who has.

    With --json the JSON Schema of its parameters too: a form for an edit is made from that.
    """
    from settled.cli.loading import load_kinds
    from settled.domain.journal.mapper import EventMapper
    from settled.domain.keys import DerivedKeys
    from settled.domain.kinds import Kinds
    from settled.domain.operation.operation import Operation
    from settled.projections.approval_request import request_of

    declared = Kinds.of(load_kinds(kinds_from))
    with opened_journal(url) as journal:
        now = journal.time()
        identity = locate(journal, tenant, operation_id, kind)
        records = journal.events(tenant, Operation.stream(identity))
        operation = EventMapper(DerivedKeys(journal.installation().secret)).fold(records)
    assert isinstance(operation, Operation), "the stream of an operation holds one"
    request = request_of(operation, declared)
    if as_json:
        print_json(document_of(request))
    else:
        _print(request, now)


def _print(request: ApprovalRequest, now: datetime) -> None:
    click.echo(f"{request.label}\n{request.identity}, {request.state}\n")
    asked = f"{request.count} with the role {' or '.join(request.roles)}"
    if request.four_eyes:
        asked += f", and none of {', '.join(request.authors)}"
    until = request.expires_at
    pairs: list[tuple[str, str | None]] = [
        ("proposal", f"version {request.proposal_version}, digest {request.digest}"),
        ("by", ", ".join(request.authors)),
        ("reason", request.reason),
        ("asked", f"{asked} (policy version {request.policy_version})"),
        ("missing", str(request.missing) if request.state == "proposed" else None),
        ("until", f"{moment(until)}, {due(until, now)}" if until else None),
        *((decision.decided, _told(decision)) for decision in request.decisions),
        *((name, _text(value)) for name, value in (request.params or {}).items()),
    ]
    print_fields(pairs)


def _told(decision: RecordedDecision) -> str:
    words = [f"by {decision.by}", f"at {moment(decision.at)}"]
    words += [f"as {decision.authority}"] if decision.authority else []
    words += [f"until {moment(decision.valid_until)}"] if decision.valid_until else []
    words += [f"having looked at {', '.join(decision.evidence)}"] if decision.evidence else []
    return ", ".join(words) + (f": {decision.reason}" if decision.reason else "")


def _text(value: Any) -> str:
    import orjson

    match value:
        case {"amount": str(amount), "currency": str(currency), **rest} if not rest:
            return f"{amount} {currency}"
        case str():
            return value
        case _:
            return orjson.dumps(value).decode()
