from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tracekit.errors import SourceError
from tracekit.sources import _json_chunks
from tracekit.sources._json_chunks import JsonChunks

TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(['},{"', '"}]', "\\", '\\"', "}, {", "]}"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**64 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ELEMENTS = st.dictionaries(TEXT, VALUES, max_size=4)
DOCUMENTS = st.dictionaries(TEXT, st.lists(ELEMENTS, max_size=12) | VALUES, max_size=5)
LAYOUTS = st.sampled_from(
    [
        {"separators": (",", ":")},
        {"separators": (", ", ": ")},
        {"indent": 1},
        {"indent": 4, "ensure_ascii": False},
        {"separators": ("\n ,\t", " :"), "ensure_ascii": False},
    ]
)
QUIET = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(params=[48, 1 << 20], ids=["tiny_chunks", "one_chunk"])
def chunk_bytes(request, monkeypatch):
    monkeypatch.setattr(_json_chunks, "CHUNK_BYTES", request.param)
    return request.param


def read(path: Path) -> tuple[dict[str | None, object], JsonChunks, int]:
    progress: list[int] = []
    chunks = JsonChunks(path, progress.append)
    members: dict[str | None, object] = {}
    for part in chunks:
        if part.whole:
            members[part.key] = part.value
        else:
            members.setdefault(part.key, [])
            members[part.key] += part.rows
    return members, chunks, sum(progress)


@QUIET
@given(document=DOCUMENTS, layout=LAYOUTS)
def test_any_document_in_any_layout_reads_as_json_does(tmp_path, chunk_bytes, document, layout):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document, **layout), encoding="utf-8")
    members, chunks, progress = read(path)
    assert members == document
    assert chunks.damage == _json_chunks.Damage()
    assert progress == path.stat().st_size


@QUIET
@given(rows=st.lists(ELEMENTS, max_size=12), layout=LAYOUTS)
def test_a_bare_array_reads_too(tmp_path, chunk_bytes, rows, layout):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(rows, **layout), encoding="utf-8")
    members, chunks, _ = read(path)
    assert members.get(None, []) == rows
    assert chunks.damage == _json_chunks.Damage()


EVENTS = [{"name": f"e{n}", "at": n, "nested": [{"a": 1}, {"b": "}, {"}]} for n in range(3)]


@pytest.mark.parametrize("layout", [{}, {"indent": 1}, {"separators": (",", ":")}], ids=["one_line", "pretty", "dense"])
def test_a_cut_at_any_byte_keeps_every_whole_event(tmp_path, chunk_bytes, layout):
    text = json.dumps({"events": EVENTS, "version": 2}, **layout).encode()
    ends, at = [], text.index(b"[")
    for event in EVENTS:
        at = text.index(f'"e{event["at"]}"'.encode(), at)
        depth_end = text.index(b"]", at)
        ends.append(text.index(b"}", depth_end) + 1)
    for cut in range(1, len(text)):
        path = tmp_path / "x.json"
        path.write_bytes(text[:cut])
        members, chunks, _ = read(path)
        whole = sum(end <= cut for end in ends)
        rows = [row for row in members.get("events", []) if row in EVENTS]
        assert rows == EVENTS[:whole], f"cut at {cut}"
        assert chunks.damage.cut_at is not None


@pytest.mark.parametrize(
    ("bad", "repaired"),
    [
        pytest.param(b'{"name": "a\x01b", "at": 1}', {"name": "a\x01b", "at": 1}, id="control_character"),
        pytest.param(b'{"name": "a\xffb", "at": 1}', {"name": "a�b", "at": 1}, id="broken_utf8"),
        pytest.param(b'{"name": "a", "at": NaN}', {"name": "a", "at": None}, id="nan"),
        pytest.param(b'{"name": "a", "at": -Infinity}', {"name": "a", "at": None}, id="infinity"),
        pytest.param(b'{"name": "a\\ud800", "at": 1}', {"name": "a?", "at": 1}, id="lone_surrogate"),
        pytest.param(b'{"name": "a, "at": 1}', None, id="missing_quote"),
        pytest.param(b'{"name": "a" "at": 1}', None, id="missing_comma"),
        pytest.param(b'{"name": }', None, id="missing_value"),
        pytest.param(b'{"name": "a", "x": [1, 2}', None, id="missing_bracket"),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 3], ids=["first", "middle", "last"])
