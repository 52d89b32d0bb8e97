"""Any table as a block of the report: readable headings, units, the most important rows, places in the timeline."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tracekit.metrics.base import Metric
from tracekit.report.model import Cell, TableBlock, TableColumn
from tracekit.tables import Column, Table
from tracekit.vocabulary import FIRST_DATE_NS

ROW_LIMIT = 500

_SUFFIXES = {"_ns": "ns", "_bytes": "B", "_ratio": "ratio", "_count": ""}
_HIDDEN_ENDINGS = ("_id", "_ids", "_json")
_KEPT = ("model_id", "instance_id", "process_id", "thread_id", "stream_id", "execution_id")
_NAMES = ("name", "after_name", "op", "op_name", "operator")
_RANK_LAST = ("session", "step", "rank")


def metric_block(
    metric: Metric, frame: pl.DataFrame, origin_ns: int, *, limit: int = ROW_LIMIT, title: str | None = None
) -> TableBlock:
    """The result of a metric as a block, ranked by the metric's own order."""
    return table_block(
        metric.name,
        title or metric.name.replace("_", " ").capitalize(),
        metric.doc,
        metric.table,
        frame,
        origin_ns,
        rank=metric.sort_by,
        limit=limit,
    )


def table_block(
    id: str,
    title: str,
    doc: str,
    table: Table,
    frame: pl.DataFrame,
    origin_ns: int,
    *,
    rank: Sequence[str] = (),
    limit: int = ROW_LIMIT,
) -> TableBlock:
    """A frame as a block.

    Columns without any value other than 0, ids that only machines use, and the session where there is only one
    are left out.

    Args:
        id: unique in the report.
        title: heading.
        doc: what the table answers.
        table: gives docs and units of the columns.
        frame: rows.
        origin_ns: moments are shown since this one.
        rank: columns that rank rows, largest first; only ``limit`` rows are kept.
        limit: rows at most.
    """
    by = [c for c in rank if c in frame.columns]
    kept = frame.sort(by, descending=True, nulls_last=True, maintain_order=True) if by else frame
    kept = kept.head(limit)
    shown = [c for c in table.columns if c.name in kept.columns and _is_shown(c, kept)]
    shown.sort(key=lambda c: _position(c.name))
    columns = [_column(c, kept[c.name]) for c in shown]
    names = [c.name for c in shown]
    return TableBlock(
        id=id,
        title=title,
        doc=doc,
        columns=columns,
        values=[_cells(kept[c.name], origin_ns) for c in shown],
        total_rows=frame.height,
        places=_places(kept, origin_ns),
        find=next((n for n in _NAMES if n in names), None),
        sort=next((c for c in by if c in names), None),
    )


def label(name: str) -> str:
    """A column's name as a heading: without its unit, in words."""
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            words = name.removesuffix(suffix)
            if suffix == "_count" and not words.endswith("s"):
                words += "es" if words.endswith(("ch", "sh", "x")) else "s"
            if suffix == "_ratio" and "share" not in words:
                words += " share"
            return _spelled(words)
    return _spelled(name.removeprefix("is_"))


def _spelled(name: str) -> str:
    return name.replace("_", " ").replace("cpu", "CPU")


def unit(column: Column) -> str:
    """``ns``, ``B``, ``ratio``, another unit as the table gives it, or empty."""
    if column.unit:
        return column.unit
    return next((u for suffix, u in _SUFFIXES.items() if column.name.endswith(suffix)), "")


def _position(name: str) -> int:
    """Names come first, then the numbers, then what tells processes and steps apart."""
    if name in _NAMES:
        return 0
    return 2 if name in _RANK_LAST else 1


def _is_shown(column: Column, frame: pl.DataFrame) -> bool:
    values = frame[column.name]
    if column.name.endswith(_HIDDEN_ENDINGS) and column.name not in _KEPT:
        return False
    if column.name == "session":
        return values.n_unique() > 1
    if values.null_count() == frame.height:
        return frame.height == 0 and not column.nullable
    is_amount = values.dtype.is_numeric() and (unit(column) or column.name.endswith("_count"))
    return not is_amount or bool((values != 0).any())


def _column(column: Column, values: pl.Series) -> TableColumn:
    is_moment = _is_moment(values)
    heading = label(column.name)
    if is_moment:
        heading = {"start": "starts at", "end": "ends at"}.get(heading, heading)
    doc = column.doc + (" Counted from the start of the timeline." if is_moment else "")
    return TableColumn(column.name, heading, doc, unit(column), bool(values.dtype.is_numeric()))


def _is_moment(values: pl.Series) -> bool:
    if not values.dtype.is_integer() or not values.name.endswith("_ns"):
        return False
    least = values.min()
    return isinstance(least, int) and least > FIRST_DATE_NS


def _cells(values: pl.Series, origin_ns: int) -> list[Cell]:
    if isinstance(values.dtype, pl.List):
        values = values.cast(pl.List(pl.String)).list.join(", ")
    if _is_moment(values):
        values = values - origin_ns
    if values.dtype.is_integer():
        largest = values.cast(pl.Float64).abs().max()
        if isinstance(largest, float) and largest >= 2**53:
            values = values.cast(pl.String)
    cells: list[Cell] = values.to_list()
    return cells


def _places(frame: pl.DataFrame, origin_ns: int) -> list[list[Cell]] | None:
    """Session, start and end of each row, if the rows have them."""
    if not {"session", "start_ns", "end_ns"} <= set(frame.columns) or not frame["start_ns"].count():
        return None
    if not _is_moment(frame["start_ns"]):
        return None
    return [
        frame["session"].to_list(),
        (frame["start_ns"] - origin_ns).to_list(),
        (frame["end_ns"] - origin_ns).to_list(),
    ]
