"""Captures and archives in S3-compatible object storage.

Credentials and endpoint come from the standard chain alone (environment, profiles, container and instance roles)
through botocore; nothing of them is ever shown. A profile in object storage counts only once its manifest is there,
which is uploaded last: what an interrupted upload leaves is no profile. Errors and stalls of the connection are tried
again.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast

from tracekit import archive as store
from tracekit import captures as local
from tracekit.errors import ArchiveError, DiscoveryError
from tracekit.recognise import DEEP_BYTES, HEAD_BYTES, printable, recognise

SCHEME = "s3://"
ATTEMPTS = 4
"""How often a transfer is made before it counts as failed; s3fs itself makes each request up to five times."""
_FIRST_PAUSE_S = 0.2
_LEDGER = ".ledger"
_AT_ONCE = 64
_CREDENTIALS_HINT = "set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use a role; AWS_ENDPOINT_URL"
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class RemoteObject:
    """One object: its URL, size, and what changes when its content does."""

    url: str
    size_bytes: int
    version: str
    modified_s: float = 0.0
    """When it was written, in seconds since the Unix epoch."""


@dataclass(frozen=True)
class RemoteCapture:
    """The inputs of one profile: URLs of files and directories, and all objects at and below them."""

    name: str
    urls: tuple[str, ...]
    objects: tuple[RemoteObject, ...]


def is_url(place: str | os.PathLike[str]) -> bool:
    """Whether a place is in object storage."""
    return str(place).startswith(SCHEME)


def filesystem() -> Any:
    """The file system of object storage.

    Raises:
        ArchiveError: if s3fs is not installed.
    """
    try:
        import s3fs
    except ImportError as error:
        raise ArchiveError("s3:// needs s3fs", hint="pip install 'tracekit[s3]'") from error
    return s3fs.S3FileSystem(
        use_listings_cache=False,
        default_fill_cache=False,
        config_kwargs={
            "retries": {"total_max_attempts": 1, "mode": "standard"},
            "connect_timeout": 10,
            "read_timeout": 30,
        },
    )


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """Turn whatever a request raises into one line without anything of the credentials."""
    import botocore.exceptions as aws

    shown = printable(url)
    try:
        yield
    except FileNotFoundError as error:
        raise ArchiveError(f"{shown}: no such object or bucket") from error
    except PermissionError as error:
        raise ArchiveError(f"{shown}: access denied", hint=_CREDENTIALS_HINT) from error
    except (aws.NoCredentialsError, aws.PartialCredentialsError, aws.ProfileNotFound) as error:
        raise ArchiveError(f"{shown}: no credentials", hint=_CREDENTIALS_HINT) from error
    except (aws.BotoCoreError, aws.ClientError, OSError, asyncio.TimeoutError) as error:
        kind = getattr(error, "strerror", None) or type(error).__name__
        raise ArchiveError(
            f"{shown}: {kind}", hint="check AWS_ENDPOINT_URL, region and network; then try again"
        ) from error


def tried(url: str, request: Callable[[], _Result]) -> _Result:
    """The result of a request that is made again, after growing pauses, while it fails for a passing reason."""
    import botocore.exceptions as aws

    for attempt in range(ATTEMPTS):
        last = attempt == ATTEMPTS - 1
        try:
            with _explained(url):
                return request()
        except ArchiveError as error:
            final = (FileNotFoundError, PermissionError, aws.NoCredentialsError, aws.ProfileNotFound)
            if last or isinstance(error.__cause__, final):
                raise
        time.sleep(_FIRST_PAUSE_S * 2**attempt)
    raise AssertionError("unreachable")


def objects(url: str) -> list[RemoteObject]:
    """Every object at or below a URL, by name.

    Raises:
        ArchiveError: if the bucket cannot be listed.
    """
    fs = filesystem()
    bare = url.removeprefix(SCHEME).rstrip("/")
    found = tried(url, lambda: fs.find(bare, detail=True))
    listed = [
        RemoteObject(
            SCHEME + key,
            int(facts.get("size") or 0),
            str(facts.get("ETag") or facts.get("LastModified")),
            facts["LastModified"].timestamp() if "LastModified" in facts else 0.0,
        )
        for key, facts in found.items()
        if facts.get("type") == "file" and not key.endswith("/") and (key == bare or key.startswith(bare + "/"))
    ]
    return sorted(listed, key=lambda o: o.url)


def captures(url: str) -> Iterator[RemoteCapture]:
    """The captures below a URL, by the rule of ``tracekit.captures``.

    Only heads of objects are read: they are laid out as sparse files of the same names and sizes, and split as
    a directory is.

    Raises:
        DiscoveryError: for objects whose names are no safe file names, after all others were given.
        ArchiveError: if the storage cannot be read.
    """
    listed = objects(url)
    safe = [o for o in listed if _is_safe(o.url)]
    with tempfile.TemporaryDirectory(prefix="tracekit-heads-") as folder:
        by_path = {str(local_path(o.url, Path(folder))): o for o in safe}
        _lay_out(by_path)
        root = local_path(url.rstrip("/"), Path(folder))
        for capture in local.captures(root) if safe else ():
            inside = [
                by_path[path]
                for path in sorted(by_path)
                if any(path == str(p) or path.startswith(f"{p}/") for p in capture.paths)
            ]
            urls = tuple(SCHEME + p.relative_to(folder).as_posix() for p in capture.paths)
            yield RemoteCapture(capture.name, urls, tuple(inside))
    unsafe = [o.url for o in listed if not _is_safe(o.url)]
    if unsafe:
        raise DiscoveryError(f"{printable(unsafe[0])}: unsafe object name ({len(unsafe)} in all)", hint="rename it")


def _is_safe(url: str) -> bool:
    parts = url.removeprefix(SCHEME).split("/")
    return all(p not in ("", ".", "..") and "\0" not in p and len(p.encode()) < 256 for p in parts)


def local_path(url: str, folder: Path) -> Path:
    """Where a copy of an object lies below ``folder``: under the names of the URL, which profiles depend on."""
    return folder.joinpath(*PurePosixPath(url.removeprefix(SCHEME)).parts)


def _lay_out(by_path: dict[str, RemoteObject]) -> None:
    """Write sparse files with the heads of objects."""
    for path, found in by_path.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with Path(path).open("wb") as file:
            file.truncate(found.size_bytes)
    _fill(by_path, 0, HEAD_BYTES)
    kinds = {path: recognise(Path(path), Path(path).name, o.size_bytes) for path, o in by_path.items()}
    unsettled = {p: o for p, o in by_path.items() if kinds[p].role == "other" and o.size_bytes > HEAD_BYTES}
    _fill({p: o for p, o in unsettled.items() if kinds[p].head[:1] == b"{"}, HEAD_BYTES, DEEP_BYTES)
    _fill({p: o for p, o in unsettled.items() if kinds[p].head[:4] == b"PAR1"}, -HEAD_BYTES, 0)


def _fill(by_path: dict[str, RemoteObject], start: int, end: int) -> None:
    """Copy a range of each object, negative ones counted from its end, into its file; many at a time."""
    fs = filesystem()
    wanted = []
    for path, found in by_path.items():
        first = start if start >= 0 else max(0, found.size_bytes + start)
        last = min(found.size_bytes, end) if start >= 0 else found.size_bytes
        if first < last:
            wanted.append((path, found.url, first, last))
    for at in range(0, len(wanted), _AT_ONCE):
        paths, urls, firsts, lasts = zip(*wanted[at : at + _AT_ONCE], strict=True)

        def get(urls: Any = urls, firsts: Any = firsts, lasts: Any = lasts) -> list[bytes]:
            return cast(list[bytes], fs.cat_ranges(list(urls), list(firsts), list(lasts), on_error="raise"))

        for path, first, body in zip(paths, firsts, tried(urls[0], get), strict=True):
            with Path(path).open("r+b") as file:
                file.seek(first)
                file.write(body)


def download(found: Sequence[tuple[str, int]], folder: Path) -> None:
    """Copy objects (URL and size) to ``local_path`` of each.

    Raises:
        ArchiveError: if an object cannot be read whole.
    """
    fs = filesystem()
    for url, size in found:
        place = local_path(url, folder)
        place.parent.mkdir(parents=True, exist_ok=True)

        def get(url: str = url, place: Path = place, size: int = size) -> None:
            fs.get_file(url, str(place))
            if place.stat().st_size != size:
                raise OSError(5, f"got {place.stat().st_size} of {size} bytes")

        tried(url, get)


def upload(directory: Path, archive_url: str) -> bool:
    """Put a stored profile into an archive in object storage, the manifest last; false if it was there already.

    Raises:
        ArchiveError: if that fails; then the profile does not count.
    """
    fs = filesystem()
    target = f"{archive_url.rstrip('/')}/{directory.name}"
    manifest = (directory / store.MANIFEST).read_bytes()
    if _is_same(read_manifest(fs, target), manifest):
        return False
    tried(target, lambda: fs.rm_file(f"{target}/{store.MANIFEST}") if fs.exists(f"{target}/{store.MANIFEST}") else None)
    files = sorted(p for p in directory.iterdir() if p.name != store.MANIFEST)
    for path in files:
        send(path, f"{target}/{path.name}")
    there = {o.url.rsplit("/", 1)[1]: o.size_bytes for o in objects(target)}
    for path in files:
        if there.get(path.name) != path.stat().st_size:
            raise ArchiveError(f"{target}/{path.name}: not stored whole", hint="try again")
    tried(target, lambda: fs.pipe_file(f"{target}/{store.MANIFEST}", manifest))
    return True


def _is_same(stored: bytes | None, new: bytes) -> bool:
    """Whether a stored manifest is that of the same capture, whatever was relabelled or compacted since."""
    if stored is None or stored == new:
        return stored is not None
    ours = ("content_id", "schema_version", "tracekit_version")
    try:
        a, b = json.loads(stored), json.loads(new)
        return all(a[key] == b[key] for key in ours)
    except (ValueError, KeyError, TypeError):
        return False


def send(path: Path, url: str) -> None:
    """Store a file as an object; readers see the old object or the new one."""
    fs = filesystem()
    tried(url, lambda: fs.put_file(str(path), url))


def copy(source: str, target: str) -> None:
    """Copy an object within the storage."""
    fs = filesystem()
    tried(target, lambda: fs.cp_file(source, target))


def delete(urls: Sequence[str]) -> None:
    """Remove objects, in order; those that are gone already are no problem."""
    fs = filesystem()
    for url in urls:
        try:
            tried(url, lambda u=url: fs.rm_file(u))  # type: ignore[misc]
        except ArchiveError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise


def read_manifest(fs: Any, target: str) -> bytes | None:
    """The bytes of a stored profile's manifest; None if there is none."""
    try:
        return cast(bytes, tried(target, lambda: fs.cat_file(f"{target}/{store.MANIFEST}")))
    except ArchiveError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def profile_ids(archive_url: str) -> list[str]:
    """Ids of the profiles that have a manifest, sorted."""
    root = archive_url.rstrip("/")
    names = [o.url.removeprefix(root + "/").split("/") for o in objects(root)]
    prefix = store.PROFILE_PREFIX
    whole = [n[0] for n in names if len(n) == 2 and n[0].startswith(prefix) and n[1] == store.MANIFEST]
    return sorted(name.removeprefix(prefix) for name in whole)


def ledger_entries(archive_url: str) -> dict[str, str]:
    """Key → profile of every capture that a batch has stored."""
    names = [o.url.rsplit("/", 1)[1] for o in objects(f"{archive_url.rstrip('/')}/{_LEDGER}")]
    return {key: profile_id for key, equals, profile_id in (n.partition("=") for n in names) if equals}


def add_ledger_entry(archive_url: str, key: str, profile_id: str) -> None:
    """Remember that a capture is stored."""
    fs = filesystem()
    url = f"{archive_url.rstrip('/')}/{_LEDGER}/{key}={profile_id}"
    tried(url, lambda: fs.pipe_file(url, b""))


def remove_ledger_entry(archive_url: str, key: str, profile_id: str) -> None:
    """Forget where a capture was stored."""
    delete([f"{archive_url.rstrip('/')}/{_LEDGER}/{key}={profile_id}"])
