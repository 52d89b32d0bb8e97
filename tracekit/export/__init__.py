"""Exports to formats of other tools: one file per format, and one entry in ``EXPORTS``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tracekit.export import chrome, csv, duckdb, parquet, perfetto, sqlite
from tracekit.export.base import MARKER, Export, ExportError, Progress, beside, size_of
from tracekit.metrics.base import Inputs

EXPORTS: Mapping[str, Export] = {
    export.name: export
    for export in (perfetto.EXPORT, chrome.EXPORT, csv.EXPORT, parquet.EXPORT, sqlite.EXPORT, duckdb.EXPORT)
}
"""Every format by name."""


@dataclass(frozen=True)
class Written:
    """What an export has left on disk."""

    path: Path
    size_bytes: int
    remarks: tuple[str, ...]


def export(inputs: Inputs, form: str, path: Path, progress: Progress | None = None) -> Written:
    """Write a profile in the format of another tool; the output appears when it is whole, or not at all.

    Args:
        inputs: the tables of one profile, of the scope ``all``.
        form: a name in ``EXPORTS``.
        path: file, or directory where the format needs one (``Export.is_directory``).
        progress: told how many rows are done.

    Raises:
        ExportError: if there is no such format, something else is in the way, or a library is missing.
    """
    chosen = EXPORTS.get(form)
    if chosen is None:
        raise ExportError(f"no export format {form!r}", hint=f"formats are {', '.join(EXPORTS)}")
    directory = chosen.is_directory(inputs)
    with beside(path, directory=directory) as part:
        remarks = chosen.write(inputs, part, progress or _silent)
        if directory:
            (part / MARKER).write_text(f"{chosen.name}\n", encoding="utf-8")
    return Written(path, size_of(path), tuple(remarks))


def _silent(label: str, done: int, total: int) -> None:
    """Progress that nobody watches."""
