from __future__ import annotations

import gzip
import io
import json
import random
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sources.memory_sink import MemorySink, artifact
from tracekit.inflate import Inflated, PackedDataError
from tracekit.recognise import by_content
from tracekit.salvage import salvaged
from tracekit.sources import source
from tracekit.sources._json_chunks import JsonChunks

ROWS = [{"ph": "X", "name": f"op{i}", "ts": i, "dur": 1, "x": random.Random(i).random()} for i in range(3000)]
TEXT = json.dumps({"traceEvents": ROWS}).encode()
PACKED = gzip.compress(TEXT)


def decodable(packed: bytes) -> bytes:
    """What deflate data without its header decodes to, byte by byte."""
    stream, found = zlib.decompressobj(-15), b""
    try:
        while packed and not stream.eof and (more := stream.decompress(packed, 1)):
            found, packed = found + more, stream.unconsumed_tail
    except zlib.error:
        pass
    return found


@settings(max_examples=60, deadline=None)
@given(st.integers(10, 400), st.integers(0, 7), st.integers(0, 900))
def test_not_a_byte_before_the_damage_is_lost(place: int, bit: int, given_bytes: int) -> None:
    packed = bytearray(gzip.compress(TEXT[:1500]))
    packed[place % (len(packed) - 10) + 10] ^= 1 << bit
    whole = decodable(bytes(packed[10:]))
    assert b"".join(salvaged(io.BytesIO(packed).read)) == whole
    assert b"".join(salvaged(io.BytesIO(packed).read, given_bytes)) == whole[given_bytes:]


def test_header_with_all_its_fields_is_passed_over() -> None:
    header = b"\x1f\x8b\x08" + bytes([2 | 4 | 8 | 16]) + bytes(6) + b"\3\0abc" + b"name\0" + b"comment\0" + b"cc"
    packer = zlib.compressobj(wbits=-15)
    packed = header + packer.compress(TEXT) + packer.flush() + b"wrong sum"
    assert b"".join(salvaged(io.BytesIO(packed).read)) == TEXT


@pytest.mark.parametrize("packed", [b"", b"\x1f\x8b", b"\x1f\x8b\x08\x08" + b"a" * 20, b"PK" + b"a" * 20])
def test_what_has_no_header_gives_nothing(packed: bytes) -> None:
    assert list(salvaged(io.BytesIO(packed).read)) == []


def test_inflated_gives_everything_before_it_raises() -> None:
    damaged = bytearray(gzip.compress(b"first") + PACKED)
    damaged[-6] ^= 1
    stream = Inflated(io.BytesIO(damaged), "gzip")
    read = b""
    with pytest.raises(PackedDataError, match="checksum"):
        while True:
            read += stream.read(1000)
    assert read == b"first" + TEXT


@pytest.mark.parametrize("count", [3, 3000])
def test_wrong_checksum_costs_no_event_of_a_trace(tmp_path: Path, count: int) -> None:
    damaged = bytearray(gzip.compress(json.dumps({"traceEvents": ROWS[:count]}).encode()))
    damaged[-6] ^= 1
    assert by_content(bytes(damaged), "x.json.gz").format == "kineto"
    path = tmp_path / "trace.json.gz"
    path.write_bytes(damaged)
    sink = MemorySink("kineto")
    source("kineto").read(artifact(path), sink)
    assert len(sink.events_frame()) == count
    assert sink.note_codes().count("damaged_gzip") == 1


def test_wrong_checksum_costs_no_member_of_a_document(tmp_path: Path) -> None:
    damaged = bytearray(gzip.compress(json.dumps({"events": ROWS, "cpu": [{"at": 1}], "version": 2}).encode()))
    damaged[-6] ^= 1
    path = tmp_path / "x.json.gz"
    path.write_bytes(damaged)
    chunks = JsonChunks(path, lambda _: None)
    keys = [part.key for part in chunks]
    assert set(keys) == {"events", "cpu", "version"}
    assert "compressed data is damaged" in chunks.damage.reason
