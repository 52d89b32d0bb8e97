"""One DuckDB file with every table, typed as stored, with docs and units as comments. Needs the package ``duckdb``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from tracekit.export.base import Export, ExportError, Progress, batches, never
from tracekit.metrics.base import Inputs
from tracekit.tables import TABLES, Column, Table


def write(inputs: Inputs, path: Path, progress: Progress) -> list[str]:
    """Write the tables of a profile into a new DuckDB file.

    Raises:
        ExportError: if ``duckdb`` is not installed, or cannot write the file.
    """
    try:
        import duckdb
    except ImportError as error:
        hint = "pip install duckdb, or export to sqlite or parquet"
        raise ExportError("the duckdb export needs the package duckdb", hint=hint) from error
    try:
        with duckdb.connect(path) as database:
            for table in TABLES.values():
                database.register("rows", _reader(inputs, table, progress))
                database.execute(f"CREATE TABLE {table.name} AS SELECT * FROM rows")
                database.unregister("rows")
                database.execute(f"COMMENT ON TABLE {table.name} IS {_quoted(table.doc)}")
                for column in table.columns:
                    database.execute(f'COMMENT ON COLUMN {table.name}."{column.name}" IS {_quoted(_doc(column))}')
    except duckdb.Error as error:
        raise ExportError(f"{path.parent}: DuckDB cannot write here: {error}", hint="check the free space") from error
    return []


def _reader(inputs: Inputs, table: Table, progress: Progress) -> pa.RecordBatchReader:
    schema = table.arrow_schema().remove_metadata()

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in batches(getattr(inputs, table.name).select(table.names), table.name, progress):
            yield from pa.Table.from_arrays(
                [c.cast(f.type) for c, f in zip(batch.to_arrow().columns, schema, strict=True)], schema=schema
            ).to_batches()

    return pa.RecordBatchReader.from_batches(schema, rows())


def _doc(column: Column) -> str:
    return f"{column.doc} [{column.unit}]" if column.unit else column.doc


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


EXPORT = Export("duckdb", "One DuckDB file with every table (needs the package duckdb).", ".duckdb", write, never)
