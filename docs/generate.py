"""Write the generated pages of the documentation: ``python docs/generate.py``; a test keeps them current."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tracekit.durations import DURATIONS
from tracekit.metrics import METRICS
from tracekit.runs import RUNS
from tracekit.tables import SCHEMA_VERSION, TABLES, Column, Table

HERE = Path(__file__).parent


def tables_page() -> str:
    """The stored tables and those derived of them, column by column."""
    head = (
        "# Stored tables\n\n"
        "Generated from `tracekit/tables.py`, `runs.py` and `durations.py` by `python docs/generate.py`; do not edit."
        "\n\n"
        f"Schema version {SCHEMA_VERSION}. A profile is `<archive>/profile=<id>/<table>.parquet` with a "
        "`manifest.json`; times are Int64 nanoseconds since the Unix epoch, intervals are half-open "
        "`[start_ns, end_ns)`, absent is null. Over an archive every table has one more column, `profile`.\n\n"
    )
    derived = (
        "\n# Derived tables\n\n"
        "Not stored with a profile but made of one or many: `archive.runs` and `archive.durations`, and `runs` and "
        "`durations` in SQL. (Metrics are tables, too: [metrics.md](metrics.md).)\n\n"
    )
    stored = "\n".join(_section(table) for table in TABLES.values())
    return head + stored + derived + "\n".join(_section(table) for table in (RUNS, DURATIONS))


def metrics_page() -> str:
    """The metrics: what each answers, its options and its columns."""
    head = (
        "# Metrics\n\n"
        "Generated from `tracekit/metrics/` by `python docs/generate.py`; do not edit.\n\n"
        "`tracekit show METRIC PATH` prints one, `profile.METRIC()` gives it as a LazyFrame. Every metric measures the "
        "scope: the steps after warm-up (everything if there are none), `--all`, or `--step N`.\n\n"
    )
    return head + "\n".join(_metric(name) for name in METRICS)


def _metric(name: str) -> str:
    metric = METRICS[name]
    options = "".join(
        f"- `--{o.name.replace('_', '-')}`{' ' + '|'.join(o.choices) if o.choices else ''}: {o.doc}\n"
        for o in metric.options
    )
    return _section(metric.table, name, metric.doc) + (f"\nOptions:\n\n{options}" if options else "")


def _section(table: Table, name: str = "", doc: str = "") -> str:
    key = ", ".join(f"`{column}`" for column in table.key)
    lines = [f"## {name or table.name}", "", doc or table.doc, "", f"Key: {key}.", ""]
    if doc and doc != table.doc:
        lines[3:3] = [table.doc, ""]
    lines += ["| column | type | null | unit | what it holds |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*lines, *_rows(table.columns)]) + "\n"


def _rows(columns: Iterable[Column]) -> Iterable[str]:
    for column in columns:
        values = f" One of {', '.join(f'`{v}`' for v in column.values)}." if column.values else ""
        null = "yes" if column.nullable else ""
        yield f"| `{column.name}` | {column.dtype} | {null} | {column.unit or ''} | {column.doc}{values} |"


PAGES = {"tables.md": tables_page, "metrics.md": metrics_page}

if __name__ == "__main__":
    for page, text in PAGES.items():
        (HERE / page).write_text(text(), encoding="utf-8")
