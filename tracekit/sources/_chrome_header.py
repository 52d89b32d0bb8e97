"""The part of a trace around its events: where the event array starts, and what the header says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import msgspec

from tracekit.sources._chrome_bytes import TraceBytes
from tracekit.sources._chrome_columns import LIMIT_NS
from tracekit.sources._chrome_events import repaired, whole_number
from tracekit.sources._chrome_split import Head, scan_head

_FIRST_WINDOW = 1 << 18
_MOST_WINDOW = 1 << 26
_TAIL = 1 << 23
_LARGEST_MEMBER = 1 << 20
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(-?\d[\d.eE+-]{0,40})')
_FIRST_TIME = re.compile(rb'"ts"\s*:\s*"?(\d+)')
_ARRAY = re.compile(r'"traceEvents"\s*:\s*\[')
_ABSOLUTE_US = 10**14
"""A time above this is absolute: relative ones stay below Kineto's base interval of 7,889,238 s."""


def find_head(data: TraceBytes, position: int, *, inside: bool = False) -> Head:
    """Read the header from ``position`` to the next event array or the end; positions in it are absolute.

    A header that is damaged is searched for the array.
    """
    size = _FIRST_WINDOW
    while True:
        raw = data.read(position, position + size)
        text = raw.decode("latin-1")
        skip = 3 if raw.startswith(b"\xef\xbb\xbf") else 0
        head = scan_head(text, skip, inside=inside)
        at_end = len(raw) < size or size >= _MOST_WINDOW
        if head.array_start is not None or at_end:
            break
        size *= 4
    if head.array_start is None and (not head.complete or not at_end):
        found = _ARRAY.search(text, head.stop)
        if found:
            head.array_start, head.complete = found.end(), False
    if head.array_start is not None:
        head.array_start += position
    head.stop += position
    return head


def base_time(data: TraceBytes, head: Head, events_start: int) -> int:
    """Nanoseconds to add to every time: ``baseTimeNanoseconds`` of the header, which may stand behind the events.

    A trace whose first time is absolute has none.
    """
    for key, value in head.members:
        if key == b'"baseTimeNanoseconds"':
            return _spelled(value) or 0
    first = _FIRST_TIME.search(data.read(events_start, events_start + _FIRST_WINDOW))
    if first and int(first[1]) >= _ABSOLUTE_US:
        return 0
    found = _BASE.findall(data.tail(_TAIL))
    return (_spelled(found[-1]) or 0) if found else 0


def _spelled(text: bytes) -> int | None:
    """The base that a JSON number or text spells (also as ``1.7e+18``); None unless whole and before 2096."""
    try:
        number = Decimal(text.decode("latin-1").strip('"'))
    except InvalidOperation:
        return None
    if not number.is_finite() or not 0 <= number < LIMIT_NS or number != number.to_integral_value():
        return None
    return int(number)


@dataclass(frozen=True)
class HeaderFacts:
    """What the header says, and the header itself as compact JSON."""

    json: str
    rank: int | None
    world_size: int | None
    host_name: str | None
    base_ns: int | None
    odd_base: str | None
    """``baseTimeNanoseconds`` where it is no time."""
    is_amd: bool
    left_out: tuple[str, ...]
    """Members that are too large to keep."""


def header_facts(members: list[tuple[bytes, bytes]]) -> HeaderFacts:
    """Join the header's members; the last of equal keys wins, as in JSON."""
    large = [key.decode("utf-8", "replace").strip('"') for key, value in members if len(value) > _LARGEST_MEMBER]
    kept = {repaired(key): _compact(value) for key, value in members if len(value) <= _LARGEST_MEMBER}
    sound = {key: value for key, value in kept.items() if value is not None}
    text = b"{" + b",".join(key + b":" + value for key, value in sound.items()) + b"}"
    header = msgspec.json.decode(text)
    job = header.get("distributedInfo")
    job = job if isinstance(job, dict) else {}
    host = header.get("host_name")
    base = kept.get(b'"baseTimeNanoseconds"') or b"null"
    base = b"0" if base == b"null" else base
    base_ns = _spelled(base)
    return HeaderFacts(
        text.decode(),
        _count(job.get("rank")),
        _count(job.get("world_size")),
        host if isinstance(host, str) and host else None,
        base_ns,
        base.decode()[:40] if base_ns is None else None,
        _is_amd(header),
        tuple(large),
    )


def _count(value: object, limit: int = 2**31) -> int | None:
    number = None if isinstance(value, bool) else whole_number(str(value))
    return number if number is not None and 0 <= number < limit else None


def _is_amd(header: dict[str, object]) -> bool:
    """Whether the header's devices are AMD's: by their names, else by wavefronts of 64."""
    if any(key.startswith(("hip_", "roctracer")) for key in header):
        return True
    devices = header.get("deviceProperties")
    for device in devices if isinstance(devices, list) else []:
        if isinstance(device, dict):
            name = str(device.get("name"))
            if "AMD" in name or "gfx" in name or device.get("warpSize") == 64:
                return True
    return False


def _compact(value: bytes) -> bytes | None:
    for attempt in (value, repaired(value)):
        try:
            attempt.decode()
            return msgspec.json.format(attempt, indent=-1)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return None
