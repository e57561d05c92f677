"""The segments of an index in Kafka, as a state machine: whatever happens, they say where the batches are."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.aquifer.log.batch_sequence import Position
from penstock.aquifer.log.kafka_index import BatchPlace, KafkaIndex
from penstock.aquifer.log.kafka_segments import IndexSegments


class SegmentsMachine(RuleBasedStateMachine):
    """A log and its compacted topic; transactions are committed or not, and answers are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[str, bytes] = {}
        self.places: list[BatchPlace] = []
        self.end = Position(0, 0)
        self.topic_end = 0
        self.covered = 0
        """Up to where the compacted topic has segments."""
        self.index, self.segments = KafkaIndex(self.end), IndexSegments()

    @property
    def kept(self) -> list[BatchPlace]:
        """The batches that are not forgotten."""
        return [place for place in self.places if place.position >= self.index.start]

    @rule(counts=st.lists(st.integers(1, 9), max_size=7), committed=st.booleans(), answered=st.booleans())
    def append(self, counts: list[int], committed: bool, answered: bool) -> None:
        changes = self.segments.changes(self.index)
        new: list[BatchPlace] = []
        end = self.end
        for count in counts:
            new.append(BatchPlace(end, self.topic_end, 7))
            end = Position(end.offset + count, end.before + 100 * count)
            self.topic_end += 1
        self.topic_end += 1  # The marker of the transaction.
        if not committed:
            return
        for key, value in changes.items():
            if value is None:
                self.stored.pop(key, None)
            else:
                self.stored[key] = value
                assert self.segments._next is not None
                self.covered = self.segments._next[1]
        if answered:
            self.segments.written(changes)
        # If not, the journal reads the end of the topic, and so finds the batches.
        self.places += new
        self.end = end
        self.index.extend(new, end)

    @rule(share=st.floats(0, 1))
    def forget(self, share: float) -> None:
        positions = [place.position for place in self.kept] + [self.end]
        self.index.forget_before(positions[int(share * (len(positions) - 1))])

    @rule()
    def open_again(self) -> None:
        start = self.index.start
        self.index, self.segments = KafkaIndex(start), IndexSegments()
        self.segments.load(self.stored, self.index)
        found, _ = self.index.places_from(0, 1 << 40)
        assert found == self.kept[: len(found)]
        assert self.index.end.offset >= self.covered
        rest = self.kept[len(found) :]
        assert not rest or rest[0].position == self.index.end
        self.index.extend(rest, self.end)

    @rule()
    def open_another_topic(self) -> None:
        """As after a topic that is not what the segments say: none of them may come back."""
        start, kept = self.index.start, self.kept
        self.segments = IndexSegments()
        self.segments.load(self.stored, KafkaIndex(start))
        self.segments.discard()
        self.index = KafkaIndex(start)
        self.index.extend(kept, self.end)
        before, self.covered = set(self.stored), 0
        self.append([], committed=True, answered=True)
        assert len(before & set(self.stored)) <= 1, "one may be written anew, under its old key"

    @invariant()
    def the_index_has_every_batch_that_is_kept(self) -> None:
        assert self.index.places_from(0, 1 << 40) == (self.kept, self.end)


def test_segments_say_where_the_batches_are() -> None:
    SegmentsMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
    SegmentsMachine.TestCase().runTest()
