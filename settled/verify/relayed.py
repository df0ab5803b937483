"""A relay before the database of a stage, which loses what goes through it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from settled.infrastructure.journal.postgres.address import Address
from settled.infrastructure.testing.fault_relay import FaultRelay
from settled.verify.stage import Stage


@contextmanager
def relayed(stage: Stage) -> Generator[tuple[FaultRelay, str]]:
    """Give a relay before the stage's database, and the URL that goes through it."""
    address = Address.of(stage.url)
    with FaultRelay.before_postgres(address.conninfo) as relay:
        yield relay, f"{relay.postgres_url(address.conninfo)}&schema={address.schema}"
