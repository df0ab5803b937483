"""Builders of a projection: in this process, or one process for each part."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from multiprocessing import get_context

from settled.domain.errors import NotPossible
from settled.domain.journal.mapper import EventMapper
from settled.domain.keys import DerivedKeys
from settled.infrastructure.journal.opening import open_journal
from settled.infrastructure.views.log import open_log
from settled.infrastructure.views.opening import open_views
from settled.projections.projection import Projecting
from settled.projections.projector import Projector
from settled.projections.rebuild import build_part, progress

_TELL_SECONDS = 0.2

Tell = Callable[[int, int], None]
"""Hears how much of the log is built, and how much there is to build, in positions."""


@contextmanager
def opened_projector(url: str) -> Generator[Projector]:
    """Open a journal to read and the store of its views. What this opens has no way to act."""
    with closing(open_journal(url, require_fsync=False)) as journal:
        mapper = EventMapper(DerivedKeys(journal.installation().secret))
        with closing(open_views(url)) as views:
            yield Projector(journal, mapper, views)


def build(url: str, projector: Projector, projection: Projecting, workers: int, tell: Tell) -> None:
    """Build every part of a version on this many processes; one is this process itself.

    Raises NotPossible where a builder failed; what it built stays.
    """
    if workers == 1:
        with closing(open_log(url)) as log:
            parts = progress_parts(projector, projection)
            for part in range(parts):
                build_part(projector, log, projection, part, _telling(projector, projection, tell))
        return
    spawning = get_context("spawn")  # a fork would share connections
    builders = [
        spawning.Process(target=_builder, args=(url, projection, part, workers, os.getpid()))
        for part in range(workers)
    ]
    for builder in builders:
        builder.start()
    try:
        while any(builder.is_alive() for builder in builders):
            builders[0].join(_TELL_SECONDS)
            for builder in builders[1:]:
                builder.join(0 if builders[0].is_alive() else _TELL_SECONDS)
            tell(*progress(projector, projection))
    finally:
        for builder in builders:
            if builder.is_alive():
                builder.terminate()
            builder.join()
    failed = [builder for builder in builders if builder.exitcode]
    if failed:
        raise NotPossible(
            f"{len(failed)} of {workers} builders of {projection.name} failed.",
            hint="Standard error says why. The same rebuild again goes on where it was.",
        )


def progress_parts(projector: Projector, projection: Projecting) -> int:
    """Return in how many parts a version is built."""
    from settled.projections import register

    with projector.store(projection).reading() as rows:
        return len(register.parts(rows, projection))


def _telling(projector: Projector, projection: Projecting, tell: Tell) -> Callable[[], bool]:
    def go_on() -> bool:
        tell(*progress(projector, projection))
        return True

    return go_on


def _builder(url: str, projection: Projecting, number: int, workers: int, parent: int) -> None:
    """Build every part whose turn is this builder's, as long as whoever asked for it lives."""
    with opened_projector(url) as projector, closing(open_log(url)) as log:
        for part in range(number, progress_parts(projector, projection), workers):
            build_part(projector, log, projection, part, lambda: os.getppid() == parent)
