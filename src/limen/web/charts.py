"""Small pictures for the page, as SVG that takes its colours from the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_WIDTH, _HEIGHT, _FLOOR = 320.0, 120.0, 100.0
_BINS = 40


def histogram(latest: Sequence[float], eta: float) -> str:
    """Strangeness of the latest inputs, known and novel, with the cut."""
    values = np.array(latest, dtype=float)
    values = values[np.isfinite(values)]
    if not values.size:
        return ""
    low = float(min(np.quantile(values, 0.01), eta - 1))
    far = min(float(np.quantile(values, 0.98)), eta + 4 * (eta - low))  # the rest is at the end
    high = max(far, eta + 1)
    counts, edges = np.histogram(np.clip(values, low, high), _BINS, (low, high))
    tall, wide = _FLOOR - 12, _WIDTH / _BINS
    bars = []
    for count, left, right in zip(counts.tolist(), edges[:-1], edges[1:], strict=True):
        height = tall * count / counts.max()
        x = (left - low) / (high - low) * _WIDTH
        kind = "novel" if (left + right) / 2 >= eta else "known"
        if count:
            bars.append(
                f'<rect class="{kind}" x="{x + 0.5:.1f}" y="{_FLOOR - height:.1f}" '
                f'width="{wide - 1:.1f}" height="{height:.1f}"/>'
            )
    cut = (eta - low) / (high - low) * _WIDTH
    anchor = "end" if cut > _WIDTH * 0.6 else "start"
    shift = -5 if anchor == "end" else 5
    novel = int(np.count_nonzero(values >= eta))
    label = f"{novel} of the latest {values.size} inputs lie at or above the cut {eta:.2f}"
    return (
        f'<svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" aria-label="{label}">'
        f"{''.join(bars)}"
        f'<line class="axis" x1="0" x2="{_WIDTH:.0f}" y1="{_FLOOR}" y2="{_FLOOR}"/>'
        f'<line class="cut" x1="{cut:.1f}" x2="{cut:.1f}" y1="0" y2="{_FLOOR}"/>'
        f'<text class="cut" x="{cut + shift:.1f}" y="10" text-anchor="{anchor}">'
        f"cut {eta:.2f}</text>"
        f'<text x="0" y="{_HEIGHT - 5}">{low:.1f}</text>'
        f'<text x="{_WIDTH:.0f}" y="{_HEIGHT - 5}" text-anchor="end">{high:.1f}, stranger</text>'
        "</svg>"
    )


def eta_history(history: Sequence[dict[str, Any]]) -> str:
    """What each class asked for, and the cut that followed from all until then."""
    from xml.sax.saxutils import escape, quoteattr

    if not history:
        return ""
    asked = [float(piece["eta"]) for piece in history]
    values = [float(piece["value"]) for piece in history]
    low, high = min(asked + values), max(asked + values)
    room = max(high - low, 0.2)
    low, high = low - 0.12 * room, high + 0.12 * room
    width, height, floor = max(_WIDTH, 44.0 * len(history)), 150.0, 122.0

    def place(number: int, value: float) -> tuple[float, float]:
        x = 22 + (width - 44) * number / max(len(history) - 1, 1)
        return x, floor * (high - value) / (high - low)

    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*p) for p in enumerate(values)))
    marks, names = [], []
    for number, piece in enumerate(history):
        x, y = place(number, asked[number])
        kind = "known" if piece["source"] == "held out" else "novel"
        told = f"{piece['label']}: asked for {asked[number]:.2f}, then {values[number]:.2f}"
        marks.append(
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4">'
            f"<title>{escape(told)}</title></circle>"
        )
        names.append(
            f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">'
            f"{escape(str(piece['label'])[:8])}</text>"
        )
    label = quoteattr(f"eta is {values[-1]:.2f} after {len(history)} classes met as unknown")
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label={label}>'
        f'<polyline class="eta" points="{points}"/>{"".join(marks)}{"".join(names)}</svg>'
    )
