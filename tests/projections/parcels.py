"""A small machine and three projections of it, for the tests of the projector."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar

import settled
from settled import (
    ABSENT,
    App,
    Arrow,
    Event,
    Lifecycle,
    RecordedEvent,
    Rows,
    Stamp,
    State,
    StateMachine,
)

KIND = "parcel"
PAGE = 3


class Registered(Event):
    """It was handed in."""

    TOPIC: ClassVar[str] = "parcel.Registered"
    tenant: str
    identity: str

    def apply(self, parcel: Parcel) -> None:
        parcel.tenant, parcel.kind, parcel.identity = self.tenant, KIND, self.identity


class Scanned(Event):
    """It was seen at a place."""

    TOPIC: ClassVar[str] = "parcel.Scanned"
    place: str


class Delivered(Event):
    """It is there."""

    TOPIC: ClassVar[str] = "parcel.Delivered"


class Parcel(StateMachine):
    """What is sent from place to place."""

    TOPIC = "parcel"
    EVENTS = (Registered, Scanned, Delivered)
    LIFECYCLE = Lifecycle(
        "parcel",
        states=[State("travelling", "On its way."), State("delivered", "There.", settled=True)],
        arrows=[
            Arrow((ABSENT,), "Registered", "travelling"),
            Arrow(("travelling",), "Scanned", None),
            Arrow(("travelling",), "Delivered", "delivered"),
        ],
    )

    def next_due(self) -> datetime | None:
        return None if self.settled else self.created_on + timedelta(days=30)


def begin(app: App, identity: str, *, tenant: str = "acme", connection: Any = None) -> Parcel:
    """Register a parcel."""
    stream = settled.stream_id(tenant, KIND, KIND, identity)
    stamp = app.ledger.stamp("sorter")
    new = Parcel.begin(Registered, stream, stamp, tenant=tenant, identity=identity)
    return app.ledger.begin(new, connection)


def scan(app: App, parcel: Parcel, *places: str) -> None:
    """Scan a parcel, one commit a place."""
    for place in places:
        command = partial(_scan, stamp=app.ledger.stamp("sorter"), place=place)
        app.ledger.execute(parcel.tenant, parcel.id, command)


def _scan(parcel: Parcel, stamp: Stamp, place: str) -> None:
    parcel.record(Scanned, stamp, place=place)


def deliver(app: App, parcel: Parcel) -> None:
    """Deliver a parcel."""
    stamp = app.ledger.stamp("sorter")
    app.ledger.execute(parcel.tenant, parcel.id, lambda p: p.record(Delivered, stamp))


@dataclass(frozen=True)
class ParcelsNow:
    """Where each parcel is. Applied twice, an event leaves the same rows."""

    version: int = 1
    name: str = "parcels_now"
    topics: tuple[str, ...] = ("parcel.",)

    def tables(self, dialect: str) -> Sequence[str]:
        moment = "text" if dialect == "sqlite" else "timestamptz"
        return [
            f"CREATE TABLE parcels_now_{self.version} (tenant text NOT NULL, parcel text NOT NULL,"
            f" place text, delivered_at {moment}, PRIMARY KEY (tenant, parcel))"
        ]

    def in_version(self, version: int) -> ParcelsNow:
        return replace(self, version=version)

    def contents(self) -> Mapping[str, str]:
        return {"parcels": f"SELECT * FROM parcels_now_{self.version}"}

    def apply(self, event: Event, record: RecordedEvent, rows: Rows) -> None:
        table, key = f"parcels_now_{self.version}", {"parcel": str(record.stream)}
        match event:
            case Registered():
                rows.execute(
                    f"INSERT INTO {table} (tenant, parcel) VALUES (:tenant, :parcel)"
                    " ON CONFLICT (tenant, parcel) DO NOTHING",
                    tenant=record.tenant,
                    **key,
                )
            case Scanned(place=place):
                sql = f"UPDATE {table} SET place = :place WHERE parcel = :parcel"
                rows.execute(sql, place=place, **key)
            case _:
                sql = f"UPDATE {table} SET delivered_at = :at WHERE parcel = :parcel"
                rows.execute(sql, at=event.timestamp, **key)


@dataclass
class Counted:
    """How often each event was applied: no example to follow, for it is what the tests count."""

    version: int = 1
    name: str = "counted"
    topics: tuple[str, ...] = ("parcel.",)

    def tables(self, dialect: str) -> Sequence[str]:
        return ["CREATE TABLE counted (position bigint PRIMARY KEY, times integer NOT NULL)"]

    def apply(self, event: Event, record: RecordedEvent, rows: Rows) -> None:
        rows.execute(
            "INSERT INTO counted (position, times) VALUES (:position, 1)"
            " ON CONFLICT (position) DO UPDATE SET times = counted.times + 1",
            position=record.position,
        )


@dataclass
class Deadly(Counted):
    """Kills its process when the last row of the first page is written."""

    applied: int = 0

    def apply(self, event: Event, record: RecordedEvent, rows: Rows) -> None:
        super().apply(event, record, rows)
        self.applied += 1
        if self.applied == PAGE:
            os.kill(os.getpid(), signal.SIGKILL)
