"""One file to copy: a tar of what the analysis needs, compressed, with checksums inside.

Members lie below the directory's own name; ``SHA256SUMS`` is the last one, in the form that ``sha256sum -c``
reads. Memory does not grow with the sizes of files. Symbolic links, sockets and the like are left out.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from capture import checks, layout, manifest
from capture.errors import CaptureError
from capture.export import FOLDER

CHUNK_BYTES = 1024 * 1024
SUMS_NAME = "SHA256SUMS"
CACHE_FOLDER = "neff_cache"
HOST_SAMPLES = frozenset({"cpu_util.pb", "host_mem.pb"})
SYSTEM_TRACE = frozenset({"ntrace.pb", "trace_info.pb"})


@dataclass(frozen=True)
class Member:
    """A file to pack.

    Args:
        path: where it lies.
        name: its name in the archive.
        role: "trace", "manifest", "system", "host", "parquet", "neff", "ntff", or "other".
        size_bytes: its size now.
    """

    path: Path
    name: str
    role: str
    size_bytes: int


@dataclass(frozen=True)
class Plan:
    """What would be packed and what would be left out."""

    directory: Path
    members: tuple[Member, ...]
    left_out: tuple[Member, ...]

    @property
    def size_bytes(self) -> int:
        """Uncompressed size of what would be packed."""
        return sum(member.size_bytes for member in self.members)


def plan(
    directory: Path, *, everything: bool = False, neff_cache: Path | None = None, output: Path | None = None
) -> Plan:
    """Choose the files to pack.

    Without ``everything``: traces, manifests, runtime traces, host samples, Parquet and NEFFs; NTFFs only where
    no device tables of the vendor's Parquet export stand for them. NEFFs come from the cache too, for
    sessions without any.

    Raises:
        CaptureError: there is no such directory, or nothing in it.
    """
    if not directory.is_dir():
        raise CaptureError(f"{directory}: no such directory", hint="give the directory that the capture wrote to")
    root = directory.resolve()
    found = [_member(path, root) for path in _regular_files(root) if path != (output and output.resolve())]
    exported = [(_exported_from(m.path), m.path.stat().st_mtime_ns) for m in found if _is_device_table(m.path.name)]
    wanted: list[Member] = []
    left_out: list[Member] = []
    for member in found:
        is_needed = member.role != "other" and not (member.role == "ntff" and _is_exported(member.path, exported))
        (wanted if everything or is_needed else left_out).append(member)
    if not wanted:
        raise CaptureError(f"{directory}: nothing to pack", hint=f"run: tracekit-capture check {directory}")
    wanted += _cached_neffs(root, neff_cache)
    return Plan(directory, tuple(wanted), tuple(left_out))


def _is_device_table(name: str) -> bool:
    """Every device profile has instructions; the system half has other tables, which do not stand for NTFFs."""
    return re.fullmatch(r"Instruction(_\d+)?\.parquet", name) is not None


def _exported_from(table: Path) -> Path:
    """The directory whose sessions an export holds: that with the ``explorer`` folder, else that of the table."""
    return next((parent.parent for parent in table.parents if parent.name == FOLDER), table.parent)


def _is_exported(ntff: Path, exported: Sequence[tuple[Path, int]]) -> bool:
    """An export stands for the device traces below its directory that were there before it."""
    written_ns = ntff.stat().st_mtime_ns
    return any(directory in ntff.parents and written_ns <= table_ns for directory, table_ns in exported)


def _regular_files(root: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(root, followlinks=False):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            is_hidden = name.startswith(".") or name.endswith(".part")
            if path.is_file() and not path.is_symlink() and not is_hidden:
                yield path


def _member(path: Path, root: Path) -> Member:
    name = f"{root.name}/{path.relative_to(root).as_posix()}"
    return Member(path, name, role_of(path.name), path.stat().st_size)


def role_of(name: str) -> str:
    """The role of a file, by its name."""
    if name == manifest.FILE_NAME:
        return "manifest"
    if name.endswith(("trace.json", "trace.json.gz")) or name.startswith("neuron_framework_trace_rank_"):
        return "trace"
    if name in SYSTEM_TRACE or name == "system_profile.json":
        return "system"
    if name in HOST_SAMPLES:
        return "host"
    suffix = Path(name).suffix
    return suffix[1:] if suffix in (".parquet", ".neff", ".ntff") else "other"


def _cached_neffs(root: Path, neff_cache: Path | None) -> list[Member]:
    """NEFFs of the cache that the captures name, or all of it where they name none that is there."""
    sessions = [checks.read_contents(path) for path in checks.find_sessions(root)]
    lacking = [session for session in sessions if session.device_kind == "neuron" and not session.neffs]
    cache = neff_cache or next((path for s in lacking if (path := _recorded_cache(s)) is not None), None)
    if cache is None:
        return []
    if not cache.is_dir():
        if neff_cache is not None:
            raise CaptureError(f"{cache}: no such NEFF cache", hint="give an existing directory with --neff-cache")
        return []
    if root in cache.resolve().parents:
        return []  # packed already, as part of the directory
    files = [path for path in _regular_files(cache.resolve()) if path.suffix == ".neff"]
    keys = {key for session in sessions if session.trace for key in session.trace.neff_cache_keys}
    digests = {key.rsplit(":", 1)[-1] for key in keys}
    named = [path for path in files if any(digest and digest in path.as_posix() for digest in digests)]
    base = cache.resolve()
    return [
        Member(p, f"{root.name}/{CACHE_FOLDER}/{p.relative_to(base).as_posix()}", "neff", p.stat().st_size)
        for p in (named or files)
    ]


def _recorded_cache(session: checks.SessionContents) -> Path | None:
    if session.manifest is None:
        return None
    recorded = session.manifest.options.get("neff_cache_dir")
    cache = recorded if isinstance(recorded, str) else session.manifest.env.get("TORCH_NEURONX_NEFF_CACHE_DIR")
    return Path(cache) if cache else None


def pack(plan: Plan, output: Path, progress: Callable[[int], None] = lambda _: None) -> None:
    """Write the archive; it appears under its name only when it is whole.

    Args:
        plan: what to pack.
        output: ``.tar.zst``, ``.tar.gz`` or ``.tar``.
        progress: called with the bytes read so far.

    Raises:
        CaptureError: the name has another ending, there is no room, or a file changed while it was read.
    """
    draft = output.with_name(f"{output.name}.part")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as raw:
            with _compressor(raw, output.name) as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
                _write_members(tar, plan, progress)
            raw.flush()
            os.fsync(raw.fileno())
        draft.replace(output)
    except OSError as error:
        free = layout.free_bytes(output.parent) if output.parent.is_dir() else 0
        raise CaptureError(
            f"{output}: {error.strerror or error} ({free // 10**6:,} MB free)",
            hint="free some space, or write the archive to another disk",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


@contextlib.contextmanager
def _compressor(raw: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    if name.endswith(".tar.zst"):
        try:
            import zstandard
        except ImportError as error:
            hint = "pip install zstandard, or give a name that ends in .tar.gz"
            raise CaptureError("zstandard is not installed", hint=hint) from error
        threads = min(os.cpu_count() or 1, 4)
        with zstandard.ZstdCompressor(level=6, threads=threads, write_checksum=True).stream_writer(
            raw, closefd=False
        ) as stream:
            yield cast(IO[bytes], stream)
    elif name.endswith((".tar.gz", ".tgz")):
        import gzip

        with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6, mtime=0) as zipped:
            yield cast(IO[bytes], zipped)
    elif name.endswith(".tar"):
        yield raw
    else:
        raise CaptureError(f"{name}: unknown kind of archive", hint="end the name in .tar.zst, .tar.gz or .tar")


def _write_members(tar: tarfile.TarFile, plan: Plan, progress: Callable[[int], None]) -> None:
    sums: list[str] = []
    done = 0
    for member in plan.members:
        reader = _Reader(member.path)
        info = tarfile.TarInfo(member.name)
        with reader:
            info.size = os.fstat(reader.fileno).st_size
            info.mtime = int(os.fstat(reader.fileno).st_mtime)
            info.mode = 0o644
            tar.addfile(info, cast(IO[bytes], reader))
        sums.append(f"{reader.digest.hexdigest()}  {_relative(member.name)}\n")
        done += info.size
        progress(done)
    text = "".join(sums).encode()
    info = tarfile.TarInfo(f"{plan.directory.resolve().name}/{SUMS_NAME}")
    info.size, info.mode = len(text), 0o644
    tar.addfile(info, io.BytesIO(text))


def _relative(name: str) -> str:
    """Name without the top folder, so that ``sha256sum -c SHA256SUMS`` works inside it."""
    return name.split("/", 1)[1]


class _Reader:
    """A file that is hashed as it is read."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.digest = hashlib.sha256()

    @property
    def fileno(self) -> int:
        """The descriptor of the open file: its size cannot be of another file than its bytes."""
        return self._file.fileno()

    def read(self, size: int = -1) -> bytes:
        """Read and hash."""
        data = self._file.read(size if size >= 0 else CHUNK_BYTES)
        self.digest.update(data)
        return data

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def sizes_by_role(members: Sequence[Member]) -> list[tuple[str, int, int]]:
    """Role, number of files and bytes, largest first."""
    totals: dict[str, tuple[int, int]] = {}
    for member in members:
        count, size = totals.get(member.role, (0, 0))
        totals[member.role] = (count + 1, size + member.size_bytes)
    rows = [(role, count, size) for role, (count, size) in totals.items()]
    return sorted(rows, key=lambda row: -row[2])
