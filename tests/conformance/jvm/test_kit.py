"""The kit itself: all of it runs, it finds what is broken, and what hangs or crashes stops nothing else."""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests import required_tools
from tests.conformance.jvm import needs
from tests.conformance.jvm.glue import in_jvm
from tests.conformance.jvm.needs import PART, require_kit
from tests.conformance.jvm.subject import Kind, methods
from tests.conformance.jvm.workers import Worker

require_kit()

from penstock.streams import Flux  # noqa: E402
from tests.conformance.jvm import kit, processors, publishers, run_subject, subscribers  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HANGS = "required_spec317_mustSupportAPendingElementCountUpToLongMaxValue"
ON_COMPLETE = "required_spec107_mustNotEmitFurtherSignalsOnceOnCompleteHasBeenSignalled"
FIRST = "required_createPublisher1MustProduceAStreamOfExactly1Element"


class Altered:
    """A range that does something else than it should when `n` elements are asked for."""

    def __init__(self, count: int, n: int, deed: Any) -> None:
        self._flux = Flux.range(count)
        self._n, self._deed = n, deed

    def subscribe(self, subscriber: Any) -> None:
        def look(n: int) -> None:
            if n == self._n:
                self._deed()

        self._flux.do_on_request(look).subscribe(subscriber)


def hangs_when_asked_for_everything(count: int) -> Altered:
    return Altered(count, 2**63 - 1, lambda: time.sleep(600))


def crashes_when_asked_for_ten(count: int) -> Altered:
    return Altered(count, 10, lambda: os._exit(3))


def sends_one_more(count: int) -> Any:
    return Flux.range(count + 1)


@pytest.mark.parametrize("kind", Kind)
def test_the_list_of_tests_is_that_of_the_jar(kind: Kind, jvm: Worker) -> None:
    verdict = jvm.call(f"{__name__}:compare_{kind}")

    assert verdict.outcome == "passed", verdict.why


def _compare(kind: Kind) -> None:
    from jpype import JClass

    marker = JClass("org.testng.annotations.Test")
    shim = JClass(f"penstock.tck.{kind.capitalize()}Shim")
    in_jar = Counter(str(m.getName()) for m in shim.class_.getMethods() if m.isAnnotationPresent(marker))
    assert in_jar == Counter(methods(kind))


def compare_publisher() -> None:
    _compare(Kind.PUBLISHER)


def compare_whitebox() -> None:
    _compare(Kind.WHITEBOX)


def compare_blackbox() -> None:
    _compare(Kind.BLACKBOX)


def compare_processor() -> None:
    _compare(Kind.PROCESSOR)


def test_there_are_subjects_of_every_kind() -> None:
    assert len(publishers.PUBLISHERS) >= 15
    assert len(processors.PROCESSORS) >= 3
    assert len(subscribers.WHITEBOX) >= 2
    assert len(subscribers.BLACKBOX) >= 2


def test_what_is_broken_is_found(jvm: Worker) -> None:
    place = f"{__name__}:sends_one_more"

    verdicts = run_subject.verify(place, kind=Kind.PUBLISHER, only=[FIRST, ON_COMPLETE], worker=jvm)

    assert run_subject.outcomes(verdicts) == {FIRST: "failed", ON_COMPLETE: "failed"}
    assert "Expected end-of-stream but got element" in verdicts[FIRST].why


def test_a_test_that_hangs_is_killed_and_the_others_go_on(class_path: list[Path]) -> None:
    place = f"{__name__}:hangs_when_asked_for_everything"

    with Worker(class_path) as worker:
        # Long enough for the other tests, the first of which loads what it needs, on a busy machine.
        verdicts = worker.verify(place, [FIRST, HANGS, ON_COMPLETE], kind=Kind.PUBLISHER, patience=20)

    assert run_subject.outcomes(verdicts) == {FIRST: "passed", HANGS: "failed", ON_COMPLETE: "passed"}
    assert "it hung, and was killed" in verdicts[HANGS].why


