"""Tell what a file is: by its name where that says all, else by its first kilobytes.

Formats and names are those of the Neuron documentation, PyTorch's profiler and Neuron Explorer. Only heads
are read: a file of many gigabytes costs as much as a small one.
"""

from __future__ import annotations

import bz2
import io
import lzma
import re
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import zstandard
from pyarrow import ArrowException
from pyarrow import fs as arrow_fs

from tracekit.salvage import salvaged

HEAD_BYTES = 64 * 1024
"""What is read of every file that its name does not settle."""

DEEP_BYTES = 4 * 1024 * 1024
"""What is searched for the event list when a long preamble hides it."""

SYSTEM_TABLES = frozenset(
    ("SystemProfileEvents", "SystemProfileMetadata", "SystemProfileHbmUsage", "CpuUsage", "HostMemUsage")
) | {"DeviceProfileList"}
"""Tables of a Neuron Explorer system profile."""

DEVICE_TABLES = frozenset(
    (
        "Instruction",
        "DmaPacket",
        "DmaPacketAggregated",
        "ActiveTime",
        "CcOp",
        "OpcodeSummary",
        "Summary",
        "ExecutionInfo",
        "FrameworkInstruction",
        "HloInstruction",
        "Flow",
        "Metadata",
        "NeffHeader",
        "Warning",
        "SchemaFields",
    )
)
"""Tables of a Neuron Explorer device profile."""

_ARCHIVE_NAME = re.compile(r"\.(tar|tar\.(gz|bz2|xz|zst|zstd)|tgz|tbz2?|txz|tzst|zip)$", re.IGNORECASE)
_TRACE_NAME = re.compile(
    r"^trace\.json(\.\w+)?$|\.pt\.trace\.json(\.\w+)?$|^neuron_framework_trace_.*\.json(\.\w+)?$", re.IGNORECASE
)
_MAY_BE_TRACE = re.compile(r"\.(json|trace|txt)(\.\w+)?$|^[^.]+$", re.IGNORECASE)
_PARQUET_NAME = re.compile(r"^([A-Za-z]+?)(?:_\d+)?\.parquet$")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_KEY_END = re.compile(rb"\s*:\s*(.?)", re.DOTALL)
_EVENT_PHASE = re.compile(rb'"ph"\s*:\s*"[A-Za-z]"')
_EVENT_LIST = re.compile(rb'"(traceEvents|trace_events?)"\s*:\s*\[')
_SYSTEM_KEYS = frozenset(
    ("mem_usage", "cpu_util", "device_mem_usage", "system_profile_metadata", "device_profile_list")
)
_CHROME_KEYS = frozenset(
    (
        "schemaVersion",
        "deviceProperties",
        "baseTimeNanoseconds",
        "displayTimeUnit",
        "distributedInfo",
        "traceName",
        "systemTraceEvents",
        "stackFrames",
    )
)
_NOT_ZIP_ARCHIVE = re.compile(r"\.(pt|pth|ckpt|npz|whl|egg|jar|apk|docx|xlsx|pptx|keras|ptl|odt)$", re.IGNORECASE)
_HOST_EVENT = re.compile(rb'"cat"\s*:\s*"(?:cpu_op|Operator|user_annotation|python_function|privateuse1_runtime)"')
_PROCESS = re.compile(rb'"pid"\s*:\s*"?(\d{1,18})"?\s*[,}]')
_MAX_WINDOW_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class Kind:
    """What a file is; ``role`` and ``format`` as in ``tables.ARTIFACTS``."""

    role: str
    format: str | None = None
    problem: str | None = None
    reason: str | None = None
    """Why nothing reads it; for role ``other``."""
    packing: str | None = None
    """gzip, bzip2, xz or zstd if the content is compressed."""
    is_archive: bool = False
    head: bytes = b""
    """The decompressed head, if it had to be read."""


def is_archive_name(name: str) -> bool:
    """Whether a file name is that of an archive."""
    return _ARCHIVE_NAME.search(name) is not None


def is_trace_name(name: str) -> bool:
    """Whether a name alone says framework trace: ``trace.json``, ``*.pt.trace.json``, ``neuron_framework_trace_*``."""
    return _TRACE_NAME.search(name) is not None


