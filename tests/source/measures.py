"""What can be counted about the shape of the source: sizes, names, doors, and the ways of data and demand.

::

    python -m tests.source.measures                                 # this tree
    python -m tests.source.measures --tree /path/to/an/older/one    # another checkout, and this one beside it
    python -m tests.source.measures --lists                         # also what was counted, one to a line
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.source import ways as trace_of_ways
from tests.source.fronts import Import, Name, Source
from tests.source.public_names import hidden_exceptions, missing_names
from tests.source.repository import ROOT

NOUNS_IN_ING = {"framing", "spelling", "string", "testing", "timing"}
"""Names of files that end in -ing and still are nouns."""

DEMAND_WORDS = {
    "demand": "demand demands demanded",
    "credit": "credit credits",
    "window": "window windows",
    "grant": "grant grants granted",
    "limit": "limitb byte_limit",
    "allowance": "allowance allowances",
    "floor": "floor floors",
    "room": "room rooms",
    "allowed": "allowed",
}
"""A word for demand, and the parts of names by which it is found; a limit has other meanings as well."""

PUBLIC_WINDOWS = {"window", "max_window", "window_bytes", "windows"}
"""Names in the interface, and operators: a window there is what the field calls one."""

CREDIT_LAYERS = ("penstock.aquifer", "penstock.spark", "penstock.net", "penstock.streams", "penstock.cli")


@dataclass
class Measures:
    """The figures of one tree."""

    lines: list[int]
    past_the_door: list[Import]
    missing: dict[Name, list[str]]
    hidden: list[Name]
    homonyms: dict[str, list[str]]
    verbs: list[str]
    words: Counter[str]
    words_on_the_way: Counter[str] = field(default_factory=Counter)
    ways: dict[str, list[trace_of_ways.Call]] = field(default_factory=dict)

    def rows(self) -> Iterator[tuple[str, object]]:
        """The table, row by row."""
        lines = self.lines
        yield "files in src", len(lines)
        yield "lines in src", sum(lines)
        yield "median lines of a file", f"{statistics.median(lines):g}"
        yield "mean lines of a file", round(statistics.mean(lines))
        yield "files under 60 lines", sum(n < 60 for n in lines)
        yield "files over 400 lines", sum(n > 400 for n in lines)
        yield "files over 600 lines", sum(n > 600 for n in lines)
        yield "imports past a front door", len(self.past_the_door)
        yield "names that are needed and cannot be imported", len(self.missing)
        yield "exceptions that cannot be imported", len(self.hidden)
        yield "homonyms (class names used twice)", len(self.homonyms)
        yield "files named by a verb in -ing", len(self.verbs)
        yield "words for demand, in all names", sum(count > 0 for count in self.words.values())
        if self.ways:
            used = sum(count > 0 for count in self.words_on_the_way.values())
            yield "words for demand, in names of modules on demand's way", used
        for way, calls in self.ways.items():
            across = crossings(calls)
            whose = "the data's way" if way == "data" else "demand's way"
            yield f"{whose}: imports that cross a package border", len(across)
            yield f"{whose}: package borders (pairs)", len({(home(a), home(b)) for a, b in across})
            yield (
                f"{whose}: calls that cross a package border",
                sum(home(a) != home(b) for a, _, b, _ in calls),
            )
            yield f"{whose}: modules", len({m for a, _, b, _ in calls for m in (a, b)})

    def lists(self) -> Iterator[tuple[str, list[str]]]:
        """What was counted."""
        yield "imports past a front door", [str(each) for each in self.past_the_door]
        yield (
            "names that are needed and cannot be imported",
            [f"{name}: for {', '.join(where[:3])}" for name, where in self.missing.items()],
        )
        yield "exceptions that cannot be imported", [str(each) for each in self.hidden]
        yield "homonyms", [f"{name}: {', '.join(where)}" for name, where in self.homonyms.items()]
        yield "files named by a verb in -ing", self.verbs
        yield "words for demand, in all names", [f"{word}: {count}" for word, count in self.words.items()]
        on_the_way = [f"{word}: {count}" for word, count in self.words_on_the_way.items()]
        yield "words for demand, in names of modules on demand's way", on_the_way
        for way, calls in self.ways.items():
            yield f"imports across a border on the way of {way}", [f"{a} → {b}" for a, b in crossings(calls)]


def measure(tree: Path, *, trace: bool = True) -> Measures:
    """Measure one tree; with ``trace`` a pipeline of its code is run."""
    source = Source.of(tree)
    ways = traced(tree) if trace else {}
    return Measures(
        lines=[module.lines for module in source.modules.values()],
        past_the_door=source.past_the_door(),
        missing=missing_names(source),
        hidden=hidden_exceptions(source),
        homonyms=homonyms(source),
        verbs=verbs(source),
        words=demand_words(source, source.modules),
        words_on_the_way=demand_words(source, {m for a, _, b, _ in ways.get("demand", []) for m in (a, b)}),
        ways=ways,
    )


def homonyms(source: Source) -> dict[str, list[str]]:
    """Names of classes that more than one module has, private ones aside."""
    where = {name: [each.module for each in defined] for name, defined in sorted(source.classes.items())}
    return {name: modules for name, modules in where.items() if len(modules) > 1}


def verbs(source: Source) -> list[str]:
    """Modules and packages whose name ends in a verb in -ing."""
    last_words = ((name, name.split(".")[-1].split("_")[-1]) for name in source.modules)
    return [name for name, word in last_words if word.endswith("ing") and word not in NOUNS_IN_ING]


def demand_words(source: Source, modules: Collection[str]) -> Counter[str]:
    """How often each word for demand is part of a name in the code of these modules.

    Over all modules this also counts words that mean something else there: who is allowed to connect, or
    room on a disk. The modules on demand's way are the ones that matter.
    """
    found = Counter(dict.fromkeys(DEMAND_WORDS, 0))
    parts = {part: word for word, forms in DEMAND_WORDS.items() for part in forms.split()}
    for module in source.modules.values():
        if module.name not in modules or not module.name.startswith(CREDIT_LAYERS):
            continue
        for name in _names(module.tree):
            for part, word in parts.items():
                if (
                    re.search(rf"(?:^|_){part}(?:_|$)", name.lower())
                    and name.strip("_") not in PUBLIC_WINDOWS
                ):
                    found[word] += 1
                    break
    return found


def _names(tree: ast.Module) -> Iterator[str]:
    """Every name that a module gives to something: functions, classes, arguments, variables, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name)
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def traced(tree: Path) -> dict[str, list[trace_of_ways.Call]]:
    """Trace the ways of data and demand in the code of a tree, in a process of its own."""
    command = [sys.executable, trace_of_ways.__file__, str(tree / "src")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if result.returncode:
        raise RuntimeError(f"the pipeline of {tree} cannot be traced:\n{result.stderr}")
    return {way: [(a, b, c, d) for a, b, c, d in calls] for way, calls in json.loads(result.stdout).items()}


def crossings(calls: list[trace_of_ways.Call]) -> list[tuple[str, str]]:
    """The pairs of modules, in different packages, of which one calls the other or hands it a record."""
    return list(dict.fromkeys((a, b) for a, _, b, _ in calls if home(a) != home(b)))


def home(module: str) -> str:
    """The package that a module is in."""
    return module.rpartition(".")[0]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.source.measures", description=__doc__)
    parser.add_argument(
        "--tree", type=Path, action="append", default=[], help="another checkout (repeatable)"
    )
    parser.add_argument("--lists", action="store_true", help="also show what was counted")
    parser.add_argument("--no-trace", action="store_true", help="leave the traced run out")
    options = parser.parse_args()
    trees = [*options.tree, ROOT]
    measured = [measure(tree, trace=not options.no_trace) for tree in trees]
    columns = [list(each.rows()) for each in measured]
    print("| |", " | ".join(tree.name for tree in trees), "|")
    print("|---|" + "---:|" * len(trees))
    for row in zip(*columns, strict=True):
        print("|", row[0][0], "|", " | ".join(str(value) for _, value in row), "|")
    if options.lists:
        for tree, each in zip(trees, measured, strict=True):
            for title, lines in each.lists():
                print(f"\n## {tree.name}: {title} ({len(lines)})\n")
                print("\n".join(lines))


if __name__ == "__main__":
    main()
