"""Find out where the time goes when PyTorch runs on AWS Trainium.

>>> import tracekit
>>> profile = tracekit.open("capture/")        # doctest: +SKIP
>>> profile.gaps().collect()                    # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tracekit._version import __version__

if TYPE_CHECKING:
    from tracekit.errors import (
        ArchiveError,
        DiscoveryError,
        QueryError,
        SchemaError,
        SourceError,
        TracekitError,
    )
    from tracekit.ingestion import IngestResult, ingest
    from tracekit.profile import Archive, Profile
    from tracekit.profile import open_any as open

_PUBLIC = {
    "Archive": "tracekit.profile",
    "ArchiveError": "tracekit.errors",
    "DiscoveryError": "tracekit.errors",
    "IngestResult": "tracekit.ingestion",
    "Profile": "tracekit.profile",
    "QueryError": "tracekit.errors",
    "SchemaError": "tracekit.errors",
    "SourceError": "tracekit.errors",
    "TracekitError": "tracekit.errors",
    "diff": "tracekit.diffing",
    "ingest": "tracekit.ingestion",
    "open": "tracekit.profile:open_any",
}

__all__ = [
    "Archive",
    "ArchiveError",
    "DiscoveryError",
    "IngestResult",
    "Profile",
    "QueryError",
    "SchemaError",
    "SourceError",
    "TracekitError",
    "__version__",
    "diff",
    "ingest",
    "open",
]


def __getattr__(name: str) -> object:
    """Import public names when they are first used, so that ``tracekit --help`` stays quick."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'tracekit' has no attribute {name!r}")
    module, _, attribute = _PUBLIC[name].partition(":")
    value = getattr(importlib.import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
