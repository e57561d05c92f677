"""Every example runs, ends by itself, and shows what it says it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.running import run

EXAMPLES = Path(__file__).parents[2] / "examples"

SHOWN = {
    "01_slow_consumer.py": ["taken 300 elements, made 300", "never more than 64 ahead: True"],
    "02_thread_to_asyncio.py": [
        "received 200 lines, from 'LINE 0' to 'LINE 199'",
        "the loop was free meanwhile: True",
    ],
    "03_bounded_concurrency.py": [
        "1000 pages, never more than 8 requests at once",
        "in the order of the questions: True",
        "3 are enough; requests still running: 0",
    ],
    "04_retry_with_backoff.py": [
        "attempt 3",
        "['21.5', '22.0']",
        "gave up after 2 more attempts: ConnectionError('refused') (cause: ConnectionError('refused'))",
    ],
    "05_merge_and_buffer.py": [
        "   6 s  ['in 0', 'out 0', 'in 1', 'out 1']",
        "  10 s  ['in 2', 'in 3', 'out 2', 'in 4']",
        "timers left after the cancel: 0",
    ],
    "06_multicast.py": [
        "fast: 300 elements, all in order: True",
        "slow: 300 elements, all in order: True",
        "never more than the sink's 8 and these two ahead: True",
    ],
    "07_subscriber_by_hand.py": [
        "  asked for 3",
        "batch [1, 4, 9]",
        "  asked for 3",
        "batch [16, 25, 36]",
        "  asked for 3",
        "rest [49, 64]",
    ],
    "08_strict_guard.py": [
        "rule 1.1: Pushy sent TakesTwo element number 3, but only 2 had been requested",
        "rule 1.7: Pushy sent on_next to TakesTwo after it had ended the stream",
    ],
    "09_gateway_many_readers.py": [
        "fast: 2000 records, all in order: True",
        "slow: 2000 records, all in order: True",
        "never more than 217 ahead of the slow one: True",
    ],
    "10_durable_reader_resumes.py": [
        "first visit: up to (299, 'line 299')",
        "second visit, to a new gateway: up to (999, 'line 999')",
        "every line once, in order: True",
    ],
    "11_curve_keys.py": [
        "alice: ['one', 'two', 'three']",
        "mallory: refused, the key is not on the list",
        "without a key: nobody answers",
    ],
    "12_arrow_batches.py": [
        "5000 rows in 5 batches, ['day', 'reading']",
        "rows from offset 1250 up to 3500: [750, 1000, 500]",
        "the last rows one by one: [{'day': 4, 'reading': 4998}, {'day': 4, 'reading': 4999}]",
    ],
    "18_tcp_slow_reader.py": [
        "read two megabytes, slowly",
        "the source was never more than eight megabytes ahead: True",
    ],
    "19_tls_lines.py": [
        "a stranger does not trust it",
        "encrypted with TLSv1.3",
        "penstock? 8 letters",
        "water? 5 letters",
        "gate? 4 letters",
    ],
    "20_http_stream.py": [
        "ten readings: [20, 21, 22, 23, 24, 25, 26, 20, 21, 22]",
        "the source made more than that, but not without end: True",
        "news 1: gate opened",
        "news 2: gate closed",
        "lines that arrived: 100000",
    ],
    "21_write_in_transactions.py": [
        "killed in the middle of the fifth batch",
        "every line once, in order: True",
    ],
    "22_tcp_proxy.py": [
        "through the proxy: 100000 lines",
        "the proxy passed on the end of the upload before the answer began",
    ],
    "23_several_processes.py": ["2 processes answered"],
    "24_webhook_to_parquet.py": ["200 requests, 100 of them repeated", "1000 rows in 3 files"],
}
"""For each example the lines that matter, in their order."""


def test_no_example_is_left_out() -> None:
    # Those with Spark in them are the business of tests/spark/test_examples.py.
    ours = [path.name for path in EXAMPLES.glob("*.py") if "spark" not in path.name]
    assert sorted(ours) == sorted(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_shows_what_it_says(name: str) -> None:
    printed = run(EXAMPLES / name).splitlines()

    assert [line for line in printed if line in SHOWN[name]] == SHOWN[name]
