"""Where a capture goes on disk: ``<out>/<instance-id>_pid_<pid>/<timestamp>/``.

This is layout A of the vendor's torch.profiler integration, used on every device, so that one reader
serves all. The vendor's runtime makes its directory itself; elsewhere this module makes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from pathlib import Path

from capture import host
from capture.errors import CaptureError

TRACE_NAMES = ("trace.json", "trace.json.gz")
PROCESS_DIRECTORY = re.compile(r"^(?P<instance>.+)_pid_(?P<pid>\d+)$")
LEAST_FREE_BYTES = 256 * 1024 * 1024


def process_directory_name() -> str:
    """Name of this process's directory; a hash stands for the instance id outside EC2."""
    instance = host.instance_id() or f"host-{host.hostname_hash()}"
    return f"{instance}_pid_{os.getpid()}"


def prepare(output_dir: Path) -> int:
    """Make the output directory and prove that it can be written.

    Returns:
        Free space there, bytes.

    Raises:
        CaptureError: it is no directory, cannot be written, or the disk is full.
    """
    probe = output_dir / f".capture-probe-{os.getpid()}"
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        with probe.open("wb") as file:
            file.write(b"\0" * 4096)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise CaptureError(f"{output_dir}: {_reason(error)}", hint=_hint(error)) from error
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return free_bytes(output_dir)


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "the disk is full"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "cannot be written: read-only, or no permission"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return "is a file, or lies below one"
    return f"cannot be written: {error.strerror or error}"


def _hint(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "free some space, or choose a directory on a larger disk with -o"
    return "choose a directory that you can write with -o, for example on the instance's local disk"


def free_bytes(directory: Path) -> int:
    """Free space for this user where a directory lies."""
    stats = os.statvfs(directory)
    return stats.f_bavail * stats.f_frsize


def free_bytes_or_none(directory: Path) -> int | None:
    """As ``free_bytes``; null where there is no such directory any more."""
    try:
        return free_bytes(directory)
    except OSError:
        return None


def new_session_directory(output_dir: Path) -> Path:
    """Make a session directory that no other capture has.

    The name is the time in Unix ns; of two captures at the same one the later takes the next free.

    Raises:
        OSError: it cannot be made.
    """
    process_directory = output_dir / process_directory_name()
    process_directory.mkdir(parents=True, exist_ok=True)
    stamp = time.time_ns()
    while True:
        directory = process_directory / str(stamp)
        try:
            directory.mkdir()
        except FileExistsError:
            stamp += 1
        else:
            return directory


def own_session_directories(output_dir: Path) -> set[Path]:
    """Directories that hold a trace and belong to this process, whoever made them."""
    suffix = f"_pid_{os.getpid()}"
    found: set[Path] = set()
    if not output_dir.is_dir():
        return found
    for process_directory in output_dir.iterdir():
        if process_directory.name.endswith(suffix) and process_directory.is_dir():
            candidates = [process_directory, *(p for p in process_directory.iterdir() if p.is_dir())]
            found.update(c for c in candidates if any((c / name).exists() for name in TRACE_NAMES))
    return found


def session_name(directory: Path) -> str:
    """The last two parts of a session directory, or one where there is no timestamp level."""
    parent = directory.parent.name
    return f"{parent}/{directory.name}" if PROCESS_DIRECTORY.match(parent) else directory.name


def list_files(directory: Path) -> list[dict[str, str | int]]:
    """Regular files of a session directory, by name, with their sizes; without hidden ones and the manifest."""
    listed: list[dict[str, str | int]] = []
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not path.is_symlink() and not path.name.startswith((".", "capture.json")):
            listed.append({"path": path.relative_to(directory).as_posix(), "size_bytes": path.stat().st_size})
    return listed
