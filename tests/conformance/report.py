"""What the kit says about all of our own subjects: the tables of ``docs/conformance.md``, and full reports.

From the root of a checkout::

    python -m tests.conformance.report                      count by family
    python -m tests.conformance.report conformance.html     write every result as well; .md and .json too
    python -m tests.conformance.report --page               write the tables of the page anew
"""

from __future__ import annotations

import inspect
import json
import logging
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.spec import RULES
from penstock.streams import Flux, Mono, on_dropped
from penstock.tck import (
    NOT_CHECKED,
    IdentityProcessorVerification,
    PublisherVerification,
    Report,
    Result,
    SubscriberBlackboxVerification,
    SubscriberWhiteboxVerification,
    Verification,
    kind_of,
    names_of_tests,
    rule_of,
    write_report,
)
from penstock.tck.names import KINDS
from tests.conformance import (
    flux_shapes,
    mono_shapes,
    test_every_operator,
    test_our_processors,
    test_our_subscribers,
)

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
DIFFERENTIAL = Path(__file__).parent / "jvm" / "differential.json"

Families = dict[str, list[type[Verification]]]

# ---------------------------------------------------------------- the matrix


def families() -> Families:
    """Every subject of our own, sorted by what it is for: the modules of the fluent methods say that."""
    found: Families = {"sources": []}
    for stream, sources in ((Flux, flux_shapes.FLUX_SOURCES), (Mono, mono_shapes.MONO_SOURCES)):
        found["sources"] += [_of(f"{stream.__name__}.{name}") for name in sources]
    for stream, operators in ((Flux, flux_shapes.FLUX_OPERATORS), (Mono, mono_shapes.MONO_OPERATORS)):
        for name in operators:
            module = getattr(stream, name).__module__.rpartition(".")[2]
            family = "converting" if module == "leaving" else module
            found.setdefault(family, []).append(_of(f"{stream.__name__}.{name}"))
    found = {"sources": found.pop("sources"), **dict(sorted(found.items()))}
    found["rails"] = [_of(f"ParallelFlux.{name}") for name in flux_shapes.RAILS]
    found["sinks"] = [_of(f"Sinks.{name}") for name in flux_shapes.SINKS]
    found["subscribers"] = [
        *_classes(test_our_subscribers),
        *map(test_our_subscribers.before_a_foreign_publisher, test_our_subscribers.OPERATORS),
    ]
    found["processors"] = _classes(test_our_processors)
    return found


def _of(name: str) -> type[Verification]:
    return test_every_operator.verification(name)


def _classes(module: ModuleType) -> list[type[Verification]]:
    named = (found for name, found in vars(module).items() if name.startswith("Test"))
    return [found for found in named if issubclass(found, Verification)]


def results(verifications: list[type[Verification]]) -> Iterator[Result]:
    """Run them all; what they drop is part of the tests, and need not be logged."""
    with on_dropped(error=lambda error, where: None, element=lambda element, where: None):
        for verification in verifications:
            yield from test_every_operator.kit_says(verification)


def matrix(found: Mapping[str, list[Result]]) -> str:
    """One line for a family: how many subjects, and what the tests said."""
    lines = [_row("Family", "Subjects", "Passed", "Failed", "Skipped"), _row("---", *["---:"] * 4)]
    total: Counter[str] = Counter()
    for family, said in found.items():
        counts = Counter(result.verdict for result in said)
        counts["subjects"] = len({result.subject for result in said})
        total += counts
        lines.append(_counted(family, counts))
    return "\n".join([*lines, _counted("**all**", total)])


def _counted(name: str, counts: Counter[str]) -> str:
    return _row(name, *(f"{counts[what]:,}" for what in ("subjects", "pass", "fail", "skip")))


# ---------------------------------------------------------------- the rules

LETTERS: dict[str, type[Verification]] = {
    "P": PublisherVerification,
    "W": SubscriberWhiteboxVerification,
    "B": SubscriberBlackboxVerification,
    "X": IdentityProcessorVerification,
}
"""Where a test is, as the table says it; a Processor inherits those of P and W, which are not named again."""

STRENGTHS: dict[str, str] = {
    "1.3": "stochastic",
    "1.8": "firm; timed on threads",
    "2.6": "partly",
    "2.7": "stochastic",
    "3.4": "timed",
    "3.5": "timed, stochastic",
    "3.12": "firm; timed on threads",
}
"""Where a test can be wrong: by chance, by the clock, or as it sees a part only. Elsewhere it is firm."""

WATCHED: dict[str, str] = {
    "2.6": "W: Told to leave, the Subscriber cancels; when else it should, only it knows.",
    "2.12": "P: A second `on_subscribe` is noticed in every test.",
}
"""Rules without a test of their own, which other tests notice."""


