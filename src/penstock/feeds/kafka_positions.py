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

    def __init__(self, topic: str, group: str | None) -> None:
        self._topic_prefix = f"kafka:{topic}/"
        self._prefix = f"{self._topic_prefix}{group or ''}/"
        self._moved = threading.Condition()
        self._taken: dict[int, int] = {}
        self._stored: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._void: dict[int, int] = {}
        """Commits of the group that are beyond the end of their partition, and do not count."""
        self._abandoned = False
        self.topic_id: str | None = None
        """The topic that the offsets belong to; one of the same name that is made later has another id."""
        self._resumed: dict[str, dict[int, int]] = {}
        """What the journal has, by the id of the topic."""
        self._replaced: dict[int, list[str]] = {}
        """The marks of other groups, which go when there is one of ours."""
        self.other_groups: frozenset[str] = frozenset()
        """The groups that the log was read as before; an empty name stands for reading without a group."""

    def resume(self, marks: Mapping[str, str]) -> None:
        """Take over what the journal has: ``topic-id offset`` under the group and the number of a partition.

        The log has what was read as another group, so that counts as well.
        """
        for name, text in marks.items():
            group, slash, number = name.removeprefix(self._topic_prefix).rpartition("/")
            if not name.startswith(self._topic_prefix) or not slash or not number.isdecimal():
                continue
            partition = int(number)
            topic_id, _, offset = text.rpartition(" ")
            known = self._resumed.setdefault(topic_id, {})
            known[partition] = max(int(offset), known.get(partition, _NEVER))
            if not name.startswith(self._prefix):
                self._replaced.setdefault(partition, []).append(name)
                self.other_groups |= {group}

    def identify(self, topic_id: str) -> str | None:
        """The topic has this id. Returns the id of the topic that was read, if it was only another one."""
        with self._moved:
            if self.topic_id is None:
                if self._resumed and topic_id not in self._resumed:
                    return next(iter(self._resumed))
                # Partitions that have an older id had no record since the topic was created again.
                self._taken = self._resumed.get(topic_id, {})
                self._stored = dict(self._taken)
            elif self.topic_id != topic_id and self._taken:
                return self.topic_id
            self.topic_id = topic_id
        return None

    def restart(self, topic_id: str) -> None:
        """The topic is another one now, and nothing of it was read."""
        with self._moved:
            self.topic_id = topic_id
            for offsets in (self._taken, self._stored, self._committed, self._void):
                offsets.clear()

    def of(self, partition: int) -> int | None:
        """The offset after the last record that was given to the gateway; None if there was none."""
        return self._taken.get(partition)

    def any_taken(self) -> bool:
        """Whether anything was ever read."""
        return bool(self._taken)

    def start(self, partition: int, committed: int) -> int:
        """Where to start: after what we have read, or what the others of the group have; -1 for neither."""
        if committed == self._void.get(partition):
            committed = _NEVER
        return max(self._taken.get(partition) or _NEVER, committed)

    def move(self, partition: int, offset: int, instead_of: int | None = None) -> None:
        """Continue there, whatever was taken, and tell the group.

        ``instead_of`` is an offset beyond the end. As long as the group has it, it does not count.
        """
        with self._moved:
            self._taken[partition] = self._stored[partition] = offset
            self._committed.pop(partition, None)
            if instead_of is not None:
                self._void[partition] = instead_of

    def take(self, ends: Mapping[int, int]) -> dict[str, str | None]:
        """Records up to there are given to the gateway; returns the marks to store with them."""
        marks: dict[str, str | None] = {}
        with self._moved:
            self._taken.update(ends)
            for partition, end in ends.items():
                marks[f"{self._prefix}{partition}"] = f"{self.topic_id} {end}"
                marks.update(dict.fromkeys(self._replaced.pop(partition, ())))
        return marks

    def store(self, ends: Mapping[int, int]) -> None:
        """Records up to there are in the journal; from any thread."""
        with self._moved:
            for partition, end in ends.items():
                # What was taken before a move is stored after it, and does not count any more.
                if end <= self._taken.get(partition, _NEVER):
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
        """The offsets of these partitions that are in the journal and not committed to the group."""
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
