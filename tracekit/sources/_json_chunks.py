"""Stream a JSON object of large arrays in bounded memory, whatever its layout, and survive damage.

An array of objects is cut where one object ends and the next begins. Such a place is only guessed (the
same bytes may stand inside a string or a nested object) and then proved: the piece must decode, which it
cannot when it ends inside a string or an open bracket. Only where a piece does not decode is it taken
apart object by object; one that does not decode alone is repaired (broken UTF-8, control characters,
NaN) or dropped and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from tracekit.errors import SourceError
from tracekit.inflate import Inflated, PackedDataError
from tracekit.sources.base import Sink

CHUNK_BYTES = 1 << 20
ELEMENT_BYTES = 1 << 20
"""The largest element of an array that is looked for when a piece does not decode."""
LIMIT_BYTES = 64 << 20
"""The largest other value that is held in memory; what is larger is damage."""

_BOUNDARY = re.compile(rb"\}(?=\s*(?:,\s*\{|\]))")
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\[\]]', re.DOTALL)
"""A whole string, a bracket, or the quote of a string that has no end."""
_SCALAR_END = re.compile(rb"[,\]}\s]")
_SPACE = b" \t\r\n"
_VALUE_STARTS = b'{"-0123456789ntf,}'
"""First bytes of a value, or of what follows one that is absent."""
_DEPTH = {0x7B: 1, 0x5B: 1, 0x7D: -1, 0x5D: -1}
_TRIES = 24
"""How many guessed ends of one object are tried before it counts as damaged."""
_LAST = 3
"""How many guessed ends of a piece are tried before it is taken apart."""
_NEAR_BYTES = 1 << 16
_LOOK_BYTES = 4096


@dataclass(frozen=True)
class Part:
    """A piece of a top-level member: ``rows`` of an array of objects, or one ``value`` of another kind.

    ``key`` is None when the file is a bare array.
    """

    key: str | None
    rows: list[object]
    value: object = None
    whole: bool = False
    """Whether ``value`` is the member's whole value (rows is empty then)."""

    @property
    def is_list(self) -> bool:
        """Whether the member is an array of objects, or an empty one."""
        return not self.whole or self.value == []


@dataclass
class Damage:
    """What could not be read as it stands."""

    dropped: int = 0
    repaired: int = 0
    first_at: int | None = None
    """Byte of the first object that was dropped."""
    cut_at: int | None = None
    """Byte where the text breaks off or stops being JSON."""
    reason: str = ""

    def note(self, sink: Sink, *, hint: str) -> None:
        """Record it, if there is any."""
        if self.dropped:
            message = f"{self.dropped} events cannot be decoded and are skipped, the first at byte {self.first_at}"
            sink.note("warning", "bad_events", message, event_count=self.dropped, hint=hint)
        if self.repaired:
            message = f"{self.repaired} events had broken text or numbers that are not JSON and were repaired"
            sink.note("info", "repaired_events", message, event_count=self.repaired)
        if self.cut_at is not None:
            sink.note(
                "warning", "cut_file", f"{self.reason} at byte {self.cut_at}; what came before is kept", hint=hint
            )


