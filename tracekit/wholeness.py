"""Whether files end as their format wants it: a cut file shows in its last bytes, without reading the rest.

What this finds is certain; a file that is cut at a lucky place is found when it is read.
"""

from __future__ import annotations

import zlib
from collections import deque
from pathlib import Path

import numpy as np

from tracekit.recognise import packing_of
from tracekit.sources._protobuf import Root
from tracekit.sources.base import Artifact

_TAIL_BYTES = 4096
_WHOLE_BYTES = 8 * 1024 * 1024
"""Compressed and protobuf files up to this size are stepped through to their end; larger ones would take too long."""
_NTFF_HEADER_BYTES = 128
"""An NTFF starts with a header of this size (formats.md §3d of the project's documentation)."""
_JSON_FORMATS = ("kineto", "system_json", "fetch_json")


def damage(artifact: Artifact) -> str | None:
    """What is wrong with the end of a file; None if nothing is, or if its end cannot tell."""
    size = artifact.size_bytes
    if not size:
        return None
    if artifact.role == "ntff":
        return None if size >= _NTFF_HEADER_BYTES else f"cut: shorter than its header of {_NTFF_HEADER_BYTES} bytes"
    try:
        if artifact.path.suffix.lower() == ".parquet":
            return None if _tail(artifact.path, size).endswith(b"PAR1") else "cut: it has no Parquet footer"
        if artifact.format == "ntrace":
            return _protobuf_damage(artifact.path) if size <= _WHOLE_BYTES else None
        if artifact.format in _JSON_FORMATS:
            return _json_damage(artifact.path, size)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return None


def _json_damage(path: Path, size: int) -> str | None:
    with path.open("rb") as file:
        packing = packing_of(file.read(8))
    if packing == "gzip":
        return _gzip_damage(path) if size <= _WHOLE_BYTES else None
    end = _tail(path, size).rstrip(b" \t\r\n,\0")
    return None if packing or end[-1:] in (b"}", b"]") else "cut: it ends inside an event"


def _gzip_damage(path: Path) -> str | None:
    """Whether compressed data stops before its end mark."""
    stream = zlib.decompressobj(31)
    with path.open("rb") as file:
        try:
            while not stream.eof and (chunk := file.read(1 << 20)):
                stream.decompress(chunk)
        except zlib.error:
            return "damaged: the compressed data is broken"
    return None if stream.eof else "cut: the compressed data ends too soon"


def _protobuf_damage(path: Path) -> str | None:
    """Whether the last field of the outermost message reaches beyond the end."""
    root = Root(np.fromfile(path, np.uint8))
    deque(root, maxlen=0)
    return None if root.stopped_at is None else f"cut or damaged at byte {root.stopped_at:,}"


def _tail(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, size - _TAIL_BYTES))
        return file.read(_TAIL_BYTES)
