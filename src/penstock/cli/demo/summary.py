"""The picture that the demo leaves behind: rates and levels over time, with the slow phase shaded, as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from penstock.cli.demo.picture import Moment

__all__ = ["MomentHistory", "summary_svg"]

_MOST: Final = 1200
"""Moments that are kept: five minutes of them. Of a longer run every second one goes."""
_WIDTH: Final = 960
_LEFT: Final = 78
_RIGHT: Final = 150
"""Space for the names of the lines."""
_TOP: Final = 132
_PANEL: Final = 118
_BETWEEN: Final = 52

_STYLE: Final = """
  .page { fill: #ffffff } .ink { fill: #1f2933 } .soft { fill: #52606d } .grid { stroke: #e4e7eb }
  .slow { fill: #f0b429; fill-opacity: .16 } .slowname { fill: #8d6708 } .wait { fill: #cb6e17 }
  .sensors { stroke: #2868c7 } .spark { stroke: #c25016 } .journal { stroke: #2868c7 }
  .results { stroke: #127a5c } .reader { stroke: #127a5c }
  .of-sensors, .of-journal { fill: #2868c7 } .of-spark { fill: #c25016 }
  .of-results, .of-reader { fill: #127a5c }
  .line { fill: none; stroke-width: 2; stroke-linejoin: round }
  .area { fill-opacity: .10 }
  text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 13px }
  .title { font-size: 21px; font-weight: 600 } .head { font-size: 14px; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #171c22 } .ink { fill: #f0f4f8 } .soft { fill: #9fb3c8 } .grid { stroke: #323f4b }
    .slow { fill-opacity: .20 } .slowname { fill: #f7d070 } .wait { fill: #f0b429 }
    .sensors, .journal { stroke: #7fb2f5 } .of-sensors, .of-journal { fill: #7fb2f5 }
    .spark { stroke: #ff9466 } .of-spark { fill: #ff9466 }
    .results, .reader { stroke: #5fd3ac } .of-results, .of-reader { fill: #5fd3ac }
  }
"""


class MomentHistory:
    """Keeps the moments of a run, as many as a picture can show."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self._skip = 1
        self._count = 0

    def add(self, moment: Moment) -> None:
        """Keep a moment, or every second, fourth, … of a long run."""
        self._count += 1
        if self._count % self._skip:
            return
        self.moments.append(moment)
        if len(self.moments) > _MOST:
            self.moments = self.moments[::2]
            self._skip *= 2


@dataclass(frozen=True, slots=True)
class _Curve:
    """One line of a panel."""

    name: str
    kind: str
    """Its class in the style."""
    of: Callable[[Moment], float]


@dataclass(frozen=True, slots=True)
class _Panel:
    title: str
    curves: tuple[_Curve, ...]
    most: float | None = None
    """The end of its scale, if that is fixed."""
    unit: str = ""


def _share(held: int, capacity: int) -> float:
    return 100 * held / capacity if capacity else 0.0


_PANELS: Final = (
    _Panel(
        "Readings per second",
        (
            _Curve("sensors send", "sensors", lambda m: m.sent_rate),
            _Curve("Spark takes", "spark", lambda m: m.taken_rate),
        ),
    ),
    _Panel(
        "How full the logs are",
        (
            _Curve("journal", "journal", lambda m: _share(m.held, m.capacity)),
            _Curve("results", "results", lambda m: _share(m.results_held, m.results_capacity)),
        ),
        most=100,
        unit=" %",
    ),
    _Panel("Results per second", (_Curve("reader gets", "reader", lambda m: m.results_rate),)),
)


def summary_svg(moments: Sequence[Moment], title: str, subtitle: str) -> str:
    """Draw a run; empty panels if there are no moments."""
    end = max((moment.elapsed for moment in moments), default=1.0) or 1.0
    height = _TOP + len(_PANELS) * (_PANEL + _BETWEEN) + 54
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img" aria-label="{escape(title, quote=True)}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{height}"/>',
        _text(28, 40, title, "title ink"),
        _text(28, 64, subtitle, "soft"),
    ]
    bottom = _TOP + len(_PANELS) * (_PANEL + _BETWEEN) - _BETWEEN
    for begin, until in _spans(moments, lambda moment: moment.slow):
        x, width = _x(begin, end), max(_x(until, end) - _x(begin, end), 1)
        parts.append(
            f'<rect class="slow" x="{x:.1f}" y="{_TOP - 26}" width="{width:.1f}" '
            f'height="{bottom - _TOP + 26}"/>'
        )
        parts.append(_text(x + width / 2, _TOP - 32, "the reader is slow", "slowname", "middle"))
    for number, panel in enumerate(_PANELS):
        parts += _panel(panel, moments, _TOP + number * (_PANEL + _BETWEEN), end)
    parts += _waiting(moments, bottom + 16, end)
    parts += _time_axis(bottom + 34, end)
    return "\n".join([*parts, "</svg>\n"])


def _x(elapsed: float, end: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * elapsed / end


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'


def _panel(panel: _Panel, moments: Sequence[Moment], top: float, end: float) -> list[str]:
    highest = max((curve.of(moment) for moment in moments for curve in panel.curves), default=0.0)
    most = panel.most if panel.most is not None else _round_up(highest)
    parts = [_text(_LEFT, top - 10, panel.title, "head ink")]
    for part in (0.0, 0.5, 1.0):
        y = top + _PANEL * (1 - part)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(_LEFT - 8, y + 4, f"{most * part:,.0f}{panel.unit}", "soft", "end"))
    names: list[tuple[float, _Curve]] = []
    for curve in panel.curves:
        points = [
            (_x(moment.elapsed, end), top + _PANEL * (1 - min(curve.of(moment) / most, 1.0)))
            for moment in moments
        ]
        if not points:
            continue
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        floor = top + _PANEL
        parts.append(
            f'<polygon class="area of-{curve.kind}" '
            f'points="{points[0][0]:.1f},{floor} {path} {points[-1][0]:.1f},{floor}"/>'
        )
        parts.append(f'<polyline class="line {curve.kind}" points="{path}"/>')
        names.append((points[-1][1], curve))
    for y, curve in _apart(names):
        parts.append(_text(_WIDTH - _RIGHT + 12, y + 4, curve.name, f"of-{curve.kind}"))
    return parts


def _apart(names: list[tuple[float, _Curve]]) -> list[tuple[float, _Curve]]:
    """Move names that would be written over each other apart."""
    placed: list[tuple[float, _Curve]] = []
    for y, curve in sorted(names, key=lambda name: name[0], reverse=True):
        placed.append((min(y, placed[-1][0] - 17) if placed else y, curve))
    return placed


def _spans(moments: Sequence[Moment], is_so: Callable[[Moment], bool]) -> list[tuple[float, float]]:
    """The times in which something is so, each with its beginning and its end."""
    spans: list[tuple[float, float]] = []
    begun: float | None = None
    for moment in moments:
        if is_so(moment) and begun is None:
            begun = moment.elapsed
        elif not is_so(moment) and begun is not None:
            spans.append((begun, moment.elapsed))
            begun = None
    if begun is not None:
        spans.append((begun, moments[-1].elapsed))
    return spans


def _waiting(moments: Sequence[Moment], y: float, end: float) -> list[str]:
    """A stripe below the panels, wherever the sensors could not send."""
    spans = _spans(moments, lambda moment: moment.blocked)
    parts = [
        f'<rect class="wait" x="{_x(begin, end):.1f}" y="{y:.1f}" height="7" rx="2" '
        f'width="{max(_x(until, end) - _x(begin, end), 2):.1f}"/>'
        for begin, until in spans
    ]
    if spans:
        parts.append(_text(_WIDTH - _RIGHT + 12, y + 8, "sensors BLOCKED", "wait"))
    return parts


def _time_axis(y: float, end: float) -> list[str]:
    step = next((s for s in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600) if end / s <= 10), 1800)
    return [_text(_x(at, end), y + 12, f"{at} s", "soft", "middle") for at in range(0, int(end) + 1, step)]


def _round_up(value: float) -> float:
    """The next number with one digit and zeros behind it."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 3, 4, 5, 6, 8, 10) if value <= power * step * 1.0001)
