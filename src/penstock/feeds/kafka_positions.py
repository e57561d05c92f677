"""How far each partition of a topic was read: given to the gateway, in the journal, told to the group."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["KafkaPositions"]

_NEVER: Final = -1


class KafkaPositions:
    """Offsets by partition; each is that of the record that comes next.

    The thread of the consumer and the loop of the feed move them, and the writer of the journal says what is
    stored.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._moved = threading.Condition()
        self._taken: dict[int, int] = {}
        self._stored: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._abandoned = False
        self.topic_id: str | None = None
        """The topic that the offsets belong to; one of the same name that is made later has another id."""

    def resume(self, marks: Mapping[str, str]) -> None:
        """Take over what the journal has: ``topic-id offset`` under the number of each partition."""
        for name, text in marks.items():
            if name.startswith(self._prefix) and name.removeprefix(self._prefix).isdecimal():
                partition = int(name.removeprefix(self._prefix))
                self.topic_id, _, offset = text.rpartition(" ")
                self._taken[partition] = self._stored[partition] = int(offset)

    def of(self, partition: int) -> int | None:
        """The offset after the last record that was given to the gateway; None if there was none."""
        return self._taken.get(partition)

    def any_taken(self) -> bool:
        """Whether anything was ever read."""
        return bool(self._taken)

    def move(self, partition: int, offset: int) -> None:
        """Continue there, whatever was taken."""
        with self._moved:
            self._taken[partition] = self._stored[partition] = offset

    def take(self, ends: Mapping[int, int]) -> dict[str, str | None]:
        """Records up to there are given to the gateway; returns the marks to store with them."""
        with self._moved:
            self._taken.update(ends)
        return {f"{self._prefix}{partition}": f"{self.topic_id} {end}" for partition, end in ends.items()}

    def store(self, ends: Mapping[int, int]) -> None:
        """Records up to there are in the journal; from any thread."""
        with self._moved:
            for partition, end in ends.items():
                self._stored[partition] = max(end, self._stored.get(partition, _NEVER))
            self._moved.notify_all()

    def abandon(self) -> None:
        """Nothing more will be stored: nobody waits for it any longer."""
        with self._moved:
            self._abandoned = True
            self._moved.notify_all()

    def revive(self) -> None:
        """The feed is read again."""
        with self._moved:
            self._abandoned = False

    def wait_until_stored(self, partitions: Iterable[int], seconds: float) -> bool:
        """Wait until all that was taken of these partitions is in the journal; whether it is."""
        mine, deadline = list(partitions), time.monotonic() + seconds
        with self._moved:
            while not all(self._stored.get(each) == self._taken.get(each) for each in mine):
                left = deadline - time.monotonic()
                if self._abandoned or left <= 0:
                    return False
                self._moved.wait(left)
        return True

    def uncommitted(self, partitions: Iterable[int]) -> dict[int, int]:
        """What is in the journal, of these partitions, and the group was not told of."""
        with self._moved:
            return {
                each: self._stored[each]
                for each in partitions
                if self._stored.get(each, _NEVER) > self._committed.get(each, _NEVER)
            }

    def commit(self, ends: Mapping[int, int]) -> None:
        """The group was told."""
        with self._moved:
            self._committed.update(ends)

    def forget_commits(self) -> None:
        """Tell the group again: it is another connection, and the last commit may not have arrived."""
        with self._moved:
            self._committed.clear()
