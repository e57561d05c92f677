"""The pictures of docs/architecture.md, made from the code.

``python -m tests.source.architecture`` traces the ways of data and demand, reads the imports, and writes both
into the page and into the drawings beside it. The tests compare.
"""

from __future__ import annotations

import re
from collections import Counter
from html import escape
from pathlib import Path

from tests.source.fronts import Source, package_of
from tests.source.measures import crossings, home, traced
from tests.source.repository import ROOT

PAGE = ROOT / "docs" / "architecture.md"
WAYS = ROOT / "docs" / "ways.svg"
IMPORTS = ROOT / "docs" / "imports.svg"

Pair = tuple[str, str]

_ROW = re.compile(r"^\| `(.+?)` \| `(.+?)` \|$", re.MULTILINE)
_DATA, _DEMAND, _INK, _PAPER = "#00796b", "#c2571a", "#37474f", "#fafafa"


# ---------------------------------------------------------------- what the code says
def imports_between_packages(source: Source) -> set[Pair]:
    """Which package imports something of which other one."""
    pairs = {
        (package_of(each.importer), package_of(_target(source, each.module, each.name)))
        for module in source.modules.values()
        for each in module.imports
    }
    return {(a, b) for a, b in pairs if a != b and _is_package(source, a, b)}


def _target(source: Source, module: str, name: str | None) -> str:
    inner = f"{module}.{name}"
    return inner if inner in source.modules else module


def _is_package(source: Source, *names: str) -> bool:
    return all(name != "penstock" and name in source.modules and source[name].is_package for name in names)


def layers(arrows: set[Pair]) -> list[str]:
    """The packages, each above those that it imports."""
    left = {name for pair in arrows for name in pair}
    order: list[str] = []
    while left:
        free = sorted(name for name in left if not any(a in left and b == name for a, b in arrows))
        if not free:
            raise ValueError(f"packages import each other in a circle: {sorted(left)}")
        order += free
        left -= set(free)
    return order


# ---------------------------------------------------------------- the page
def table_of_ways(ways: dict[str, list[Pair]]) -> str:
    """The crossings of both ways, as the page shows them."""
    lines = []
    for way, pairs in ways.items():
        title = "The data's way" if way == "data" else "Demand's way"
        lines += [f"{title}, {len(pairs)} crossings:", "", "| From | To |", "|---|---|"]
        lines += [f"| `{_short(a)}` | `{_short(b)}` |" for a, b in pairs]
        lines.append("")
    return "\n".join(lines)


def table_of_imports(arrows: set[Pair]) -> str:
    """Who imports whom, the topmost first."""
    lines = ["| Package | imports |", "|---|---|"]
    for package in layers(arrows):
        text = ", ".join(f"`{_short(b)}`" for a, b in sorted(arrows) if a == package)
        lines.append(f"| `{_short(package)}` | {text or 'nothing of ours'} |")
    return "\n".join(lines) + "\n"


def ways_in(page: str) -> dict[str, list[Pair]]:
    """The crossings that a page shows."""
    data, _, demand = section(page, "ways").partition("Demand's way")
    return {
        way: [
            (f"penstock.{a}", f"penstock.{b}")
            for a, b in re.findall(r"^\| `(.+?)` \| `(.+?)` \|$", text, re.M)
        ]
        for way, text in (("data", data), ("demand", demand))
    }


def section(page: str, name: str) -> str:
    """What stands between the marks of a generated part."""
    return page.partition(f"<!-- {name} -->\n")[2].partition(f"<!-- end of {name} -->")[0].strip("\n")


