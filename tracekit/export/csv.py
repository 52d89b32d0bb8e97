"""A directory of CSV files, one per table: numbers exact, lists as JSON, null as nothing (empty text is ``""``)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from tracekit.export.base import Export, Progress, always, batches
from tracekit.metrics.base import Inputs
from tracekit.tables import TABLES, Table


def flat(table: Table) -> list[pl.Expr]:
    """The columns of a table with lists as JSON text."""
    return [
        pl.format("[{}]", pl.col(c.name).cast(pl.List(pl.String)).list.join(",")).alias(c.name)
        if isinstance(c.dtype, pl.List)
        else pl.col(c.name)
        for c in table.columns
    ]


def write(inputs: Inputs, path: Path, progress: Progress) -> list[str]:
    """Write ``<table>.csv`` for every stored table into the directory ``path``."""
    for name, table in TABLES.items():
        frame: pl.LazyFrame = getattr(inputs, name)
        with (path / f"{name}.csv").open("wb") as file:
            file.write((",".join(table.names) + "\n").encode())
            for batch in batches(frame.select(table.names), name, progress):
                batch.select(flat(table)).write_csv(file, include_header=False)
    return []


EXPORT = Export("csv", "A directory of one CSV file per table.", "", write, always)
