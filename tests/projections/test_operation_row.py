"""The row of the operations view says what the aggregate says, whatever happened.

The row is folded without the aggregate, because that would be too slow for millions of events. So
the two are compared, on ways that no process manager would ever take.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from settled.domain.journal.unit import RecordedEvent
from settled.domain.operation.events import EVENTS
from settled.domain.operation.operation import Operation
from settled.projections.operation_row import COLUMNS, FORMS
from settled.projections.operation_view import view_of
from settled.projections.operations import OperationsProjection
from settled.projections.projection import Row, Table
from settled.projections.reading import text_of
from settled.projections.words import MAX_WORDS, more_words, sought_words, words_of
from tests.projections.histories import history, mapper


class Kept:
    """The tables of the view, in memory: what is put is what is got."""

    def __init__(self) -> None:
        self.rows: dict[Row, Row] = {}
        self.counted: dict[tuple[str, str], int] = {}

    def get(self, table: Table, keys: list[Row]) -> list[Row]:
        return [self.rows[key] for key in keys if key in self.rows]

    def put(self, table: Table, new: list[Row], changed: list[Row]) -> None:
        for row in new:
            assert row[:2] not in self.rows
        for row in changed:
            assert row[:2] in self.rows
        self.rows.update({row[:2]: row for row in (*new, *changed)})

    def execute(self, sql: str, **values: Any) -> int:
        key = (values["tenant"], values["state"])
        self.counted[key] = self.counted.get(key, 0) + values["number"]
        return 1


def folded(records: list[RecordedEvent], *cuts: int) -> Kept:
    """Fold records in pages that end at these places."""
    kept = Kept()
    rows: Any = kept
    for start, end in zip((0, *cuts), (*cuts, len(records)), strict=True):
        OperationsProjection().fold(records[start:end], rows)
    return kept


@pytest.mark.parametrize("seed", range(150))
def test_row_and_aggregate_say_the_same(seed: int) -> None:
    """All that both of them have is equal, however the history is cut into pages."""
    drawn = random.Random(seed)
    _, records = history(drawn, drawn.randrange(40))
    operation = mapper().fold(records)
    assert isinstance(operation, Operation)
    view = view_of(operation)
    kept = folded(records, drawn.randrange(len(records)))
    (values,) = kept.rows.values()
    row = dict(zip(COLUMNS, values, strict=True))
    said = {
        name: getattr(view, name)
        for name in "tenant kind operation_id state version label provider provider_key".split()
        + "attempts reason rule owner reference cancel_requested".split()
    }
    assert {name: row[name] for name in said} == said
    assert row["next_at"] == (None if view.next_at is None else text_of(view.next_at))
    assert row["changed_at"] == text_of(operation.modified_on)
    assert row["position"] == records[-1].position
    assert row["since"] == text_of(view.since) == text_of(records[last_change(records)].recorded_at)
    if operation.contradicted:
        assert row["concern"] == "contradicted"
    elif operation.disputed:
        assert row["concern"] == "disputed"
    elif row["state"] != "handed_over":
        came = event_name(records[last_change(records)])  # given back, it has no cause of its own
        assert (row["concern"] is not None) == (came == "OutcomeUnknown")
    assert (row["epoch"] is not None) == operation.held
    assert {key: n for key, n in kept.counted.items() if n} == {(view.tenant, view.state): 1}
    assert set(words_of(view.operation_id)) <= set(row["words"].split(" "))
    again = folded([*records, *records], len(records))
    assert (again.rows, again.counted) == (folded(records).rows, folded(records).counted)


def last_change(records: list[RecordedEvent]) -> int:
    """Return the index of the event that led to another state than before."""
    state, found = "absent", 0
    for index, record in enumerate(records):
        before, state = state, Operation.LIFECYCLE.step(state, event_name(record)).target
        found = index if state != before else found
    return found


def event_name(record: RecordedEvent) -> str:
    """Return what the lifecycle calls an event."""
    return record.topic.rpartition(".")[2]


def test_every_event_is_drawn_and_folded() -> None:
    """A history without some event would prove nothing about it."""
    drawn = {
        record.topic
        for seed in range(300)
        for record in history(random.Random(seed), random.Random(seed).randrange(40))[1]
    }
    assert drawn == {event.TOPIC for event in EVENTS}
    assert set(FORMS) == drawn


def test_a_gap_in_a_stream_is_a_fault() -> None:
    """A row that skipped an event would be wrong for good, and nobody would see it."""
    _, records = history(random.Random(3), 20)
    assert len(records) > 3
    with pytest.raises(ValueError, match="follows"):
        folded([records[0], *records[2:]])
    with pytest.raises(ValueError, match="follows"):
        folded(records[1:])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("refund-request-9", ["refund", "request", "9", "refundrequest9"]),
        ("30.00 USD, order_72", ["30", "00", "usd", "order", "72", "3000", "order72"]),
        ("STRASSE Straße ﬁn-7_ü", ["strasse", "fin", "7", "ü", "fin7ü"]),
        ("x" * 100, ["x" * 64]),
        ("-- ; ' \" %", []),
    ],
)
def test_words_are_letters_and_digits(text: str, words: list[str]) -> None:
    """What a person types and what was recorded have to meet in one form."""
    assert words_of(text) == words


def test_a_query_asks_for_whole_words() -> None:
    """An id that is typed as it is finds what has that id, not what has its parts somewhere."""
    assert sought_words("Refund-Request-9 ORDER_72") == ["refundrequest9", "order72"]
    for text in ("refund-request-9", "30.00", "re_1", "Ünï-Code_7", "x" * 100, "a.b-c"):
        assert set(sought_words(text)) <= set(words_of(text))


def test_words_have_a_bound() -> None:
    """A provider's huge receipt must not make a huge row; the operation's own words come first."""
    found = more_words("first", [" ".join(f"w{n}" for n in range(500))]).split(" ")
    assert len(found) == MAX_WORDS and found[0] == "first"
