"""A directory of Parquet files, one per table, with the docs and units of the columns in their metadata."""

from __future__ import annotations

from pathlib import Path

from tracekit.archive import TableWriter
from tracekit.export.base import Export, Progress, always, batches
from tracekit.metrics.base import Inputs
from tracekit.tables import TABLES


def write(inputs: Inputs, path: Path, progress: Progress) -> list[str]:
    """Write ``<table>.parquet`` for every stored table into the directory ``path``."""
    for name, table in TABLES.items():
        writer = TableWriter(table, path / f"{name}.parquet", level=3)
        try:
            for batch in batches(getattr(inputs, name), name, progress):
                writer.write(batch)
        finally:
            writer.close()
    return []


EXPORT = Export("parquet", "A directory of one Parquet file per table.", "", write, always)
