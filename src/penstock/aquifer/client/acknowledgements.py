"""How far a subscription has come with its records, and what it acknowledges of them to the gateway.

There are three ways. Delivered records are acknowledged automatically; or the program says up to which offset
it has processed everything; or it settles each record by itself, and some of them are delivered again.
"""

from __future__ import annotations

from penstock.aquifer.client.redelivery import LetterWriter, PendingRecords, refused_too_often
from penstock.aquifer.protocol.extended_reader import ExtendedReader
from penstock.aquifer.protocol.plain_reader import PlainReader

__all__ = ["Acknowledgements"]

_LAST_LETTERS = 5.0
"""Seconds that a subscription which is over waits for dead letters that are being written."""


class Acknowledgements:
    """What the gateway may be told of the records of one subscription.

    ``way`` is ``"auto"``, ``"manual"`` or ``"each"``; the last one has ``pending`` records. With
    ``from_any_thread``, other threads deliver records too, and :meth:`note` tells the gateway of them. With
    ``of_keys``, the subscription gets only the records of a few keys.
    """

    def __init__(
        self,
        way: str,
        pending: PendingRecords | None,
        letters: LetterWriter | None,
        *,
        from_any_thread: bool,
        of_keys: bool,
    ) -> None:
        self.automatic = way == "auto"
        self.reached = 0
        """The offset before which everything was delivered, or left out."""
        self.last_record = 0
        """The offset after the last record of the chunks that were handed on."""
        self._pending = pending
        self._letters = letters
        self._from_any_thread = from_any_thread
        self._of_keys = of_keys
        self._processed: int | None = None
        """The offset before which the program has processed everything, as it says."""

    # ---------------------------------------------------------------- the program, on any thread
    def up_to(self, offset: int) -> None:
        """Every record before this offset was processed."""
        if self.automatic:
            raise RuntimeError(
                "this subscription acknowledges automatically; for acknowledge() use acknowledge='manual'"
            )
        if self._pending is not None:
            raise RuntimeError("with acknowledge='each', settle each record with ack() or nack()")
        self._processed = max(offset, self._processed or 0)

    @property
    def unsettled(self) -> PendingRecords:
        """The records that are settled each by itself."""
        if self._pending is None:
            raise RuntimeError("ack() and nack() need AquiferPublisher(acknowledge='each', records=True)")
        return self._pending

    # ---------------------------------------------------------------- the subscription
    def reach(self, offset: int, reader: ExtendedReader | PlainReader | None) -> None:
        """Everything before this offset was delivered, or left out; on the subscription's thread."""
        self.reached = offset
        if self.automatic and isinstance(reader, ExtendedReader):
            reader.acknowledged = offset

    def note(self, reader: ExtendedReader | PlainReader | None) -> None:
        """Let the reader know what to acknowledge."""
        if reader is None:
            return
        if self.automatic:
            if self._from_any_thread and isinstance(reader, ExtendedReader):
                reader.acknowledged = max(reader.acknowledged, min(self.reached, reader.next))
            return
        if self._pending is not None:
            self._note_settled(self._pending, reader)
            return
        acknowledged = max(self._processed or 0, reader.acknowledged)
        if self._of_keys and self.last_record <= acknowledged < reader.handed:
            acknowledged = reader.handed  # No record that was delivered lies between: they have other keys.
        # Not beyond what has arrived: the gateway would refuse that.
        reader.acknowledged = max(reader.acknowledged, min(acknowledged, reader.next))

    def _note_settled(self, pending: PendingRecords, reader: ExtendedReader | PlainReader) -> None:
        reached = self.reached  # First: what is delivered after this is not settled.
        lowest = pending.lowest()
        settled = min(reached if lowest is None else lowest, reader.next)
        reader.acknowledged = max(reader.acknowledged, settled)
        if isinstance(reader, ExtendedReader):
            reader.redelivered = pending.redelivered

    def see_to_dead(self, pending: PendingRecords) -> None:
        """Have the records that were refused the last time written as dead letters, or fail with them."""
        if self._letters is not None and self._letters.failure is not None:
            raise self._letters.failure
        if dead := pending.dead():
            if self._letters is None:
                raise refused_too_often(dead[0])
            self._letters.write_soon()

    def finish(self) -> None:
        """Wait a little for dead letters that are being written."""
        if self._letters is not None:
            self._letters.join(_LAST_LETTERS)
