"""Results of metrics for a report: computed once, by name, and none of them can stop the report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import polars as pl

from tracekit.errors import TracekitError
from tracekit.metrics import METRICS
from tracekit.metrics.base import Inputs, Metric, OptionValue

_Key = tuple[str, tuple[tuple[str, OptionValue], ...]]


@dataclass
class Results:
    """What the metrics say about one profile; a metric that fails is named in ``failed`` instead."""

    inputs: Inputs
    failed: dict[str, str] = field(default_factory=dict)
    _known: dict[_Key, pl.DataFrame | None] = field(default_factory=dict)

    def get(self, name: str, **options: OptionValue) -> pl.DataFrame | None:
        """The result of a metric; null if there is no such metric or option, if it failed, or if it has no rows."""
        key = (name, tuple(sorted(options.items())))
        if key not in self._known:
            self._known[key] = self._computed(name, options)
        return self._known[key]

    def _computed(self, name: str, options: dict[str, OptionValue]) -> pl.DataFrame | None:
        if name not in METRICS:
            return None
        metric = METRICS[name]
        defaults = {option.name: option.default for option in metric.options}
        if set(options) - set(defaults):
            return None
        try:
            frame = metric.compute(self.inputs, {**defaults, **options}).collect(engine="streaming")
        except (TracekitError, pl.exceptions.PolarsError) as error:
            self.failed[name] = str(error).splitlines()[0]
            return None
        return None if frame.is_empty() else frame

    def split(self) -> pl.DataFrame | None:
        """The split of each session over all windows: the sum of its steps, so that it is computed once."""
        steps = self.get("split", per="step")
        return None if steps is None else steps.group_by("session").agg(pl.col("^.*_ns$").sum()).sort("session")

    def metrics(self) -> Iterator[Metric]:
        """Every metric there is, in the order of ``METRICS``."""
        return iter(METRICS.values())
