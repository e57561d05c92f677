"""Records that come from outside: staged in pieces, published as a whole, never twice."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aquifer.arrow import stream
from penstock.aquifer.batches import Notes, pack_notes, unpack_notes
from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.messages import OnComplete, OnError, OnNext
from tests.aquifer.protocol.desk_with_a_writer import NOTES, DeskWithAWriter, end


@pytest.fixture
def desk() -> DeskWithAWriter:
    return DeskWithAWriter()


# ---------------------------------------------------------------- staging and publishing
def test_nobody_sees_what_is_staged_before_it_is_published(desk: DeskWithAWriter) -> None:
    assert desk.put(b"a", b"b") == OnNext(2)
    assert (desk.submitted, desk.log.head) == ([], 0)

    assert desk.commit(0, (0, 0, 1)) == []
    (answer,) = desk.write()

    assert end(answer) == 2
    assert desk.written == [b"a", b"b"]


def test_a_commit_is_not_answered_before_the_batch_is_in_the_log(desk: DeskWithAWriter) -> None:
    desk.put(b"a")

    assert desk.commit(0, (0, 0, 1)) == []
    assert desk.pass_time(300) == []
    assert len(desk.write()) == 1


def test_pieces_stand_in_the_order_of_their_numbers_and_parts_in_that_of_the_commit(
    desk: DeskWithAWriter,
) -> None:
    for part, seq in [(1, 1), (0, 2), (0, 0), (1, 0), (0, 1)]:
        desk.put(b"%d.%d" % (part, seq), part=part, seq=seq)

    desk.commit(0, (1, 0, 2), (0, 0, 3))
    desk.write()

    assert desk.written == [b"1.0", b"1.1", b"0.0", b"0.1", b"0.2"]


def test_a_piece_that_comes_again_replaces_itself(desk: DeskWithAWriter) -> None:
    desk.put(b"a", b"b")
    desk.put(b"c", seq=1)
    staged = desk.desk.deliveries.nbytes
    assert desk.put(b"a", b"b", peer=b"new connection") == OnNext(2)
    assert desk.desk.deliveries.nbytes == staged

    desk.commit(0, (0, 0, 2))
    desk.write()

    assert desk.written == [b"a", b"b", b"c"]


def test_attempts_that_the_commit_does_not_name_do_not_count(desk: DeskWithAWriter) -> None:
    desk.put(b"killed", attempt=1)
    desk.put(b"good", attempt=2)
    desk.put(b"slow", attempt=3)

    desk.commit(0, (0, 2, 1))
    desk.write()

    assert desk.written == [b"good"]
    assert desk.desk.deliveries.nbytes == 0


def test_pieces_beyond_those_that_the_commit_names_do_not_count(desk: DeskWithAWriter) -> None:
    for seq in range(3):
        desk.put(b"%d" % seq, seq=seq)

    desk.commit(0, (0, 0, 2))
    desk.write()

    assert desk.written == [b"0", b"1"]


def test_an_empty_batch_of_a_known_writer_leaves_a_mark(desk: DeskWithAWriter) -> None:
    desk.put(b"before", batch=6)
    desk.commit(6, (0, 0, 1))
    desk.write()
    desk.commit(7)
    (answer,) = desk.write()

    assert end(answer) == 1
    assert desk.marks == {"delivered:q": "7 -"}
    (again,) = desk.commit(7)
    assert end(again) == 1


def test_an_empty_batch_of_somebody_unknown_leaves_nothing(desk: DeskWithAWriter) -> None:
    """Or anybody could fill the journal with names, and a number that is too high would swallow the rest."""
    (answer,) = desk.commit(2**62)

    assert end(answer) == 0
    assert desk.submitted == []
    desk.put(b"the first", batch=0)
    desk.commit(0, (0, 0, 1))
    desk.write()
    assert desk.written == [b"the first"]


def test_writers_do_not_see_each_others_batches(desk: DeskWithAWriter) -> None:
    desk.put(b"p", query="p")
    desk.put(b"q", query="q")
    desk.commit(0, (0, 0, 1), query="p")
    desk.write()
    desk.commit(0, (0, 0, 1), query="q")
    desk.write()

    assert desk.written == [b"p", b"q"]


def test_keys_and_times_are_kept_and_arrow_rows_stay_as_they_are(desk: DeskWithAWriter) -> None:
    rows = stream(pa.record_batch({"n": [1, 2, 3]}))
    desk.put(b"a", b"b", notes=pack_notes(Notes(5, [b"k", None], [6, 7])))
    assert desk.put_raw(3, rows, NOTES, seq=1, fmt="arrow") == OnNext(3)
    desk.commit(0, (0, 0, 2))

    first, second = desk.submitted[0].batches
    assert unpack_notes(first.notes) == Notes(5, [b"k", None], [6, 7])
    assert (second.payload, second.count, second.format) == (rows, 3, "arrow")


# ---------------------------------------------------------------- once
def test_a_commit_that_comes_again_publishes_nothing(desk: DeskWithAWriter) -> None:
    desk.put(b"a")
    desk.commit(0, (0, 0, 1))
    desk.write()

    (again,) = desk.commit(0, (0, 0, 1))

    assert end(again) == 1
    assert desk.submitted == []


def test_a_batch_that_is_run_again_is_not_published_again(desk: DeskWithAWriter) -> None:
    for attempt in (1, 2):
        assert desk.put(b"a", attempt=attempt) == OnNext(1)
        desk.commit(0, (0, attempt, 1))
        desk.write()

    assert desk.written == [b"a"]
    assert desk.desk.deliveries.nbytes == 0


def test_a_commit_that_comes_again_while_the_first_waits_is_answered_with_it(desk: DeskWithAWriter) -> None:
    desk.put(b"a")
    desk.commit(0, (0, 0, 1), peer=b"driver")
    assert desk.commit(0, (0, 0, 1), peer=b"driver, on a new connection") == []
    assert len(desk.submitted) == 1

    assert [end(answer) for answer in desk.write()] == [1, 1]
    assert {peer for peer, _ in desk.answers[-2:]} == {b"driver", b"driver, on a new connection"}


def test_who_asks_twice_on_one_connection_is_answered_once(desk: DeskWithAWriter) -> None:
    desk.put(b"a")
    desk.commit(0, (0, 0, 1))
    desk.commit(0, (0, 0, 1))

    assert len(desk.write()) == 1


def test_a_later_batch_does_not_make_the_gateway_forget_to_answer_for_the_earlier(
    desk: DeskWithAWriter,
) -> None:
    for batch in (0, 1):
        desk.put(b"%d" % batch, batch=batch)
        desk.commit(batch, (0, 0, 1), peer=b"driver %d" % batch)

    assert len(desk.write()) == 2
    assert desk.written == [b"0", b"1"]
    assert desk.marks == {"delivered:q": "1 -"}


def test_an_earlier_batch_is_not_published_behind_a_later_one(desk: DeskWithAWriter) -> None:
    desk.put(b"1", batch=1)
    desk.put(b"0", batch=0)
    desk.commit(1, (0, 0, 1))
    assert desk.commit(0, (0, 0, 1), peer=b"late") == []

    assert len(desk.write()) == 2
    assert desk.written == [b"1"]
    assert desk.marks == {"delivered:q": "1 -"}


def test_what_comes_for_a_published_batch_is_answered_and_not_kept(desk: DeskWithAWriter) -> None:
    desk.put(b"another task", batch=3, part=1)
    desk.commit(3, (1, 0, 1))
    desk.write()

    assert desk.put(b"a task that was given up", batch=3) == OnNext(1)
    assert desk.desk.deliveries.nbytes == 0


# ---------------------------------------------------------------- others
def test_plain_peers_are_unharmed(desk: DeskWithAWriter) -> None:
    session = desk.subscribe_plainly(b"plain")
    desk.say(b'{"jsonClass":"Next","count":10}', b"plain")
    desk.pass_time(0.2)
    desk.put(b"a")
    desk.commit(0, (0, 0, 1))
    desk.write()

    desk.say(b'{"jsonClass":"Next","count":10}', b"plain")
    assert desk.answers[-1] == (b"plain", OnNext(1))
    assert session.allowance() == 1
    assert desk.ask(b'{"jsonClass":"Complete","complete":true}', b"plain") == OnComplete()
    assert b"plain" not in desk.desk.sessions


def test_a_reader_may_write_on_the_same_connection(desk: DeskWithAWriter) -> None:
    session = desk.subscribe(b"both")
    assert desk.put(b"a", peer=b"both") == OnNext(1)
    desk.commit(0, (0, 0, 1), peer=b"both")

    assert len(desk.write()) == 1
    assert desk.desk.sessions[b"both"] is session


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
    desk = DeskWithAWriter(limits=Limits(staged_bytes=6_000))
    published: list[int] = []
    for kind, where, what in steps:
        if kind == "put":
            answer = desk.put(*what, **where)
            assert isinstance(answer, OnNext | OnError)
        elif kind == "commit":
            desk.commit(where["batch"], *what, peer=b"driver %d" % len(desk.answers))
        elif kind == "junk":
            count, attached = what
            assert isinstance(desk.put_raw(count, *attached), OnNext | OnError)
        else:
            published += [delivery.batch for delivery in desk.submitted]
            desk.write()
        assert 0 <= desk.desk.deliveries.nbytes <= 6_000

    published += [delivery.batch for delivery in desk.submitted]
    desk.write()
    assert published == sorted(set(published))
    assert desk.desk.deliveries._pending == {}
    assert desk.desk.counters["defects"] == 0
