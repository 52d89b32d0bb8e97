"""Captures and archives in S3-compatible object storage.

Credentials and endpoint come from the standard chain alone (environment, profiles, container and instance roles)
through botocore; nothing of them is ever shown. A profile in object storage counts only once its manifest is there,
which is uploaded last: what an interrupted upload leaves is no profile. Errors and stalls of the connection are tried
again.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast

import polars as pl
import xxhash

from tracekit import archive as store
from tracekit import captures as local
from tracekit import durations, tables
from tracekit.errors import ArchiveError, DiscoveryError
from tracekit.profile import Archive, Profile
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


def _tried(url: str, request: Callable[[], _Result]) -> _Result:
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
    found = _tried(url, lambda: fs.find(bare, detail=True))
    listed = [
        RemoteObject(SCHEME + key, int(facts.get("size") or 0), str(facts.get("ETag") or facts.get("LastModified")))
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

        for path, first, body in zip(paths, firsts, _tried(urls[0], get), strict=True):
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

        _tried(url, get)


def upload(directory: Path, archive_url: str) -> bool:
    """Put a stored profile into an archive in object storage, the manifest last; false if it was there already.

    Raises:
        ArchiveError: if that fails; then the profile does not count.
    """
    fs = filesystem()
    target = f"{archive_url.rstrip('/')}/{directory.name}"
    manifest = (directory / store.MANIFEST).read_bytes()
    if _manifest(fs, target) == manifest:
        return False
    _tried(
        target, lambda: fs.rm_file(f"{target}/{store.MANIFEST}") if fs.exists(f"{target}/{store.MANIFEST}") else None
    )
    files = sorted(p for p in directory.iterdir() if p.name != store.MANIFEST)
    for path in files:
        _tried(f"{target}/{path.name}", lambda p=path: fs.put_file(str(p), f"{target}/{p.name}"))  # type: ignore[misc]
    there = {o.url.rsplit("/", 1)[1]: o.size_bytes for o in objects(target)}
    for path in files:
        if there.get(path.name) != path.stat().st_size:
            raise ArchiveError(f"{target}/{path.name}: not stored whole", hint="try again")
    _tried(target, lambda: fs.pipe_file(f"{target}/{store.MANIFEST}", manifest))
    return True


def _manifest(fs: Any, target: str) -> bytes | None:
    try:
        return cast(bytes, _tried(target, lambda: fs.cat_file(f"{target}/{store.MANIFEST}")))
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
    _tried(url, lambda: fs.pipe_file(url, b""))


def remove(archive_url: str, profile_id: str) -> None:
    """Remove a profile: its manifest first, so that it stops counting at once."""
    fs = filesystem()
    target = f"{archive_url.rstrip('/')}/{store.PROFILE_PREFIX}{profile_id}"
    for url in sorted((o.url for o in objects(target)), key=lambda u: (not u.endswith(store.MANIFEST), u)):
        _tried(url, lambda u=url: fs.rm_file(u))  # type: ignore[misc]


def verify(archive_url: str, profile_id: str, *, contents: bool = True) -> list[dict[str, str | None]]:
    """Check one profile as ``upkeep.verify`` does, by the sizes and hashes in its manifest."""
    fs = filesystem()
    target = f"{archive_url.rstrip('/')}/{store.PROFILE_PREFIX}{profile_id}"
    hint = "ingest the capture again"
    try:
        manifest = RemoteProfile(target).manifest
    except ArchiveError as error:
        return [{"profile": profile_id, "file": store.MANIFEST, "problem": error.problem, "hint": error.hint or hint}]
    there = {o.url.rsplit("/", 1)[1]: o for o in objects(target)}
    known = cast(dict[str, dict[str, object]], manifest.get("files", {}))
    found: list[dict[str, str | None]] = []
    for name in [f"{table}.parquet" for table in tables.TABLES]:
        problem = None
        if name not in there:
            problem = "missing"
        elif there[name].size_bytes != known.get(name, {}).get("size_bytes"):
            problem = f"has {there[name].size_bytes} bytes instead of {known.get(name, {}).get('size_bytes')}"
        elif contents:
            body = cast(bytes, _tried(there[name].url, lambda u=there[name].url: fs.cat_file(u)))  # type: ignore[misc]
            if xxhash.xxh3_128_hexdigest(body) != known[name].get("xxh3_128"):
                problem = "its content has changed since it was written"
        if problem:
            found.append({"profile": profile_id, "file": name, "problem": problem, "hint": hint})
    return found


def scan_options() -> dict[str, Any]:
    """How Polars' own reader gets at the storage: endpoint and credentials of the standard chain.

    Returns:
        ``storage_options`` and ``credential_provider`` of ``pl.scan_parquet``.
    """
    import botocore.session

    session = botocore.session.get_session()
    config = session.create_client("s3", region_name=session.get_config_variable("region") or "us-east-1").meta
    options: dict[str, str | int] = {
        "aws_endpoint_url": config.endpoint_url,
        "aws_region": config.region_name,
        "max_retries": 8,
    }
    if config.endpoint_url.startswith("http://"):
        options |= {"aws_allow_http": "true"}
    found = session.get_credentials()
    if found is None:
        return {"storage_options": options | {"aws_skip_signature": "true"}, "credential_provider": None}

    def provide() -> tuple[dict[str, str | None], int | None]:
        frozen = found.get_frozen_credentials()
        named = {
            "aws_access_key_id": frozen.access_key,
            "aws_secret_access_key": frozen.secret_key,
            "aws_session_token": frozen.token,
        }
        return {k: v for k, v in named.items() if v}, int(time.time()) + 300

    return {"storage_options": options, "credential_provider": provide}


class RemoteProfile(Profile):
    """One profile in object storage; tables are read by Polars, and only the parts that are asked for."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.path = Path(self.url)
        text = _manifest(filesystem(), self.url)
        if text is None:
            raise ArchiveError(f"{printable(self.url)}: no {store.MANIFEST}, so not a stored profile")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / store.MANIFEST).write_bytes(text)
            self.manifest = store.read_manifest(Path(folder))

    def table(self, name: str) -> pl.LazyFrame:
        """See ``Profile.table``."""
        return _scan([self.url], name).drop("profile")


