"""Metrics, one file each; ``METRICS`` is the only list of them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from tracekit.errors import TracekitError
from tracekit.metrics.base import Metric

_NAMES = (
    "steps",
    "devices",
    "split",
    "gaps",
    "ops",
    "work",
    "counts",
    "collectives",
    "copies",
    "waits",
    "queue",
    "advice",
)


class _Metrics(Mapping[str, Metric]):
    """Metric by name; a metric's module is imported when it is asked for."""

    def __getitem__(self, name: str) -> Metric:
        if name not in _NAMES:
            raise KeyError(name)
        found: Metric = importlib.import_module(f"tracekit.metrics.{name}").METRIC
        return found

    def __contains__(self, name: object) -> bool:
        return name in _NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


METRICS: Mapping[str, Metric] = _Metrics()
"""Every metric, in the order of a report."""


def metric(name: str) -> Metric:
    """The metric of that name.

    Raises:
        TracekitError: if there is none; the hint lists what there is.
    """
    if name not in METRICS:
        raise TracekitError(f"no metric {name!r}", hint=f"metrics are {', '.join(METRICS)}")
    return METRICS[name]
