"""Compressed batches: what comes out is what went in, or an error, and never more than they claim."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aquifer import ARROW, MSGPACK, Batch, Gateway, GatewayOptions, RecordMetadata, StreamOptions
from penstock.aquifer.log import Log, MemoryJournal
from penstock.aquifer.records import compression, pack_metadata, pack_values, unpack_values
from penstock.aquifer.records.compression import (
    MOST_EXPANDED,
    Compressor,
    compressor_named,
    expand,
    expanded,
    expanded_bytes,
    plain_format,
)
from penstock.streams import Flux

NOISE = os.urandom(1 << 20)
LINE = b'{"sensor": 7, "celsius": 21.5, "state": "in order"}'


def batch_of(values: list[bytes], first: int = 0, format: str = MSGPACK) -> Batch:
    return Batch(first, len(values), pack_values(values), pack_metadata(RecordMetadata(1)), format)


def no_more_than(size: int) -> bytes:
    """A frame of zstd that claims this size, without having to make that much."""
    context = zstandard.ZstdCompressor().compressobj(size=size)
    return context.compress(b"\0" * (1 << 20)) + context.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)


# ---------------------------------------------------------------- there and back
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.binary(max_size=200) | st.just(LINE * 20), min_size=1, max_size=60),
    st.sampled_from([MSGPACK, ARROW]),
    st.integers(1, 19),
)
def test_what_is_expanded_is_what_was_compressed(values: list[bytes], format: str, level: int) -> None:
    plain = batch_of(values, 17, format)
    stored = Compressor(level).compressed(plain)
    assert expanded(stored) == plain
    assert plain_format(stored) == format
    assert (stored.first, stored.count, stored.end, stored.metadata) == (
        17,
        len(values),
        plain.end,
        plain.metadata,
    )
    assert expanded_bytes(stored) == plain.nbytes
    assert stored.compressed == (stored.nbytes < plain.nbytes)
    if stored.compressed:
        assert len(stored.payload) <= 0.9 * len(plain.payload)


def test_a_batch_that_is_compressed_stays_as_it_is() -> None:
    compressor = Compressor()
    stored = compressor.compressed(batch_of([LINE] * 1000))
    assert stored.compressed
    assert compressor.compressed(stored) is stored


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([LINE] * 15, id="small"),
        pytest.param([NOISE[:300_000]], id="without a pattern"),
        pytest.param([NOISE[:100_000] + b"." * 8_000], id="nearly without"),
    ],
)
def test_a_batch_stays_plain_where_compression_does_not_pay(values: list[bytes]) -> None:
    plain = batch_of(values)
    assert Compressor().compressed(plain) is plain


def test_a_batch_that_nobody_would_expand_is_not_compressed() -> None:
    plain = Batch(0, 1, bytes(MOST_EXPANDED + 1), b"")
    assert Compressor().compressed(plain) is plain


def test_batches_without_a_pattern_are_tried_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    compressor, tried = Compressor(), []
    compressed = compressor.compressed

    def counted(batch: Batch) -> Batch:
        tried.append(batch.first)
        return compressed(batch)

    monkeypatch.setattr(compressor, "compressed", counted)
    noise = [batch_of([NOISE[:5000]], first) for first in range(200)]
    assert compressor.all_compressed(noise) == noise
    assert tried == [0, 1, 3, 7, 15, 31, 63, 127, 191]

    lines = [batch_of([LINE] * 100, first) for first in range(200)]
    stored = compressor.all_compressed(lines)
    assert [batch.compressed for batch in stored] == [False] * 55 + [True] * 145
    assert [expanded(batch) for batch in stored] == lines


def test_batches_that_are_too_small_do_not_count_as_without_a_pattern() -> None:
    compressor = Compressor()
    compressor.all_compressed([batch_of([b"."], first) for first in range(100)])
    assert compressor.all_compressed([batch_of([LINE] * 100)])[0].compressed


def test_an_empty_batch_stays_empty() -> None:
    assert compressor_named("zstd", "Gateway").all_compressed([]) == []


# ---------------------------------------------------------------- what was not made here
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_flipped_bit_or_a_torn_end_is_noticed(data: st.DataObject) -> None:
    plain = batch_of([LINE + b"%d" % number for number in range(200)])
    payload = bytearray(Compressor().compressed(plain).payload)
    if data.draw(st.booleans(), "torn"):
        del payload[data.draw(st.integers(0, len(payload) - 1)) :]
    else:
        payload[data.draw(st.integers(0, len(payload) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        content = expand(bytes(payload))
    except ValueError:
        return
    assert content == plain.payload, "a bit of the header that nobody reads"


def test_a_batch_that_claims_too_much_is_refused_before_it_is_expanded() -> None:
    with pytest.raises(ValueError, match=r"claims to have 68719476736 bytes, and at most 67108864 are"):
        expand(no_more_than(1 << 36))


def test_a_batch_that_has_more_than_it_claims_is_not_expanded_further() -> None:
    payload = bytearray(zstandard.ZstdCompressor().compress(bytes(1 << 20)))
    at = payload.index((1 << 20).to_bytes(4, "little"))
    payload[at : at + 4] = (1000).to_bytes(4, "little")
    assert zstandard.frame_content_size(bytes(payload)) == 1000
    with pytest.raises(ValueError, match="cannot be expanded"):
        expand(bytes(payload))


def test_a_batch_that_has_less_than_it_claims_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be expanded"):
        expand(no_more_than(2 << 20))


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "not compressed with zstd"),
        (b"not zstd at all", "not compressed with zstd"),
        (zstandard.ZstdCompressor(write_content_size=False).compress(LINE), "does not say how large"),
        (zstandard.ZstdCompressor().compress(LINE) + b"more", "cannot be expanded"),
        (zstandard.ZstdCompressor().compress(LINE) * 2, "cannot be expanded"),
    ],
    ids=["nothing", "something else", "no size", "more behind it", "two"],
)
def test_what_is_not_one_frame_of_a_known_size_is_refused(payload: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        expand(payload)


# ---------------------------------------------------------------- the log
def test_a_log_keeps_what_it_expanded_last_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    log, made = Log(MemoryJournal()), []
    real = compression.expand

    def counted(payload: bytes) -> bytes:
        made.append(1)
        return real(payload)

    monkeypatch.setattr(compression, "expand", counted)
    batches = [batch_of([LINE * 40_000], first) for first in range(8)]
    log.compressor = Compressor()
    log.append([log.compressed(batch) for batch in batches])
    for _ in range(3):
        for first in (6, 7):
            found = log.find(first)
            assert found is not None
            assert log.expanded(found) == batches[first]
    assert len(made) == 2
    for first in (*range(8), 5, 6, 7):
        found = log.find(first)
        assert found is not None
        assert found.compressed
        assert log.expanded(found) == batches[first]
    assert len(made) == 2 + 8, "the last three were still there"
    assert log._expanded._bytes == sum(batch.nbytes for batch in log._expanded._kept.values()) <= 8 << 20


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(0, 400), st.integers(1, 60_000))
def test_what_fits_is_counted_as_readers_hold_it(counts: list[int], start: int, nbytes: int) -> None:
    plain, packed = Log(MemoryJournal()), Log(MemoryJournal())
    packed.compressor = Compressor()
    for count in counts:
        batch = batch_of([LINE] * count, plain.head)
        plain.append([batch])
        packed.append([packed.compressed(batch)])
    start = min(start, plain.head)
    assert packed.measure(start, nbytes) == plain.measure(start, nbytes)
    assert packed.fitting(start, 500, nbytes) == plain.fitting(start, 500, nbytes)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 80), st.integers(1, 80))
def test_an_excerpt_is_the_same_with_and_without_compression(start: int, count: int) -> None:
    log, plain = Log(MemoryJournal()), batch_of([LINE + b"%d" % number for number in range(80)])
    log.compressor = Compressor()
    stored, stop = log.compressed(plain), min(start + count, 80)
    assert stored.compressed
    if start < stop:
        part = log.excerpt(stored, start, stop, MSGPACK)
        assert part.compressed == (stop - start == 80)
        assert log.expanded(part) == log.excerpt(plain, start, stop, MSGPACK)
        assert unpack_values(log.expanded(part).payload) == unpack_values(plain.payload)[start:stop]


# ---------------------------------------------------------------- the option
@pytest.mark.parametrize("name", ["gzip", "zstd:", "zstd:0", "zstd:20", "zstd:-1", "ZSTD", "", 3, b"zstd"])
def test_a_compression_that_there_is_not_is_refused(name: object) -> None:
    for made in (
        lambda: Gateway(Flux.never(), compress=name),  # type: ignore[arg-type]
        lambda: GatewayOptions(compress=name),  # type: ignore[arg-type]
        lambda: StreamOptions(Flux.never(), compress=name),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=r"\(compress=…\): .* is not a compression; write"):
            made()


@pytest.mark.parametrize(("name", "level"), [("zstd", 1), ("zstd:1", 1), ("zstd:19", 19)])
def test_a_compression_has_a_level(name: str, level: int) -> None:
    assert compressor_named(name, "Gateway").level == level


def test_without_the_package_the_option_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['zstandard'] = None; from penstock import Flux; "
        "from penstock.aquifer import Gateway; Gateway(Flux.never(), compress='zstd')"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.stderr.splitlines()[-1] == (
        "ImportError: Gateway(compress='zstd') needs zstandard, which is not installed: "
        "pip install 'penstock-streams[zstd]'"
    )
