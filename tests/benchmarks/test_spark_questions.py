"""What is asked of Spark: the claims are about alternatives that there are, and figures are read rightly."""

from __future__ import annotations

import pytest

from benchmarks.claims import CLAIMS, Claim, Direction, examine
from benchmarks.measuring import Alternative, Answer, Question
from benchmarks.questions import NAMES, ask
from benchmarks.report import findings_text

SPARK = [name for name in NAMES if name.startswith("spark_")]


def test_there_are_questions() -> None:
    assert SPARK == ["spark_throughput", "spark_trigger", "spark_latency"]


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
