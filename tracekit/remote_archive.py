"""Archives and profiles in object storage, opened in place."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from tracekit import archive as store
from tracekit import durations, tables
from tracekit.errors import ArchiveError
from tracekit.profile import Archive, Profile
from tracekit.recognise import printable
from tracekit.remote import filesystem, profile_ids, read_manifest


def scan_options() -> dict[str, Any]:
    """How Polars' own reader gets at the storage: endpoint and credentials of the standard chain.

    Returns:
        ``storage_options`` and ``credential_provider`` of ``pl.scan_parquet``.
    """
    return _scan_options(tuple(sorted((k, v) for k, v in os.environ.items() if k.startswith("AWS_"))))


@functools.lru_cache(maxsize=4)
def _scan_options(_environment: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """``scan_options``; looking through the standard chain takes a third of a second, so once per environment."""
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
        text = read_manifest(filesystem(), self.url)
        if text is None:
            raise ArchiveError(f"{printable(self.url)}: no {store.MANIFEST}, so not a stored profile")
        self.manifest = store.parse_manifest(text, printable(self.url))

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
