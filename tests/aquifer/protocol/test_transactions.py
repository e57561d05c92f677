"""Records that come from outside: staged in pieces, published as a whole, never twice."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.messages import OnComplete, OnError, OnNext, OnNextFields
from penstock.aquifer.records.arrow import to_arrow_stream
from penstock.aquifer.records.batch import RecordMetadata, pack_metadata, unpack_metadata
from tests.aquifer.protocol.writable_table import METADATA, WritableTable, end


@pytest.fixture
def table() -> WritableTable:
    return WritableTable()


# ---------------------------------------------------------------- staging and publishing
def test_nobody_sees_what_is_staged_before_it_is_published(table: WritableTable) -> None:
    assert table.put(b"a", b"b") == OnNext(2)
    assert (table.submitted, table.log.head) == ([], 0)

    assert table.commit(0, (0, 0, 1)) == []
    (answer,) = table.write()

    assert end(answer) == 2
    assert table.written == [b"a", b"b"]


def test_a_commit_is_not_answered_before_the_batch_is_in_the_log(table: WritableTable) -> None:
    table.put(b"a")

    assert table.commit(0, (0, 0, 1)) == []
    assert table.pass_time(300) == []
    assert len(table.write()) == 1


def test_pieces_stand_in_the_order_of_their_numbers_and_parts_in_that_of_the_commit(
    table: WritableTable,
) -> None:
    for part, seq in [(1, 1), (0, 2), (0, 0), (1, 0), (0, 1)]:
        table.put(b"%d.%d" % (part, seq), part=part, seq=seq)

    table.commit(0, (1, 0, 2), (0, 0, 3))
    table.write()

    assert table.written == [b"1.0", b"1.1", b"0.0", b"0.1", b"0.2"]


def test_a_piece_that_comes_again_replaces_itself(table: WritableTable) -> None:
    table.put(b"a", b"b")
    table.put(b"c", seq=1)
    staged = table.table.transactions.nbytes
    assert table.put(b"a", b"b", peer=b"new connection") == OnNext(2)
    assert table.table.transactions.nbytes == staged

    table.commit(0, (0, 0, 2))
    table.write()

    assert table.written == [b"a", b"b", b"c"]


def test_attempts_that_the_commit_does_not_name_do_not_count(table: WritableTable) -> None:
    table.put(b"killed", attempt=1)
    table.put(b"good", attempt=2)
    table.put(b"slow", attempt=3)

    table.commit(0, (0, 2, 1))
    table.write()

    assert table.written == [b"good"]
    assert table.table.transactions.nbytes == 0


def test_pieces_beyond_those_that_the_commit_names_do_not_count(table: WritableTable) -> None:
    for seq in range(3):
        table.put(b"%d" % seq, seq=seq)

    table.commit(0, (0, 0, 2))
    table.write()

    assert table.written == [b"0", b"1"]


def test_an_empty_batch_of_a_known_writer_leaves_a_mark(table: WritableTable) -> None:
    table.put(b"before", batch=6)
    table.commit(6, (0, 0, 1))
    table.write()
    table.commit(7)
    (answer,) = table.write()

    assert end(answer) == 1
    assert table.marks == {"delivered:q": "7 -"}
    (again,) = table.commit(7)
    assert end(again) == 1


def test_an_empty_batch_of_somebody_unknown_leaves_nothing(table: WritableTable) -> None:
    """Or anybody could fill the journal with names, and a number that is too high would swallow the rest."""
    (answer,) = table.commit(2**62)

    assert end(answer) == 0
    assert table.submitted == []
    table.put(b"the first", batch=0)
    table.commit(0, (0, 0, 1))
    table.write()
    assert table.written == [b"the first"]


def test_each_batch_of_a_writer_that_counts_them_leaves_a_mark(table: WritableTable) -> None:
    for batch in range(2):
        table.commit(batch, follows=batch - 1)
        (answer,) = table.write()
        assert end(answer) == 0
        assert table.marks == {"delivered:q": f"{batch} -"}


def test_a_batch_that_has_come_before_may_come_again_whatever_it_follows(table: WritableTable) -> None:
    table.put(b"a", batch=6)
    table.commit(6, (0, 0, 1), follows=-1)
    table.write()
    (again,) = table.commit(6, follows=5)

    assert end(again) == 1
    assert table.written == [b"a"]


def test_writers_do_not_see_each_others_batches(table: WritableTable) -> None:
    table.put(b"p", query="p")
    table.put(b"q", query="q")
    table.commit(0, (0, 0, 1), query="p")
    table.write()
    table.commit(0, (0, 0, 1), query="q")
    table.write()

    assert table.written == [b"p", b"q"]


def test_keys_and_times_are_kept_and_arrow_rows_stay_as_they_are(table: WritableTable) -> None:
    rows = to_arrow_stream(pa.record_batch({"n": [1, 2, 3]}))
    table.put(b"a", b"b", metadata=pack_metadata(RecordMetadata(5, [b"k", None], [6, 7])))
    assert table.put_raw(3, rows, METADATA, seq=1, fmt="arrow") == OnNext(3)
    table.commit(0, (0, 0, 2))

    first, second = table.submitted[0].batches
    assert unpack_metadata(first.metadata) == RecordMetadata(5, [b"k", None], [6, 7])
    assert (second.payload, second.count, second.format) == (rows, 3, "arrow")


# ---------------------------------------------------------------- once
def test_a_commit_that_comes_again_publishes_nothing(table: WritableTable) -> None:
    table.put(b"a")
    table.commit(0, (0, 0, 1))
    table.write()

    (again,) = table.commit(0, (0, 0, 1))

    assert end(again) == 1
    assert table.submitted == []


def test_a_batch_that_is_run_again_is_not_published_again(table: WritableTable) -> None:
    assert table.put(b"a", attempt=1) == OnNext(1)
    table.commit(0, (0, 1, 1))
    table.write()

    assert table.put(b"a", attempt=2) == OnNext(1, x=OnNextFields(published=0))
    table.commit(0, (0, 2, 1))
    table.write()
    assert table.written == [b"a"]
    assert table.table.transactions.nbytes == 0


def test_a_producer_that_has_lost_count_is_told_which_batch_was_its_last(table: WritableTable) -> None:
    for batch in (0, 41):
        assert table.put(b"a", batch=batch) == OnNext(1)
        table.commit(batch, (0, 0, 1))
        table.write()

    assert table.put(b"b", batch=3) == OnNext(1, x=OnNextFields(published=41))
    assert table.put(b"b", batch=42) == OnNext(1)
    assert table.put(b"b", batch=3, query="another") == OnNext(1)


def test_a_commit_that_comes_again_while_the_first_waits_is_answered_with_it(table: WritableTable) -> None:
    table.put(b"a")
    table.commit(0, (0, 0, 1), peer=b"driver")
    assert table.commit(0, (0, 0, 1), peer=b"driver, on a new connection") == []
    assert len(table.submitted) == 1

    assert [end(answer) for answer in table.write()] == [1, 1]
    assert {peer for peer, _ in table.answers[-2:]} == {b"driver", b"driver, on a new connection"}


def test_who_asks_twice_on_one_connection_is_answered_once(table: WritableTable) -> None:
    table.put(b"a")
    table.commit(0, (0, 0, 1))
    table.commit(0, (0, 0, 1))

    assert len(table.write()) == 1


def test_a_later_batch_does_not_make_the_gateway_forget_to_answer_for_the_earlier(
    table: WritableTable,
) -> None:
    for batch in (0, 1):
        table.put(b"%d" % batch, batch=batch)
        table.commit(batch, (0, 0, 1), peer=b"driver %d" % batch)

    assert len(table.write()) == 2
    assert table.written == [b"0", b"1"]
    assert table.marks == {"delivered:q": "1 -"}


def test_an_earlier_batch_is_not_published_behind_a_later_one(table: WritableTable) -> None:
    table.put(b"1", batch=1)
    table.put(b"0", batch=0)
    table.commit(1, (0, 0, 1))
    assert table.commit(0, (0, 0, 1), peer=b"late") == []

    assert len(table.write()) == 2
    assert table.written == [b"1"]
    assert table.marks == {"delivered:q": "1 -"}


def test_what_comes_for_a_published_batch_is_answered_and_not_kept(table: WritableTable) -> None:
    table.put(b"another task", batch=3, part=1)
    table.commit(3, (1, 0, 1))
    table.write()

    answer = OnNext(1, x=OnNextFields(published=3))
    assert table.put(b"a task that was given up", batch=3) == answer
    assert table.table.transactions.nbytes == 0


# ---------------------------------------------------------------- others
def test_plain_peers_are_unharmed(table: WritableTable) -> None:
    session = table.subscribe_plainly(b"plain")
    table.say(b'{"jsonClass":"Next","count":10}', b"plain")
    table.pass_time(0.2)
    table.put(b"a")
    table.commit(0, (0, 0, 1))
    table.write()

    table.say(b'{"jsonClass":"Next","count":10}', b"plain")
    assert table.answers[-1] == (b"plain", OnNext(1))
    assert session.credit() == 1
    assert table.ask(b'{"jsonClass":"Complete","complete":true}', b"plain") == OnComplete()
    assert b"plain" not in table.table.sessions


def test_a_reader_may_write_on_the_same_connection(table: WritableTable) -> None:
    session = table.subscribe(b"both")
    assert table.put(b"a", peer=b"both") == OnNext(1)
    table.commit(0, (0, 0, 1), peer=b"both")

    assert len(table.write()) == 1
    assert table.table.sessions[b"both"] is session


small = st.integers(0, 2)
odd = small | st.sampled_from([-1, 2**63, 10**100])
values = st.lists(st.binary(max_size=3), min_size=1, max_size=3)
puts = st.tuples(
    st.just("put"), st.fixed_dictionaries({"batch": odd, "part": odd, "attempt": small, "seq": odd}), values
)
commits = st.tuples(
    st.just("commit"), st.fixed_dictionaries({"batch": odd}), st.lists(st.tuples(odd, small, odd), max_size=3)
)
junk = st.tuples(
    st.just("junk"), st.just({}), st.tuples(st.integers(-1, 3), st.lists(st.binary(max_size=12), max_size=3))
)
pauses = st.tuples(st.just("write"), st.just({}), st.none())


@settings(max_examples=300, deadline=None)
@given(st.lists(puts | commits | junk | pauses, max_size=40))
def test_whatever_comes_is_answered_and_each_batch_is_written_once(steps: list[tuple[str, Any, Any]]) -> None:
    table = WritableTable(limits=Limits(staged_bytes=6_000))
    published: list[int] = []
    for kind, where, what in steps:
        if kind == "put":
            answer = table.put(*what, **where)
            assert isinstance(answer, OnNext | OnError)
        elif kind == "commit":
            table.commit(where["batch"], *what, peer=b"driver %d" % len(table.answers))
        elif kind == "junk":
            count, attached = what
            assert isinstance(table.put_raw(count, *attached), OnNext | OnError)
        else:
            published += [delivery.batch for delivery in table.submitted]
            table.write()
        assert 0 <= table.table.transactions.nbytes <= 6_000

    published += [delivery.batch for delivery in table.submitted]
    table.write()
    assert published == sorted(set(published))
    assert table.table.transactions._pending == {}
    assert table.table.counters["defects"] == 0
