from __future__ import annotations

import pytest

from tests.metrics.build import Row, event, inputs, window
from tracekit.metrics.devices import devices


def measured(rows: list[Row], scope: list[Row] | None = None, **options: bool) -> list[tuple[object, ...]]:
    given = inputs(rows, scope=scope)
    found = devices(given.events, given.scope, **options).collect()
    return found.select("step", "core_index", "window_ns", "busy_ns", "idle_ns", "summed_ns").rows()


def test_overlap_counts_once_and_the_window_is_the_work() -> None:
    rows = [event("execution", 10, 20), event("collective", 15, 30), event("copy_in", 40, 50)]
    rows += [event("op", 0, 100, lane="dispatch"), event("sync", 60, 90)]
    assert measured(rows) == [(None, 0, 40, 30, 10, 35)]


def test_work_is_cut_at_steps_and_an_idle_step_counts() -> None:
    rows = [event("execution", 5, 15)]
    scope = [window(0, 10, 0), window(10, 20, 1), window(20, 30, 2)]
    assert measured(rows, scope) == [(None, 0, 30, 10, 20, 10)]
    assert measured(rows, scope, per_step=True) == [(0, 0, 10, 5, 5, 5), (1, 0, 10, 5, 5, 5), (2, 0, 10, 0, 10, 0)]


@pytest.mark.parametrize("kind", ["annotation", "sync", "model", "other"])
def test_what_is_neither_busy_nor_idle(kind: str) -> None:
    assert measured([event("execution", 0, 10), event(kind, 20, 30)]) == [(None, 0, 10, 10, 0, 10)]


def test_events_of_a_source_that_is_not_used_do_not_count() -> None:
    rows = [event("execution", 0, 10), event("execution", 20, 30, is_primary=False)]
    assert measured(rows) == [(None, 0, 10, 10, 0, 10)]
