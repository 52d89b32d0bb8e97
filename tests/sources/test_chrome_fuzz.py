"""The Chrome reader on generated traces, cut and damaged anywhere."""

from __future__ import annotations

import json
import tempfile
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.sources import chrome_reference
from tests.sources.memory_sink import MemorySink, artifact
from tracekit.errors import SourceError
from tracekit.sources import _chrome_plan, chrome
from tracekit.sources._chrome_categories import CATEGORIES

Event = dict[str, Any]


class Number(float):
    """A number that JSON shows as the given text."""

    def __new__(cls, text: str) -> Number:
        made = super().__new__(cls, text)
        made.text = text
        return made

    def __repr__(self) -> str:
        return self.text

    text: str


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
awkward = st.sampled_from(
    ['"},{"ph":"X"', "}]", "]}", '\\"', "},\n  {\n", '{"ph":"X","ts":1,"dur":1}', "\u2028", "\x7f"]
)
names = text | awkward
times = st.builds(
    lambda whole, part: Number(f"{whole}{part}"),
    st.integers(0, 8 * 10**12),
    st.sampled_from(["", ".5", ".123", ".001", ".25", ".12345", ".000", ".0005", "e0"]),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)
ids = st.integers(0, 2**40) | st.integers(0, 99).map(str)
promoted = st.fixed_dictionaries(
    {},
    optional={
        "External id": ids,
        "external id": ids,
        "correlation": ids,
        "device": st.integers(0, 8),
        "stream": st.integers(0, 99),
        "bytes": ids,
        "nrt_sequence_id": st.integers(0, 2**64 - 1),
        "exec_id": ids,
        "neff_cache_key": names,
    },
)
args = st.builds(lambda first, rest: {**first, **rest}, promoted, st.dictionaries(names, values, max_size=3))
spans = st.fixed_dictionaries(
    {
        "ph": st.sampled_from(["X", "X", "X", "i"]),
        "name": names,
        "pid": st.integers(0, 99) | st.sampled_from(["Spans", "7", ""]),
        "tid": st.integers(-5, 2**40),
        "ts": times,
        "dur": times,
    },
    optional={"cat": st.sampled_from([*CATEGORIES, "strange"]), "args": args, "cname": names},
)
flows = st.fixed_dictionaries(
    {"ph": st.sampled_from("stf"), "id": ids | names, "cat": names, "name": names, "pid": st.just(1), "ts": times},
    optional={"bp": st.sampled_from(["e", "x"])},
)
layouts = st.sampled_from(
    [
        {},
        {"separators": (",", ":")},
        {"indent": 1},
        {"indent": 2},
        {"ensure_ascii": False},
        {"indent": 1, "ensure_ascii": False},
    ]
)
pieces = st.sampled_from([64, 300, 1000, 1 << 22])


def read(data: bytes, piece: int = 1 << 22) -> MemorySink:
    sink = MemorySink("kineto")
    with tempfile.TemporaryDirectory() as folder, patch.object(_chrome_plan, "PIECE", piece):
        path = Path(folder) / "trace.json"
        path.write_bytes(data)
        chrome.read_with(artifact(path), sink, 0)
    return sink


def compress(data: bytes) -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    return packer.compress(data) + packer.flush()


@settings(max_examples=120, deadline=None)
@given(st.lists(spans | spans | flows, min_size=1, max_size=25), layouts, pieces, st.booleans(), st.booleans())
def test_sound_traces_are_read_as_a_plain_reader_does(
    events: list[Event], layout: dict[str, Any], piece: int, base: bool, packed: bool
) -> None:
    header = {"baseTimeNanoseconds": 1790857026000000000} if base else {}
    data = json.dumps({**header, "traceEvents": events, "end": [{}]}, **layout).encode()
    sink = read(compress(data) if packed else data, piece)
    parsed = json.loads(data, parse_float=Decimal)["traceEvents"]
    expected = chrome_reference.rows(header, parsed)
    frame = sink.events_frame()
    assert len(frame) == len(expected)
    if expected:
        columns = [c for c in expected[0] if c != "attrs"]
        assert frame.select(columns).rows() == [tuple(row[c] for c in columns) for row in expected]
        attrs = [None if t is None else json.loads(t, parse_float=Decimal) for t in frame["attrs_json"]]
        assert attrs == [row["attrs"] for row in expected]
    assert sink.side_frame("flows").drop("session").rows(named=True) == chrome_reference.flows(header, parsed)
    assert set(sink.note_codes()) <= {"id_overflow"}


