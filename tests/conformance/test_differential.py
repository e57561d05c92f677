"""The same subjects through both kits: what the JVM kit finds in a broken one, ours finds as well.

The JVM kit finds something if one of its tests fails, or is skipped without need: what is optional and broken
is reported by a skip. `jvm/differential.json` has the sums, and the names of what only our kit finds.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conformance.jvm.needs import fetched_class_path, require_kit

require_kit()

from penstock.tck import rule_of  # noqa: E402
from tests.conformance.jvm import registered  # noqa: E402
from tests.conformance.jvm.registered import BROKEN, LEGAL, Registered  # noqa: E402
from tests.conformance.jvm.subject import Kind, methods  # noqa: E402
from tests.conformance.jvm.verdict import Verdict  # noqa: E402
from tests.conformance.jvm.workers import Workers  # noqa: E402
from tests.tck import verifying  # noqa: E402
from tests.tck.test_kills import Broken, names_a_rule, quickest_first  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SUMS: dict[str, Any] = json.loads(Path(registered.__file__).with_name("differential.json").read_text())
BY_A_SKIP = "the JVM kit, but by a skip"

# Milliseconds that the kit waits for a signal; seconds for one test, and for all of them. What a broken
# subject does not do, it never does: no need to wait. But a busy machine must not make others fail.
KNOWN_TO_FAIL = {"timeout": 300, "patience": 5, "kill_after": 30}
KNOWN_TO_PASS = {"timeout": 3000, "patience": 60, "kill_after": 240}
PASSING = {f"BROKEN.{name}" for names in SUMS["names"].values() for name in names}

SECONDS_OF_SLEEP = {
    (name, "stochastic_spec103_mustSignalOnMethodsSequentially")
    for name in ("SlowRequest", "TickerIgnoresCancel")
}
"""Not run: a hundred Subscriptions that take 150 milliseconds or more. It passes, when nobody stops it."""

VERIFICATIONS = {
    Kind.PUBLISHER: verifying.publisher_verification,
    Kind.BLACKBOX: verifying.blackbox_verification,
    Kind.WHITEBOX: verifying.whitebox_verification,
    Kind.PROCESSOR: verifying.processor_verification,
}

FINDERS = {
    (True, True): "both",
    (True, False): "ours only",
    (False, True): "the JVM kit only",
    (False, False): "nobody",
}
ALL_BROKEN = [f"BROKEN.{name}" for name in BROKEN]

# The kit calls from threads without an event loop, so it has nothing to say about those that need one.
RUNNABLE = {name: it for name, it in LEGAL.items() if getattr(it.case, "profile", "") != "asyncio"}


class Skips(NamedTuple):
    """How many tests the JVM kit skips for a legal subject, and what its reasons have in common."""

    number: int
    reason: str


# Where the JVM kit does less than ours. It fails none of the legal subjects.
SKIPS = {
    # It says how many elements it can have, or how many Subscribers, or that it cannot fail: as it should be.
    "EmptyPublisher": Skips(24, "required elements nr: |no elements"),
    "SlowPublisher": Skips(1, "required elements nr: 2147483647 is higher than supported"),
    "WithoutFailure": Skips(2, "no error state Publisher provided"),
    "EagerUnicastProcessor-processor": Skips(7, "only supports 1 subscribers|has its subscriber already"),
    # A Publisher cannot tell the JVM kit how many Subscribers it may have, nor what several of them get. So
    # these look like Publishers that tried to be multicast; ours asks for `fanout` and does not guess.
    "UnicastPublisher": Skips(5, "has its subscriber already"),
    "RefusesAfterTheEnd": Skips(5, "this has been read"),
    "MulticastShares": Skips(3, "Expected element but got end-of-stream"),
    # Elements that refuse to be compared: the JVM kit compares with equals(), ours first looks for identity.
    "ElementsWithoutTruth": Skips(3, "does NOT implement this OPTIONAL requirement"),
    # It waits for the demand of all its Subscribers. The JVM kit has been told so, and heeds it in its tests
    # of Processors, but not in those of §1.11.
    "LockStepProcessor-processor": Skips(2, "did not produce|Did not receive expected stream completion"),
}


class JvmKit:
    """What the JVM kit says; it works in the background from the start."""

    def __init__(self, workers: Workers, selected: list[str]) -> None:
        self._workers = workers
        self._runs: dict[str, Future[dict[str, Verdict]]] = {}
        for name in selected:
            self._run(name)

    def _run(self, name: str) -> Future[dict[str, Verdict]]:
        if name not in self._runs:
            legal = name.startswith("LEGAL.")
            it = (LEGAL if legal else BROKEN)[name.partition(".")[2]]
            limits = KNOWN_TO_PASS if legal or name in PASSING else KNOWN_TO_FAIL
            place, names = f"{registered.__name__}:{name}.subject", _those_of_its_rules_first(it)
            self._runs[name] = self._workers.submit(place, names, until_failed=not legal, **limits)
        return self._runs[name]

    def says(self, name: str) -> dict[str, Verdict]:
        """Return what is not as with a correct subject: failures, and skips of what could be tested."""
        return {
            method: verdict
            for method, verdict in self._run(name).result().items()
            if verdict.outcome != "passed" and not method.startswith("untested_")
        }


def _those_of_its_rules_first(it: Registered) -> list[str]:
    rules = getattr(it.case, "rules", ())
    names = [name for name in methods(it.subject.kind) if (it.case.name, name) not in SECONDS_OF_SLEEP]
    return sorted(names, key=lambda name: rule_of(f"test_{name}") not in rules)


def fails(said: dict[str, Verdict]) -> bool:
    return any(verdict.outcome == "failed" for verdict in said.values())


def lines(said: dict[str, Verdict]) -> str:
    return "\n".join(f"{verdict.outcome} {method}: {verdict.why}" for method, verdict in said.items())


@cache
def ours_finds(name: str) -> bool:
    """Whether our kit names a rule that the broken subject breaks."""
    case, subject = BROKEN[name]
    broken = Broken(name, case.rules, VERIFICATIONS[subject.kind](case, verifying.IMPATIENT))
    return any(names_a_rule(result, case.rules) for result in quickest_first(broken))


@pytest.fixture(scope="module")
def jvm_kit(request: pytest.FixtureRequest) -> Iterator[JvmKit]:
    selected: list[str] = []
    for item in request.session.items:
        if item.path == request.path:
            parameters = getattr(item, "callspec", None)
            selected += ALL_BROKEN if parameters is None else parameters.params["names"]
    with Workers(fetched_class_path()) as workers:
        yield JvmKit(workers, selected)


def each(cases: dict[str, list[str]]) -> Any:
    """Parametrize a test with `names`: the subjects that it is about."""
    return pytest.mark.parametrize("names", cases.values(), ids=cases.keys())


def of_the_same_case() -> dict[str, list[str]]:
    """A Subscriber has one entry in its registry, for the black box and the white box."""
    cases: dict[str, list[str]] = {}
    for name in BROKEN:
        stem, _, kind = name.partition("-")
        cases.setdefault(f"{stem}-subscriber" if kind in ("black", "white") else name, []).append(name)
    return cases


@each({name: [f"BROKEN.{name}"] for name in BROKEN})
def test_differential(names: list[str], jvm_kit: JvmKit) -> None:
    name = names[0].partition(".")[2]
    ours = ours_finds(name)

    theirs = jvm_kit.says(names[0])

    assert ours or not theirs, (
        f"our kit does not name {BROKEN[name].case.rules}; the JVM kit says:\n{lines(theirs)}"
    )


@each({name: [f"BROKEN.{part}" for part in parts] for name, parts in of_the_same_case().items()})
def test_the_registry_knows_whether_a_test_of_the_jvm_kit_fails(names: list[str], jvm_kit: JvmKit) -> None:
    case = BROKEN[names[0].partition(".")[2]].case

    assert case.jvm_finds is any(fails(jvm_kit.says(name)) for name in names)


@each({name: [f"LEGAL.{name}"] for name in RUNNABLE})
def test_legal(names: list[str], jvm_kit: JvmKit) -> None:
    expected = SKIPS.get(names[0].partition(".")[2], Skips(0, ""))

    said = jvm_kit.says(names[0])

    assert not fails(said), lines(said)
    strange = {
        method: verdict for method, verdict in said.items() if not re.search(expected.reason, verdict.why)
    }
    assert (len(said), strange) == (expected.number, {}), lines(said)


def test_the_sums(jvm_kit: JvmKit) -> None:
    assert sums(jvm_kit) == SUMS


def sums(jvm_kit: JvmKit) -> dict[str, Any]:
    """Who finds how many of the broken subjects; a Subscriber counts in each of its boxes."""
    found = {kind: Counter(dict.fromkeys(("subjects", *FINDERS.values()), 0)) for kind in [*Kind, "all"]}
    names: dict[str, list[str]] = {"ours only": [], BY_A_SKIP: []}
    for name, (_, subject) in BROKEN.items():
        theirs = jvm_kit.says(f"BROKEN.{name}")
        finder = FINDERS[ours_finds(name), bool(theirs)]
        for kind in (subject.kind, "all"):
            found[kind].update(["subjects", finder])
        if finder == "ours only":
            names[finder].append(name)
        if theirs and not fails(theirs):
            names[BY_A_SKIP].append(name)
    return {**found, "names": names}
