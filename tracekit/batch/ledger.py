"""What a batch knows already: capture as it lies on disk → profile. Only saves hashing; never the last word.

In an archive on a file system it is the hidden file ``.ledger.jsonl``, to which whole lines are appended; in object
storage each entry is an empty object whose name says it all.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Protocol

from tracekit import archive as store
from tracekit import remote
from tracekit.errors import ArchiveError

LEDGER = ".ledger.jsonl"


class Ledger(Protocol):
    """Which captures are stored."""

    def knows(self, key: str | None) -> str | None:
        """Profile that holds the capture of this key; None if it is not stored, or not whole."""

    def add(self, key: str | None, profile_id: str, content_id: str) -> None:
        """Remember that a capture is stored."""


class LocalLedger:
    """Ledger of an archive on a file system; a profile counts under whatever name its content has now."""

    def __init__(self, archive: Path) -> None:
        self._path = archive / LEDGER
        self._stored = _contents(archive)
        self._known: dict[str, str] = {}
        with contextlib.suppress(OSError):
            for line in self._path.read_bytes().splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    entry = json.loads(line)
                    self._known[entry["key"]] = entry["content_id"]

    def knows(self, key: str | None) -> str | None:
        """See ``Ledger.knows``."""
        return self._stored.get(self._known.get(key, "")) if key else None

    def add(self, key: str | None, profile_id: str, content_id: str) -> None:
        """See ``Ledger.add``."""
        if not key or self._known.get(key) == content_id:
            return
        self._known[key] = content_id
        line = json.dumps({"key": key, "profile": profile_id, "content_id": content_id}) + "\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(descriptor, b"\n" * self._is_cut() + line.encode())
        finally:
            os.close(descriptor)

    def _is_cut(self) -> bool:
        """Whether the last line was cut by a crash, so that a new line has to be started."""
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            return file.seek(0, os.SEEK_END) > 0 and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n"
        return False


def _contents(archive: Path) -> dict[str, str]:
    """Content id → profile, of what is whole as far as manifests and sizes tell."""
    found = {}
    for profile_id in store.profile_ids(archive):
        path = store.profile_path(archive, profile_id)
        with contextlib.suppress(ArchiveError):
            manifest = store.read_manifest(path)
            if store.is_intact(path, manifest):
                found[str(manifest.get("content_id"))] = profile_id
    return found


class RemoteLedger:
    """Ledger of an archive in object storage."""

    def __init__(self, archive: str) -> None:
        self._archive = archive
        self._stored = set(remote.profile_ids(archive))
        self._known = remote.ledger_entries(archive)

    def knows(self, key: str | None) -> str | None:
        """See ``Ledger.knows``."""
        profile_id = self._known.get(key or "")
        return profile_id if profile_id in self._stored else None

    def add(self, key: str | None, profile_id: str, content_id: str) -> None:
        """See ``Ledger.add``."""
        if key and self._known.get(key) != profile_id:
            self._known[key] = profile_id
            remote.add_ledger_entry(self._archive, key, profile_id)


def open_ledger(archive: str) -> Ledger:
    """The ledger of an archive, read once."""
    return RemoteLedger(archive) if remote.is_url(archive) else LocalLedger(Path(archive))
