"""Files that hold the same as another one: what is read once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from tracekit.recognise import HEAD_BYTES
from tracekit.walk import Found

Identity = tuple[str | int | None, ...]
"""What names tell about a file's process; None where they tell nothing."""

_BLOCK = 1 << 20


def copies(files: Iterable[Found], identity: Callable[[Found], Identity]) -> dict[str, Found]:
    """Files that are byte for byte an earlier one of their format.

    Equal bytes of files whose names tell of different processes are no copies: each is that process's own.

    Args:
        files: readable files, the ones to keep first.
        identity: what names tell of a file.

    Returns:
        Label of each copy → the file that is read in its place. Only files of one size are compared.
    """
    same: dict[tuple[str | None, int], list[Found]] = defaultdict(list)
    for found in files:
        if found.size_bytes:
            same[found.kind.format, found.size_bytes].append(found)
    met: dict[str, Found] = {}
    for group in same.values():
        kept: list[Found] = []
        for found in group:
            alike = (k for k in kept if _may_be_one(identity(k), identity(found)) and equal(k.path, found.path))
            first = next(alike, None)
            if first is None:
                kept.append(found)
            else:
                met[found.label] = first
    return met


def _may_be_one(one: Identity, other: Identity) -> bool:
    return all(a is None or b is None or a == b for a, b in zip(one, other, strict=True))


def equal(one: Path, other: Path) -> bool:
    """Whether two files of one size hold the same bytes; False if one cannot be read."""
    try:
        with one.open("rb") as a, other.open("rb") as b:
            while True:
                left, right = a.read(_BLOCK), b.read(_BLOCK)
                if left != right or not left:
                    return left == right
    except OSError:
        return False


def seems_equal(one: Found, other: Found) -> bool:
    """Whether two files of one name are equal, by their size and their head."""
    if one.size_bytes != other.size_bytes:
        return False
    try:
        with one.path.open("rb") as a, other.path.open("rb") as b:
            listed_only = one.kind.format is None or other.kind.format is None
            return listed_only or a.read(HEAD_BYTES) == b.read(HEAD_BYTES)
    except OSError:
        return True
