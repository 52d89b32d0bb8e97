"""The first lines say what was measured, who waits, and nothing that is not so."""

from __future__ import annotations

import polars as pl
import pytest

from tests.metrics.build import Row, chain, event, inputs, window
from tracekit.report.answer import answer
from tracekit.report.model import Answer
from tracekit.report.results import Results
from tracekit.report.words import brief, captured, numbered
from tracekit.tables import TABLES


def step(number: int, start: int, end: int, **columns: object) -> Row:
    return event("annotation", start, end, lane="dispatch", name=f"ProfilerStep#{number}", **columns)


def told(
    events: list[Row], scope: list[Row], chains: list[Row] | None = None, sessions: list[Row] | None = None
) -> Answer:
    return answer(Results(inputs(events, chains, scope, sessions)))


def text(found: Answer) -> str:
    return " ".join([found.headline, *found.sentences])


OP = event("op", 0, 50, lane="dispatch")


def test_a_capture_that_marks_steps_is_not_told_to_mark_none() -> None:
    rows = [step(3, 10, 50), step(4, 50, 90), event("execution", 0, 20)]
    whole = text(told(rows, [window(0, 100)]))
    assert "the whole capture of one process, 2 steps (3 to 4) and what lies around" in whole
    assert "since it marks no steps" in text(told([OP], [window(0, 100)]))
    assert "Measured: step 4 of one process." in text(told(rows, [window(50, 90, 4)]))


def test_sessions_without_steps_are_measured_whole_beside_those_with_steps() -> None:
    rows = [step(3, 10, 50), {**OP, "session": "t"}]
    found = text(told(rows, [window(10, 50, 3), window(0, 50, session="t")]))
    assert "step 3 of 2 processes; of 1 without steps, everything" in found


def test_warmup_that_was_asked_for_is_not_called_left_out() -> None:
    rows = [step(0, 0, 50), step(1, 50, 90), event("model", 5, 6, lane="runtime", name="model_load")]
    assert "left out of the numbers" in text(told(rows, [window(50, 90, 1)]))
    for scope in (window(0, 90), window(0, 50, 0)):
        assert "part of the numbers, as asked for" in text(told(rows, [scope]))


def test_device_work_outside_of_the_steps_is_device_work() -> None:
    rows = [step(1, 1_000, 2_000), event("op", 1_000, 1_500, lane="dispatch"), event("execution", 0, 300)]
    found = told(rows, [window(1_000, 2_000, 1)])
    assert found.headline.startswith("No device work in the measured 1.000\u00a0µs: all 300\u00a0ns of it lie outside")
    assert "--all" in found.headline
    assert told([OP], [window(0, 100)]).headline.startswith("No device work in this capture")


@pytest.mark.parametrize("gap", [0, 10])
def test_without_gaps_worth_a_word_nobody_is_host_bound(gap: int) -> None:
    rows = [event("execution", 0, 100), event("execution", 100 + gap, 200)]
    found = told(rows, [window(0, 100_000, 1)])
    many = "hardly any" if gap else "none"
    assert found.headline.startswith("Idle device") and f"{many} of it between two executions" in found.headline


def blocking(submit_end: int) -> Answer:
    """A gap of 900 ns that ends in the launch call of the second execution, or after it."""
    rows = [event("execution", 0, 100), event("execution", 1_000, 1_100)]
    chains = [
        chain([1], submit_ns=0, submit_end_ns=1, dispatch_start_ns=0),
        chain([2], submit_ns=50, submit_end_ns=submit_end, dispatch_start_ns=40),
    ]
    return told(rows, [window(0, 1_100, 1)], chains)


def test_a_launch_call_that_blocks_is_named() -> None:
    held, returned = blocking(1_000), blocking(60)
    assert "held up inside a launch call" in held.headline
    assert "the launch call of the next execution had begun and did not return" in text(held)
    assert "late dispatch is not why" in returned.headline
    assert "the runtime had not started it" in text(returned)


def test_a_collective_has_the_name_that_its_table_gives() -> None:
    attrs = '{"Collective name": "allreduce"}'
    rows = [event("collective", 0, 60, attrs_json=attrs), event("execution", 60, 100)]
    chains = [
        chain([1], name="record_param_comms", kind="collective", hardware_start_ns=0, hardware_end_ns=60, device_ns=60),
        chain([2], name="aten::mm", hardware_start_ns=60, hardware_end_ns=100, device_ns=40),
    ]
    found = text(told(rows, [window(0, 100, 1)], chains))
    assert "Most device time goes to allreduce 60.0\u00a0% and aten::mm 40.0\u00a0%." in found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ncclKernel_AllReduce(ncclDevComm*, unsigned long, ncclWork*, more, arguments)", "ncclKernel_AllReduce(…)"),
        ("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl>(int)", "elementwise_kernel<…>"),
        ("short(int)", "short(int)"),
    ],
)
def test_names_in_sentences_are_brief(name: str, expected: str) -> None:
    assert brief(name).endswith(expected)


@pytest.mark.parametrize(
    ("sessions", "expected"),
    [
        pytest.param([("h", 1, None)], "one process", id="one"),
        pytest.param([("h", 1, None), ("h", 1, None)], "one process in 2 captures", id="cycles"),
        pytest.param([("h", 1, None), ("g", 1, None)], "2 processes", id="hosts"),
        pytest.param([("h", 1, 0), ("h", 1, 1)], "2 processes", id="ranks"),
        pytest.param([(None, 1, None), (None, 1, None)], "2 processes", id="host-not-known"),
        pytest.param([("h", None, None), ("h", None, None)], "2 processes", id="process-not-known"),
        pytest.param([("h", 1, 0), ("h", 1, 0), ("h", 2, 1), ("h", 2, 1)], "2 processes in 4 captures", id="both"),
    ],
)
def test_cycles_of_a_process_are_one_process(sessions: list[tuple[str | None, ...]], expected: str) -> None:
    rows = [
        {"session": str(n), "path": "", "instance_id": host, "process_id": pid, "rank": rank}
        for n, (host, pid, rank) in enumerate(sessions)
    ]
    frame: pl.DataFrame = TABLES["sessions"].rows(rows)
    assert captured(frame, len(rows)) == expected


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([3], "step 3"),
        ([3, 4, 5], "3 steps (3 to 5)"),
        ([2, 3, 7], "3 steps (2, 3 and 7)"),
        ([*range(5), *range(90, 95)], "10 steps between 0 and 94"),
    ],
)
def test_steps_that_are_not_there_are_not_counted_in(numbers: list[int], expected: str) -> None:
    assert numbered("step", numbers) == expected
