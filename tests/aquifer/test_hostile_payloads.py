"""Payloads that claim to be far larger than they are: they are refused before memory is taken for them."""

from __future__ import annotations

import io
from contextlib import suppress
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.aquifer import Gateway
from penstock.aquifer.client import elements
from penstock.aquifer.client.elements import Unpacker
from penstock.aquifer.errors import ProtocolViolation
from penstock.aquifer.protocol.effects import Finish
from penstock.aquifer.protocol.frames import Flag, Frame
from penstock.aquifer.protocol.messages import OnError, OnNext
from penstock.aquifer.records import codec_named
from penstock.aquifer.records.arrow import from_arrow_stream, to_arrow_stream
from penstock.aquifer.records.arrow_message import MOST_EXPANDED, claimed_by_message
from penstock.aquifer.records.batch import pack_values, packed_count
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, read
from tests.aquifer.protocol.on_the_line import OnTheLine
from tests.aquifer.protocol.writable_table import METADATA, WritableTable

zstandard = pytest.importorskip("zstandard")


def zeros(count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int8(), count, [None, pa.py_buffer(bytes(count))])


def stream_of(column: pa.Array, compression: str | None = "zstd") -> bytes:
    batch = pa.record_batch([column], names=["value"])
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


ROWS = MOST_EXPANDED + 1
BOMB = stream_of(zeros(ROWS))
ENDS = pa.py_buffer(bytes(8) + ROWS.to_bytes(8, "little"))
WORD = pa.Array.from_buffers(pa.large_binary(), 1, [None, ENDS, zeros(ROWS).buffers()[1]])
DICTIONARY = stream_of(pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), WORD))


@pytest.mark.parametrize("bomb", [BOMB, DICTIONARY])
def test_an_arrow_stream_that_would_expand_to_too_much_is_refused_before_it_is(bomb: bytes) -> None:
    assert len(bomb) < 10_000
    before = pa.total_allocated_bytes()
    with pytest.raises(ValueError, match="at most 67108864 are expanded"):
        from_arrow_stream(bomb)
    # Less, if something of an earlier test was let go of meanwhile.
    assert pa.total_allocated_bytes() <= before


@pytest.mark.parametrize("compression", ["zstd", "lz4", None])
def test_compressed_buffers_of_a_usual_size_are_read(compression: str | None) -> None:
    column = pa.array([f"row {number % 3}" for number in range(1000)]).dictionary_encode()
    assert from_arrow_stream(stream_of(column, compression)).column(0).equals(column)


def test_a_large_batch_that_is_not_compressed_is_read() -> None:
    assert from_arrow_stream(stream_of(zeros(ROWS), None)).num_rows == ROWS


@given(st.binary(max_size=200), st.binary(max_size=50), st.integers(0, 40))
def test_whatever_a_message_says_it_is_a_number_or_an_error(metadata: bytes, body: bytes, root: int) -> None:
    for message in (metadata, root.to_bytes(4, "little") + metadata):
        with suppress(ValueError):
            assert claimed_by_message(memoryview(message), memoryview(body)) >= 0


@given(st.data())
def test_a_message_with_a_flipped_byte_is_a_number_or_an_error(data: st.DataObject) -> None:
    (*_, message) = pa.ipc.MessageReader.open_stream(stream_of(pa.array(["a", "b"] * 100)))
    flipped = bytearray(message.metadata)
    flipped[data.draw(st.integers(0, len(flipped) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ValueError):
        assert claimed_by_message(memoryview(flipped), memoryview(message.body)) >= 0


def test_a_writer_cannot_fill_the_memory_of_the_gateway() -> None:
    table = WritableTable()
    answer = table.put_raw(ROWS, BOMB, METADATA, fmt="arrow")
    assert isinstance(answer, OnError)
    assert "at most 67108864 are expanded" in answer.message
    small = bytes(to_arrow_stream(pa.record_batch({"n": [1, 2]})))
    assert table.put_raw(2, small, METADATA, fmt="arrow") == OnNext(2)


# ---------------------------------------------------------------- records
@given(st.integers(0, 70_000))
def test_how_many_records_a_payload_has_can_be_seen_from_its_beginning(count: int) -> None:
    assert packed_count(pack_values([b""] * count)) == count


@pytest.mark.parametrize("payload", [b"", b"\xc0", msgspec.msgpack.encode({}), b"\xdd\x00"])
def test_what_is_no_array_has_no_number_of_records(payload: bytes) -> None:
    assert packed_count(payload) <= 0


def test_a_frame_with_more_records_than_it_says_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = zstandard.ZstdCompressor().compress(pack_values([b""] * 100_000))
    frame = Frame(int(Flag.ZSTD), 5, 3, packed)
    monkeypatch.setattr(elements, "unpack_values", _never)
    with pytest.raises(ProtocolViolation, match="holds 100000 records, not 3"):
        Unpacker(codec_named("bytes"), records=False, batches=False).of_frame(frame)


def _never(payload: Any) -> Any:
    raise AssertionError("it was unpacked")


def test_a_gateway_that_sends_more_records_than_there_is_credit_for_ends_the_stream() -> None:
    line = OnTheLine(window=100, max_window=100, window_bytes=1000)
    line.welcome()
    line.frame(0, 60)
    (finish,) = line.frame(60, 41)
    assert isinstance(finish, Finish)
    assert "records up to 100, and has credit up to 99" in str(finish.error)


# ---------------------------------------------------------------- what compression saves is shown
def test_the_status_says_how_many_bytes_there_were_before_compression() -> None:
    for compress, ratio in (("zstd", 5), (None, 1)):
        with Gateway(Flux.from_iterable([b"x" * 100] * 2000), ANYWHERE, compress=compress) as gateway:
            read(gateway.endpoint).wait()
            log = gateway.status().log
            assert isinstance(log, msgspec.Struct)
            assert log.plain_bytes >= 200_000
            assert log.plain_bytes >= ratio * log.appended_bytes
            assert (log.plain_bytes == log.appended_bytes) == (compress is None)
