"""The library's loggers: through structlog where it is configured, else through `logging`.

A library does not write to its user's standard output. Unless the application has configured
structlog (as the command line does), events go to the standard library's loggers, named
`settled.…`: warnings and errors are seen, the rest is there for whoever asks for it.
"""

from __future__ import annotations

import logging
from typing import Any

import structlog

_BY_LOGGING: list[structlog.typing.Processor] = [
    structlog.stdlib.filter_by_level,
    structlog.processors.format_exc_info,
    structlog.processors.KeyValueRenderer(key_order=["event"]),
]


def logger(name: str) -> Any:
    """Return a logger with structlog's interface: `logger("settled.worker").info("working", …)`."""
    if structlog.is_configured():
        return structlog.get_logger(name)
    return structlog.wrap_logger(
        logging.getLogger(name),
        processors=_BY_LOGGING,
        wrapper_class=structlog.stdlib.BoundLogger,
    )
