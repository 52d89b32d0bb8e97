"""What a damaged gzip member still holds: everything up to the first bit that cannot be decoded."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

_PACKED_BYTES = 64 * 1024
_STEP_BYTES = 1 << 18
_FINER = 64
_FIXED_BYTES = 10
_HEADER_CRC, _EXTRA, _NAME, _COMMENT = 2, 4, 8, 16


def salvaged(read: Callable[[int], bytes], given: int = 0) -> Iterator[bytes]:
    """The bytes of a gzip member (RFC 1952) whose data or checksum is damaged.

    Deflate data is taken without its checksum, in ever smaller steps where it stops being decodable, so that not
    a byte before the damage is lost. What a changed bit turned into other, decodable data is given as it is.

    Args:
        read: gives the next bytes of the file, from the start of the member on; empty at the end.
        given: bytes at the front of the member that are known already and left out.
    """
    packed = read(_PACKED_BYTES)
    start = _header_bytes(packed)
    if start is None:
        return
    stream, packed = zlib.decompressobj(-zlib.MAX_WBITS), packed[start:]
    while not stream.eof and (packed := packed or read(_PACKED_BYTES)):
        for block in _inflated(stream, packed, _STEP_BYTES):
            if block is None:
                return
            fresh = block[given:] if given else block
            given = max(0, given - len(block))
            if fresh:
                yield fresh
        packed = b""


def _inflated(stream: zlib._Decompress, packed: bytes, step: int) -> Iterator[bytes | None]:
    """What ``packed`` inflates to, in blocks of at most ``step`` bytes; None where it cannot be decoded."""
    while packed and not stream.eof:
        before = stream.copy()
        try:
            block = stream.decompress(packed, step)
        except zlib.error:
            if step > 1:
                yield from _inflated(before, packed, max(step // _FINER, 1))
            yield None
            return
        packed = stream.unconsumed_tail
        yield block


def _header_bytes(head: bytes) -> int | None:
    """Length of the member's header; None if it has none."""
    if len(head) < _FIXED_BYTES or not head.startswith(b"\x1f\x8b\x08"):
        return None
    flags, at = head[3], _FIXED_BYTES
    if flags & _EXTRA:
        at += 2 + int.from_bytes(head[at : at + 2], "little")
    for flag in (_NAME, _COMMENT):
        if flags & flag:
            end = head.find(b"\0", at)
            if end < 0:
                return None
            at = end + 1
    return at + 2 if flags & _HEADER_CRC else at
