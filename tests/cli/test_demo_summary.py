"""The picture that the demo leaves behind says what happened."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from penstock.cli.demo.summary import MomentHistory, summary_svg
from tests.cli.test_screens import MOMENT

SLOW = [
    replace(MOMENT, elapsed=float(second), slow=10 <= second < 20, blocked=15 <= second < 21)
    for second in range(41)
]
NAMESPACE = "{http://www.w3.org/2000/svg}"


def rectangles(svg: str, kind: str) -> list[tuple[float, float]]:
    """Where the rectangles of a kind begin and end."""
    found = ElementTree.fromstring(svg).iter(f"{NAMESPACE}rect")
    return [
        (float(one.attrib["x"]), float(one.attrib["x"]) + float(one.attrib["width"]))
        for one in found
        if one.attrib.get("class") == kind
    ]


def test_the_slow_phase_is_shaded_and_waiting_is_marked_where_it_was() -> None:
    svg = summary_svg(SLOW, "All is well", "a & b < c")

    (slow,), (waited,) = rectangles(svg, "slow"), rectangles(svg, "wait")
    assert slow[0] < waited[0] < slow[1] < waited[1]
    # A quarter of the time, and a bit more than an eighth.
    assert (slow[1] - slow[0]) / (waited[1] - waited[0]) == pytest.approx(10 / 6, rel=0.01)
    assert "a &amp; b &lt; c" in svg
    for name in ("sensors send", "Spark takes", "journal", "results", "reader gets", "sensors BLOCKED"):
        assert name in svg


def test_every_point_is_inside_of_its_panel() -> None:
    svg = summary_svg([replace(m, held=m.capacity * 3) for m in SLOW], "t", "s")
    width, height = (float(ElementTree.fromstring(svg).attrib[name]) for name in ("width", "height"))

    points = [
        tuple(map(float, pair.split(",")))
        for line in re.findall(r'points="([^"]+)"', svg)
        for pair in line.split()
    ]
    assert points
    assert all(0 <= x <= width and 100 < y < height for x, y in points)


@pytest.mark.parametrize("moments", [[], SLOW[:1], [replace(MOMENT, elapsed=0.0, sent_rate=0.0)]])
def test_a_run_that_was_over_at_once_is_drawn(moments: list[object]) -> None:
    ElementTree.fromstring(summary_svg(moments, "t", "s"))  # type: ignore[arg-type]


def test_a_long_run_keeps_a_bounded_number_of_moments_from_all_of_it() -> None:
    history = MomentHistory()
    for number in range(100_000):
        history.add(replace(MOMENT, elapsed=number / 4))

    assert 600 <= len(history.moments) <= 1201
    assert history.moments[0].elapsed < 100
    assert history.moments[-1].elapsed > 24_900
