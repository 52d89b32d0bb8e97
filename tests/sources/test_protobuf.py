from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sources import wire
from tracekit.sources._protobuf import Root, decode

NUMBERS, TEXTS = {1, 5, 300}, {2, 12}
U64 = st.integers(0, 2**64 - 1)
FIELDS = st.one_of(
    st.tuples(st.sampled_from([1, 5, 300, 7]), U64),
    st.tuples(st.sampled_from([2, 12, 9]), st.binary(max_size=300)),
    st.tuples(st.just(20), st.binary(min_size=8, max_size=8)),
    st.tuples(st.just(21), st.binary(min_size=4, max_size=4)),
)
MESSAGES = st.lists(st.lists(FIELDS, max_size=8), max_size=12)


def encode(fields: list[tuple[int, int | bytes]]) -> bytes:
    out = b""
    for field, value in fields:
        if isinstance(value, int):
            out += wire.number(field, value)
        else:
            out += wire.fixed(field, value) if field in (20, 21) else wire.text(field, value)
    return out


def columns(data: bytes, spans: list[tuple[int, int]]):
    start, end = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    raw = np.frombuffer(data, dtype=np.uint8)
    return decode(raw, np.ascontiguousarray(start), np.ascontiguousarray(end), numbers=NUMBERS, texts=TEXTS)


@settings(deadline=None)
@given(messages=MESSAGES)
def test_columns_hold_what_was_encoded(messages):
    data, spans = b"", []
    for fields in messages:
        body = encode(fields)
        spans.append((len(data), len(data) + len(body)))
        data += body
    found = columns(data, spans)
    assert found.valid.all()
    for number in NUMBERS:
        last = [[v for f, v in fields if f == number][-1:] for fields in messages]
        assert found.numbers[number].tolist() == [value[0] if value else 0 for value in last]
        assert found.present[number].tolist() == [bool(value) for value in last]
    for number in TEXTS:
        pieces = found.pieces[number]
        got = [
            (owner, data[start:end]) for owner, start, end in zip(pieces.owner, pieces.start, pieces.end, strict=True)
        ]
        assert got == [(row, v) for row, fields in enumerate(messages) for f, v in fields if f == number]


@settings(deadline=None)
@given(fields=st.lists(FIELDS, min_size=1, max_size=6), cut=st.integers(1, 400))
def test_a_cut_message_is_valid_only_at_the_end_of_a_field(fields, cut):
    data = encode(fields)
    kept = data[: max(len(data) - cut, 0)]
    ends = {len(encode(fields[:n])) for n in range(len(fields) + 1)}
    assert columns(kept, [(0, len(kept))]).valid.tolist() == [len(kept) in ends]


@settings(deadline=None)
@given(data=st.binary(max_size=300))
def test_random_bytes_are_survived_and_pieces_stay_inside(data):
    found = columns(data, [(0, len(data)), (len(data) // 2, len(data))])
    for pieces in found.pieces.values():
        assert ((pieces.start <= pieces.end) & (pieces.end <= len(data))).all()
    root = Root(np.frombuffer(data, dtype=np.uint8))
    spans = list(root)
    assert all(0 < start <= end <= len(data) for _, start, end in spans)
    assert root.stopped_at is None or 0 <= root.stopped_at < len(data)


@settings(deadline=None)
@given(fields=st.lists(FIELDS, max_size=10), cut=st.integers(0, 50))
def test_the_root_gives_each_whole_field_and_says_where_it_stops(fields, cut):
    data = encode(fields)
    kept = data[: max(len(data) - cut, 0)]
    root = Root(np.frombuffer(kept, dtype=np.uint8))
    got = [(field, kept[start:end]) for field, start, end in root]
    ends = [len(encode(fields[: n + 1])) for n in range(len(fields))]
    whole = [pair for pair, end in zip(fields, ends, strict=True) if end <= len(kept)]
    assert got == [(f, v) for f, v in whole if isinstance(v, bytes) and f not in (20, 21)]
    last = max([end for end in ends if end <= len(kept)], default=0)
    assert root.stopped_at == (None if last == len(kept) else last)


def test_an_expected_field_of_another_wire_type_makes_the_message_invalid():
    data = wire.text(5, b"abc")
    assert columns(data, [(0, len(data))]).valid.tolist() == [False]
    data = wire.number(12, 4)
    assert columns(data, [(0, len(data))]).valid.tolist() == [False]
