"""One SQLite file with every table.

Times are INTEGER ns, Booleans 0 and 1, lists JSON text. ``sequence_id`` is unsigned 64-bit: its column has no type, and
what SQLite's integers cannot hold is decimal text in it, which compares as larger than every number. The table
``column_docs`` says what each column means, and its unit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import polars as pl

from tracekit.export.base import Export, ExportError, Progress, batches, never
from tracekit.export.csv import flat
from tracekit.metrics.base import Inputs
from tracekit.tables import TABLES, Table

_TYPES: Mapping[pl.DataType, str] = {
    pl.Int64(): "INTEGER",
    pl.Int32(): "INTEGER",
    pl.Boolean(): "INTEGER",
    pl.Float64(): "REAL",
    pl.UInt64(): "",
}
"""Anything else is TEXT."""
_INDEXES: Mapping[str, tuple[str, ...]] = {
    "events": ("event_id", "session, start_ns", "name"),
    "chains": ("chain_id", "session, hardware_start_ns"),
    "links": ("from_id", "to_id"),
    "samples": ("counter, at_ns",),
}
_BATCH_ROWS = 8192
_LARGEST = 2**63 - 1


def write(inputs: Inputs, path: Path, progress: Progress) -> list[str]:
    """Write the tables of a profile into a new SQLite file.

    Raises:
        ExportError: if SQLite cannot write it.
    """
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            # The file has no name yet and is thrown away if anything fails: a journal would guard nothing.
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("PRAGMA synchronous = OFF")
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("PRAGMA cache_size = -65536")
            database.execute("BEGIN")
            for table in TABLES.values():
                _create(database, table)
                _fill(database, table, getattr(inputs, table.name), progress)
            _describe(database)
            for name, wanted in _INDEXES.items():
                for number, columns in enumerate(wanted):
                    database.execute(f"CREATE INDEX {name}_{number} ON {name} ({columns})")
            database.execute("COMMIT")
    except sqlite3.Error as error:
        raise ExportError(f"{path.parent}: SQLite cannot write here: {error}", hint="check the free space") from error
    return []


def _create(database: sqlite3.Connection, table: Table) -> None:
    columns = ", ".join(
        f'"{c.name}" {_TYPES.get(c.dtype, "TEXT")}{"" if c.nullable else " NOT NULL"}' for c in table.columns
    )
    database.execute(f"CREATE TABLE {table.name} ({columns})")


def _fill(database: sqlite3.Connection, table: Table, frame: pl.LazyFrame, progress: Progress) -> None:
    unsigned = [c.name for c in table.columns if c.dtype == pl.UInt64()]
    for batch in batches(frame.select(table.names), table.name, progress, _BATCH_ROWS):
        rows = batch.select(flat(table)).get_columns()
        columns = [_held(column) if column.name in unsigned else column for column in rows]
        # Handing values over is what costs: a column with one value in the whole batch is part of the statement.
        literals = [_literal(column) for column in columns]
        varying = [c.to_list() for c, literal in zip(columns, literals, strict=True) if literal is None]
        values = ", ".join(literal or "?" for literal in literals)
        if varying:
            database.executemany(f"INSERT INTO {table.name} VALUES ({values})", zip(*varying, strict=True))
        else:
            database.executemany(f"INSERT INTO {table.name} SELECT {values} WHERE ?", ((1,) for _ in range(len(batch))))


def _held(column: pl.Series) -> pl.Series:
    """Unsigned numbers as SQLite holds them: integers, decimal text where one is too large."""
    fitting: pl.Series = column.cast(pl.Int64, strict=False)
    if fitting.null_count() == column.null_count():
        return fitting
    values = [value if value is None or value <= _LARGEST else str(value) for value in column.to_list()]
    return pl.Series(column.name, values, dtype=pl.Object)


def _literal(column: pl.Series) -> str | None:
    """The only value of a column as SQL; None if it has several, or one that is safer bound."""
    if column.dtype == pl.Object or column.n_unique() > 1:
        return None
    value = column[0]
    if value is None:
        return "NULL"
    if isinstance(value, (bool, int)):
        return str(int(value))
    if isinstance(value, str) and "\0" not in value:
        return "'" + value.replace("'", "''") + "'"
    return None


def _describe(database: sqlite3.Connection) -> None:
    database.execute("CREATE TABLE column_docs (table_name TEXT, column_name TEXT, unit TEXT, doc TEXT)")
    rows = [(t.name, c.name, c.unit, c.doc) for t in TABLES.values() for c in t.columns]
    database.executemany("INSERT INTO column_docs VALUES (?, ?, ?, ?)", rows)


EXPORT = Export("sqlite", "One SQLite file with every table.", ".sqlite", write, never)
