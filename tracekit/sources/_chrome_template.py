"""Complete events that follow one template, read by columns instead of one by one.

An exporter spells its complete events alike::

    <head> <,"ts":> number <,"dur":> number <,"args":> {…} <}, {">

The head holds phase, category, name, process and thread, and is the same for many events; what stands between the
parts is learnt from the first such event of a piece. An event that is not exactly of that kind (flows, metadata,
another order of keys, anything damaged) is left to the reader of single events. What makes this safe: unescaped quotes
cannot occur inside a JSON string, each part is decoded or checked on its own, and the attributes of all events have to
decode to as many objects as there are events. A boundary that was none fails one of these, and the piece is then read
event by event.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from tracekit.sources._chrome_columns import Codes, Ints, Joined, Mask, coded, is_sound
from tracekit.sources._chrome_events import ABSENT
from tracekit.sources._chrome_rows import EventColumns
from tracekit.sources._chrome_text import Text

_LEARN = 1 << 15
"""Bytes at the head of a piece in which its first complete event should be."""
_OPENING = re.compile(rb'\[\s*(\{\s*")')
_KEY = rb'(\s{0,40},\s{0,40}"%b"\s{0,40}:\s{0,40})'
_PARTS = re.compile(
    _KEY % b"ts" + rb"\d+(?:\.\d+)?" + _KEY % b"dur" + rb"\d+(?:\.\d+)?" + _KEY % b"args" + rb"\{", re.ASCII
)


class Template(NamedTuple):
    """The literal text between the parts of an event."""

    ts: bytes
    dur: bytes
    args: bytes
    closing: bytes
    """White space between the attributes and the event's closing brace."""
    separator: bytes
    """From that brace to the first quote of the next event."""


