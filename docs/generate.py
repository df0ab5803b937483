"""Writes what the pages take from the code: `python docs/generate.py`, from the root of the tree.

A page cannot drift from the code then: a test makes the pages anew and compares.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from docs.examples.deployment import Deployment  # noqa: E402
from settled.domain.machine import ABSENT, Lifecycle  # noqa: E402
from settled.domain.operation.lifecycle import LIFECYCLE  # noqa: E402
from settled.domain.operation.operation import Operation  # noqa: E402
from settled.domain.run.run import Run  # noqa: E402

BLOCK = re.compile(r"(<!-- made from (?P<source>.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def lifecycle_page() -> str:
    """Return the page of the operation's lifecycle."""
    return "\n".join(
        [
            "# The lifecycle of an operation",
            "",
            "Made by `python docs/generate.py` from `domain/operation/lifecycle.py`, the one place",
            "where it is written down: the guard, this page and the tests come from that table.",
            "Why it is so: [decision 2](decisions/0002-lifecycle.md).",
            "",
            *picture(LIFECYCLE),
            "",
            "A name in brackets is a guard: a further condition that the operation itself checks.",
            "",
            "## States",
            "",
            *states(LIFECYCLE),
            "## Events",
            "",
            *arrows(LIFECYCLE),
            "",
            "What each event means:",
            "",
            *meanings(),
            "",
            "## What is refused",
            "",
            *refusals(LIFECYCLE),
        ]
    )


def picture(lifecycle: Lifecycle) -> list[str]:
    """Return the Mermaid picture, without self-loops."""
    return ["```mermaid", lifecycle.mermaid().rstrip(), "```"]


def states(lifecycle: Lifecycle) -> Iterator[str]:
    """Yield a paragraph for each state."""
    for state in lifecycle.states.values():
        tag = " (settled)" if state.settled else " (held)" if state.held else ""
        yield f"### {state.name}{tag}"
        yield ""
        yield " ".join(state.meaning.split())
        yield ""


def arrows(lifecycle: Lifecycle) -> Iterator[str]:
    """Yield the table of arrows."""
    yield "| event | from | to | guard |"
    yield "|---|---|---|---|"
    for arrow in lifecycle.arrows:
        sources = ", ".join("(nothing)" if name == ABSENT else name for name in arrow.sources)
        guard = f"`{arrow.guard}`" if arrow.guard else ""
        target = arrow.target or "the same state"
        yield f"| {arrow.event} | {sources} | {target} | {guard} |".replace("|  |", "| |")


def meanings() -> Iterator[str]:
    """Yield what each event of an operation means, and what each guard refuses."""
    for event in Operation.EVENTS:
        yield f"- **{event.name()}**: {_first_paragraph(event.__doc__)}"
    guards = dict.fromkeys(arrow.guard for arrow in LIFECYCLE.arrows if arrow.guard)
    yield ""
    yield "And each guard:"
    yield ""
    for guard in guards:
        yield f"- `{guard}`: {_first_paragraph(getattr(Operation, guard).__doc__)}"


def refusals(lifecycle: Lifecycle) -> Iterator[str]:
    """Yield the errors for pairs of a state and an event that have no arrow."""
    for rule in lifecycle.refusals:
        yield f"- {', '.join(rule.events)} in {', '.join(rule.states)}: `{rule.error.__name__}`."
        yield f"  {rule.reason} {rule.hint}"
    yield "- Everything else that has no arrow: `TransitionRefused`, which names what can happen."
    yield ""


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())


def with_blocks(page: str) -> str:
    """Return a page whose blocks hold what their sources hold now."""

    def block(found: re.Match[str]) -> str:
        source = found["source"]
        if source == "the lifecycle":
            lines = picture(Deployment.LIFECYCLE)
        elif source == "the lifecycle of a run":
            lines = [*picture(Run.LIFECYCLE), "", *states(Run.LIFECYCLE)]
        else:
            lines = ["```python", (DOCS / source).read_text(encoding="utf-8").rstrip(), "```"]
        return found[1] + "\n".join(lines) + "\n" + found[3]

    return BLOCK.sub(block, page)


def pages() -> dict[Path, str]:
    """Return each page that is made, with what it has to hold."""
    with_sources = (DOCS / "state-machines.md", DOCS / "runs.md")
    return {
        DOCS / "lifecycle.md": lifecycle_page(),
        **{page: with_blocks(page.read_text(encoding="utf-8")) for page in with_sources},
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
