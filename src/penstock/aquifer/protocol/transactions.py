"""Transactions of producers: records are staged piece by piece, and published all at once, never twice.

A producer that publishes exactly once, although it may be killed and run again at any moment (a Spark query),
works in numbered batches. Each of its tasks stages its records under the number of the batch, of the task and
of the attempt. When all tasks are done, one message names the attempts that count. Their records go into the
log together with a mark; the same message again finds the mark, and changes nothing.

A producer's name belongs to the key that first published under it. The mark has the last batch and that key:
``17 KEY``, or ``17 -`` without a key.

There is no socket and no journal in here. The gateway's writer writes each :class:`PendingTransaction`, and
the answer is sent once that is done.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from penstock.aquifer.errors import ErrorCode
from penstock.aquifer.hop_clock import Doing, HopClock
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Log, PendingAppend
from penstock.aquifer.protocol.messages import (
    Commit,
    CompleteFields,
    Control,
    Next,
    OnComplete,
    OnError,
    OnNext,
    OnNextFields,
    Put,
    Replay,
)
from penstock.aquifer.protocol.replays import MOST_LETTERS, marks_with, replayed_before
from penstock.aquifer.protocol.session import Reply, refusal
from penstock.aquifer.protocol.staged_pieces import AttemptKey, StagedPieces
from penstock.aquifer.records.arrow import from_arrow_stream
from penstock.aquifer.records.batch import (
    ARROW,
    MSGPACK,
    Batch,
    pack_metadata,
    pack_values,
    unpack_metadata,
    unpack_values,
)
from penstock.aquifer.security.access import Caller
from penstock.aquifer.status import ProducerStatus

__all__ = ["PendingTransaction", "Transactions"]

_MARK: Final = "delivered:"
_NO_KEY: Final = "-"
_MOST_ASKERS: Final = 64
"""How many envelopes wait for the answer to one commit; one producer may ask again and again."""
_MOST_PENDING: Final = 4096
"""How many batches may wait to be written."""
_MOST_PRODUCERS: Final = 256
"""How many producers the status shows."""
_LONGEST_NAME: Final = 256
_LARGEST: Final = 2**63


@dataclass(eq=False, kw_only=True)
class PendingTransaction(PendingAppend):
    """A batch of a writer on its way into the log."""

    query: str
    batch: int
    owner: str = ""
    """The key of its writer."""
    askers: list[tuple[bytes, ...]] = field(default_factory=list)
    """The envelopes of the commits that wait for the answer."""
    hands_over: bool = False
    """Whether it only changes the owner of the name, whichever batch of that was the last."""
    replay: Replay | None = None
    """The dead letters that its records are made of."""

    def marks_after(self, marks: Mapping[str, str]) -> dict[str, str]:
        """The mark that says that this batch is published, and whose name it is."""
        batch = _batch_in(marks, self.query) if self.hands_over else self.batch
        mine = {_MARK + self.query: f"{batch} {self.owner or _NO_KEY}"}
        if self.replay is None:
            return mine
        return mine | marks_with(marks, self.replay.epoch, self.replay.offsets)


class Transactions:
    """What is staged, and what is being written."""

    def __init__(self, log: Log, limits: Limits, *, writable: bool, stream: str = "") -> None:
        self._stream = stream or UNSET
        self._log = log
        self._writable = writable
        self._staged = StagedPieces(limits, log.open_spool() if writable else None)
        self._pending: dict[tuple[str, int], PendingTransaction] = {}
        self._handovers: dict[str, PendingTransaction] = {}
        """By name, those that are not written yet."""
        self._producers: OrderedDict[str, tuple[ProducerStatus, HopClock]] = OrderedDict()
        """By name, the one that has published last comes last."""

    @property
    def nbytes(self) -> int:
        """How much is staged."""
        return self._staged.nbytes

    # ---------------------------------------------------------------- staging
    def put(
        self,
        message: Next,
        put: Put,
        attached: Sequence[bytes],
        envelope: tuple[bytes, ...],
        now: float,
        caller: Caller,
    ) -> list[Reply]:
        """A piece came."""
        piece = self._piece(message, put, attached)
        if isinstance(piece, str):
            return [Reply(envelope, refusal(piece, ErrorCode.BAD))]
        if not self._is_owner(put.query, caller):
            return [Reply(envelope, _not_owner(put.query))]
        published = self._published(put.query)
        if published >= put.batch:
            # A task that does not know yet that another did its work, or a batch that is run again.
            told = OnNextFields(stream=self._stream, published=published)
            return [Reply(envelope, OnNext(message.count, x=told))]
        fields = OnNextFields(stream=self._stream) if self._stream else UNSET
        done = [Reply(envelope, OnNext(message.count, x=fields))]
        key = AttemptKey(caller.owner, put.query, put.batch, put.part, put.attempt)
        problem = self._staged.put(key, put.seq, piece, now)
        return done if problem is None else [Reply(envelope, refusal(problem, ErrorCode.FULL))]

    def _piece(self, message: Next, put: Put, attached: Sequence[bytes]) -> Batch | str:
        """The records that came, or what is wrong with them.

        They are checked now, while the producer can be told: in the log, they would fail every reader.
        """
        if not self._writable:
            return _NOT_WRITABLE
        if len(attached) != 2 or message.count < 1:
            return (
                f"x.put comes with a payload and metadata, and counts its records: {len(attached)} parts and "
                f"a count of {message.count} came"
            )
        problem = _problem_with_numbers(put.query, put.batch, put.part, put.attempt, put.seq)
        if problem is not None:
            return problem
        if put.fmt not in (MSGPACK, ARROW):
            return f"x.put.fmt is {put.fmt!r}: there are {MSGPACK} and {ARROW}"
        try:
            return _checked(message.count, attached[0], attached[1], put.fmt)
        except Exception as error:
            # msgspec and pyarrow have many ways to say that bytes are not what they should be.
            return f"the records of x.put cannot be read as {put.fmt}: {error}"

    # ---------------------------------------------------------------- publishing
    def commit(self, commit: Commit, envelope: tuple[bytes, ...], caller: Caller) -> list[Reply]:
        """A batch is complete: publish it, if that was not done before."""
        problem = self._problem_with(commit)
        if problem is not None:
            return [Reply(envelope, refusal(problem, ErrorCode.BAD))]
        query, batch = commit.query, commit.batch
        if not self._is_owner(query, caller):
            return [Reply(envelope, _not_owner(query))]
        if self._published(query) >= batch:
            self._staged.drop_published(caller.owner, query, batch)
            return [Reply(envelope, self._done(self._log.head))]
        pending = [number for name, number in self._pending if name == query and number >= batch]
        if pending:
            # It asks again because it has waited for so long. Or it comes late, after a later batch: numbers
            # grow, so this one was dealt with before.
            self._also_tell(self._pending[query, min(pending)], envelope)
            return []
        follows = commit.follows
        if follows is not UNSET and self._published(query) < follows:
            return [Reply(envelope, self._missing(commit.query, follows))]
        replay = commit.replay or None
        if replay is not None:
            before = replayed_before(self._log.marks, replay.epoch, replay.offsets)
            if before:
                self._staged.drop_published(caller.owner, query, batch)
                fields = CompleteFields(end=self._log.head, stream=self._stream, replayed=before)
                return [Reply(envelope, OnComplete(x=fields))]
            if self._is_being_replayed(replay):
                text = "another replay of the same dead letters is being written"
                return [Reply(envelope, refusal(text, ErrorCode.BUSY, retry=100))]
        names = [_MARK + query, *(marks_with({}, replay.epoch, replay.offsets) if replay is not None else ())]
        if not all(map(self._log.has_space_for_mark, names)) or len(self._pending) >= _MOST_PENDING:
            # The mark of another producer must not go: it may come back, and would publish a batch twice.
            text = (
                f"there is no space for {query!r}: too many others write to this gateway, or have done so "
                "in the last 30 days; try later, and use a name that lasts instead of new ones (writerId)"
            )
            return [Reply(envelope, refusal(text, ErrorCode.BUSY, retry=1000))]
        pieces: list[Batch] = []
        for part, attempt, count in commit.parts:
            there = self._staged.of(AttemptKey(caller.owner, query, batch, part, attempt))
            if count > len(there) or any(seq not in there for seq in range(count)):
                text = (
                    f"{count} pieces of part {part} of batch {batch} should be staged, and {len(there)} are: "
                    "the gateway was restarted meanwhile, or had to free space; run the batch again"
                )
                return [Reply(envelope, refusal(text, ErrorCode.STAGED))]
            pieces += [there[seq] for seq in range(count)]
        if not pieces and follows is UNSET and _MARK + query not in self._log.marks:
            # An empty batch of a producer that has never published: once or twice is the same. So names that
            # write nothing do not fill the journal, unless they count their batches.
            return [Reply(envelope, self._done(self._log.head))]
        transaction = PendingTransaction(
            query=query, batch=batch, batches=pieces, owner=caller.owner, askers=[envelope], replay=replay
        )
        self._pending[query, batch] = transaction
        self._producer(query, caller.owner)[1].now(Doing.WORKING)
        self._log.submit(transaction)
        return []

    def _is_being_replayed(self, replay: Replay) -> bool:
        """Whether a batch that is not written yet has one of these letters."""
        wanted = set(replay.offsets)
        return any(
            other.replay is not None
            and other.replay.epoch == replay.epoch
            and not wanted.isdisjoint(other.replay.offsets)
            for other in self._pending.values()
        )

    def _missing(self, query: str, follows: int) -> OnError:
        """The refusal of a batch that would leave a gap."""
        published = self._published(query)
        found = (
            f"the last batch of {query!r} in the log is {published}"
            if published >= 0
            else (f"the log has no batch of {query!r}")
        )
        text = (
            f"{found}, and {follows} should be there: the gateway has another journal than before, or an "
            "older copy of it"
        )
        return refusal(text, ErrorCode.MISSING, published=UNSET if published < 0 else published)

    def _done(self, end: int) -> OnComplete:
        return OnComplete(x=CompleteFields(end=end, stream=self._stream))

    def _problem_with(self, commit: Commit) -> str | None:
        if not self._writable:
            return _NOT_WRITABLE
        numbers = [number for part in commit.parts for number in part]
        if replay := commit.replay:
            numbers += replay.offsets
            if len(replay.offsets) > MOST_LETTERS or not 0 < len(replay.epoch) <= _LONGEST_NAME:
                return f"x.commit.replay names an epoch, and at most {MOST_LETTERS} letters of it"
        if commit.follows is not UNSET and not -1 <= commit.follows < commit.batch:
            return "x.commit.follows is the number of an earlier batch, or -1"
        problem = _problem_with_numbers(commit.query, commit.batch, *numbers)
        if problem is None and len({part for part, _, _ in commit.parts}) < len(commit.parts):
            return "x.commit.parts names a part twice: one attempt of each counts"
        return problem

    def _published(self, query: str) -> int:
        """The last batch of this writer that is in the log; -1 if there is none."""
        return _batch_in(self._log.marks, query)

    def _is_owner(self, query: str, caller: Caller) -> bool:
        """Whether nobody else has published under this name, or is about to."""
        if query in self._handovers:
            return self._handovers[query].owner == caller.owner
        for (name, _), transaction in self._pending.items():
            if name == query:
                return transaction.owner == caller.owner
        _, _, owner = self._log.marks.get(_MARK + query, "").partition(" ")
        # A mark without an owner was written by an earlier version; the first to come is its owner.
        return not owner or owner == (caller.owner or _NO_KEY)

    @staticmethod
    def _also_tell(transaction: PendingTransaction, envelope: tuple[bytes, ...]) -> None:
        if envelope not in transaction.askers:
            transaction.askers.append(envelope)
            del transaction.askers[:-_MOST_ASKERS]

    def tick(self) -> list[Reply]:
        """Answer for what has been written since the last time."""
        for query, handover in list(self._handovers.items()):
            if handover.is_done:
                del self._handovers[query]
        replies: list[Reply] = []
        for key, transaction in list(self._pending.items()):
            if transaction.failure is not None:
                answer: Control = refusal(transaction.failure, ErrorCode.JOURNAL)
            elif transaction.end is not None:
                self._count(transaction)
                self._staged.drop_published(transaction.owner, transaction.query, transaction.batch)
                answer = self._done(transaction.end)
            else:
                continue
            del self._pending[key]
            replies += [Reply(envelope, answer) for envelope in transaction.askers]
        return replies

    # ---------------------------------------------------------------- who writes
    def _producer(self, query: str, owner: str) -> tuple[ProducerStatus, HopClock]:
        if query not in self._producers:
            while len(self._producers) >= _MOST_PRODUCERS:
                self._producers.popitem(last=False)
            self._producers[query] = ProducerStatus(name=query, owner=owner), HopClock()
        self._producers.move_to_end(query)
        return self._producers[query]

    def _count(self, transaction: PendingTransaction) -> None:
        status, clock = self._producer(transaction.query, transaction.owner)
        status.batches += 1
        status.records += sum(batch.count for batch in transaction.batches)
        status.bytes += sum(batch.nbytes for batch in transaction.batches)
        clock.now(Doing.WAITING_FOR_DATA)

    def sample(self, now: float) -> None:
        """Note what each producer waits for: for space, for the journal, or for nothing of ours."""
        writing = {transaction.query for transaction in self._pending.values()}
        blocked = self._log.clock.doing is Doing.WAITING_FOR_DEMAND
        for query, (_, clock) in self._producers.items():
            if query not in writing:
                clock.now(Doing.WAITING_FOR_DATA, now)
            else:
                clock.now(Doing.WAITING_FOR_DEMAND if blocked else Doing.WORKING, now)

    def producers(self) -> list[ProducerStatus]:
        """The programs that have written lately."""
        waiting = Counter[str]()
        for transaction in self._pending.values():
            waiting[transaction.query] += sum(batch.count for batch in transaction.batches)
        return [
            replace(status, pending=waiting[name], times=clock.times())
            for name, (status, clock) in self._producers.items()
        ]

    # ---------------------------------------------------------------- whose it is
    def give(self, query: str, owner: str) -> bool:
        """Let a name belong to another key; False if nobody has published anything under it.

        ValueError if the log has ended: what is not stored would be forgotten with the next restart.
        """
        if not self._writable or _MARK + query not in self._log.marks:
            return False
        if self._log.end is not None:
            raise ValueError(
                f"the name {query!r} cannot be handed over now: the stream of this gateway has ended, and "
                "nothing more of writers is stored; start the gateway again, and hand the name over then"
            )
        self._staged.drop(lambda key: key.query == query)
        # Batches of the old owner may be on their way into the log. The number of the last one is looked up
        # when it is there: the mark must not go back, or that batch could be published again.
        handover = PendingTransaction(query=query, batch=-1, batches=[], owner=owner, hands_over=True)
        self._handovers[query] = handover
        self._log.submit(handover)
        return True

    def owners(self) -> set[str]:
        """The keys of producers that have staged something, or wait for it to be written."""
        return (self._staged.owners() | {one.owner for one in self._pending.values()}) - {""}

    def withdraw(self, owner: str) -> None:
        """A key may not write any more: drop what it has staged, and what waits to be written."""
        self._staged.drop(lambda key: key.owner == owner)
        for transaction in self._pending.values():
            transaction.withdrawn |= transaction.owner == owner

    def drop_all(self) -> None:
        """The gateway is closed: give the memory and the disk back."""
        self._staged.drop(lambda _: True)
        self._pending.clear()


_NOT_WRITABLE: Final = (
    "this gateway reads a source of its own, and accepts no records: start it with writable=True (at the "
    "command line --source writers, or --on-bad-line dead-letter to replay dead letters)"
)


def _batch_in(marks: Mapping[str, str], query: str) -> int:
    number, _, _ = marks.get(_MARK + query, "-1").partition(" ")
    return int(number)


def _not_owner(query: str) -> OnError:
    text = f"the name {query!r} belongs to another key: choose another name, or use its owner's key"
    return refusal(text, ErrorCode.AUTH)


def _problem_with_numbers(query: str, *numbers: int) -> str | None:
    if not 0 < len(query) <= _LONGEST_NAME:
        return f"x.…query names who writes, in 1 to {_LONGEST_NAME} letters; it has {len(query)}"
    if any(not 0 <= number < _LARGEST for number in numbers):
        return "batch, part, attempt, seq and the number of pieces are whole numbers from 0 to 2^63-1"
    return None


def _checked(count: int, payload: bytes, metadata: bytes, format: str) -> Batch:
    """The records as the log keeps them; an error if they are not what they are said to be."""
    if format == ARROW:
        rows = from_arrow_stream(payload)
        rows.validate(full=True)
        found = rows.num_rows
    else:
        values = unpack_values(payload)
        found, payload = len(values), pack_values(values)
    if found != count:
        raise ValueError(f"there are {found} records, and Next counts {count}")
    noted = unpack_metadata(metadata)
    for column in (noted.keys, noted.timestamps):
        if column is not None and len(column) != count:
            raise ValueError(f"the metadata are for {len(column)} records, and Next counts {count}")
    if any(abs(time) >= _LARGEST for time in (noted.timestamp, *(noted.timestamps or ()))):
        raise ValueError("a time is further away than 2^63-1 microseconds")
    return Batch(0, count, payload, pack_metadata(noted), format)
