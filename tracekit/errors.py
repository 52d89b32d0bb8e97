"""Every error a user can cause: what happened, where, and what to do about it."""

from __future__ import annotations

import re
from pathlib import Path

_DAMAGE = re.compile(r"parquet|out[ -]of[ -]spec|corrupt|zstd|thrift|magic", re.IGNORECASE)
AGAIN_HINT = "ingest the capture again with --force"
"""What mends any damaged profile; without ``--force`` only damage is noticed that costs no reading."""
VERIFY_HINT = f"`tracekit archive verify` names the files; {AGAIN_HINT}"


class TracekitError(Exception):
    """A problem in words a user can act on.

    Args:
        problem: what is wrong, and where, in one line.
        hint: what to do about it, in one line.
    """

    def __init__(self, problem: str, *, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.problem} ({self.hint})" if self.hint else self.problem


class DiscoveryError(TracekitError):
    """Nothing that tracekit can read was found at a path, or an archive is unsafe to unpack."""


class SourceError(TracekitError):
    """One artifact cannot be read at all."""

    def __init__(self, path: Path, problem: str, *, hint: str = "") -> None:
        super().__init__(f"{path}: {problem}", hint=hint)
        self.path, self.reason = path, problem

    def __reduce__(self) -> tuple[type[SourceError], tuple[Path, str], dict[str, object]]:
        return (type(self), (self.path, self.problem), self.__dict__)


class SchemaError(TracekitError):
    """Rows do not fit a table; the message names the columns."""


class ArchiveError(TracekitError):
    """An archive cannot be read or written."""


class NewerVersionError(ArchiveError):
    """A profile was written by a newer tracekit."""


class QueryError(TracekitError):
    """A query is not valid, or tries to leave the archive."""


class NoSuchProfileError(ArchiveError, KeyError):
    """An archive has no profile of that name."""


class NoSuchAttributeError(TracekitError, AttributeError):
    """A profile or an archive has no table, metric or attribute of that name."""


class NoPathError(TracekitError, TypeError):
    """What was to be opened is not even a path."""


def damage(error: BaseException) -> str | None:
    """What is wrong with a stored file, in one line, if an error of Polars or pyarrow tells of that; else None."""
    text = str(error).partition("\n")[0].strip()
    is_reader = type(error).__module__.partition(".")[0] in ("polars", "pyarrow")
    return text if is_reader and _DAMAGE.search(text) else None