class _Head(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    ph: str
    name: str = ""
    cat: str | None = None
    pid: int = ABSENT
    tid: int = ABSENT


class _Object(msgspec.Struct, gc=False):
    """Any JSON object."""


_heads = msgspec.json.Decoder(list[_Head])
_head = msgspec.json.Decoder(_Head)
_object = msgspec.json.Decoder(_Object)


@dataclass
class Templated:
    """A piece, split into the events that follow the template and the others."""

    rows: EventColumns
    rest: bytes
    """The other events, as a JSON array."""
    rest_ids: Ints
    rest_starts: Ints
    """Where each of them starts in the piece."""


def learn(text: bytes) -> Template | None:
    """The template of the first complete event in a piece, if it has that shape."""
    opening, time = _OPENING.match(text), text.find(b'"ts"', 0, _LEARN)
    # A pattern that starts with white space is slow to search for, so the places are found by what stands next to it.
    while opening and time >= 0:
        parts = _PARTS.match(text, _white_before(text, text.rfind(b",", 0, time)))
        if parts:
            following = re.compile(rb"\}\s*,\s*" + re.escape(opening[1])).search(
                text, parts.end(), parts.end() + _LEARN
            )
            if following is None:
                return None
            closing = text[_white_before(text, following.start()) : following.start()]
            return Template(parts[1], parts[2], parts[3], closing, following[0])
        time = text.find(b'"ts"', time + 1, _LEARN)
    return None


def _white_before(text: bytes, position: int) -> int:
    """Start of the white space before a position."""
    before = text[max(0, position - _LEARN) : position]
    return position - len(before) + len(before.rstrip())


def split(buffer: memoryview | bytes, first_id: int) -> Templated | None:
    """Read the events of ``buffer`` (a JSON array) that follow its template.

    Args:
        buffer: ``[``, events, ``]``.
        first_id: event id of the first event; the others follow.

    Returns:
        Rows with times relative to the trace's base; None if the piece has no template, or is not sound.
    """
    text = Text(buffer)
    template = learn(text.raw)
    if template is None:
        return None
    starts, closes = _boundaries(text, template)
    if not len(starts):
        return None
    times = _times(text, template, starts)
    found = _timed(text, template, starts, closes, times)
    if not len(found.rows):
        return None
    heads = text.spans(starts[found.rows], times[found.rows]).dictionary_encode()
    known = _decoded_heads(heads.dictionary.to_pylist())
    codes: Codes = heads.indices.to_numpy()
    usable = np.array([head is not None for head in known], np.bool_)[codes]
    found, codes = found.where(usable), codes[usable]
    attrs = _attributes(text, found.args, closes[found.rows] - len(template.closing))
    if attrs is None:
        return None
    is_rest = np.ones(len(starts), np.bool_)
    is_rest[found.rows] = False
    rows = _columns([head or _Head("X") for head in known], codes, found, attrs, first_id)
    rest = _joined_runs(text.raw, starts, closes, is_rest)
    return Templated(rows, rest, first_id + np.flatnonzero(is_rest), starts[is_rest])


def _boundaries(text: Text, template: Template) -> tuple[Ints, Ints]:
    """Position of each event's opening brace, and of its closing one; none if the text does not end with an event."""
    between = text.places(template.closing + template.separator) + len(template.closing)
    starts = np.append(text.raw.index(b"{"), between + template.separator.index(b"{"))
    end = _white_before(text.raw, text.raw.rindex(b"]")) - 1
    return (starts, np.append(between, end)) if text.raw[end : end + 1] == b"}" else (starts[:0], starts[:0])


def _times(text: Text, template: Template, starts: Ints) -> Ints:
    """Where the time of each event stands; 0 where there is none."""
    found = text.places(template.ts)[::-1]
    times: Ints = np.zeros(len(starts), np.int64)
    times[np.searchsorted(starts, found, "right") - 1] = found
    return times


class _Timed(NamedTuple):
    """Events with two plain numbers where the template wants them, and attributes after them."""

    rows: Ints
    start_ns: Ints
    duration_ns: Ints
    args: Ints
    """Position of the attributes' opening brace."""

    def where(self, mask: Mask) -> _Timed:
        return self if mask.all() else _Timed(*(values[mask] for values in self))


def _timed(text: Text, template: Template, starts: Ints, closes: Ints, times: Ints) -> _Timed:
    start_ns, end, is_number = text.numbers(times + len(template.ts))
    is_number &= (times > starts) & text.is_at(end, template.dur)
    duration_ns, end, is_duration = text.numbers(end + len(template.dur))
    args = end + len(template.args)
    last = closes - len(template.closing) - 1
    fits = is_number & is_duration & text.is_at(end, template.args + b"{") & (args < last)
    fits &= text.is_at(last, b"}" + template.closing + b"}")
    return _Timed(*(values[fits] for values in (np.arange(len(starts)), start_ns, duration_ns, args)))


def _decoded_heads(texts: Sequence[bytes]) -> list[_Head | None]:
    """The heads, each without its closing brace; None for one that is no complete event's."""
    found: list[_Head | None]
    try:
        found = list(_heads.decode(b"[%b}]" % b"},".join(texts)))
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = []
    if len(found) != len(texts):
        found = [_decoded_head(text) for text in texts]
    return [head if head is not None and head.ph == "X" and _fits(head) else None for head in found]


def _fits(head: _Head) -> bool:
    """Whether the process and the thread fit their columns."""
    return -(2**63) <= head.pid < 2**63 and -(2**63) <= head.tid < 2**63


def _decoded_head(text: bytes) -> _Head | None:
    try:
        return _head.decode(text + b"}")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _attributes(text: Text, starts: Ints, ends: Ints) -> Joined | None:
    """The attributes of every event; None if they are not one JSON object each."""
    spans = text.spans(starts, ends)
    offsets, data = spans.buffers()[1:]
    attrs = Joined(data.to_pybytes() if data else b"", np.frombuffer(offsets, np.int64, len(spans) + 1))
    try:
        count = len(_object.decode_lines(attrs.data))
    except (msgspec.DecodeError, RecursionError):
        return None
    return attrs if count == len(spans) and is_sound(attrs.data) else None


def _columns(heads: Sequence[_Head], codes: Codes, found: _Timed, attrs: Joined, first_id: int) -> EventColumns:
    """Rows of the events; their times are relative to the trace's base."""
    name, category = coded([head.name for head in heads]), coded([head.cat for head in heads])
    name.codes, category.codes = name.codes[codes], category.codes[codes]
    return EventColumns(
        first_id + found.rows,
        np.zeros(len(codes), np.int32),
        name,
        category,
        np.array([head.pid for head in heads], np.int64)[codes],
        np.array([head.tid for head in heads], np.int64)[codes],
        found.start_ns,
        found.start_ns + found.duration_ns,
        attrs,
    )


def _joined_runs(text: bytes, starts: Ints, closes: Ints, is_rest: Mask) -> bytes:
    """The events where the mask is set, as a JSON array; neighbours with what stands between them."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_rest, [False]]).astype(np.int8)))
    runs = zip(starts[edges[::2]].tolist(), closes[edges[1::2] - 1].tolist(), strict=True)
    return b"[%b]" % b",".join([text[start : close + 1] for start, close in runs])