def rules() -> str:
    """One line for each rule: whom it binds, how strongly, how well it is checked, and by which tests."""
    lines = [_row("Rule", "Binds", "Level", "Check", "What the tests do"), _row(*["---"] * 5)]
    for entry in RULES.values():
        if entry.id in NOT_CHECKED:
            strength, tests = "none", [f"Not checked: {_reason(entry.id)}."]
        else:
            strength = STRENGTHS.get(entry.id, "firm")
            tests = [WATCHED[entry.id]] if entry.id in WATCHED else list(_tests(entry.id))
        lines.append(
            _row(f"§{entry.id}", entry.subject.value, entry.level.value, strength, "<br>".join(tests))
        )
    return "\n".join(lines)


def _reason(rule: str) -> str:
    reason = NOT_CHECKED[rule]
    # Some of the reasons are said of the rule, the others are sentences of their own.
    return f"it {reason}" if reason.split()[0] in ("is", "binds") else reason


def _tests(rule: str) -> Iterator[str]:
    letters: dict[str, list[str]] = {}
    named: set[str] = set()
    for letter, verification in LETTERS.items():
        for name in sorted(names_of_tests(verification), key=lambda name: _line(getattr(verification, name))):
            if rule_of(name) == rule and kind_of(name) != "untested" and name not in named:
                named.add(name)
                optional = " (optional)" if kind_of(name) == "optional" else ""
                text = _first_line(getattr(verification, name)) + optional
                letters.setdefault(text, []).append(letter)
    for text, found in letters.items():
        yield f"{', '.join(found)}: {text}"


def _first_line(test: Any) -> str:
    return str(test.__doc__).partition("\n")[0].replace("``", "`")


def _line(test: Any) -> int:
    """Where a test is written: some texts go on from the one before."""
    return int(inspect.unwrap(test).__code__.co_firstlineno)


def tests() -> str:
    """How many tests there are in each verification, and how many of them are placeholders in the JVM kit."""
    lines = [
        _row("Verification", "Tests", "required", "optional", "stochastic", "not checkable"),
        _row("---", *["---:"] * 5),
    ]
    for letter, verification in LETTERS.items():
        names = names_of_tests(verification)
        kinds = Counter(kind_of(name) for name in names)
        counts = [len(names), *(kinds[kind] for kind in KINDS)]
        lines.append(_row(f"{letter} `{verification.__name__}`", *map(str, counts)))
    return "\n".join(lines)


def differential() -> str:
    """What the two kits find in the same broken subjects, as the test of that has written it down."""
    found = json.loads(DIFFERENTIAL.read_text("utf-8"))
    columns = ("subjects", "both", "ours only", "the JVM kit only", "nobody")
    lines = [_row("Broken", *columns), _row("---", *["---:"] * len(columns))]
    names = {"publisher": "Publishers", "whitebox": "Subscribers, white box", "all": "**all**"}
    names |= {"blackbox": "Subscribers, black box", "processor": "Processors"}
    for kind in ("publisher", "whitebox", "blackbox", "processor", "all"):
        lines.append(_row(names[kind], *(str(found[kind][column]) for column in columns)))
    return "\n".join(lines)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


# ---------------------------------------------------------------- the page


def quick_parts() -> dict[str, str]:
    """The generated parts for which nothing has to be run."""
    return {"tests": tests(), "rules": rules(), "differential": differential()}


def part(page: str, name: str) -> str:
    """What stands between the marks of a generated part."""
    return page.partition(f"<!-- {name} -->\n")[2].partition(f"\n<!-- end of {name} -->")[0].strip("\n")


def with_part(page: str, name: str, text: str) -> str:
    """The page with another text there."""
    before, mark, rest = page.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"\n<!-- end of {name} -->")
    assert mark, f"the page has no part {name}"
    assert end, f"the part {name} of the page has no end"
    return f"{before}{mark}\n{text}\n{end}{after}"


def main(arguments: list[str]) -> int:
    """Run everything, print the counts, and write what is asked for."""
    logging.disable()
    found = {family: list(results(subjects)) for family, subjects in families().items()}
    table = matrix(found)
    print(table)
    for argument in arguments:
        if argument == "--page":
            page = PAGE.read_text("utf-8")
            for name, text in {**quick_parts(), "matrix": table}.items():
                page = with_part(page, name, text)
            PAGE.write_text(page, "utf-8")
            print(f"tables written to {PAGE.name}")
        else:
            write_report(Report(result for said in found.values() for result in said), argument)
            print(f"report written to {argument}")
    for said in found.values():
        for result in said:
            if result.verdict == "fail":
                print(f"{result.subject}: {result.headline}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