def test_a_bad_event_is_repaired_or_dropped_alone(tmp_path, chunk_bytes, bad, repaired, place):
    good = [json.dumps(event).encode() for event in EVENTS]
    path = tmp_path / "x.json"
    path.write_bytes(b'{"events": [' + b", ".join([*good[:place], bad, *good[place:]]) + b'], "version": 2}')
    members, chunks, _ = read(path)
    expected = list(EVENTS)
    if repaired is not None:
        expected.insert(place, repaired)
    assert members == {"events": expected, "version": 2}
    damage = chunks.damage
    assert (damage.repaired, damage.dropped, damage.cut_at) == ((1, 0, None) if repaired else (0, 1, None))


@pytest.mark.parametrize(
    ("front", "extra"),
    [
        pytest.param(b"[null, ", [None], id="null"),
        pytest.param(b"[5, ", [5], id="number"),
        pytest.param(b'["x", ', ["x"], id="text"),
        pytest.param(b"[[], ", [[]], id="array"),
        pytest.param(b"[, ", [], id="comma"),
    ],
)
def test_what_stands_before_the_first_object_costs_no_event(tmp_path, chunk_bytes, front, extra):
    good = [json.dumps(event).encode() for event in EVENTS]
    path = tmp_path / "x.json"
    path.write_bytes(b'{"events": ' + front + b", ".join(good) + b'], "version": 2}')
    rows = [row for part in JsonChunks(path, lambda _: None, lists=("events",)) for row in part.rows]
    assert rows == [*extra, *EVENTS]


@pytest.mark.parametrize("place", [0, 1, 5])
def test_zeros_at_the_front_of_a_list_cost_the_events_they_touch(tmp_path, chunk_bytes, place):
    flat = [{"name": str(i), "at": i} for i in range(4)]
    text = bytearray(json.dumps({"events": flat, "version": 2}).encode())
    at = text.index(b"[") + place
    text[at : at + 6] = bytes(6)
    path = tmp_path / "x.json"
    path.write_bytes(text)
    chunks = JsonChunks(path, lambda _: None, lists=("events",))
    rows = [row for part in chunks for row in part.rows]
    assert rows == flat[1:]
    assert (chunks.damage.dropped, chunks.damage.cut_at) == (1, None)


@pytest.mark.parametrize("value", ["[]", "null", "{}", '"x"', "7"])
def test_a_member_that_is_no_list_is_given_whole(tmp_path, chunk_bytes, value):
    path = tmp_path / "x.json"
    path.write_text(f'{{"events": {value}, "version": 2}}')
    parts = list(JsonChunks(path, lambda _: None, lists=("events",)))
    assert [part.whole for part in parts] == [True, True]
    assert parts[0].is_list == (value == "[]")


@QUIET
@given(data=st.binary(max_size=200) | st.binary(max_size=100).map(lambda b: b'{"events": [{"a": 1}, ' + b))
def test_random_bytes_never_raise_anything_but_a_source_error(tmp_path, chunk_bytes, data):
    path = tmp_path / "x.json"
    path.write_bytes(data)
    try:
        read(path)
    except SourceError as error:
        assert error.path == path


@QUIET
@given(flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4))
def test_flipped_bytes_never_raise_and_the_text_ends(tmp_path, chunk_bytes, flips):
    text = bytearray(json.dumps({"events": EVENTS, "version": 2}).encode())
    for at, byte in flips:
        text[1 + at % (len(text) - 1)] = byte
    path = tmp_path / "x.json"
    path.write_bytes(text)
    read(path)


def test_gzip_reads_as_plain_and_a_cut_one_keeps_its_beginning(tmp_path):
    rows = [{"n": n, "text": f"{n * 7919:x}"} for n in range(60_000)]
    packed = gzip.compress(json.dumps({"events": rows}).encode())
    path = tmp_path / "x.json.gz"
    path.write_bytes(packed)
    members, chunks, progress = read(path)
    assert members == {"events": rows}
    assert progress == len(packed)
    path.write_bytes(packed[: len(packed) // 2])
    members, chunks, _ = read(path)
    found = members["events"]
    assert len(found) > 5_000
    assert found == rows[: len(found)]
    assert chunks.damage.cut_at is not None


def test_the_buffer_stays_as_small_as_the_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr(_json_chunks, "CHUNK_BYTES", 1 << 12)
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"events": [{"n": n} for n in range(100_000)]}))
    chunks = JsonChunks(path, lambda _: None)
    largest = max(len(part.rows) for part in chunks)
    assert largest < 2 * (1 << 12) / len('{"n": 1}, ')


def test_elements_decode_as_the_type_that_is_asked_for(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"events": [{"a": 1}, {"a": 2}]}')
    rows = [row for part in JsonChunks(path, lambda _: None, element=dict[str, int]) for row in part.rows]
    assert rows == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("text", ["", "   ", "hello", "12", '"text"'])
def test_what_is_no_object_or_array_is_an_error(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(SourceError, match="is not JSON"):
        read(path)
