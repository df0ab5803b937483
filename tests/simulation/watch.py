"""What must hold after each step, restated here without the code that keeps it.

It is looked at whenever something was committed, a request left, or an effect appeared: nothing
else can break it. What a provider did is known from the provider's own log, what was recorded from
the journal's rows; the recovery table is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from settled.domain.contract.vocabulary import ProviderContract
from settled.domain.contract.words import Dedup, DuplicateInFlight, RetentionKind
from settled.domain.identity import Identity
from settled.domain.inbox import KIND as EVIDENCE
from settled.domain.journal.mapper import EventMapper, hash_of
from settled.domain.journal.port import AgendaRow
from settled.domain.journal.unit import FIRST_HASH, RecordedEvent
from settled.domain.operation.operation import Operation
from settled.infrastructure.testing.memory_tables import MemoryStore
from settled.processes.ledger import head_of
from tests.simulation.provider import Effect, Request, SimulatedProvider

_NO_EFFECT = ("rejected", "expired", "cancelled", "failed")
_KEYED = (Dedup.CLIENT_KEY, Dedup.NATURAL_KEY, Dedup.PRECONDITION)
_ONE_AT_A_TIME = (
    DuplicateInFlight.BLOCKS,
    DuplicateInFlight.SIGNAL,
    DuplicateInFlight.EITHER_MAY_FAIL,
)


@dataclass
class Attempt:
    """One Dispatching, as it was recorded."""

    number: int
    key: str
    at: datetime
    permit_until: datetime
    deadline: datetime
    digest: str
    out: bool = True
    requested: bool = False


@dataclass
class Stream:
    """What has been seen of one stream."""

    name: str
    provider: SimulatedProvider | None
    version: int = 0
    hash: bytes = FIRST_HASH
    at: datetime | None = None
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    notified: int = 0
    given_up: bool = False
    """Whether automatic steps have stopped although nothing is disputed."""
    succeeded: bool = False
    """Whether automatic steps have found its effect."""
    untrue: bool = False
    """A person is saying something about it that is not so, or may be heard with it yet."""
    by_hand: bool = False
    """Something that is not so was recorded of it, because a person said so."""


class Watch:
    """Follows the journal and the providers; `violations` says what broke, in words."""

    def __init__(
        self,
        store: MemoryStore,
        providers: Mapping[str, SimulatedProvider],
        say: Callable[[str], None],
    ) -> None:
        self._store = store
        self._providers = providers
        self._say = say
        self._seen = 0
        self.violations: list[str] = []
        self.streams: dict[UUID, Stream] = {}
        self.tally: dict[str, int] = {}

    def stream(self, identity: Identity) -> Stream:
        """Return what is known of an operation's stream, which need not exist yet."""
        return self._stream(Operation.stream(identity), identity.kind, identity.operation_id)

    def look(self) -> None:
        """Look at what has been committed since the last look."""
        tables = self._store.tables
        while self._seen < tables.last_position:
            self._seen += 1
            self._follow(tables.events[self._seen])

    def requested(self, provider: SimulatedProvider, request: Request) -> None:
        """A request's first byte was written: its Dispatching must be committed, and its own."""
        self._tell("requests")
        call = request.call
        stream = self.stream(call.identity)
        mine = [a for a in stream.attempts if a.key == call.key]
        if len(provider.requests[call.key]) > len(mine):
            self._violated(stream, f"request {call.attempt} without a Dispatching")
        attempt = next((a for a in mine if a.number == call.attempt), None)
        if attempt is None or attempt.requested:
            self._violated(stream, f"attempt {call.attempt} is sent twice, or was never recorded")
        else:
            attempt.requested = True
            if self._store.clock.now() > attempt.permit_until:
                self._violated(stream, f"attempt {call.attempt} is sent after its permit")

    def happened(self, provider: SimulatedProvider, effect: Effect) -> None:
        """An object appeared at the provider: it must be the only one of its operation."""
        self._tell("effects")
        stream = self.stream(effect.identity)
        keys = {attempt.key: None for attempt in stream.attempts}
        effects = [e for key in keys for e in provider.effects.get(key, ()) if e.counts]
        if len(effects) > 1 and not stream.by_hand:
            self._violated(stream, f"{len(effects)} effects")

    # Following one event.

    def _follow(self, event: RecordedEvent) -> None:
        row = self._store.tables.heads[event.tenant, event.stream]
        stream = self._stream(event.stream, row.kind, row.identity)
        name = event.topic.rpartition(".")[2]
        self._say(f"{stream.name} {event.originator_version} {name} by {event.actor}")
        self._tell(name)
        if event.originator_version != stream.version + 1 or event.position != self._seen:
            self._violated(stream, f"version {event.originator_version} at {event.position}")
        if stream.at is not None and event.recorded_at < stream.at:
            self._violated(stream, f"{name} is before what happened before it")
        if event.previous_hash != stream.hash:
            self._violated(stream, f"{name} does not follow what is before it")
        stream.version, stream.at = event.originator_version, event.recorded_at
        stream.hash = event.hash
        said = orjson.loads(event.state)
        stream.by_hand |= stream.untrue and said.get("via") == "hand"
        rule = getattr(self, f"_on_{name.lower()}", None)
        if rule is not None:
            rule(stream, event, said)

    def _on_dispatching(self, stream: Stream, event: RecordedEvent, said: dict[str, Any]) -> None:
        row = self._store.tables.heads[event.tenant, event.stream]
        if row.version == event.originator_version and row.owner != said["epoch"]:
            self._violated(stream, f"worker {said['epoch']} dispatches what {row.owner} owns")
        new = Attempt(
            said["attempt"],
            said["key"],
            event.recorded_at,
            _moment(said["permit_until"]),
            max(_moment(said["call_deadline"]), _moment(said["permit_until"])),
            said["request_digest"],
        )
        assert stream.provider is not None
        before = [a for a in stream.attempts if a.key == new.key and a.out]
        if before:
            problem = _forbidden(stream.provider.contract, before, new)
            if problem:
                self._violated(stream, f"attempt {new.number} is sent although {problem}")
        else:
            self._nothing_there(stream, "Dispatching")
        if new.number != len(stream.attempts) + 1:
            self._violated(stream, f"attempt {new.number} after {len(stream.attempts)}")
        stream.attempts.append(new)

    def _on_retryscheduled(self, stream: Stream, *_: Any) -> None:
        stream.attempts[-1].out = False
        self._nothing_there(stream, "RetryScheduled")

    def _on_outcomeunknown(self, stream: Stream, _: Any, said: dict[str, Any]) -> None:
        if not said["attempt_out"] and stream.attempts:
            stream.attempts[-1].out = False

    def _on_confirmedabsent(self, stream: Stream, *_: Any) -> None:
        for attempt in stream.attempts:
            attempt.out = False
        self._nothing_there(stream, "ConfirmedAbsent")

    def _on_failed(self, stream: Stream, *_: Any) -> None:
        for attempt in stream.attempts:
            attempt.out = False
        self._nothing_there(stream, "Failed")

    def _on_cancelled(self, stream: Stream, *_: Any) -> None:
        self._nothing_there(stream, "Cancelled")

    def _on_expired(self, stream: Stream, *_: Any) -> None:
        self._nothing_there(stream, "Expired")

    def _on_succeeded(self, stream: Stream, _: Any, said: dict[str, Any]) -> None:
        stream.succeeded |= said["via"] != "hand"
        if stream.by_hand:
            return
        if not any(effect.status in ("succeeded", "reversed") for effect in _effects(stream)):
            self._violated(stream, "Succeeded without an effect")

    def _on_handedover(self, stream: Stream, _: Any, said: dict[str, Any]) -> None:
        stream.notified = 0
        stream.given_up |= not said["disputed"]

    def _on_contradicted(self, stream: Stream, *_: Any) -> None:
        stream.notified = 0

    def _on_ownernotified(self, stream: Stream, _: Any, said: dict[str, Any]) -> None:
        stream.notified += bool(said["delivered"])

    def _nothing_there(self, stream: Stream, name: str) -> None:
        """What claims that nothing exists is only recorded where nothing exists, or can any more.

        A request that still travels does no harm where the provider knows its key: it is answered
        as the first one was.
        """
        if stream.by_hand or stream.provider is None:
            return
        if any(effect.counts for effect in _effects(stream)):
            self._violated(stream, f"{name} beside an effect")
        keyed = stream.provider.conduct.window_seconds > 0
        if any(request.open for request in _requests(stream)) and not keyed:
            self._violated(stream, f"{name} while a request may still be performed")

    # The end.

    def look_back(self, mapper: EventMapper) -> None:
        """Once everything has come to rest: nothing is left over, and what is recorded is true."""
        tables = self._store.tables
        for (_, stream_id), row in tables.heads.items():
            stream = self.streams[stream_id]
            records = tables.streams[row.tenant, stream_id]
            machine = mapper.fold(records)
            assert machine is not None
            if any(hash_of(record) != record.hash for record in records):
                self._violated(stream, "a hash is not what it covers")
            head = head_of(machine)
            if (head.state, head.due_at, head.lane) != (row.state, row.due_at, row.lane):
                self._violated(stream, f"the agenda has {row}, the log says {head}")
            if row.owner is not None or row.parked_at is not None:
                self._violated(stream, f"left with {row.owner}, parked {row.parked_at}")
            if not self.at_rest(row):
                self._violated(stream, f"left {row.state}, due {row.due_at}")
            if isinstance(machine, Operation):
                self._is_true(stream, row.state)

    def at_rest(self, row: AgendaRow) -> bool:
        """Say whether nothing is to be done about a stream that a person need not do."""
        if row.due_at is None:
            return True
        if row.kind == EVIDENCE:
            return self._waits_in_vain(row)
        now = self._store.clock.now()
        known = self.streams[row.stream].notified > 0
        return row.state == "handed_over" and row.owner is None and known and row.due_at > now

    def _waits_in_vain(self, row: AgendaRow) -> bool:
        """Say whether evidence names an object that no operation has recorded."""
        first = self._store.tables.streams[row.tenant, row.stream][0]
        said = orjson.loads(first.body or b"{}")["testimony"]
        key = row.tenant, said["provider"], said["reference"]
        return (
            row.owner is None
            and not said["operation_id"]
            and (key not in self._store.tables.references)
        )

    def _is_true(self, stream: Stream, state: str) -> None:
        if stream.by_hand or stream.provider is None:
            return
        statuses = [effect.status for effect in _effects(stream) if effect.counts]
        if state == "succeeded" and statuses != ["succeeded"]:
            self._violated(stream, f"ends succeeded, and the provider has {statuses}")
        if state == "reversed" and statuses != ["reversed"]:
            self._violated(stream, f"ends reversed, and the provider has {statuses}")
        if state in _NO_EFFECT and statuses:
            self._violated(stream, f"ends {state}, and the provider has {statuses}")

    # Inside.

    def _stream(self, stream_id: UUID, kind: str, name: str) -> Stream:
        stream = self.streams.get(stream_id)
        if stream is None:
            label = f"{kind}/{name}" if kind != EVIDENCE else f"evidence {name[-6:]}"
            stream = self.streams[stream_id] = Stream(label, self._providers.get(kind))
        return stream

    def _tell(self, what: str) -> None:
        self.tally[what] = self.tally.get(what, 0) + 1

    def _violated(self, stream: Stream, how: str) -> None:
        self.violations.append(f"{stream.name}: {how}")
        self._say(f"VIOLATED {stream.name}: {how}")


