"""The checks of `settled verify`, as this project's own hardest tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from settled.infrastructure.simulator.client import SimulatorClient
from settled.verify.check import Check, registered
from settled.verify.ground import Ground, ground
from settled.verify.stage import Stage, staged

DATABASES = {"sqlite": "sqlite", "postgres": "postgresql"}
"""The name of a test's database -> its dialect, as checks name it."""

CASES = [
    pytest.param(name, check, id=f"{name}-{check.id}-{check.title.replace(' ', '-')}")
    for check in registered()
    for name, dialect in DATABASES.items()
    if dialect in check.databases and not check.own_server
]
OWN_SERVER = [
    pytest.param(number, check, id=f"{check.id}-{check.title.replace(' ', '-')}")
    for number, check in enumerate(registered())
    if check.own_server
]


@pytest.mark.parametrize(("store_url", "check"), CASES, indirect=["store_url"])
def test_check(stage: Stage, check: Check) -> None:
    """It raises when a promise does not hold."""
    check.run(stage)


@pytest.fixture(scope="module")
def own_ground() -> Iterator[Ground]:
    """A PostgreSQL server that checks may stop."""
    with ground(None, keep=False, own_server=True) as place:
        yield place


@pytest.mark.parametrize(("number", "check"), OWN_SERVER)
def test_check_on_a_server_of_its_own(
    own_ground: Ground, simulator: SimulatorClient, number: int, check: Check
) -> None:
    """As above, for what may be done to no server of anybody else's."""
    with (
        own_ground.store(f"{check.id}-{number}", own_server=True) as (url, folder),
        staged(url, simulator, folder, server=own_ground.server) as stage,
    ):
        check.run(stage)
