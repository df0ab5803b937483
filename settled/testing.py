"""Kits for testing on real parts: suites for journals and adapters, and what they run against.

- `JournalSuite` is the conformance suite of the journal, `AdapterSuite` that of provider adapters.
- `running_simulator` starts the controllable provider as a process of its own.
- `PostgresServer` starts a real PostgreSQL server from a wheel (extra `pg-local`).
- `assert_idempotent` applies each event of a log to a projection again and again;
  `assert_pages_do_not_matter` and `assert_parts_make_the_whole` cut the log in other ways, and
  `assert_forgets_alike` removes what is old sooner and later.
- `given(…).when(…).then(…)` tests state machines and process managers without a store, and
  `ManualClock` is time that only the test moves.
- `FaultRelay` stands before a server and loses, holds, delays or refuses.

Importing this needs pytest. The fixtures need no import: they are a pytest plugin.
"""

from settled.adapter_suite import AdapterSuite
from settled.infrastructure.simulator.client import SimulatorClient, running_simulator
from settled.infrastructure.simulator.contract import simulator_contract
from settled.infrastructure.testing.fault_relay import Fault, FaultRelay
from settled.infrastructure.testing.given import Decided, Given, Recorded, given, happened
from settled.infrastructure.testing.journal_suite import (
    JournalSuite,
    Store,
    postgres_store,
    sqlite_store,
)
from settled.infrastructure.testing.manual_clock import ManualClock
from settled.infrastructure.testing.postgres_server import PostgresServer
from settled.infrastructure.testing.projection_rules import (
    assert_forgets_alike,
    assert_idempotent,
    assert_pages_do_not_matter,
    assert_parts_make_the_whole,
)

__all__ = [
    "AdapterSuite",
    "Decided",
    "Fault",
    "FaultRelay",
    "Given",
    "JournalSuite",
    "ManualClock",
    "PostgresServer",
    "Recorded",
    "SimulatorClient",
    "Store",
    "assert_forgets_alike",
    "assert_idempotent",
    "assert_pages_do_not_matter",
    "assert_parts_make_the_whole",
    "given",
    "happened",
    "postgres_store",
    "running_simulator",
    "simulator_contract",
    "sqlite_store",
]
