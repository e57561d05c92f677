"""What is asked of Spark: the claims are about alternatives that there are, and figures are read rightly."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.claims import CLAIMS, Claim, Direction, FactClaim, examine
from benchmarks.measuring import Alternative, Answer, Clock, Question, Timed, measure
from benchmarks.questions import NAMES, ask
from benchmarks.report import findings_text
from benchmarks.spark_connector import PYTHON
from benchmarks.spark_queries import batch_of

SPARK = [name for name in NAMES if name.startswith("spark_")]


def test_there_are_questions() -> None:
    ours = ["spark_throughput", "spark_json", "spark_trigger", "spark_latency"]
    assert [*ours, "spark_kafka", "spark_kafka_trigger", "spark_kafka_latency"] == SPARK


@pytest.mark.parametrize("name", SPARK)
def test_every_claim_is_about_alternatives_that_there_are(name: str) -> None:
    """And nobody starts Spark to find out."""
    with ask(name) as question:
        names = {alternative.name for alternative in question.alternatives}

    assert question.name == name
    assert question.base in names
    for claim in CLAIMS:
        if claim.question == name:
            assert {claim.of, claim.to or claim.of} <= names


@pytest.mark.parametrize(("milliseconds", "met"), [(59.0, True), (61.0, False)])
def test_a_claim_about_milliseconds_is_no_ratio(milliseconds: float, met: bool) -> None:
    alternative = Alternative("ours", lambda n: n)
    question = Question("q", "a question", 1, "ours", lambda n: n, (alternative,))
    answer = Answer(question, {"ours": [milliseconds * 1e6, 1e6, 100e6]})
    claim = Claim("it is quick", "q", "ours", None, Direction.AT_MOST, 60)

    (finding,) = examine({"q": answer}, [claim])

    assert finding.met is met
    assert (finding.ratio, finding.ratio_of_best) == (milliseconds, 1.0)
    assert f"≤ 60 ms  {milliseconds:.0f} ms     1 ms" in findings_text([finding])


@pytest.mark.parametrize("name", SPARK)
def test_what_needs_the_connector_for_kafka_is_measured_by_the_python_that_can_have_it(name: str) -> None:
    with ask(name) as question:
        assert question.python == (PYTHON if "kafka" in name else None)


def test_an_environment_that_is_missing_is_named_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    missing = tmp_path / ".venv-spark40" / "bin" / "python"
    monkeypatch.setattr("benchmarks.spark_kafka.PYTHON", missing)
    monkeypatch.setattr("benchmarks.machine.describe", dict)

    with pytest.raises(SystemExit, match=r"spark_kafka needs \.venv-spark40: run make \.venv-spark40/"):
        main(["--only", "spark_kafka"])


def test_rounds_that_warm_up_run_and_do_not_count() -> None:
    order: list[str] = []

    def alternative(name: str) -> Alternative:
        def run(n: int) -> Timed:
            order.append(name)
            return Timed(n, len(order), {"place": len(order)})

        return Alternative(name, run)

    question = Question(
        name="q",
        title="a question",
        elements=1,
        base="a",
        expected=lambda n: n,
        alternatives=(alternative("a"), alternative("b")),
        clock=Clock.BETWEEN_PROCESSES,
        unmeasured_rounds=1,
        fewest_rounds=2,
    )

    answer = measure(question, 0.0)

    assert "".join(order) == "baabba"  # Each round begins with the next one.
    assert answer.rounds == {"a": [3, 6], "b": [4, 5]}
    assert answer.facts == {"a": {"place": [3, 6]}, "b": {"place": [4, 5]}}


@pytest.mark.parametrize(
    ("start", "end", "records"),
    [
        (None, {"offset": 7, "timestamp": 1}, 7),
        ({"offsets": {"tcp://a": 5, "tcp://b": 1}}, {"offsets": {"tcp://a": 6, "tcp://b": 4}}, 4),
        (None, {"topic-1": {"0": 10, "1": 9}}, 19),
        ({"topic-1": {"0": 10, "1": 9}}, {"topic-1": {"0": 20, "1": 18}}, 19),
    ],
)
def test_the_records_of_a_batch_are_counted_by_the_offsets_of_any_source(
    start: object, end: object, records: int
) -> None:
    report = {
        "batchId": 3,
        "numInputRows": 19,
        "timestamp": "2026-11-17T12:00:00.000Z",
        "durationMs": {"triggerExecution": 250},
        "sources": [{"startOffset": start, "endOffset": end}],
    }

    batch = batch_of(report)

    assert (batch.number, batch.rows, batch.records) == (3, 19, records)
    assert batch.ended == 1_794_916_800_250


@pytest.mark.parametrize(("bound", "met"), [(130, False), (140, True)])
def test_a_claim_about_a_fact_is_judged_by_its_median(bound: float, met: bool) -> None:
    question = Question("q", "a question", 1, "ours", lambda n: n, (Alternative("ours", lambda n: n),))
    answer = Answer(question, {"ours": [1.0, 1.0, 1.0]}, {"ours": {"p99, ms": [120.0, 135.0, 300.0]}})
    claim = FactClaim("it is quick", "q", "ours", None, Direction.AT_MOST, bound, "p99, ms")

    (finding,) = examine({"q": answer}, [claim])

    assert finding.met is met
    assert (finding.ratio, finding.ratio_of_best) == (135.0, 120.0)