class RemoteArchive(Archive):
    """An archive in object storage."""

    def __init__(self, url: str, ids: Sequence[str] | None = None) -> None:
        super().__init__(Path(url), ids)
        self.url = url.rstrip("/")

    @property
    def ids(self) -> list[str]:
        """See ``Archive.ids``."""
        return profile_ids(self.url) if self._ids is None else list(self._ids)

    def table(self, name: str) -> pl.LazyFrame:
        """See ``Archive.table``."""
        return _scan([f"{self.url}/{store.PROFILE_PREFIX}{i}" for i in self.ids], name)

    @property
    def durations(self) -> pl.LazyFrame:
        """See ``Archive.durations``; without an index."""
        return durations.durations(self.events)

    def only(self, ids: Sequence[str]) -> RemoteArchive:
        """See ``Archive.only``."""
        return RemoteArchive(self.url, ids)

    def _indexed(self, name: str, ids: Sequence[str]) -> tuple[list[pl.LazyFrame], list[str]]:
        return [], list(ids)

    @property
    def _place(self) -> str:
        return printable(self.url)

    def _open(self, profile_id: str) -> Profile | None:
        return RemoteProfile(f"{self.url}/{store.PROFILE_PREFIX}{profile_id}") if profile_id in self.ids else None

    def __repr__(self) -> str:
        return f"<Archive {printable(self.url)}: {len(self)} profiles>"


def open_url(url: str) -> Profile | Archive:
    """Open an archive or a profile in object storage.

    Raises:
        ArchiveError: if there is neither; captures there are read with ``tracekit batch``.
    """
    last = url.rstrip("/").rsplit("/", 1)[1]
    if last.startswith(store.PROFILE_PREFIX):
        return RemoteProfile(url)
    found = RemoteArchive(url)
    if not found.ids:
        hint = "read captures into an archive with `tracekit batch`"
        raise ArchiveError(f"{printable(url)}: no stored profile below it", hint=hint)
    return found


def _scan(urls: Sequence[str], table: str) -> pl.LazyFrame:
    """``archive.scan`` for object storage."""
    if table not in tables.TABLES:
        raise ArchiveError(f"no table {table!r}", hint=f"tables are {', '.join(tables.TABLES)}")
    spec = tables.TABLES[table]
    if not urls:
        return spec.empty().lazy().select(pl.lit(None, dtype=pl.String).alias("profile"), pl.all())
    frame = pl.scan_parquet(
        [f"{url}/{table}.parquet" for url in urls],
        hive_partitioning=True,
        hive_schema={"profile": pl.String},
        glob=False,
        **scan_options(),
    )
    return frame.select("profile", *spec.names)
