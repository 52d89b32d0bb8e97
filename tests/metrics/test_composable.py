"""Results stay lazy frames that a user may filter, narrow and count; polars 2.1 panics on some cached plans."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from tests.metrics.build import SAMPLES, sample
from tracekit.metrics import collectives, copies, gaps, queue, split, waits
from tracekit.metrics.base import Metric

CASES = [
    (module.METRIC, {option.name: choice})
    for module in (collectives, copies, gaps, queue, split, waits)
    for option in module.METRIC.options
    for choice in option.choices
]
USES: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "count": lambda frame: frame.select(pl.len()),
    "filter": lambda frame: frame.filter(pl.col("session") != "nobody"),
    "narrow": lambda frame: frame.select(pl.last()),
    "first": lambda frame: frame.head(1),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("metric", "options"), CASES, ids=lambda c: c.name if isinstance(c, Metric) else str(c))
def test_a_result_can_be_used_further(metric: Metric, options: dict[str, str], use: str) -> None:
    frame = metric.compute(sample(SAMPLES / "rms_naive"), options)
    assert USES[use](frame).collect().equals(USES[use](frame.collect().lazy()).collect())
