"""Where log lines go: to standard error, for people on a terminal and as JSON anywhere else."""

from __future__ import annotations

import sys


def configure_logging() -> None:
    """Send what the library logs to standard error; standard output holds results alone."""
    import orjson
    import structlog

    # Tracebacks are plain either way: the richer forms show local variables, secrets among them.
    if sys.stderr.isatty():
        console = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        last: list[structlog.typing.Processor] = [console]
    else:

        def as_text(document: object, **_: object) -> str:
            return orjson.dumps(document, default=str).decode()

        last = [
            structlog.processors.format_exc_info,
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
