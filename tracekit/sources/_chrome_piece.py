"""One piece of a trace: bytes in, columns out. This is what worker processes run."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from tracekit.sources import _chrome_template
from tracekit.sources._chrome_events import Event, NotStrict, tolerant
from tracekit.sources._chrome_phases import add_templated, sort_events
from tracekit.sources._chrome_result import Result
from tracekit.sources._chrome_split import walk
from tracekit.sources._chrome_template import Templated

Item = TypeVar("Item")
Buffer = memoryview | bytes


class Piece(msgspec.Struct, frozen=True):
    """A range of the file: from the start of an event to the comma after another (or to the end of the file)."""

    start: int
    stop: int
    base_ns: int
    force: bool = False
    """Whether an event that does not end in the piece is damaged, rather than to be continued."""


_EVENTS = msgspec.json.Decoder(list[Event])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_FAILURES = (msgspec.DecodeError, TypeError, UnicodeDecodeError, RecursionError)


def read_piece(buffer: Buffer, piece: Piece) -> Result:
    """Read one piece: by columns, else all its events at once, else (where one is not as it should be) one by one.

    Args:
        buffer: ``[``, the bytes of the piece, ``]``.
        piece: where the bytes come from.
    """
    return _by_template(buffer, piece) or _by_event(buffer, piece)


def _by_template(buffer: Buffer, piece: Piece) -> Result | None:
    """The piece read by the template of its events; None if that does not apply."""
    split = _chrome_template.split(buffer, piece.start)
    result = None if split is None else _others(split, piece)
    if split is None or result is None:
        return None
    try:
        add_templated(result, split.rows, piece.base_ns)
    except NotStrict:
        return None
    return result


def _others(split: Templated, piece: Piece) -> Result | None:
    """The events that do not follow the template; None if their number is another than their boundaries say."""
    count, result = len(split.rest_ids), Result(piece.start, stop=piece.stop)
    events, closing = _decode(_EVENTS, split.rest)
    places = (piece.start + split.rest_starts - 1).tolist()
    if events is not None and closing is None and len(events) == count:
        with suppress(NotStrict):
            sort_events(result, events, lambda: places, piece.base_ns, split.rest_ids, strict=True)
            return result
    items, closing = _decode(_ITEMS, split.rest)
    if items is None or closing is not None or len(items) != count:
        return None
    result = Result(piece.start, stop=piece.stop)
    found = [tolerant(bytes(item), place, result.report) for item, place in zip(items, places, strict=True)]
    if any(len(of_item) != 1 for of_item in found):
        return None
    tolerated = [event for (event,) in found]
    sort_events(result, tolerated, lambda: places, piece.base_ns, split.rest_ids, strict=False)
    return result


def _by_event(buffer: Buffer, piece: Piece) -> Result:
    result = Result(piece.start, stop=piece.stop)
    events, closing = _decode(_EVENTS, buffer)
    if events is not None:
        try:
            sort_events(result, events, functools.cache(lambda: _places(buffer, piece)), piece.base_ns, strict=True)
        except NotStrict:
            events = None
    if events is None:
        result = Result(piece.start, stop=piece.stop)
        events, positions, closing = _decode_loosely(buffer, piece, result)
        sort_events(result, events, lambda: positions, piece.base_ns, strict=False)
    if closing is not None:
        result.state, result.stop = "closed", piece.start + closing - 1
    return result


def bracketed(body: bytes) -> bytes:
    """The bytes of a piece as ``read_piece`` wants them."""
    return b"[%b]" % body


def _decode(decoder: msgspec.json.Decoder[list[Item]], buffer: Buffer) -> tuple[list[Item] | None, int | None]:
    """Items of the array in ``buffer``, and the position of its ``]`` if that is not the last byte."""
    closing = None
    view = memoryview(buffer)
    for _ in range(2):
        try:
            return decoder.decode(view if closing is None else view[: closing + 1]), closing
        except _FAILURES as error:
            trailing = _TRAILING.search(str(error))
            if trailing is None or closing is not None:
                break
            # msgspec names the byte behind the first character that follows the array.
            closing = bytes(view[: int(trailing[1]) - 1]).rfind(b"]")
    return None, None


def _places(buffer: Buffer, piece: Piece) -> list[int]:
    """Byte offset in the file of each event of a piece that is sound JSON."""
    items, _ = _decode(_ITEMS, buffer)
    return [] if items is None else _offsets(bytes(buffer), items, piece)


def _offsets(whole: bytes, items: Sequence[msgspec.Raw], piece: Piece) -> list[int]:
    found, position = [], 1
    for item in items:
        position = whole.find(bytes(item), position)
        found.append(piece.start + position - 1)
        position += len(item)
    return found


def _decode_loosely(buffer: Buffer, piece: Piece, result: Result) -> tuple[list[Event], list[int], int | None]:
    """Events one by one with their positions, damaged ones mended or dropped."""
    items, closing = _decode(_ITEMS, buffer)
    events: list[Event] = []
    positions: list[int] = []
    if items is not None:
        for item, place in zip(items, _offsets(bytes(buffer), items, piece), strict=True):
            events += tolerant(bytes(item), place, result.report)
            positions += [place] * (len(events) - len(positions))
        return events, positions, closing
    text_ = str(memoryview(buffer)[1:-1], "latin-1")
    found = walk(text_, piece.start, result.report, force=piece.force)
    for start, end in found.events:
        events += tolerant(text_[start:end].encode("latin-1"), piece.start + start, result.report)
        positions += [piece.start + start] * (len(events) - len(positions))
    result.state, result.stop = found.state, piece.start + found.stop
    return events, positions, None
