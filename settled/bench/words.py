"""Figures in words: for the table, the picture and the log."""

from __future__ import annotations

from settled.bench.figure import Better, Figure
from settled.bench.runner import Spread


def number(value: float) -> str:
    """Return a number with three digits that mean something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def bar_of(figure: Figure) -> str:
    """Return a bar, such as "≥ 3,000 ops/s"."""
    sign = "≥" if figure.better is Better.HIGHER else "≤"
    return f"{sign} {number(figure.bar)} {figure.unit}".rstrip()


def spread_of(spread: Spread | None) -> str:
    """Return a median with the least and the greatest round."""
    if spread is None:
        return ""
    if spread.least == spread.greatest:
        return number(spread.median)
    return f"{number(spread.median)} ({number(spread.least)} to {number(spread.greatest)})"