class JsonChunks:
    """The members of a top-level JSON object (or a bare array), read piece by piece.

    Args:
        path: JSON, plain or packed with gzip or zstd.
        progress: is told how many more bytes of the file are read.
        element: a msgspec type that the elements of arrays are decoded as; those that do not fit are given
            as they are.
        lists: keys of the members that are arrays of objects whatever they begin with: damage at the front of
            one costs an element, not the list.

    Raises:
        SourceError: while iterating, if the text does not begin as a JSON object or array.
    """

    def __init__(
        self,
        path: Path,
        progress: Callable[[int], None],
        element: type[object] = object,
        lists: Collection[str] = (),
    ) -> None:
        self.path = path
        self._lists = lists
        self._elements = msgspec.json.Decoder(list[element])  # type: ignore[valid-type]
        self.damage = Damage()
        self._progress = progress
        self._buffer = b""
        self._pos = 0
        self._base = 0
        self._ended = False
        self._packing_damage: tuple[int, str] | None = None

    def __iter__(self) -> Iterator[Part]:
        with self.path.open("rb") as raw:
            self._stream, self._raw, self._reported = Inflated(raw, _packing(raw)), raw, 0
            yield from self._document()
            if self._packing_damage:
                self._cut(*self._packing_damage)
            self._report()

    # Reading

    def _fill(self) -> bool:
        """Read one more chunk behind the buffer; False at the end of the file."""
        if self._ended:
            return False
        try:
            more = self._stream.read(CHUNK_BYTES)
        except PackedDataError as error:
            more = b""
            self._packing_damage = (self._base + len(self._buffer), f"compressed data is damaged ({error})")
        self._buffer = self._buffer[self._pos :] + more
        self._base += self._pos
        self._pos = 0
        self._ended = not more
        self._report()
        return bool(more)

    def _report(self) -> None:
        at = self._raw.tell()
        self._progress(at - self._reported)
        self._reported = at

    def _peek(self) -> int:
        """The next byte that is not white space, or -1; the position moves there."""
        while True:
            while self._pos < len(self._buffer):
                byte = self._buffer[self._pos]
                if byte not in _SPACE:
                    return byte
                self._pos += 1
            if not self._fill():
                return -1

    @property
    def _at(self) -> int:
        """The position as a byte of the whole text."""
        return self._base + self._pos

    def _cut(self, at: int, reason: str) -> None:
        if self.damage.cut_at is None:
            _, packed_reason = self._packing_damage or (0, None)
            self.damage.cut_at, self.damage.reason = at, packed_reason or reason

    # Structure

    def _document(self) -> Iterator[Part]:
        first = self._skip_mark()
        if first == ord("["):
            self._pos += 1
            yield from self._array(None)
        elif first == ord("{"):
            self._pos += 1
            yield from self._members()
        else:
            raise SourceError(self.path, "is not JSON", hint="the file must begin with { or [")

    def _skip_mark(self) -> int:
        """The first byte of the text, after a byte order mark."""
        self._peek()
        if self._buffer.startswith(b"\xef\xbb\xbf"):
            self._pos = 3
        return self._peek()

    def _members(self) -> Iterator[Part]:
        while True:
            byte = self._peek()
            if byte == ord("}"):
                return
            if byte == ord(","):
                self._pos += 1
                continue
            key = self._key() if byte == ord('"') else None
            if key is None:
                ended = byte < 0 or (self._ended and byte == ord('"'))
                self._cut(self._at, "the text breaks off" if ended else "the text is not JSON from here on")
                return
            if self._opens_objects(is_list=key in self._lists):
                yield from self._array(key)
            else:
                yield from self._value(key)
            if self.damage.cut_at is not None:
                return

    def _key(self) -> str | None:
        end = self._value_end()
        if end is None:
            return None
        try:
            key = msgspec.json.decode(self._buffer[self._pos : end], type=str)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        self._pos = end
        if self._peek() != ord(":"):
            return None
        self._pos += 1
        return key

    def _opens_objects(self, *, is_list: bool) -> bool:
        """Whether an array of objects begins at the position, which then moves inside.

        Args:
            is_list: it is known to be one; bytes that begin no value stand where damage took its bracket.
        """
        byte = self._peek()
        if byte != ord("["):
            return is_list and byte >= 0 and byte not in _VALUE_STARTS
        self._buffer, self._base, self._pos = self._buffer[self._pos :], self._at, 0
        while len(self._buffer) < _LOOK_BYTES and self._fill():
            pass
        inside = self._buffer[1:].lstrip(_SPACE)
        if not inside.startswith(b"{") and (not is_list or inside.startswith(b"]")):
            return False
        self._pos = 1
        return True

    def _value(self, key: str) -> Iterator[Part]:
        """One value of any kind, given whole."""
        self._peek()
        end = self._value_end()
        if end is None:
            self._cut(self._at, "the text breaks off")
            return
        value = _lenient(self._buffer[self._pos : end])
        if value:
            yield Part(key, [], value[0], whole=True)
        self._pos = end

    def _value_end(self) -> int | None:
        """Where the value at the position ends, reading on as needed; None if it never does."""
        while True:
            end = _end_of_value(self._buffer, self._pos, len(self._buffer), complete=self._ended)
            if end is not None:
                return end
            if self._ended or len(self._buffer) - self._pos > LIMIT_BYTES:
                return None
            self._fill()

    def _array(self, key: str | None) -> Iterator[Part]:
        """The objects of the array at the position, piece by piece; the position ends after it."""
        while True:
            byte = self._peek()
            if byte == ord(","):
                self._pos += 1
                continue
            if byte == ord("]"):
                self._pos += 1
                return
            rows = self._piece() if byte >= 0 else None
            if rows is None:
                self._cut(self._at, "the text breaks off")
                return
            yield Part(key, rows)

    def _piece(self) -> list[object] | None:
        """As many elements as the buffer holds; None when no more can be read."""
        if len(self._buffer) - self._pos < CHUNK_BYTES:
            self._fill()
        boundaries = _last_boundaries(self._buffer, self._pos)
        for end in boundaries:
            rows = self._strict(self._buffer[self._pos : end])
            if rows is not None:
                self._pos = end
                return rows
        return self._one_by_one(self._base + boundaries[0] if boundaries else 0)

    # Damage, nested arrays and the ends of arrays

    def _one_by_one(self, until: int) -> list[object] | None:
        """Elements up to byte ``until`` of the text or the end of the array, at least one; None if there is none."""
        rows: list[object] = []
        while True:
            got = self._element()
            if got is None:
                return rows or None
            rows += got
            byte = self._peek()
            if byte == ord(","):
                self._pos += 1
                byte = self._peek()
            if byte in (-1, ord("]")) or self._at >= until:
                return rows

    def _element(self) -> list[object] | None:
        """The element at the position, none if it is damaged; None if the text ends before it does."""
        while True:
            limit = self._pos + ELEMENT_BYTES
            exact = _end_of_value(self._buffer, self._pos, limit, complete=self._ended)
            ends = [exact] if exact is not None else []
            ends += [m.end() for m in islice(_BOUNDARY.finditer(self._buffer, self._pos, limit), _TRIES)]
            for decode in (self._strict, _lenient):
                for end in ends:
                    rows = decode(self._buffer[self._pos : end])
                    if rows is not None:
                        self.damage.repaired += decode is _lenient
                        self._pos = end
                        return rows
                if exact is None and not self._ended and len(self._buffer) < limit:
                    break
            else:
                return self._drop(ends)
            self._fill()

    def _strict(self, text: bytes) -> list[object] | None:
        """The comma-separated elements of a piece of an array, or None if it is not valid JSON."""
        try:
            return cast(list[object], self._elements.decode(b"[%b]" % text))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def _drop(self, ends: list[int]) -> list[object] | None:
        """Leave a damaged element out: go on where the next one may begin."""
        boundary = _BOUNDARY.search(self._buffer, self._pos)
        if boundary is None and not ends:
            return None
        self.damage.dropped += 1
        if self.damage.first_at is None:
            self.damage.first_at = self._at
        self._pos = max(boundary.end() if boundary else ends[0], self._pos + 1)
        return []


