"""What the last `make coverage` measured: one row for each layer, then the modules with the most left out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import coverage

from tests.source.repository import ROOT, SOURCE

BAREST = 10
"""So many of the modules with the most lines that no fast test reaches are listed."""


def main() -> None:
    """Print the table."""
    data = coverage.Coverage(data_file=str(ROOT / ".coverage"), config_file=str(ROOT / "pyproject.toml"))
    data.load()
    statements: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    modules: dict[str, int] = {}
    for path in sorted(SOURCE.joinpath("penstock").rglob("*.py")):
        _, lines, _, missing, _ = data.analysis2(str(path))
        statements[_layer(path)] += len(lines)
        missed[_layer(path)] += len(missing)
        modules[str(path.relative_to(SOURCE))] = len(missing)
    print(f"{'layer':12} {'statements':>10} {'missed':>8} {'reached':>8}")
    for layer in sorted(statements):
        _row(layer, statements[layer], missed[layer])
    _row("all", statements.total(), missed.total())
    print("\nmost statements that no fast test reaches:")
    for module in sorted(modules, key=lambda name: -modules[name])[:BAREST]:
        print(f"  {modules[module]:5} {module}")


def _layer(path: Path) -> str:
    parts = path.relative_to(SOURCE / "penstock").parts
    return parts[0] if len(parts) > 1 else "penstock"


def _row(name: str, statements: int, missed: int) -> None:
    if statements:
        print(f"{name:12} {statements:10} {missed:8} {100 * (1 - missed / statements):7.1f}%")


if __name__ == "__main__":
    main()
