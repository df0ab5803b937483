"""A rebuild in a process of its own: `python -m tests.projections.rebuilder URL WHAT [N]`.

WHAT is `before` or `after`: it kills itself around the commit of its N-th transaction. Or it is
`without-providers`: then nothing that knows of a provider, a worker or an application can be
imported, and it rebuilds all the same.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

FORBIDDEN = (
    *("settled.app", "settled.operations", "settled.declare", "settled.processes"),
    *("settled.infrastructure.function_provider", "settled.infrastructure.http"),
    *("settled.infrastructure.simulator", "settled.infrastructure.notify", "httpx2"),
)


class Refusing(MetaPathFinder):
    """Refuses to import what could act."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if any(name == one or name.startswith(f"{one}.") for one in FORBIDDEN):
            raise ImportError(f"{name} is not for a rebuild")
        return None


class Killing:
    """The store of views, which ends its process around the commit of one transaction."""

    def __init__(self, views: Any, moment: str, number: int) -> None:
        self._views, self._moment, self._left = views, moment, number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._views.of() if name in ("reading", "lead") else self._views, name)

    def of(self, schema: str = "") -> Any:
        assert not schema, "what is killed here lies with the operations view"
        return self

    @contextmanager
    def changing(self, *, durable: bool = True) -> Generator[Any]:
        self._left -= 1
        with self._views.of().changing(durable=durable) as rows:
            yield rows
            if self._left == 0 and self._moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main(url: str, what: str, number: str = "0") -> None:
    """Rebuild the operations view in small pages."""
    if what == "without-providers":
        sys.meta_path.insert(0, Refusing())
    from contextlib import closing

    from settled.infrastructure.views.building import opened_projector
    from settled.infrastructure.views.log import open_log
    from settled.projections.operations import OperationsProjection
    from settled.projections.projector import Projector
    from settled.projections.rebuild import build_part, rebuild

    with opened_projector(url) as opened, closing(open_log(url)) as log:
        projector = opened
        if what != "without-providers":
            views: Any = Killing(opened.views, what, int(number))
            projector = Projector(opened.journal, opened.mapper, views)

        def build(new: OperationsProjection) -> None:
            for part in range(2):
                build_part(projector, log, new, part, page=40)

        done = rebuild(projector, OperationsProjection(), 2, build)
        print(done.version, "rebuilt")
    if what == "without-providers":
        for name in FORBIDDEN:
            try:
                __import__(name)
            except ImportError:
                continue
            print(name, "can be imported")
        print("none can be imported")


if __name__ == "__main__":
    main(*sys.argv[1:])