def test_a_crash_costs_one_test(class_path: list[Path]) -> None:
    place = f"{__name__}:crashes_when_asked_for_ten"

    with Worker(class_path) as worker:
        verdicts = worker.verify(place, [FIRST, ON_COMPLETE, HANGS], kind=Kind.PUBLISHER)

    assert run_subject.outcomes(verdicts) == {FIRST: "passed", ON_COMPLETE: "failed", HANGS: "passed"}
    assert "its process ended with 3" in verdicts[ON_COMPLETE].why


def test_a_subject_has_only_so_much_time(class_path: list[Path]) -> None:
    place = f"{__name__}:hangs_when_asked_for_everything"

    with Worker(class_path) as worker:
        verdicts = worker.verify(place, [HANGS, FIRST], kind=Kind.PUBLISHER, kill_after=3)

    assert run_subject.outcomes(verdicts) == {HANGS: "failed", FIRST: "failed"}
    assert "had used up its 3 seconds" in verdicts[FIRST].why


def test_a_subject_that_cannot_be_loaded_fails(jvm: Worker) -> None:
    verdicts = jvm.verify("tests.conformance.jvm.publishers:PUBLISHERS.nonsense", [FIRST])

    assert verdicts[FIRST].outcome == "failed"
    assert "nonsense" in verdicts[FIRST].why


def test_a_jar_with_another_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    for name in kit.JARS:
        (tmp_path / "lib" / name).write_bytes(b"something else")
    monkeypatch.setattr(kit, "STORE", tmp_path)

    with pytest.raises(kit.JarsUnavailable, match="is not the file it should be"):
        kit.class_path()


@pytest.mark.parametrize(("strict", "code"), [("0", 0), ("1", 1)])
def test_without_a_jdk_the_part_is_skipped_and_under_the_strict_switch_fails(strict: str, code: int) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"]
    result = subprocess.run(
        [*command, str(Path(__file__).with_name("test_subscribers.py")), "-k", "running_blackbox"],
        cwd=kit.ROOT,
        env={"PATH": "", "PENSTOCK_STRICT": strict},
        capture_output=True,
        text=True,
        check=False,
    )

    told = f"{PART}: javac is not on the PATH"
    assert told in result.stdout
    assert "passed" not in result.stdout
    # Nothing collected because all of it was skipped has a code of its own.
    assert result.returncode in ((0, 5) if code == 0 else (1, 2)), result.stdout
    assert (f"SKIPPED PART: {told}" in result.stdout) == (code == 0)


def _no_kit() -> NoReturn:
    raise kit.JarsUnavailable("mvn failed")


@pytest.mark.parametrize(
    ("place", "broken", "call", "told"),
    [
        ("tests.conformance.jvm.kit.class_path", _no_kit, needs.fetched_class_path, "mvn failed"),
        ("tests.conformance.jvm.needs.find_spec", lambda name: None, require_kit, "JPype is not installed"),
    ],
    ids=["a failed fetch", "no JPype"],
)
def test_whatever_is_missing_is_told_at_the_end(
    place: str, broken: Any, call: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(required_tools, "_skipped_parts", {})
    monkeypatch.setenv(required_tools.STRICT_SWITCH, "0")
    monkeypatch.setattr(place, broken)

    with pytest.raises(pytest.skip.Exception):
        call()
    [line] = required_tools.skipped_part_lines()
    assert line.startswith(f"SKIPPED PART: {PART}: {told}")

    monkeypatch.setenv(required_tools.STRICT_SWITCH, "1")
    with pytest.raises(pytest.fail.Exception, match=told):
        call()


@in_jvm
def test_the_class_path_cannot_change_later() -> None:
    from penstock.interop.jvm import start

    start()
    with pytest.raises(RuntimeError, match="give them to the first start"):
        start("another.jar")
