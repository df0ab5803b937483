"""The kit for machines and managers of one's own: what it lets pass, and what it must not.

A kit that accepts a wrong expectation makes every test written with it worthless, so each check is
shown to fail too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pytest

from settled import (
    ABSENT,
    Arrow,
    Decision,
    Event,
    Lifecycle,
    Perform,
    Position,
    Record,
    Rest,
    Stamp,
    State,
    StateMachine,
    TransitionRefused,
    Work,
)
from settled.testing import Given, ManualClock, given, happened

DAY = timedelta(days=1)


class Opened(Event):
    """A parcel locker was rented."""

    TOPIC: ClassVar[str] = "locker.Opened"
    tenant: str
    identity: str


class Paid(Event):
    """A day was paid."""

    TOPIC: ClassVar[str] = "locker.Paid"
    amount: int
    note: str = ""


class Reminded(Event):
    """Somebody was told that a day is due."""

    TOPIC: ClassVar[str] = "locker.Reminded"
    delivered: bool

    def apply(self, locker: Locker) -> None:
        locker.reminders += 1


class Emptied(Event):
    """It is free again."""

    TOPIC: ClassVar[str] = "locker.Emptied"


class Locker(StateMachine):
    """A locker that is rented by the day."""

    TOPIC = "locker"
    EVENTS = (Opened, Paid, Reminded, Emptied)
    LIFECYCLE = Lifecycle(
        "locker",
        states=[
            State("rented", "Somebody's things are in it."),
            State("free", "It is empty.", settled=True),
        ],
        arrows=[
            Arrow((ABSENT,), "Opened", "rented"),
            Arrow(("rented",), "Paid", None),
            Arrow(("rented",), "Reminded", None),
            Arrow(("rented",), "Emptied", "free", guard="must_be_reminded"),
        ],
    )

    def prepare(self) -> None:
        super().prepare()
        self.reminders = 0
        self.shift = timedelta()

    def must_be_reminded(self) -> None:
        if not self.reminders:
            raise TransitionRefused("Nobody was told.", hint="Remind first.")

    def next_due(self) -> datetime | None:
        return None if self.settled else self.modified_on + DAY + self.shift

    def pay(self, amount: int, stamp: Stamp) -> int:
        self.record(Paid, stamp, amount=amount)
        return amount

    def empty(self, stamp: Stamp) -> None:
        self.record(Emptied, stamp)

    def cheat(self, stamp: Stamp) -> None:
        self.shift = DAY

    def half(self, stamp: Stamp) -> None:
        self.record(Paid, stamp, amount=1)
        self.empty(stamp)


@dataclass
class Reminder:
    """Tells the renter once, and then empties the locker."""

    fails: bool = False
    name: str = "reminder"

    def interested(self, machine: StateMachine) -> bool:
        return isinstance(machine, Locker) and not machine.settled

    def decide(self, machine: Locker, stamp: Stamp, position: Position) -> Decision:
        due = machine.next_due()
        if position.draining or due is None or stamp.at < due:
            return Rest()
        if machine.reminders:
            machine.empty(stamp)
            return Record()
        return Perform(Work.NOTIFY, "renter", self._tell, self._told)

    async def _tell(self) -> str:
        if self.fails:
            raise ConnectionError("nobody there")
        return "told"

    def _told(self, machine: Locker, result: Any, stamp: Stamp) -> None:
        machine.record(Reminded, stamp, delivered=not isinstance(result, Exception))


OPENED = happened(Opened, tenant="acme", identity="locker-7")


def rented(*more: Any) -> Given[Locker]:
    return given(Locker, [OPENED, *more])


def test_a_command_is_told_by_its_events() -> None:
    """By class, or by all of the fields; what the command returned is there as well."""
    locker = rented()
    paid = locker.when(lambda one, stamp: one.pay(3, stamp))
    paid.then(Paid).then(happened(Paid, amount=3)).then_is("rented")
    assert paid.returned == 3
    locker.when(lambda one, stamp: None).then()


@pytest.mark.parametrize(
    "wrong",
    [
        (),
        (Emptied,),
        (Paid, Paid),
        (happened(Paid, amount=4),),
        (happened(Reminded, delivered=True),),
    ],
    ids=["nothing", "another", "too many", "another amount", "another with fields"],
)
def test_a_wrong_expectation_fails(wrong: tuple[Any, ...]) -> None:
    """Else a test written with it would hold whatever the machine does."""
    paid = rented().when(lambda one, stamp: one.pay(3, stamp))
    with pytest.raises(AssertionError, match="Paid"):
        paid.then(*wrong)
    with pytest.raises(AssertionError, match="not refused"):
        paid.then_refused(TransitionRefused)
    with pytest.raises(AssertionError, match="rented, not free"):
        paid.then_is("free")


def test_a_field_left_out_is_expected_to_have_its_default() -> None:
    """ "Exactly" includes the fields that nobody thought of."""
    noted = rented().when(lambda one, stamp: one.record(Paid, stamp, amount=3, note="cash"))
    with pytest.raises(AssertionError, match="cash"):
        noted.then(happened(Paid, amount=3))


def test_what_is_refused() -> None:
    """The guard's error, by its class and its words; and nothing was recorded."""
    refused = rented().when(Locker.empty)
    refused.then_refused(TransitionRefused, "Nobody was told")
    with pytest.raises(AssertionError, match="it was refused"):
        refused.then()
    with pytest.raises(AssertionError, match="is not in"):
        refused.then_refused(TransitionRefused, "another reason")


