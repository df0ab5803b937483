"""The JSON Schema of events as they are stored: the envelope, and the body beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from settled.domain.inbox import Evidence as Evidence  # imported, it declares its events
from settled.domain.journal.mapper import IN_COLUMNS
from settled.domain.machine.event import TOPICS, Event
from settled.domain.operation.operation import Operation as Operation  # as above
from settled.domain.purges import Purges as Purges  # as above
from settled.domain.run.run import Run as Run  # as above

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def event_schemas() -> dict[str, Any]:
    """Return the schemas of every declared event: topic -> schema version -> envelope and body.

    Today's version of each: older ones are read by being turned into it. `body` is null for an
    event that has nothing to erase.
    """
    return {
        "$schema": DIALECT,
        "columns": sorted(IN_COLUMNS),
        "events": {topic: _versions(TOPICS[topic]) for topic in sorted(TOPICS)},
    }


def _versions(event: type[Event]) -> dict[str, Any]:
    whole = event.model_json_schema(mode="serialization")
    names = set(whole["properties"]) - IN_COLUMNS
    return {
        str(event.SCHEMA_VERSION): {
            "title": event.name(),
            "description": whole.get("description", ""),
            "min_reader": event.MIN_READER,
            "envelope": _part(whole, names - event.BODY),
            "body": _part(whole, names & event.BODY) if event.BODY else None,
        }
    }


def _part(whole: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the schema of some of the properties; every one of them is written, always."""
    ordered = [name for name in whole["properties"] if name in set(names)]
    part: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: whole["properties"][name] for name in ordered},
        "required": ordered,
    }
    definitions = _used(part, cast("dict[str, Any]", whole.get("$defs", {})))
    return part | ({"$defs": definitions} if definitions else {})


def _used(part: object, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definitions that a schema refers to, also through others."""
    found: dict[str, Any] = {}
    waiting = list(_references(part))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = definitions[name]
            waiting += _references(definitions[name])
    return dict(sorted(found.items()))


def _references(part: object) -> Iterable[str]:
    if isinstance(part, dict):
        for name, value in cast("dict[str, object]", part).items():
            if name == "$ref" and isinstance(value, str):
                yield value.rpartition("/")[2]
            else:
                yield from _references(value)
    elif isinstance(part, list):
        for value in cast("list[object]", part):
            yield from _references(value)
