"""A quick look into trace.json, in bounded memory: is it whole, and what does it hold?

The format is Kineto's Chrome JSON: one object whose ``traceEvents`` array is followed by a few scalar keys, or a
bare array. Events are counted by their ``cat`` value as it stands in the text; nothing is parsed but the end.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 4 * 1024 * 1024
OVERLAP_BYTES = 4096
HEAD_BYTES = 256
TAIL_BYTES = 1024 * 1024
CANDIDATES = 64

DEVICE_CATEGORIES = frozenset(
    {"kernel", "gpu_memcpy", "gpu_memset", "privateuse1_driver", "Kernel", "Memcpy", "Memset", "mtia_ccp_events"}
)
_CATEGORY = re.compile(rb'"cat"\s*:\s*"([A-Za-z0-9_]{1,64})"')
_CACHE_KEY = re.compile(rb'"neff_cache_key"\s*:\s*"([^"\\]{1,2048})"')
_PHASE = re.compile(rb'"ph"\s*:\s*"')


@dataclass
class TraceScan:
    """What a trace file holds.

    Args:
        size_bytes: size of the file as it lies on disk.
        is_complete: the JSON text is closed; a cut file is not.
        event_counts: events by category.
        neff_cache_keys: distinct values of ``neff_cache_key``.
        problem: why the file cannot be read; empty when it can.
    """

    size_bytes: int
    is_complete: bool = False
    event_counts: Counter[str] = field(default_factory=Counter)
    neff_cache_keys: set[str] = field(default_factory=set)
    problem: str = ""

    @property
    def event_count(self) -> int:
        """Events of all categories."""
        return sum(self.event_counts.values())

    @property
    def device_event_count(self) -> int:
        """Events that describe work on the device."""
        return sum(count for name, count in self.event_counts.items() if name in DEVICE_CATEGORIES)


def scan(path: Path) -> TraceScan:
    """Read a trace.json or trace.json.gz once, front to back."""
    result = TraceScan(size_bytes=path.stat().st_size)
    head, tail = b"", b""
    try:
        with path.open("rb") as raw:
            is_gzip = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream: BinaryIO = gzip.GzipFile(fileobj=raw) if is_gzip else raw  # type: ignore[assignment]
            head, tail = _count(stream, result)
    except (OSError, EOFError, zlib.error) as error:
        result.problem = f"{type(error).__name__}: {error}"
        return result
    result.is_complete = is_closed(tail, head)
    return result


def is_whole(path: Path) -> bool:
    """Tell whether a trace file is closed, from its end only where that is possible: it may be gigabytes.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        if head.startswith(b"\x1f\x8b"):
            return scan(path).is_complete
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        return is_closed(file.read(), head)


def _count(stream: BinaryIO, result: TraceScan) -> tuple[bytes, bytes]:
    """Count categories chunk by chunk; a match in the overlap is counted where it ends.

    Returns:
        The first ``HEAD_BYTES`` and the last ``TAIL_BYTES`` of the text.
    """
    head, carry, tail = b"", b"", b""
    while chunk := stream.read(CHUNK_BYTES):
        window = carry + chunk
        for match in _CATEGORY.finditer(window):
            if match.end() > len(carry):
                result.event_counts[match[1].decode()] += 1
        for match in _CACHE_KEY.finditer(window):
            result.neff_cache_keys.add(match[1].decode(errors="replace"))
        head = (head + chunk)[:HEAD_BYTES]
        carry = window[-OVERLAP_BYTES:]
        tail = (tail + chunk)[-TAIL_BYTES:]
    return head, tail


def is_closed(tail: bytes, head: bytes) -> bool:
    """Tell whether a trace's text ends as JSON must.

    The last event is found by its ``ph`` key and decoded; what follows it must close the array and the object.
    A file cut exactly between two events, or after a bracket inside one, is therefore seen as cut.

    Args:
        tail: the end of the text; all of it if it is shorter than ``TAIL_BYTES``.
        head: its start: an object must be closed by more than the bracket that closes a bare array.
    """
    text = tail.decode("utf-8", errors="replace").rstrip()
    decoder = json.JSONDecoder(strict=False)
    phases = [match.start() for match in _PHASE.finditer(text.encode())][-1:] if text else []
    opening = "[0" if head.lstrip().startswith(b"[") else '{"traceEvents": [0'
    if not phases:
        return _parses(decoder, text)
    text = text.encode()[max(0, phases[0] - 65536) :].decode("utf-8", errors="replace")
    limit = text.rfind('"ph"')
    start = limit
    for _ in range(CANDIDATES):
        start = text.rfind("{", 0, start)
        if start < 0:
            break
        try:
            event, end = decoder.raw_decode(text, start)
        except ValueError:
            continue
        if end > limit and isinstance(event, dict) and "ph" in event:
            return _parses(decoder, opening + text[end:])
    return False


def _parses(decoder: json.JSONDecoder, text: str) -> bool:
    try:
        _, end = decoder.raw_decode(text)
    except ValueError:
        return False
    return not text[end:].strip()