def _effects(stream: Stream) -> Iterator[Effect]:
    assert stream.provider is not None
    for key in dict.fromkeys(attempt.key for attempt in stream.attempts):
        yield from stream.provider.effects.get(key, ())


def _requests(stream: Stream) -> Iterator[Request]:
    assert stream.provider is not None
    for key in dict.fromkeys(attempt.key for attempt in stream.attempts):
        yield from stream.provider.requests.get(key, ())


def _forbidden(contract: ProviderContract, before: list[Attempt], new: Attempt) -> str | None:
    """Return why a contract does not allow another attempt beside those that may be out."""
    if contract.dedup not in _KEYED:
        return "the provider deduplicates nothing"
    if contract.retention.kind not in (RetentionKind.FIXED, RetentionKind.FOREVER):
        return "nobody knows how long keys are kept"
    window = contract.retention.minimum
    if contract.retention.kind is RetentionKind.FIXED and new.at - before[0].at >= window:
        return f"the first one was {new.at - before[0].at} before"
    if any(attempt.digest != new.digest for attempt in before):
        return "it is another request"
    if contract.duplicate_in_flight not in _ONE_AT_A_TIME:
        if contract.max_in_flight is None:
            return "nobody knows when an earlier one has ended"
        if new.at < max(attempt.deadline for attempt in before) + contract.max_in_flight:
            return "an earlier one may still run"
    return None


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