def _lenient(text: bytes) -> list[object] | None:
    """The elements, but broken UTF-8 becomes U+FFFD, NaN and infinities null, and raw control characters stay."""
    try:
        loaded = json.loads(f"[{text.decode('utf-8', 'replace')}]", strict=False, parse_constant=lambda _: None)
        clean = json.dumps(loaded, ensure_ascii=False).encode("utf-8", "replace")
        return msgspec.json.decode(clean, type=list[object])
    except (ValueError, RecursionError):
        return None


def _last_boundaries(buffer: bytes, start: int) -> list[int]:
    """The last places where an element may end, last first."""
    near = max(start, len(buffer) - _NEAR_BYTES)
    found = [m.end() for m in _BOUNDARY.finditer(buffer, near)]
    if not found and near > start:
        found = [m.end() for m in _BOUNDARY.finditer(buffer, start)]
    return found[: -_LAST - 1 : -1]


def _end_of_value(buffer: bytes, start: int, limit: int, *, complete: bool) -> int | None:
    """Where the value at ``start`` ends, by counting brackets outside strings; None if not before ``limit``."""
    first = buffer[start : start + 1]
    if first not in (b"{", b"[", b'"'):
        scalar = _SCALAR_END.search(buffer, start, limit)
        end = scalar.start() if scalar else len(buffer) if complete else start
        return end if end > start else None
    depth = 0
    for token in _TOKEN.finditer(buffer, start, limit):
        if token.group() == b'"':
            return None
        depth += _DEPTH.get(buffer[token.start()], 0)
        if depth == 0:
            return token.end()
    return None


_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5": "zstd"}


def _packing(raw: BinaryIO) -> str | None:
    """How a file is packed, by its first bytes."""
    magic = raw.read(2)
    raw.seek(0)
    return _MAGIC.get(magic)
