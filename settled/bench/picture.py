"""A report as a picture: horizontal bars, with the least and the greatest round, in plain SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from settled.bench.figure import OURS, Better, Figure
from settled.bench.runner import Measured, Report, Result, Spread
from settled.bench.words import bar_of, number

_WIDTH, _LEFT, _BAR_WIDTH = 880, 150, 460
_ROW, _TITLE, _NOTE, _GAP, _MARGIN = 20, 22, 16, 16, 16
_OURS_COLOUR, _OTHERS_COLOUR, _LIMIT_COLOUR = "#1f6f5c", "#a9b4bc", "#b3432b"
_TEXT_COLOUR = "#1d2529"

_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1d2529;stroke:#fff;stroke-width:3px;"
    "paint-order:stroke}.title{font-weight:600;font-size:14px}"
    ".note{font-size:12px;fill:#4d5a61}"
)
_COST = "wall_us"
"""What a curve shows: microseconds an operation."""


@dataclass(frozen=True)
class Group:
    """Bars that share a scale. `limit` is where the bar of the figure is."""

    title: str
    unit: str
    notes: Sequence[str]
    rows: Sequence[tuple[str, Spread]]
    limit: float | None = None

    @property
    def height(self) -> int:
        """How much room it takes."""
        return _TITLE + _NOTE * len(self.notes) + _ROW * len(self.rows) + _GAP


def draw(report: Report) -> str:
    """Return the picture as the text of an SVG file."""
    groups = [group for group in _groups(report) if len(group.rows) > 1]
    parts: list[str] = []
    top = _MARGIN
    for group in groups:
        parts += _drawn(group, top)
        top += group.height
    about = report.about
    told = f"{about['machine']} · PostgreSQL {about['postgresql']} · Python {about['python']}"
    told += " · fsync and synchronous_commit on" + (" · quick run" if report.quick else "")
    parts.append(_text(_MARGIN, top + 4, told, "note"))
    height = top + _MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
    head += f' width="{_WIDTH}" height="{height}" role="img">'
    ground = f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, f"<style>{_STYLE}</style>", ground, *parts, "</svg>", ""])


def _groups(report: Report) -> Iterator[Group]:
    for measured in report.measured:
        results = [r for r in report.results if r.figure in measured.experiment.figures]
        for metric in dict.fromkeys(result.figure.metric for result in results):
            mine = [result for result in results if result.figure.metric == metric]
            notes = [_note(result) for result in mine]
            first = next((r.figure for r in mine if r.figure.over is None), mine[0].figure)
            yield _group(measured, metric, first, notes)
        if not measured.experiment.figures:
            rows = _rows(measured, _COST)
            yield Group(measured.experiment.title, "µs an operation", (), rows)


def _note(result: Result) -> str:
    figure, told = result.figure, f"bar {bar_of(result.figure)}: {result.verdict}"
    if result.spread is None:
        return f"{figure.title}, {told}"
    return f"{figure.title}: {f'{number(result.spread.median)} {figure.unit}'.strip()}, {told}"


def _group(measured: Measured, metric: str, figure: Figure, notes: Sequence[str]) -> Group:
    unit = figure.unit if figure.over is None else "a second"
    better = "more is better" if figure.better is Better.HIGHER else "less is better"
    limit = figure.bar if figure.over is None else None
    title = f"{measured.experiment.title}{f', {unit}' if unit else ''} ({better})"
    return Group(title, unit, notes, _rows(measured, metric), limit)


def _rows(measured: Measured, metric: str) -> list[tuple[str, Spread]]:
    names = dict.fromkeys(name for one in measured.rounds for name in one)
    found = ((name, measured.spread(name, metric)) for name in names)
    return [(name, spread) for name, spread in found if spread is not None]


def _drawn(group: Group, top: int) -> Iterator[str]:
    yield _text(_MARGIN, top + 14, group.title, "title")
    y = top + _TITLE
    for note in group.notes:
        yield _text(_MARGIN, y + 7, note, "note")
        y += _NOTE
    most = max([spread.greatest for _, spread in group.rows] + [group.limit or 0.0]) or 1.0
    scale = _BAR_WIDTH / most
    ours = next((spread.median for name, spread in group.rows if name == OURS), None)
    for row, (name, spread) in enumerate(group.rows):
        colour = _OURS_COLOUR if name == OURS or ours is None else _OTHERS_COLOUR
        middle, width = y + _ROW * row + 10, max(1.0, spread.median * scale)
        yield (
            f'<rect x="{_LEFT}" y="{middle - 7}" width="{width:.1f}" height="14" rx="2"'
            f' fill="{colour}"/>'
        )
        least, greatest = (_LEFT + value * scale for value in (spread.least, spread.greatest))
        yield _line(least, middle, greatest, middle, _TEXT_COLOUR)
    if group.limit:
        x = _LEFT + group.limit * scale
        yield _line(x, y, x, y + _ROW * len(group.rows), _LIMIT_COLOUR, dashed=True)
    for row, (name, spread) in enumerate(group.rows):
        base = y + _ROW * row + 14
        yield _text(_LEFT - 8, base, name, "", anchor="end")
        told = f"{number(spread.median)} {group.unit}".rstrip()
        if ours and spread.median and name != OURS:
            told += f" · settled is {number(ours / spread.median)} × this"
        yield _text(int(_LEFT + spread.greatest * scale) + 8, base, told, "")


def _text(x: int, y: int, text: str, style: str, anchor: str = "start") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{named}>{escape(text)}</text>'


def _line(
    x: float, y: float, to_x: float, to_y: float, colour: str, *, dashed: bool = False
) -> str:
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    ends = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="1.4"{dash}/>'