def test_a_command_that_is_refused_half_way_is_found() -> None:
    """It would leave half of its events in the hands of whoever catches the error."""
    with pytest.raises(AssertionError, match="recorded before"):
        rented().when(Locker.half).then_refused(TransitionRefused)


def test_a_change_beside_the_events_is_found() -> None:
    """It would be gone with the next load."""
    with pytest.raises(AssertionError, match="nothing but by its events"):
        rented().when(Locker.cheat)


def test_time_passes_only_where_it_is_said() -> None:
    """A history says when; the due time follows from it."""
    clock = ManualClock()
    began = clock.at
    locker = given(Locker, [OPENED, DAY, happened(Paid, amount=3)], clock=clock)
    assert clock.at == began + DAY
    locker.when(lambda one, stamp: None).then_is("rented", due=began + 2 * DAY)
    with pytest.raises(AssertionError, match="it is due at"):
        locker.when(lambda one, stamp: None).then_is("rented", due=began)


def test_a_history_that_cannot_have_happened_is_refused() -> None:
    """A test about an impossible stream proves nothing."""
    with pytest.raises(TransitionRefused):
        rented(Locker.empty)
    with pytest.raises(TransitionRefused):
        given(Locker, [happened(Emptied, tenant="acme", identity="locker-7")])
    with pytest.raises(ValueError, match="begins with its first event"):
        given(Locker, [])


@pytest.mark.parametrize("fails", [False, True])
def test_a_manager_performs_and_concludes(fails: bool) -> None:
    """The decision, then what came of it: an exception is a result too."""
    decided = rented().decides(Reminder(fails))
    decided.then().then_is("rented")
    decided.then_performs(Work.NOTIFY, "renter")
    decided.performed().then(happened(Reminded, delivered=not fails))


def test_a_result_can_be_given_instead_of_performed() -> None:
    """What no test can bring about, such as a reply that is lost, is handed in."""
    decided = rented().decides(Reminder())
    decided.came(TimeoutError("no answer")).then(happened(Reminded, delivered=False))


def test_a_manager_records_or_rests() -> None:
    """By the time at which it is asked, which is the due time unless another is given."""
    locker = rented(happened(Reminded, delivered=True))
    early = locker.decides(Reminder(), at=locker.clock.at)
    assert early.then().decision == Rest()
    assert locker.decides(Reminder(), draining=True).decision == Rest()
    last = locker.decides(Reminder())
    assert last.decision == Record()
    last.then(Emptied).then_is("free")
    with pytest.raises(AssertionError, match="not to perform"):
        last.then_performs(Work.NOTIFY)
    with pytest.raises(AssertionError, match="not interested"):
        locker.decides(Reminder())


def test_another_kind_of_work_is_not_what_was_expected() -> None:
    """The work names the fault points around it, so a wrong one is a wrong decision."""
    decided = rented().decides(Reminder())
    with pytest.raises(AssertionError, match="performs a notify"):
        decided.then_performs(Work.CALL)
    with pytest.raises(AssertionError, match="performs renter"):
        decided.then_performs(Work.NOTIFY, "somebody else")


def test_a_clock_repeats_exactly() -> None:
    """A failing history is replayed from its seed."""
    one, other = ManualClock(seed=4), ManualClock(seed=4)
    assert [*one.new_ids(2), one.uniform()] == [*other.new_ids(2), other.uniform()]
    assert ManualClock(seed=5).new_ids(1) != ManualClock(seed=4).new_ids(1)
    one.advance(DAY)
    one.refresh()
    assert (one.monotonic(), one.now() - other.now()) == (86400.0, DAY)
