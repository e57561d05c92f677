"""Dead letters, put back into the stream that they come from: each at most once.

::

    from penstock import feeds

    report = feeds.replay("tcp://127.0.0.1:5556/orders.dead-letters", lambda letter: letter.value.strip(b","))
    print(report.replayed, "of", report.letters)

Each letter goes through the door again: its bytes, or what a function makes of them, are read with the codec
of the stream. The offset of the letter is stored in the transaction of its records, so that a letter that was
replayed is not replayed again, whoever asks, and whatever is killed meanwhile.
"""

from __future__ import annotations

import json
import secrets
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.endpoint import Endpoint
from penstock.feeds.lines import Decode, decoder

if TYPE_CHECKING:
    from penstock.aquifer import CurveClient, LogReader, LogState, Producer, Record

__all__ = ["DeadLetter", "Replacement", "ReplayReport", "edited_letters", "home_of", "replay"]

_SUFFIX: Final = "dead-letters"
_LETTERS: Final = 500
_BYTES: Final = 1024 * 1024
"""What goes into one transaction, at most."""
_ATTEMPTS: Final = 10
"""How often a transaction is repeated that the gateway has lost, because it was restarted."""
_SHOWN: Final = 10
"""How many reasons a report has, at most."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What a stream of dead letters has about one of them."""

    offset: int
    """Its offset in the stream of dead letters."""
    value: bytes
    """What came."""
    reason: str
    position: str = ""
    time: str = ""
    key: bytes | None = None
    is_complete: bool = True
    """Whether ``value`` has all of its bytes: very long ones were cut off."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """All fields of the letter, as they are in the stream."""


Replacement: TypeAlias = bytes | str | Sequence[bytes | str] | None
"""What takes the place of a letter: a line, or several; None, or an empty list, leaves it where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What became of the letters."""

    letters: int = 0
    """How many were looked at."""
    replayed: int = 0
    records: int = 0
    """How many records they became."""
    replayed_before: int = 0
    left: int = 0
    """How many the function has left where they are."""
    wrong: int = 0
    """How many are still not records, or were cut off; these are left where they are, too."""
    reasons: tuple[str, ...] = ()
    """Why, for the first ones."""


def home_of(endpoint: str) -> str:
    """The endpoint of the stream that dead letters come from; ValueError if these are not dead letters."""
    letters = Endpoint.parse(endpoint)
    name = letters.stream
    if name != _SUFFIX and not name.endswith(f".{_SUFFIX}"):
        raise ValueError(
            f"{endpoint} is not a stream of dead letters; write tcp://HOST:PORT/{_SUFFIX} or "
            f"tcp://HOST:PORT/STREAM.{_SUFFIX}, or say with into=… (--into) where its letters go"
        )
    return str(replace(letters, stream=name.removesuffix(_SUFFIX).removesuffix(".")))


def replay(
    endpoint: str,
    transform: Callable[[DeadLetter], Replacement] | None = None,
    *,
    into: str | None = None,
    edited: Iterable[Mapping[str, Any]] | None = None,
    codec: str | None = None,
    curve: CurveClient | None = None,
    patience: float = 30.0,
    progress: Callable[[int, int], object] | None = None,
) -> ReplayReport:
    """Put the letters of a stream of dead letters back into its stream; return what became of them.

    ``transform`` makes a line of a letter, or several lines; None leaves the letter where it is. Without a
    function the bytes of the letter are the line. ``edited`` are letters as ``penstock gateway export``
    writes them, with another ``text``; then only these are replayed. ``codec`` reads the lines, by default
    that of the stream. ``into`` is the endpoint of another stream, which has to be writable.

    ``progress`` is called with how many letters are done, and of how many.
    """
    from penstock.aquifer import LogReader, Producer, probe

    target = home_of(endpoint) if into is None else into
    name = codec if codec is not None else probe(target, patience, curve).codec
    changes = None if edited is None else {_offset_of(each): each for each in edited}
    writer = f"replay-{secrets.token_hex(8)}"
    with (
        LogReader(endpoint, patience=patience, curve=curve) as log,
        Producer(target, writer, codec=name, patience=patience, curve=curve) as producer,
    ):
        state = log.state()
        run = _Run(producer, state.epoch, name)
        for letter in _letters(log, state):
            if changes is not None:
                if letter.offset not in changes:
                    continue
                letter = _edited(letter, changes.pop(letter.offset))
            run.take(letter, transform)
            if progress is not None:
                progress(letter.offset - state.first + 1, state.head - state.first)
        run.finish()
    if changes:
        missing = ", ".join(map(str, sorted(changes)[:5]))
        raise LookupError(f"{endpoint} has no letter {missing}: the edited letters are not of this stream")
    return run.report


class _Run:
    """One replay: collects letters, and commits them some hundred at a time."""

    def __init__(self, producer: Producer, epoch: str, codec: str) -> None:
        self.report = ReplayReport()
        self._producer = producer
        self._epoch = epoch
        self._decode: Decode | None = decoder(codec)
        self._batch = 0
        self._wrong: dict[int, str] = {}
        """By offset, why a letter is still wrong."""
        self._collected: list[tuple[int, list[Record]]] = []
        self._bytes = 0

    def take(self, letter: DeadLetter, transform: Callable[[DeadLetter], Replacement] | None) -> None:
        """Replay this letter, now or with the next ones."""
        self._count(letters=1)
        if transform is None and not letter.is_complete:
            text = f"only the first {len(letter.value)} of its {letter.facts.get('bytes')} bytes were kept"
            self._wrong[letter.offset] = text
            return
        lines = _lines_of(letter.value if transform is None else transform(letter))
        if lines is None:
            self._count(left=1)
            return
        try:
            records = [self._record(line, letter.key) for line in lines]
        except (ValueError, RecursionError, OverflowError) as error:
            self._wrong[letter.offset] = str(error)
            return
        self._collected.append((letter.offset, records))
        self._bytes += sum(map(len, lines))
        if len(self._collected) >= _LETTERS or self._bytes >= _BYTES:
            self.flush()

    def _record(self, line: bytes, key: bytes | None) -> Record:
        from penstock.aquifer import Record

        return Record(line if self._decode is None else self._decode(line), key=key)

    def flush(self) -> None:
        """Commit what was collected, but for letters that were replayed before."""
        from penstock.aquifer import AlreadyReplayed

        collected, self._collected, self._bytes = self._collected, [], 0
        while collected:
            try:
                self._commit(collected)
            except AlreadyReplayed as known:
                self._count(replayed_before=len(known.offsets))
                collected = [each for each in collected if each[0] not in known.offsets]
            else:
                records = sum(len(records) for _, records in collected)
                self._count(replayed=len(collected), records=records)
                return

    def _commit(self, collected: list[tuple[int, list[Record]]]) -> None:
        from penstock.aquifer import TransactionLost

        self._batch += 1
        offsets = [offset for offset, _ in collected]
        for attempt in range(_ATTEMPTS):
            transaction = self._producer.transaction(self._batch)
            transaction.write(record for _, records in collected for record in records)
            try:
                self._producer.commit(self._batch, [transaction.prepare()], replay=(self._epoch, offsets))
            except TransactionLost:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def finish(self) -> None:
        """Commit the last ones, and find out which of the wrong ones were replayed before, when mended."""
        self.flush()
        wrong = list(self._wrong)
        for start in range(0, len(wrong), _LETTERS):
            known = self._producer.replayed(self._epoch, wrong[start : start + _LETTERS])
            self._count(replayed_before=len(known))
            for offset in known:
                del self._wrong[offset]
        reasons = [f"letter {offset}: {why}" for offset, why in islice(self._wrong.items(), _SHOWN)]
        self.report = replace(self.report, wrong=len(self._wrong), reasons=tuple(reasons))

    def _count(self, **more: int) -> None:
        self.report = replace(
            self.report, **{name: getattr(self.report, name) + count for name, count in more.items()}
        )


def _letters(log: LogReader, state: LogState) -> Iterator[DeadLetter]:
    from penstock.aquifer import unpack_metadata, unpack_values

    if state.first == state.head:
        return
    for batch in log.read(state.first, state.head, epoch=state.epoch):
        keys = unpack_metadata(batch.metadata).keys or [None] * batch.count
        both = zip(unpack_values(batch.payload), keys, strict=True)
        for offset, (value, key) in enumerate(both, batch.first):
            yield _letter(offset, value, key)


def _letter(offset: int, letter: bytes, key: bytes | None) -> DeadLetter:
    try:
        facts = json.loads(letter)
        value = _bytes_in(facts)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValueError(f"the record {offset} is not a dead letter") from None
    return DeadLetter(
        offset,
        value,
        str(facts.get("reason", "")),
        str(facts.get("position", "")),
        str(facts.get("time", "")),
        key,
        len(value) == facts.get("bytes", len(value)),
        facts,
    )


def _bytes_in(facts: Mapping[str, Any]) -> bytes:
    text = facts.get("text")
    return text.encode() if isinstance(text, str) else b64decode(facts["base64"], validate=True)


def _lines_of(made: Replacement) -> list[bytes] | None:
    if made is None or (not isinstance(made, str | bytes) and not made):
        return None
    several = [made] if isinstance(made, str | bytes) else made
    if not isinstance(several, list | tuple) or not all(isinstance(line, str | bytes) for line in several):
        raise TypeError(f"the function must return bytes, a string, a list of these, or None, not {made!r}")
    return [line.encode() if isinstance(line, str) else line for line in several]


# ---------------------------------------------------------------- letters that somebody has edited
def edited_letters(lines: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    """Letters from a file of JSON lines; ValueError names a line that is not a letter."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            letter = json.loads(line)
            _offset_of(letter)
            _bytes_in(letter["value"])
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ValueError(
                f"line {number} is not a dead letter; edit what `penstock gateway export` has written"
            ) from None
        yield letter


def _offset_of(letter: Mapping[str, Any]) -> int:
    offset = letter["offset"]
    if not isinstance(offset, int):
        raise ValueError(f"the offset of a letter is a number, not {offset!r}")
    return offset


def _edited(letter: DeadLetter, change: Mapping[str, Any]) -> DeadLetter:
    """The letter with the bytes that somebody gave it."""
    facts = change["value"]
    if facts.get("time") != letter.facts.get("time"):
        raise ValueError(
            f"the edited letter {letter.offset} is of {facts.get('time')}, and that of the stream is of "
            f"{letter.time}: it comes from another stream, or from before this one began anew"
        )
    value = _bytes_in(facts)
    return replace(letter, value=value, is_complete=letter.is_complete or value != letter.value)
