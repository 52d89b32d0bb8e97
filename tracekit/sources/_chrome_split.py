"""Where events start and end: cutting a trace into pieces, and the exact walk where cutting is not enough.

Text is JSON bytes decoded as Latin-1 here, so that positions in it are byte offsets; all structural characters
of JSON are ASCII. Chrome's trace format: https://chromium.org → "Trace Event Format".
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from tracekit.sources._chrome_events import Report, repaired

_scan = json.JSONDecoder(strict=False, parse_float=str, parse_int=str)
_SPACE = re.compile(r"[ \t\r\n]*")
_BRACES = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)
_CANDIDATE = re.compile(r'\{\s*"')
_SEPARATOR = re.compile(r'[ \t\r\n]*\}[ \t\r\n]*,[ \t\r\n]*\{[ \t\r\n]*"[^"\\]*"[ \t\r\n]*:')
_EVENT_MARK = '"ph"'
_SYNTAX = (json.JSONDecodeError, RecursionError)
MATCH_LIMIT = 4 << 20
"""How far a damaged event is searched for its closing brace, in bytes."""


def skip_space(text: str, position: int) -> int:
    """First position at or after ``position`` that is not white space."""
    match = _SPACE.match(text, position)
    return match.end() if match else position


@dataclass
class Walk:
    """What the walk over one piece found."""

    events: list[tuple[int, int]] = field(default_factory=list)
    """(start, end) of every element of the event array."""
    stop: int = 0
    state: str = "whole"
    """``whole``: reached the end of the text between two elements; ``closed``: met the array's ``]`` at ``stop``;
    ``incomplete``: the text ends inside the element that starts at ``stop``."""


def walk(text: str, offset: int, report: Report, *, force: bool) -> Walk:
    """Split the text of an event array into its elements, without trusting any separator.

    Args:
        text: from the start of an element on.
        offset: byte offset of the text in the file, for the report.
        report: takes what is damaged.
        force: whether an element that does not end is damaged, rather than to be continued with more text.
    """
    found = Walk()
    position = 0
    while True:
        position = skip_space(text, position)
        if position >= len(text):
            found.stop = len(text)
            return found
        if text[position] == "]":
            found.stop, found.state = position, "closed"
            return found
        if text[position] == ",":
            position += 1
            continue
        try:
            _, end = _scan.raw_decode(text, position)
            after = text[skip_space(text, end) :][:1]
            if text[position] in "{[" or after in (",", "]"):
                found.events.append((position, end))
                position = end
            elif after or force:
                # A stray quote takes the first key of the next event for the end of a string.
                report.add("damaged_event", offset + position, "something between two events that is no JSON")
                position = next_event(text, position + 1)
            else:
                found.stop, found.state = position, "incomplete"
                return found
        except _SYNTAX as error:
            if not force and _ends_early(error, text):
                found.stop, found.state = position, "incomplete"
                return found
            position = _past_damage(text, position, offset, error, found, report)


def _ends_early(error: Exception, text: str) -> bool:
    """Whether a syntax error is only that the text ends too soon."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    # The scanner names where a string or literal starts, and at most a few bytes before the end otherwise.
    return error.msg.startswith("Unterminated string") or error.pos >= len(text) - 12


def _past_damage(text: str, position: int, offset: int, error: Exception, found: Walk, report: Report) -> int:
    """Keep the damaged element at ``position`` if it can be mended, and find where the next one starts."""
    following = next_event(text, position + 1)
    end = _balanced_end(text, position, min(following, position + MATCH_LIMIT))
    if end is not None and _mendable(text[position:end]):
        found.events.append((position, end))
        return end
    end = following if end is None else end
    report.add("damaged_event", offset + position, _reason(error), max(1, text.count(_EVENT_MARK, position, end)))
    return end


def next_event(text: str, position: int, *, whole: bool = False) -> int:
    """Start of the next object with phase and time, else (unless ``whole``) of one cut by the end, else the end."""
    unfinished = len(text)
    for candidate in _CANDIDATE.finditer(text, position):
        try:
            value, _ = _scan.raw_decode(text, candidate.start())
        except _SYNTAX as error:
            if not whole and _ends_early(error, text):
                unfinished = min(unfinished, candidate.start())
            continue
        if isinstance(value, dict) and "ph" in value and ("ts" in value or value["ph"] == "M"):
            return candidate.start()
    return unfinished