def with_section(page: str, name: str, text: str) -> str:
    """A page with a generated part replaced."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = page.partition(start)
    return f"{before}{start}\n{text.strip()}\n\n{end}{rest.partition(end)[2]}"


def _short(module: str) -> str:
    return module.removeprefix("penstock.")


# ---------------------------------------------------------------- the drawings
def draw_ways(ways: dict[str, list[Pair]]) -> str:
    """Packages in a row; the data's way in arcs above it, demand's way in arcs below."""
    packages = list(dict.fromkeys(home(m) for way in ways.values() for pair in way for m in pair))
    step, middle = 128, 210
    at = {package: 80 + step * number for number, package in enumerate(packages)}
    width, height = 80 + step * len(packages), 420
    parts = [_label(20, 28, "data", _DATA, "start"), _label(20, height - 16, "demand", _DEMAND, "start")]
    for way, colour, up in (("data", _DATA, True), ("demand", _DEMAND, False)):
        arcs = Counter((home(a), home(b)) for a, b in ways[way])
        parts += [_arc(at[a], at[b], middle, count, colour, up) for (a, b), count in arcs.items()]
    for package, x in at.items():
        first, _, last = _short(package).rpartition(".")
        parts.append(
            f'<rect x="{x - 56}" y="{middle - 20}" width="112" height="40" rx="6" '
            f'fill="{_PAPER}" stroke="{_INK}"/>'
        )
        parts.append(_label(x, middle - 3, first or last, _INK))
        if first:
            parts.append(_label(x, middle + 13, last, _INK, weight="bold"))
    return _svg(width, height, parts)


def _arc(a: int, b: int, middle: int, count: int, colour: str, up: bool) -> str:
    side = -1 if up else 1
    ahead = 1 if a < b else -1
    start, end, edge = a + 10 * ahead, b - 26 * ahead, middle + side * 20
    top = edge + side * min(150, 24 + abs(b - a) * 0.28)
    path = f"M {start} {edge} C {start} {top:.0f}, {end} {top:.0f}, {end} {edge + side * 4}"
    number = _label((start + end) // 2, int(edge + (top - edge) * 0.75) - side * 4, str(count), colour)
    mark = "data" if up else "demand"
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{1 + count * 0.6:.1f}" '
        f'marker-end="url(#{mark})"/>' + (number if count > 1 else "")
    )


def draw_imports(arrows: set[Pair]) -> str:
    """Packages one above the other; an arc to the right for every import downwards."""
    order = layers(arrows)
    step, x = 62, 130
    at = {package: 40 + step * number for number, package in enumerate(order)}
    parts = []
    for a, b in sorted(arrows):
        reach = x + 80 + (at[b] - at[a]) * 0.8
        path = f"M {x + 70} {at[a]} C {reach:.0f} {at[a]}, {reach:.0f} {at[b]}, {x + 75} {at[b]}"
        parts.append(
            f'<path d="{path}" fill="none" stroke="{_INK}" stroke-opacity="0.55" stroke-width="1.6" '
            'marker-end="url(#import)"/>'
        )
    for package, y in at.items():
        parts.append(
            f'<rect x="{x - 70}" y="{y - 16}" width="140" height="32" rx="6" '
            f'fill="{_PAPER}" stroke="{_INK}"/>'
        )
        parts.append(_label(x, y + 5, _short(package), _INK, weight="bold"))
    height = 40 + step * len(order)
    return _svg(int(x + 120 + step * len(order) * 0.62), height, parts)


def _label(x: int, y: int, text: str, colour: str, anchor: str = "middle", weight: str = "normal") -> str:
    return (
        f'<text x="{x}" y="{y}" fill="{colour}" font-size="14" font-weight="{weight}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )


def _svg(width: int, height: int, parts: list[str]) -> str:
    markers = "".join(
        f'<marker id="{name}" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M 0 0 L 8 4 L 0 8 z" fill="{colour}"/></marker>'
        for name, colour in (("data", _DATA), ("demand", _DEMAND), ("import", _INK))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif"><defs>{markers}</defs>\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def main() -> None:
    """Write the page and the drawings."""
    arrows = imports_between_packages(Source.of(ROOT))
    ways = {way: crossings(calls) for way, calls in traced(ROOT).items()}
    page = with_section(PAGE.read_text("utf-8"), "ways", table_of_ways(ways))
    PAGE.write_text(with_section(page, "imports", table_of_imports(arrows)), "utf-8")
    WAYS.write_text(draw_ways(ways), "utf-8")
    IMPORTS.write_text(draw_imports(arrows), "utf-8")
    for path in (PAGE, WAYS, IMPORTS):
        print(Path(path).relative_to(ROOT))


if __name__ == "__main__":
    main()