def by_name(name: str) -> Kind | None:
    """What a name says beyond doubt, else None (then the content decides)."""
    lower = name.lower()
    if lower.endswith((".neff", ".ntff")):
        return Kind(lower[-4:])
    if lower.endswith(".pb"):
        return _protobuf(lower)
    if lower.endswith((".pickle", ".pkl")):
        if "mem" in lower or "snapshot" in lower:
            return Kind("memory_snapshot")
        return Kind("other", reason="pickle: never loaded")
    table = _PARQUET_NAME.match(name)
    if table and table[1] in SYSTEM_TABLES:
        return Kind("system", "explorer")
    if table and table[1] in DEVICE_TABLES:
        return Kind("device_table")
    return None


def _protobuf(lower: str) -> Kind | None:
    if lower.startswith("ntrace"):
        return Kind("system", "ntrace")
    if lower == "trace_info.pb":
        return Kind("system")
    if lower in ("cpu_util.pb", "host_mem.pb"):
        return Kind("host")
    return None


def recognise(path: Path, name: str, size_bytes: int, *, is_input: bool = False) -> Kind:
    """What the file at ``path`` is.

    Args:
        path: where it lies.
        name: what it is called, which may differ for a file out of an archive.
        size_bytes: its size.
        is_input: the user named this very file, so that a zip of any extension is an archive.
    """
    named = by_name(name)
    if named is not None:
        return named
    if size_bytes == 0:
        role = "trace" if is_trace_name(name) else "other"
        return Kind(role, problem="0 bytes", reason="0 bytes")
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}"
        return Kind("trace" if is_trace_name(name) else "other", problem=why, reason=why)
    kind = by_content(head, name, is_input=is_input)
    if kind.role == "other" and kind.reason == _PARQUET_REASON:
        return _parquet(path) or kind
    if kind.format is None and kind.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and kind.role == "other":
        return _deep(path, kind) or kind
    return kind


_PARQUET_REASON = "Parquet, but not a table of Neuron Explorer"


def by_content(head: bytes, name: str, *, is_input: bool = False) -> Kind:
    """What the first bytes say; ``head`` may be cut anywhere."""
    if head.startswith(b"PAR1"):
        return Kind("other", reason=_PARQUET_REASON, head=head)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")):
        if is_input or not _NOT_ZIP_ARCHIVE.search(name):
            return Kind("other", is_archive=True, head=head)
        return Kind("other", reason=f"{Path(name).suffix} file, not a capture")
    packing = packing_of(head)
    inner = inflate_head(head, packing)
    if is_tar(inner) or (is_archive_name(name) and inner.lstrip()[:1] not in (b"{", b"[")):
        return Kind("other", packing=packing, is_archive=True, head=inner)
    if packing and not inner:
        return Kind("other", reason=f"damaged {packing} data", packing=packing)
    return _text(inner, name, packing)


def packing_of(head: bytes) -> str | None:
    """gzip, bzip2, xz or zstd, by the magic number."""
    magics = ((b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ\x00", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"))
    return next((packing for magic, packing in magics if head.startswith(magic)), None)


def inflate_head(head: bytes, packing: str | None, limit: int = HEAD_BYTES) -> bytes:
    """The first ``limit`` decompressed bytes, or as many as can be had."""
    try:
        if packing == "gzip":
            return _gzip_head(head, limit)
        if packing == "bzip2":
            return bz2.BZ2Decompressor().decompress(head, limit)
        if packing == "xz":
            return lzma.LZMADecompressor(memlimit=_MAX_WINDOW_BYTES).decompress(head, limit)
        if packing == "zstd":
            reader = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).stream_reader(head)
            return bytes(reader.read(limit))
    except (zlib.error, OSError, EOFError, lzma.LZMAError, zstandard.ZstdError):
        return b""
    return head


def _gzip_head(head: bytes, limit: int) -> bytes:
    """As ``inflate_head``; a wrong checksum or a changed bit costs nothing before it."""
    try:
        return zlib.decompressobj(31).decompress(head, limit)
    except zlib.error:
        rest = io.BytesIO(head)
        return b"".join(salvaged(rest.read))[:limit]


def is_tar(head: bytes) -> bool:
    """Whether a tar starts here: its first header has the right checksum."""
    if len(head) < tarfile.BLOCKSIZE:
        return False
    try:
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError):
        return False
    return True


