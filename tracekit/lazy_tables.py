"""What a profile and an archive have in common: tables as attributes, metrics as methods, SQL."""

from __future__ import annotations

import difflib
from collections.abc import Callable

import polars as pl

from tracekit import tables
from tracekit.errors import NoSuchAttributeError
from tracekit.metrics import METRICS
from tracekit.metrics.base import OptionValue
from tracekit.query import query

Scope = str | int
"""``"steps"`` (steps after warm-up, or everything if there are none), ``"all"``, or a step number."""


class LazyTables:
    """The stored tables as LazyFrames by attribute, the metrics as methods."""

    CALLED = "this"
    """What errors call it."""

    def table(self, name: str) -> pl.LazyFrame:
        """One stored table by name, with its ``profile`` column first."""
        raise NotImplementedError

    def sql_table(self, name: str) -> pl.LazyFrame:
        """See ``query.Queryable``."""
        raise NotImplementedError

    def metric(self, name: str, *, scope: Scope = "steps", **options: OptionValue) -> pl.LazyFrame:
        """A metric by name."""
        raise NotImplementedError

    def query(self, sql: str) -> pl.LazyFrame:
        """The result of an SQL query over ``runs``, the stored tables and the metrics, by their names.

        Raises:
            QueryError: if it is not valid, or does anything but read these tables.
        """
        return query(self, sql)

    @property
    def events(self) -> pl.LazyFrame:
        """Every event (``tables.EVENTS``)."""
        return self.table("events")

    @property
    def sessions(self) -> pl.LazyFrame:
        """Captured processes (``tables.SESSIONS``)."""
        return self.table("sessions")

    @property
    def threads(self) -> pl.LazyFrame:
        """Names of processes and threads (``tables.THREADS``)."""
        return self.table("threads")

    @property
    def flows(self) -> pl.LazyFrame:
        """Flow events as they stand in traces (``tables.FLOWS``)."""
        return self.table("flows")

    @property
    def artifacts(self) -> pl.LazyFrame:
        """Files of the capture (``tables.ARTIFACTS``)."""
        return self.table("artifacts")

    @property
    def links(self) -> pl.LazyFrame:
        """Cause and effect between events (``tables.LINKS``)."""
        return self.table("links")

    @property
    def chains(self) -> pl.LazyFrame:
        """Operator → stream → runtime → hardware, one row per execution (``tables.CHAINS``)."""
        return self.table("chains")

    @property
    def samples(self) -> pl.LazyFrame:
        """Counters over time (``tables.SAMPLES``)."""
        return self.table("samples")

    @property
    def notes(self) -> pl.LazyFrame:
        """Everything worth knowing about the data (``tables.NOTES``)."""
        return self.table("notes")

    def __getattr__(self, name: str) -> Callable[..., pl.LazyFrame]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in METRICS:
            raise _no_attribute(type(self), name)

        def compute(*, scope: Scope = "steps", **options: OptionValue) -> pl.LazyFrame:
            return self.metric(name, scope=scope, **options)

        compute.__name__, compute.__doc__ = name, METRICS[name].doc
        return compute

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *METRICS})


def _no_attribute(kind: type[LazyTables], name: str) -> NoSuchAttributeError:
    public = [known for known in dir(kind) if not known.startswith("_")]
    near = difflib.get_close_matches(name, [*public, *METRICS], 3, 0.6)
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"metrics are {', '.join(METRICS)}; tables are {', '.join(tables.TABLES)}"
    )
    return NoSuchAttributeError(f"{kind.CALLED} has no attribute, table or metric {name!r}", hint=hint)