def numbered(count: int, layout: dict[str, Any], tail: str) -> tuple[bytes, list[tuple[int, int]]]:
    """A trace of events named 0, 1, … and the (start, end) of each in it."""
    open_, close = (", ", ": ") if "separators" not in layout else (",", ":")
    shown = [
        json.dumps({"ph": "X", "name": str(i), "ts": i, "dur": 1, "args": {"x": [{"y": tail}, tail]}}, **layout)
        for i in range(count)
    ]
    data, spans_ = b'{"a":1,"traceEvents"' + close.encode() + b"[\n", []
    for text_ in shown:
        raw = text_.encode()
        spans_.append((len(data), len(data) + len(raw)))
        data += raw + open_.encode()
    return data[: -len(open_)] + b'\n], "b": {"c": [1, "}"]}}', spans_


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 12), layouts, awkward | text, pieces, st.data())
def test_a_cut_file_gives_every_whole_event(
    count: int, layout: dict[str, Any], tail: str, piece: int, draw: st.DataObject
) -> None:
    data, where = numbered(count, layout, tail)
    cut = draw.draw(st.integers(0, len(data) - 1))
    whole = [str(i) for i, (_, end) in enumerate(where) if end <= cut]
    try:
        sink = read(data[:cut], piece)
    except SourceError:
        assert not whole
        return
    assert sink.events_frame()["name"].to_list() == whole
    inside = any(start < cut < end for start, end in where)
    assert sink.note_codes() == (["cut_file"] if inside else ["open_array"] if cut <= data.rindex(b"]}}") else []) or (
        set(sink.note_codes()) <= {"open_array", "damaged_header"} and not inside
    )


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), layouts, pieces, st.data())
def test_a_cut_gzip_file_gives_what_can_be_inflated(
    count: int, layout: dict[str, Any], piece: int, draw: st.DataObject
) -> None:
    data, where = numbered(count, layout, "x")
    packed = compress(data)
    cut = draw.draw(st.integers(1, len(packed) - 1))
    inflated = zlib.decompressobj(31).decompress(packed[:cut])
    whole = [str(i) for i, (_, end) in enumerate(where) if end <= len(inflated)]
    try:
        sink = read(packed[:cut], piece)
    except SourceError:
        assert not whole
        return
    found = sink.events_frame()["name"].to_list()
    assert found[: len(whole)] == whole
    assert found == [str(i) for i in range(len(found))]
    assert "damaged_gzip" in sink.note_codes()


@settings(max_examples=200, deadline=None)
@given(
    st.integers(3, 12),
    layouts,
    pieces,
    st.sampled_from([b"", b'"', b"{", b"}", b"[", b"]", b",", b"\\", b"\x00", b"\xff", b"NaN", b'"ph"', b"]}", b"},{"]),
    st.integers(0, 6),
    st.integers(0, 1 << 16),
)
# What damage leaves between two events is taken for no separator.
@example(3, {"indent": 2}, 64, b"{", 3, 131)
def test_damage_costs_no_event_that_it_does_not_touch(
    count: int, layout: dict[str, Any], piece: int, junk: bytes, gone: int, place: int
) -> None:
    data, where = numbered(count, layout, "x")
    at = where[0][0] + place % (where[-1][1] + 1 - where[0][0])
    broken = data[:at] + junk + data[at + gone :]
    touched = {i for i, (start, end) in enumerate(where) if start < at + max(gone, 1) and at <= end}
    if b"]" in data[at : at + gone] or b"}" in data[at : at + gone]:
        # Without its closing brackets an event may go on into the next one, and be sound JSON.
        touched |= {i + 1 for i in touched}
    try:
        sink = read(broken, piece)
    except SourceError:
        assert len(touched) >= count
        return
    found = sink.events_frame()["name"].to_list()
    for i in range(count):
        assert i in touched or str(i) in found, (i, at, broken)
    assert len(found) >= count or sink.notes


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=60),
    st.sampled_from([b"", b"[", b"{", b'{"traceEvents":[', b'[{"ph":"X",', b"\x1f\x8b\x08", b"\xef\xbb\xbf["]),
    pieces,
)
def test_any_bytes_are_read_or_refused(soup: bytes, start: bytes, piece: int) -> None:
    try:
        sink = read(start + soup, piece)
    except SourceError as error:
        assert str(error)
        return
    assert sink.notes or len(sink.events_frame())


def test_deep_nesting_is_damage() -> None:
    deep = b"[" * 100_000
    one = b'{"ph":"X","name":"%b","ts":1,"dur":1,"args":%b}'
    data = b",".join(one % pair for pair in ((b"a", b"{}"), (b"b", deep), (b"c", b"{}")))
    sink = read(b"[%b]" % data)
    assert sink.events_frame()["name"][0] == "a"
    assert "damaged_event" in sink.note_codes() or "cut_file" in sink.note_codes()
