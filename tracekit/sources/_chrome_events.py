"""One Chrome event as a typed struct, and how an event that does not fit it is made to.

Worker processes load this module, so it imports nothing heavy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from hashlib import blake2b

import msgspec
from msgspec import Raw

ABSENT = -(2**63)
"""Stands for a missing process or thread id."""

_INT64 = 2**63
NOTHING = Raw(b"")
Fields = dict[str, Raw]


class Event(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """An event as nearly all real traces spell it; ``ts``, ``dur``, ``id`` and ``args`` stay JSON text."""

    ph: str
    name: str = ""
    cat: str | None = None
    pid: int = ABSENT
    tid: int = ABSENT
    ts: Raw = NOTHING
    dur: Raw = NOTHING
    args: Raw = NOTHING
    id: Raw = NOTHING
    bp: str | None = None
    s: Raw = NOTHING


class NotStrict(Exception):  # noqa: N818 - a signal between two paths, not an error
    """A value that the fast path does not take; the piece is read again, event by event."""


class Loss(msgspec.Struct, array_like=True):
    """Events that were lost, repaired or changed for one reason."""

    code: str
    events: int
    first: list[tuple[int, str]]
    """(byte position, reason) of the first few; the position is -1 where it is not known."""


_KEPT = 5


@dataclass
class Report:
    """What happened while one piece of a file was read."""

    losses: dict[str, Loss] = field(default_factory=dict)
    labels: dict[tuple[int, int], tuple[str | None, str | None]] = field(default_factory=dict)
    """(process, thread) → their text, where it is not a number."""

    def add(self, code: str, position: int, reason: str, events: int = 1) -> None:
        """Record that ``events`` events at ``position`` were lost or changed."""
        self.merge_loss(Loss(code, events, [(position, reason)]))

    def add_each(self, code: str, positions: Sequence[int], reason: str) -> None:
        """Record one lost or changed event at each position."""
        if positions:
            self.merge_loss(Loss(code, len(positions), [(position, reason) for position in positions[:_KEPT]]))

    def merge_loss(self, loss: Loss) -> None:
        """Add what another report says about one code."""
        known = self.losses.setdefault(loss.code, Loss(loss.code, 0, []))
        known.events += loss.events
        known.first = (known.first + loss.first)[:_KEPT]

    def merge(self, other: Report) -> None:
        """Add everything another report says."""
        for loss in other.losses.values():
            self.merge_loss(loss)
        self.labels.update(other.labels)


_strict = msgspec.json.Decoder(Event)
_fields = msgspec.json.Decoder(Fields)
_items = msgspec.json.Decoder(list[Raw])
_any = msgspec.json.Decoder()
_FAILURES = (msgspec.DecodeError, TypeError, UnicodeDecodeError, RecursionError)


def tolerant(text: bytes, position: int, report: Report) -> list[Event]:
    """Events of one element of the event array: usually one, more if it nests an array, none if it is lost.

    Args:
        text: the element's JSON.
        position: byte offset to name in the report.
        report: takes what was lost or repaired.
    """
    try:
        event = _strict.decode(text)
        _check_text(text)
        if _is_plain(event):
            return [event]
    except _FAILURES:
        pass
    try:
        return _elements(text, position, report)
    except _FAILURES:
        pass
    try:
        events = _elements(repaired(text), position, report)
    except _FAILURES as error:
        report.add("damaged_event", position, f"not JSON: {error}")
        return []
    report.add("repaired_event", position, "control characters, invalid UTF-8, NaN or a stray comma", len(events))
    return events


_PLAIN_TIME = re.compile(rb"(-?[0-9]{1,16}(\.[0-9]{1,18})?)?")


def _is_plain(event: Event) -> bool:
    """Whether nothing in the event needs converting."""
    return (
        _PLAIN_TIME.fullmatch(event.ts) is not None
        and _PLAIN_TIME.fullmatch(event.dur) is not None
        and bytes(event.args)[:1] in (b"", b"{")
        and (not event.id or event.ph in _WITH_ID)
        and -_INT64 <= event.pid < _INT64
        and -_INT64 <= event.tid < _INT64
    )


def _check_text(text: bytes) -> None:
    if not text.isascii():
        text.decode()


def _elements(text: bytes, position: int, report: Report) -> list[Event]:
    _check_text(text)
    start = text.lstrip()[:1]
    if start == b"[":
        return [event for item in _items.decode(text) for event in tolerant(bytes(item), position, report)]
    if start != b"{":
        _any.decode(text)
        report.add("not_an_event", position, "an element of the event array is not an object")
        return []
    fields = _fields.decode(text)
    if "traceEvents" in fields and "ph" not in fields:
        return _elements(bytes(fields["traceEvents"]), position, report)
    event = _normal(fields, position, report)
    return [] if event is None else [event]


def _normal(fields: Fields, position: int, report: Report) -> Event | None:
    """The event with its fields converted to the types of ``Event``; other fields move into ``args``."""
    phase = _text(fields.pop("ph", None))
    if not phase:
        report.add("no_phase", position, "no `ph`")
        return None
    name = _text(fields.pop("name", None)) or ""
    category = _text(fields.pop("cat", None))
    pid, process_label = _number_or_hash(fields.pop("pid", None))
    tid, thread_label = _number_or_hash(fields.pop("tid", None))
    if process_label is not None or thread_label is not None:
        report.labels[pid, tid] = (process_label, thread_label)
    event = Event(phase, name, category, pid, tid)
    event.ts = _decimal(fields.pop("ts", None))
    event.dur = _decimal(fields.pop("dur", None))
    event.bp = _text(fields.pop("bp", None))
    event.s = fields.pop("s", NOTHING)
    event.args = fields.pop("args", NOTHING)
    if phase in _WITH_ID:
        event.id = fields.pop("id", NOTHING)
    _fold(event, fields, position, report)
    return event


_WITH_ID = frozenset("stfCbenSTpFNOD")


def _fold(event: Event, fields: Fields, position: int, report: Report) -> None:
    """Put fields without a place of their own into ``args``, and make ``args`` an object."""
    args = bytes(event.args)
    if args in (b"", b"null"):
        event.args = NOTHING
        known: Fields = {}
    elif args[:1] == b"{":
        if not fields:
            return
        known = _fields.decode(args)
    else:
        report.add("args_not_object", position, "`args` is not an object; kept under the key `args`")
        known = {"args": event.args}
    if fields or known:
        event.args = Raw(msgspec.json.encode(known | {k: v for k, v in fields.items() if k not in known}))


def _text(value: Raw | None) -> str | None:
    """A JSON value as text: strings without their quotes, null as None, anything else as it is written."""
    if value is None:
        return None
    text = bytes(value)
    if text[:1] == b'"':
        return str(msgspec.json.decode(text))
    return None if text == b"null" else text.decode()


def _number_or_hash(value: Raw | None) -> tuple[int, str | None]:
    """An id as a number; text that is no number becomes a negative hash, and is given too."""
    text = _text(value)
    if text is None:
        return ABSENT, None
    number = whole_number(text)
    if number is not None and -_INT64 < number < _INT64:
        return number, None
    return text_id(text), text


def text_id(text: str) -> int:
    """A stable negative 62-bit number for an id that is text."""
    return -1 - (int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 2)


def whole_number(text: str) -> int | None:
    """The integer that ``text`` spells in decimal (``7``, ``-7``, ``7.0``), or None."""
    if re.fullmatch(r"-?[0-9]{1,40}(\.0{1,20})?", text):
        return int(text.partition(".")[0])
    return None


def _decimal(value: Raw | None) -> Raw:
    """A time as JSON number text, or nothing if it is not a finite number of sensible size."""
    text = _text(value)
    if text is None:
        return NOTHING
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        return NOTHING
    if not number.is_finite() or abs(number.adjusted()) > 30:
        return Raw(b"0") if number == 0 else NOTHING
    return Raw(format(number, "f").encode())


_TOKEN = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*")|(?P<constant>-?\b(?:Infinity|NaN)\b)|(?P<comma>,(?=\s*[}\]]))', re.DOTALL
)
_IN_STRING = re.compile(
    r"[\x00-\x1f]"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
    r'|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4}|\\',
    re.DOTALL,
)


def repaired(text: bytes) -> bytes:
    """JSON with its common faults mended, everything else untouched.

    Invalid UTF-8 and lone surrogates become U+FFFD, raw control characters are escaped, a backslash that
    escapes nothing is doubled, NaN and ±Infinity become null, a comma before a closing bracket goes.
    """
    return _TOKEN.sub(_mended_token, text.decode("utf-8", "replace")).encode()


def _mended_token(match: re.Match[str]) -> str:
    if match["string"] is not None:
        return _IN_STRING.sub(_mended_character, match["string"])
    return "null" if match["constant"] else ""


def _mended_character(match: re.Match[str]) -> str:
    found = match[0]
    if len(found) == 1:
        return "\\\\" if found == "\\" else f"\\u{ord(found):04x}"
    if len(found) == 6 and found[2] in "dD" and found[3] in "89abcdefABCDEF":
        return "\\ufffd"
    return found
