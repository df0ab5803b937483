"""Writing the history of a store, or of some of its streams, as lines of JSON."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import UUID

from settled.domain.errors import InvalidInput, NotFound
from settled.domain.journal.port import AgendaRow, Journal
from settled.domain.journal.unit import RecordedEvent
from settled.infrastructure.audit.settled_end import settled_end
from settled.infrastructure.transfer.lines import end_line, event_line, header_line

_PAGE = 1_000


def export(journal: Journal, url: str, path: Path, names: tuple[str, ...] = ()) -> int:
    """Write the named streams, or without names the whole settled log; return how many events.

    A name is TENANT/KIND/ID. The file holds parameters and evidence in the clear, so only its owner
    may read it. It appears whole or not at all. Raises NotFound, InvalidInput.
    """
    installation = journal.installation()
    events = _of_streams(journal, names) if names else _whole_log(journal, url)
    fresh = path.with_name(path.name + ".part")
    digest, count = hashlib.sha256(), 0
    try:
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            line = header_line(installation.id, names)
            digest.update(line)
            file.write(line)
            for event in events:
                line = event_line(event)
                digest.update(line)
                file.write(line)
                count += 1
            file.write(end_line(count, digest.hexdigest()))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error}.") from error
    finally:
        fresh.unlink(missing_ok=True)
    return count


def _whole_log(journal: Journal, url: str) -> Iterator[RecordedEvent]:
    after, upto = 0, settled_end(journal, url)
    while after < upto:
        page = journal.read(after, _PAGE)
        yield from (event for event in page.events if (event.position or 0) <= upto)
        after = (page.events[-1].position or upto) if page.more else upto


def _of_streams(journal: Journal, names: Iterable[str]) -> Iterator[RecordedEvent]:
    for row in [_named(journal, name) for name in names]:
        yield from journal.events(row.tenant, row.stream)


def _named(journal: Journal, name: str) -> AgendaRow:
    parts = name.split("/", 2)
    if len(parts) != 3 or not all(parts):
        raise InvalidInput(
            f"{name!r} names no stream.", hint="TENANT/KIND/ID, as `settled ops show` prints it."
        )
    tenant, kind, identity = parts
    after: tuple[str, UUID] | None = None
    while rows := journal.heads(tenant, kind=kind, after=after, limit=_PAGE):
        for row in rows:
            if row.identity == identity:
                return row
        after = rows[-1].tenant, rows[-1].stream
    raise NotFound(
        f"There is no stream {name}.", hint="`settled ops list` shows what is in the store."
    )
