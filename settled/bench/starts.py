"""How long the command line takes to start; the floor is an interpreter that does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from statistics import median

from settled.bench.figure import OURS, RAW, Better, Contenders, Figure, Sample, experiment
from settled.bench.lab import Lab
from settled.bench.processes import path_to_us
from settled.infrastructure.clock import elapsed_seconds

_SETTLED = ("-m", "settled")


@experiment(
    "starts",
    "Start of the command line",
    Figure("help", "settled --help", "help_ms", "ms", 120, Better.LOWER),
    Figure("list", "settled ops list", "list_ms", "ms", 250, Better.LOWER),
)
def starts(lab: Lab) -> Contenders:
    """Measure whole processes, from their start to their end."""
    url = lab.cleaning.enter_context(lab.sqlite())

    def ours() -> Sample:
        return {
            "help_ms": _median_ms(lab, url, *_SETTLED, "--help"),
            "list_ms": _median_ms(lab, url, *_SETTLED, "ops", "list"),
        }

    def raw() -> Sample:
        bare = _median_ms(lab, url, "-c", "pass")
        return {"help_ms": bare, "list_ms": bare}

    return {OURS: ours, RAW: raw}


def _median_ms(lab: Lab, url: str, *words: str) -> float:
    return median(_run(lab, url, words) for _ in range(lab.sizes.starts)) * 1e3


def _run(lab: Lab, url: str, words: Sequence[str]) -> float:
    begun = elapsed_seconds()
    subprocess.run(
        [sys.executable, *words],
        check=True,
        cwd=lab.folder,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **path_to_us(), "SETTLED_URL": url},
    )
    return elapsed_seconds() - begun