def _balanced_end(text: str, position: int, limit: int) -> int | None:
    """End of the object at ``position`` by its braces, strings aside, if it ends before ``limit``."""
    depth = 0
    for token in _BRACES.finditer(text, position, limit):
        if token[0] == "{":
            depth += 1
        elif token[0] == "}":
            depth -= 1
            if depth <= 0:
                return token.end() if depth == 0 and text[position] == "{" else None
    return None


def _mendable(text: str) -> bool:
    try:
        msgspec.json.decode(repaired(text.encode("latin-1")), type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _reason(error: Exception) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"


@dataclass
class Head:
    """What stands before (or after) an event array."""

    members: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Key (JSON string) and value (JSON) of the members that are not event arrays."""
    array_start: int | None = None
    """Position after the ``[`` of an event array."""
    stop: int = 0
    complete: bool = True
    """False if the text ended (or broke) inside a member."""


def scan_head(text: str, position: int, *, inside: bool = False) -> Head:
    """Read members of the top-level object up to the next event array.

    Args:
        text: Latin-1 text of the file, or of a part of it.
        position: where to start.
        inside: whether ``position`` is inside the object already, after a member.
    """
    head = Head(stop=position)
    if not inside:
        position = skip_space(text, position)
        first = text[position : position + 1]
        if first == "[":
            head.array_start = position + 1
            return head
        if first != "{":
            head.complete = first == ""
            return head
        position += 1
    for key, start, opened in _members(text, position, head):
        if key == '"traceEvents"' and opened == "[":
            head.array_start = start + 1
            return head
    return head


def _members(text: str, position: int, head: Head) -> Iterator[tuple[str, int, str]]:
    """Walk over ``"key": value`` pairs, giving each key, the start of its value and the value's first character.

    A value of ``traceEvents`` that is an object is entered: some tools nest one trace in another.
    """
    while True:
        position = skip_space(text, position)
        mark = text[position : position + 1]
        head.stop = position
        if mark == "":
            return
        if mark in ",}":
            position += 1
            continue
        try:
            _, after = _scan.raw_decode(text, position) if mark == '"' else (None, -1)
            start = skip_space(text, skip_space(text, after) + 1)
            if after < 0 or text[start - 1 : start].strip() not in (":", ""):
                raise json.JSONDecodeError("not a member", text, position)
            key, opened = text[position:after], text[start : start + 1]
            yield key, start, opened
            if key == '"traceEvents"' and opened == "{":
                position = start + 1
                continue
            _, end = _scan.raw_decode(text, start)
        except _SYNTAX:
            head.complete = False
            return
        head.members.append((key.encode("latin-1"), text[start:end].encode("latin-1")))
        position = end


def learn_separator(text: str, position: int) -> bytes | None:
    """The bytes that stand between most events at the head of an event array, or None if there is no such thing.

    It runs from the white space before an event's closing brace to the colon after the next event's first key.
    What damage left between two events is no separator: it holds a comma between two braces.
    """
    seen: Counter[str] = Counter()
    previous_end = None
    for _ in range(200):
        position = skip_space(text, position)
        if text[position : position + 1] == ",":
            position = skip_space(text, position + 1)
        try:
            _, end = _scan.raw_decode(text, position)
        except _SYNTAX:
            break
        if previous_end is not None:
            between = _SEPARATOR.match(text, _closing_start(text, previous_end))
            if between:
                seen[between[0]] += 1
        previous_end = position = end
    if not seen:
        return None
    return seen.most_common(1)[0][0].encode("latin-1")


def _closing_start(text: str, end: int) -> int:
    """Start of the white space before the closing brace that ends at ``end``."""
    return end - 1 - (len(text[max(0, end - 200) : end - 1]) - len(text[max(0, end - 200) : end - 1].rstrip()))


def cut_after(separator: bytes) -> int:
    """How many bytes of the separator come before the next event's opening brace."""
    return separator.index(b"{")
