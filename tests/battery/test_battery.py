"""The checks of `settled verify`, as this project's own hardest tests."""

from __future__ import annotations

import pytest

from settled.verify.check import Check, registered
from settled.verify.stage import Stage

DATABASES = {"sqlite": "sqlite", "postgres": "postgresql"}
"""The name of a test's database -> its dialect, as checks name it."""

CASES = [
    pytest.param(name, check, id=f"{name}-{check.id}-{check.title.replace(' ', '-')}")
    for check in registered()
    for name, dialect in DATABASES.items()
    if dialect in check.databases and not check.own_server
]


@pytest.mark.parametrize(("store_url", "check"), CASES, indirect=["store_url"])
def test_check(stage: Stage, check: Check) -> None:
    """It raises when a promise does not hold."""
    check.run(stage)
