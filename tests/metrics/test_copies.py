"""Copies: each transfer once, and scalars that are copied again and again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.metrics.build import SAMPLES, Row, event, inputs, sample, session_of, truth, window
from tracekit.metrics.base import Inputs
from tracekit.metrics.copies import COPIES, METRIC, transfers


def found(given_inputs: Inputs, **options: str) -> list[dict[str, Any]]:
    return METRIC.compute(given_inputs, options).collect().to_dicts()


def runtime(name: str, start: int, end: int, moved: int | None = None, thread: int = 1, kind: str = "copy_in") -> Row:
    return event(kind, start, end, lane="runtime", name=name, moved_bytes=moved, thread_id=thread)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([runtime("nrt_tensor_write", 0, 10, 64), runtime("dmem_buf_copyin", 2, 9, 64)], [(0, 64)],
                     id="call and buffer"),
        pytest.param([runtime("nrt_tensor_write", 0, 10, 64), runtime("dmem_buf_copyin", 2, 9, 64, thread=2)],
                     [(0, 64)], id="buffer on another thread"),
        pytest.param([runtime("nrt_tensor_write", 0, 10, 64), runtime("dmem_buf_copyin", 2, 9, 32, thread=2)],
                     [(0, 64), (2, 32)], id="another thread, other bytes"),
        pytest.param([runtime("nrt_tensor_write", 0, 10, 64), runtime("nrt_tensor_write", 2, 9, 64, thread=2)],
                     [(0, 64), (2, 64)], id="two calls at once"),
        pytest.param([runtime("nrt_tensor_write_batch", 0, 20), runtime("dmem_buf_copyin", 1, 9, 64),
                      runtime("dmem_buf_copyin", 9, 19, 32)], [(0, 96)], id="bytes of a batch"),
        pytest.param([runtime("nrt_tensor_write_batch", 0, 20), runtime("nrt_tensor_write", 1, 19, 64),
                      runtime("dmem_buf_copyin", 2, 18, 64)], [(0, 64)], id="three levels"),
        pytest.param([runtime("nrt_tensor_write", 0, 10)], [(0, None)], id="bytes not known"),
        pytest.param([runtime("dmem_buf_copyin", 0, 10, 8), runtime("dmem_buf_copyin", 10, 20, 8)],
                     [(0, 8), (10, 8)], id="one after the other"),
        pytest.param([runtime("nrt_tensor_write", 0, 10, 8), runtime("dmem_buf_copyout", 2, 8, 8, kind="copy_out")],
                     [(0, 8), (2, 8)], id="other direction"),
        pytest.param([event("copy_in", 0, 10, moved_bytes=4), event("copy_in", 2, 8, moved_bytes=4)],
                     [(0, 4), (2, 4)], id="streams of a GPU"),
    ],
)  # fmt: skip
def test_each_transfer_once(events: list[Row], expected: list[tuple[int, int | None]]) -> None:
    rows = transfers(inputs(list(reversed(events))).events).collect().sort("start_ns")
    assert rows.select("start_ns", "moved_bytes").rows() == expected


def test_training_sample_equals_its_truth() -> None:
    rows = found(sample(SAMPLES / "train_small"), per="step", by="size")
    names = {"host_to_device": "copy_in", "device_to_host": "copy_out"}
    for process in truth(SAMPLES / "train_small"):
        mine = [r for r in rows if r["session"] == session_of(process["process_id"])]
        expected: dict[tuple[int, str, str], tuple[int, int, int]] = {}
        for copy in process["copies"]:
            (step,) = (
                int(s["name"].rpartition("#")[2])
                for s in process["steps"]
                if s["start_ns"] <= copy["start_ns"] < s["end_ns"]
            )
            key = (step, names[copy["direction"]], f"{copy['bytes']} B")
            count, moved, ns = expected.get(key, (0, 0, 0))
            expected[key] = (count + 1, moved + copy["bytes"], ns + copy["end_ns"] - copy["start_ns"])
        assert {
            (r["step"], r["direction"], r["group"]): (r["copy_count"], r["moved_bytes"], r["copy_ns"]) for r in mine
        } == expected


def test_scalar_copied_in_each_step_is_told() -> None:
    rows = [r for r in found(sample(SAMPLES / "train_small"), by="size") if r["direction"] == "copy_in"]
    assert {(r["group"], r["copy_count"], r["is_repeated_scalar"]) for r in rows} == {
        ("4 B", 3, True),
        ("524288 B", 3, False),
    }
    between = [event("copy", at, at + 5, moved_bytes=4) for at in (2, 12)]
    assert [r["is_repeated_scalar"] for r in found(inputs(between, scope=[window(0, 10), window(10, 20)]))] == [False]
    once = [event("copy_in", 5, 9, moved_bytes=4)]
    steps = [window(0, 10, 1), window(10, 20, 2)]
    assert [r["is_repeated_scalar"] for r in found(inputs(once, scope=steps))] == [False]
    assert [r["is_repeated_scalar"] for r in found(inputs(once, scope=steps[:1]))] == [False]


def test_bandwidth_uses_the_transfers_that_say_how_much() -> None:
    events = [event("copy_in", 0, 100, moved_bytes=50), event("copy_in", 100, 1100), event("copy_out", 0, 10)]
    rows = {r["direction"]: r for r in found(inputs(events))}
    assert rows["copy_in"]["bytes_per_second"] == pytest.approx(0.5e9)
    assert (rows["copy_in"]["moved_bytes"], rows["copy_in"]["copy_ns"]) == (50, 1100)
    assert (rows["copy_out"]["moved_bytes"], rows["copy_out"]["bytes_per_second"]) == (None, None)


def test_by_op_names_the_operator_that_copies() -> None:
    rows = found(sample(SAMPLES / "train_small"), by="op")
    assert {(r["direction"], r["group"]) for r in rows} == {
        ("copy_in", "aten::copy_"),
        ("copy_out", "aten::_local_scalar_dense"),
    }


def test_result_has_the_tables_columns_and_types() -> None:
    for by in ("direction", "size", "op", "name"):
        for folder in ("rms_naive", "train_small"):
            assert dict(METRIC.compute(sample(SAMPLES / folder), {"by": by}).collect().schema) == COPIES.schema
