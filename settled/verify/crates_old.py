"""The older release of the crates: weights are kilos."""

from __future__ import annotations

from typing import ClassVar

from settled import Event
from settled.verify import crates
from settled.verify.crates import Packed, Shipped


class Weighed(Event):
    """It was weighed, in kilos."""

    TOPIC: ClassVar[str] = "verify.crate.Weighed"
    kilos: int
    by: str

    def apply(self, crate: Crate) -> None:
        """Count in grams."""
        crate.grams += (self.kilos * 1000,)


class Crate(crates.Crate):
    """A crate of the older release."""

    TOPIC = "verify.crate"
    EVENTS = (Packed, Weighed, Shipped)


MANAGER = crates.Weigher(Weighed, {"kilos": crates.KILOS})
