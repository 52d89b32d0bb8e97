"""What a metric is: a result table, the tables it reads, and a pure function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import polars as pl

from tracekit.tables import Column, Table

OptionValue = str | int | bool | None

SCOPE = Table(
    name="scope",
    doc="The windows that are measured: disjoint per session.",
    key=("session", "start_ns"),
    columns=(
        Column("session", pl.String(), "Key of `sessions`."),
        Column("step", pl.Int64(), "N of `ProfilerStep#N`; null for time that belongs to no step.", nullable=True),
        Column("start_ns", pl.Int64(), "Start of the window.", unit="ns"),
        Column("end_ns", pl.Int64(), "End of the window.", unit="ns"),
    ),
)


@dataclass(frozen=True)
class Inputs:
    """The stored tables of one profile (or of several, then with distinct sessions) and the scope."""

    events: pl.LazyFrame
    sessions: pl.LazyFrame
    threads: pl.LazyFrame
    flows: pl.LazyFrame
    artifacts: pl.LazyFrame
    links: pl.LazyFrame
    chains: pl.LazyFrame
    samples: pl.LazyFrame
    notes: pl.LazyFrame
    scope: pl.LazyFrame

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Table names, in order."""
        return tuple(f.name for f in fields(cls))


@dataclass(frozen=True)
class Option:
    """One option of a metric; the CLI makes a flag of it."""

    name: str
    doc: str
    default: OptionValue = None
    choices: tuple[str, ...] = ()
    is_duration: bool = False
    """The value is a duration such as ``100us``; the function gets nanoseconds."""


@dataclass(frozen=True)
class Metric:
    """A question and the function that answers it."""

    name: str
    doc: str
    table: Table
    compute: Callable[[Inputs, Mapping[str, OptionValue]], pl.LazyFrame]
    options: tuple[Option, ...] = ()
    sort_by: tuple[str, ...] = ()
    """Columns that rank rows on screen, largest first; empty keeps the order of the function."""
    screen: tuple[str, ...] = ()
    """Columns to show on screen, in order; empty shows all that fit. Files always hold every column."""
