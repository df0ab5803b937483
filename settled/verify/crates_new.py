"""The newer release of the crates: weights are grams, and stored kilos are upcast."""

from __future__ import annotations

from typing import Any, ClassVar

from settled import Event
from settled.verify import crates
from settled.verify.crates import Packed, Shipped


class Weighed(Event):
    """It was weighed, in grams."""

    TOPIC: ClassVar[str] = "verify.crate.Weighed"
    SCHEMA_VERSION: ClassVar[int] = 2
    grams: int
    by: str

    @classmethod
    def upcast(cls, fields: dict[str, Any], version: int) -> dict[str, Any]:
        """Turn the kilos of the first version into grams."""
        return {"grams": fields["kilos"] * 1000, "by": fields["by"]}

    def apply(self, crate: Crate) -> None:
        """Count."""
        crate.grams += (self.grams,)


class Crate(crates.Crate):
    """A crate of the newer release."""

    TOPIC = "verify.crate"
    EVENTS = (Packed, Weighed, Shipped)


MANAGER = crates.Weigher(Weighed, {"grams": crates.KILOS * 1000})