def _text(text: bytes, name: str, packing: str | None) -> Kind:
    """Chrome trace, system JSON, fetch JSON, snapshot or something else, of decompressed text."""
    wide = _wide_encoding(text)
    if wide:
        return Kind("other", reason=f"{wide} text; convert it: iconv -f {wide} -t UTF-8", packing=packing)
    body = text.removeprefix(b"\xef\xbb\xbf").lstrip()
    role, reader, reason = "other", None, None
    if body[:1] == b"{":
        role, reader, reason = _object(body)
    elif body[:1] == b"[" and _EVENT_PHASE.search(body):
        role, reader = "trace", "kineto"
    elif body[:1] == b"[":
        reason = "a JSON array, but not of trace events"
    else:
        reason = f"starts with {printable(repr(body[:12])[1:])}: not JSON, Parquet or an archive"
    if role == "other" and _MAY_BE_TRACE.search(name) and _EVENT_PHASE.search(body) and b'"ts"' in body:
        role, reader, reason = "trace", "kineto", None
    if role == "other" and is_trace_name(name):
        if body[:1] in (b"{", b"["):
            role, reader = "trace", "kineto"
        else:
            return Kind("trace", problem=f"not JSON: {reason}", reason=reason, packing=packing, head=text)
    return Kind(role, reader, reason=reason if role == "other" else None, packing=packing, head=text)


def _wide_encoding(text: bytes) -> str | None:
    """UTF-32 or UTF-16, if the text begins with its mark; that of UTF-32 begins with that of UTF-16."""
    if text.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        return "UTF-32"
    return "UTF-16" if text.startswith((b"\xff\xfe", b"\xfe\xff")) else None


def _object(body: bytes) -> tuple[str, str | None, str | None]:
    """Role, format and reason of a JSON object, by its top-level keys."""
    keys: list[str] = []
    for key, value, at in top_level(body):
        if key == "traceEvents":
            return "trace", "kineto", None
        # A page that was never written reads as zeros, also where the list begins.
        if (key in ("trace_event", "trace_events") and value in (b"[", b"\0")) or key in _SYSTEM_KEYS:
            return "system", "system_json", None
        if key == "events" and (b'"event_type"' in body[at : at + 4096] or "data_version" in keys):
            return "system", "fetch_json", None
        if key in ("segments", "device_traces"):
            return "memory_snapshot", None, None
        keys.append(key)
    if {"events", "data_version"} <= set(keys):
        return "system", "fetch_json", None
    if {"schema_version", "tool", "status"} <= set(keys):
        return "manifest", None, None
    if _CHROME_KEYS & set(keys):
        return "trace", "kineto", None
    shown = ", ".join(printable(key)[:30] for key in keys[:5]) or "none"
    return "other", None, f"JSON without trace events (top-level keys: {shown})"


def top_level(body: bytes) -> list[tuple[str, bytes, int]]:
    """Key, first byte of the value and its position, of the keys of the outermost object, as far as ``body`` goes."""
    depth, keys = 0, []
    for token in _TOKEN.finditer(body):
        text = token[0]
        if text in b"{[":
            depth += 1
        elif text in b"}]":
            depth -= 1
            if depth <= 0:
                break
        elif depth == 1 and (end := _KEY_END.match(body, token.end())):
            keys.append((text[1:-1].decode("utf-8", "replace"), end[1], end.start(1)))
    return keys


def _deep(path: Path, kind: Kind) -> Kind | None:
    """Look further for the event list of an object whose preamble fills the head."""
    try:
        with path.open("rb") as file:
            text = inflate_head(file.read(DEEP_BYTES), kind.packing, DEEP_BYTES)
    except OSError:
        return None
    found = _EVENT_LIST.search(text)
    if found is None:
        return None
    if found[1] == b"traceEvents":
        return Kind("trace", "kineto", packing=kind.packing, head=kind.head)
    return Kind("system", "system_json", packing=kind.packing, head=kind.head)


def _parquet(path: Path) -> Kind | None:
    """A system event table under another name, by its columns."""
    try:
        columns = set(pq.read_schema(path, filesystem=arrow_fs.LocalFileSystem()).names)
    except (ArrowException, OSError) as error:
        return Kind("other", reason=f"damaged Parquet file: {printable(str(error))[:80]}")
    if {"name", "start_ts", "trace_event_source"} <= columns:
        return Kind("system", "explorer")
    return None


def host_process(head: bytes) -> int | None:
    """Process that the host events at the start of a framework trace belong to, if its first one tells."""
    event = _HOST_EVENT.search(head)
    if event is None:
        return None
    start = head.rfind(b"{", 0, event.start())
    ends = [end for end in (head.find(b"{", event.end()), head.find(b"}", event.end())) if end >= 0]
    process = _PROCESS.search(head, max(start, 0), min(ends, default=len(head) - 1) + 1)
    return int(process[1]) if process else None


def printable(text: str) -> str:
    """``text`` with control, format and undecodable characters written as ``\\xNN``, so that it is safe to show."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
