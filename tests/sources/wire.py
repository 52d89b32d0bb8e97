"""Writes protobuf by hand, for tests of the decoder; checked against the public encoding rules."""

from __future__ import annotations

from collections.abc import Mapping


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def fixed(field: int, value: bytes) -> bytes:
    return varint(field << 3 | {8: 1, 4: 5}[len(value)]) + value


def event(
    kind: int,
    phase: int,
    at_ns: int,
    tracking: int,
    *,
    core: int | None = 0,
    attributes: Mapping[str, object] | None = None,
    more: bytes = b"",
) -> bytes:
    """An ``ntrace_event``."""
    body = number(1, at_ns) + number(5, kind) + number(8, 9) + number(13, phase) + number(14, tracking) + more
    if core is not None:
        body += number(4, core)
    for key, value in (attributes or {}).items():
        body += text(12, text(1, key.encode()) + text(2, str(value).encode()))
    return body
