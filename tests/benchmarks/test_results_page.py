"""RESULTS.md is updated by a question at a time, and keeps the rest."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import RESULTS, main
from benchmarks.claims import CLAIMS, examine
from benchmarks.measuring import Answer
from benchmarks.questions import NAMES, ask
from benchmarks.results_page import ResultsPage

FACTS = {"Date": "2030-01-02", "Processor": "a quick one", "pyspark": "9.9"}


def answer_to(name: str, nanoseconds: float) -> Answer:
    with ask(name) as question:
        rounds = {alternative.name: [nanoseconds, 2 * nanoseconds] for alternative in question.alternatives}
        return Answer(question, rounds)


def measured(page: ResultsPage, name: str, nanoseconds: float = 5e6, *, fails: bool = False) -> None:
    answer = answer_to(name, nanoseconds)
    page.update(FACTS, [answer], examine({name: answer}), [name] if fails else [])


def test_the_page_in_the_repository_is_read_and_written_as_it_is() -> None:
    text = RESULTS.read_text()

    page = ResultsPage.read(text)

    assert page.text() == text
    assert len(page.sections) >= 20
    assert all(f", on {page.facts['Date'][:2]}" in section for section in page.sections.values())


def test_a_question_that_is_measured_again_replaces_its_table_and_its_claims_only() -> None:
    page = ResultsPage()
    measured(page, "spark_trigger")
    measured(page, "spark_json")
    before = ResultsPage.read(page.text())

    measured(page, "spark_trigger", 7e6)
    after = ResultsPage.read(page.text())

    assert after.sections.keys() == before.sections.keys() == {"spark_trigger", "spark_json"}
    assert after.sections["spark_json"] == before.sections["spark_json"]
    assert "| 7,000,000 | 10,500,000 |" in after.sections["spark_trigger"]
    changed = {name for name in after.claims if after.claims[name] != before.claims[name]}
    assert changed == {claim.name for claim in CLAIMS if claim.question == "spark_trigger"}


def test_sections_stand_in_the_order_of_the_questions_and_claims_in_that_of_the_claims() -> None:
    page = ResultsPage()
    for name in ("spark_json", "aquifer_throughput", "spark_trigger"):
        measured(page, name)

    page = ResultsPage.read(page.text())

    assert list(page.sections) == [name for name in NAMES if name in page.sections]
    assert list(page.claims) == [claim.name for claim in CLAIMS if claim.name in page.claims]


def test_a_table_says_when_it_was_measured_and_that_a_process_failed() -> None:
    page = ResultsPage()
    measured(page, "aquifer_throughput")
    measured(page, "spark_trigger", fails=True)

    assert "2 rounds, on 2030-01-02.\n" in page.sections["aquifer_throughput"]
    assert "2 rounds, on 2030-01-02; a process failed.\n" in page.sections["spark_trigger"]


def test_a_table_from_before_tables_had_a_date_gets_that_of_its_page() -> None:
    page = ResultsPage()
    measured(page, "aquifer_throughput")
    old = page.text().replace(", on 2030-01-02", "")

    assert ResultsPage.read(old).sections == page.sections


def test_what_does_not_exist_any_more_is_left_out() -> None:
    page = ResultsPage()
    measured(page, "aquifer_throughput")
    page.sections["gone"], page.claims["it flies"] = "## Gone", ("it flies", "", "", "", "ok")

    assert "it flies" not in page.text()
    assert "## Gone" not in page.text()


def test_a_quick_measurement_does_not_get_into_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--quick", "--update", "--only", "aquifer_throughput"])

    assert "leave out --quick" in capsys.readouterr().err
