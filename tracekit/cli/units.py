"""Numbers for people: durations, sizes, shares, counts; exact values go to machines."""

from __future__ import annotations

import re

_EXACT_NS = re.compile(r"(?<![\w.])(-?\d{4,18}) ns\b")
_EITHER = re.compile(r"(?<![\w.])(\d[\d,]*)((?: [\w/]+){1,2})\(s\)")


def minus(text: str) -> str:
    """A number with a real minus sign, as wide as a plus."""
    return f"−{text[1:]}" if text.startswith("-") else text


def duration(ns: int | float | None, *, signed: bool = False) -> str:
    """Nanoseconds for people: ``403.3 µs``, or a change: ``+403.3 µs``; empty for null."""
    if ns is None:
        return ""
    plus = "+" if signed and ns > 0 else ""
    for unit, digits, name in ((1, 0, "ns"), (1_000, 1, "µs"), (1_000_000, 1, "ms")):
        if round(abs(ns) / unit, digits) < 1_000:
            return plus + minus(f"{ns / unit:.{digits}f} {name}")
    return plus + minus(f"{ns / 1e9:,.2f} s")


def change(before: float, after: float) -> str:
    """Two durations in one unit, that of the smaller one: ``2,355.0 → 403.3 µs``."""
    smaller = min((abs(v) for v in (before, after) if v), default=0)
    for limit, unit, name in ((1e3, 1, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms"), (float("inf"), 1e9, "s")):
        if smaller < limit:
            digits = 0 if unit == 1 else 1
            return f"{minus(f'{before / unit:,.{digits}f}')} → {minus(f'{after / unit:,.{digits}f}')} {name}"
    raise AssertionError


def size(value: int | float | None) -> str:
    """Bytes for people: ``12.3 MB`` (powers of ten); empty for null."""
    if value is None:
        return ""
    amount = float(value)
    for unit, digits in (("B", 0), ("kB", 1), ("MB", 1), ("GB", 1)):
        if round(abs(amount), digits) < 1_000:
            return minus(f"{amount:.{digits}f} {unit}")
        amount /= 1_000
    return minus(f"{amount:.1f} TB")


def plural(count: int, noun: str) -> str:
    """A count with its noun: ``1 file``, ``2,358 files``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def ratio(value: float | None, *, signed: bool = False) -> str:
    """A share for people: ``49.4 %``, or a change: ``+4.9 %``; empty for null."""
    return "" if value is None else minus(f"{100 * value:{'+' if signed else ''}.1f} %")


def moment(ns: int | None) -> str:
    """A Unix time for people, UTC with nanoseconds."""
    if ns is None:
        return ""
    from datetime import datetime, timezone

    seconds, rest = divmod(ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S}.{rest:09d}"


def and_more(count: int, noun: str) -> str:
    """What follows the first of several: `` (and 2 more warnings)``; nothing where it is the only one."""
    return f" (and {plural(count - 1, f'more {noun}')})" if count > 1 else ""


def told(message: str) -> str:
    """A stored message for people: exact nanoseconds in a fitting unit, ``1 event(s)`` as ``1 event``."""
    counted = _EITHER.sub(lambda m: f"{m[1]}{m[2]}" if m[1] == "1" else f"{m[1]}{m[2]}s", message)
    return _EXACT_NS.sub(lambda m: duration(int(m[1])), counted)
