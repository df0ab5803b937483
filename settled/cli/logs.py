"""Where log lines go: to standard error, for people on a terminal and as JSON anywhere else."""

from __future__ import annotations

import sys


def configure_logging() -> None:
    """Send what the library logs to standard error; standard output holds results alone."""
    import orjson
    import structlog

    if sys.stderr.isatty():
        last: list[structlog.typing.Processor] = [structlog.dev.ConsoleRenderer()]
    else:

        def as_text(document: object, **_: object) -> str:
            return orjson.dumps(document, default=str).decode()

        last = [
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(serializer=as_text),
        ]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *last,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
