"""Is a trace whole? Told from its end, for every way to write it and every place to cut it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture import tracefile

EVENTS = st.lists(
    st.fixed_dictionaries(
        {"ph": st.sampled_from("XiMsf"), "cat": st.sampled_from(["cpu_op", "kernel"]), "name": st.text(max_size=6)},
        optional={"args": st.fixed_dictionaries({"Input Dims": st.lists(st.lists(st.integers(0, 9)), max_size=2)})},
    ),
    max_size=4,
)
STYLES = st.sampled_from([{"indent": 2}, {}, {"separators": (",", ":")}, {"ensure_ascii": False}])


@given(EVENTS, STYLES, st.booleans(), st.data())
def test_a_trace_is_whole_exactly_when_nothing_is_cut(
    events: list[dict[str, object]], style: dict[str, object], has_footer: bool, data: st.DataObject
) -> None:
    trace: dict[str, object] = {"schemaVersion": 1, "traceEvents": events}
    if has_footer:
        trace |= {"traceName": "x.json", "distributedInfo": {"rank": 0, "pg": [{"ranks": [0, 1]}]}}
    text = json.dumps(trace, **style).encode()  # type: ignore[arg-type]
    assert tracefile.is_closed(text, text)
    assert tracefile.is_closed(text + b"\n  \n", text)
    cut = data.draw(st.integers(0, len(text) - 1) | st.just(len(text) - 1))
    assert not tracefile.is_closed(text[:cut], text[:cut])


@given(EVENTS, STYLES)
def test_a_bare_array_is_whole_when_it_is_closed(events: list[dict[str, object]], style: dict[str, object]) -> None:
    text = json.dumps(events, **style).encode()  # type: ignore[arg-type]
    assert tracefile.is_closed(text, text)
    assert not tracefile.is_closed(text[:-1], text)


@pytest.mark.parametrize("is_gzip", [False, True])
@pytest.mark.parametrize("chunk", [7, 64, 4096])
def test_events_are_counted_across_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, is_gzip: bool
) -> None:
    monkeypatch.setattr(tracefile, "CHUNK_BYTES", chunk)
    events = [{"ph": "X", "cat": "kernel" if n % 3 else "cpu_op", "name": f"op{n}"} for n in range(100)]
    events.append({"ph": "X", "cat": "privateuse1_driver", "args": {"neff_cache_key": "mul--_[4]:BFloat16:abc1"}})
    data = json.dumps({"traceEvents": events, "traceName": "t"}).encode()
    path = tmp_path / ("trace.json.gz" if is_gzip else "trace.json")
    path.write_bytes(gzip.compress(data) if is_gzip else data)
    scan = tracefile.scan(path)
    assert scan.event_counts == {"kernel": 66, "cpu_op": 34, "privateuse1_driver": 1}
    assert (scan.is_complete, scan.device_event_count, scan.problem) == (True, 67, "")
    assert scan.neff_cache_keys == {"mul--_[4]:BFloat16:abc1"}
    assert tracefile.is_whole(path)
    if not is_gzip:
        path.write_bytes(data[:-30])
        assert not tracefile.is_whole(path)


def test_a_cut_gzip_file_is_a_problem_not_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": [{"ph": "X"}] * 999}).encode())[:-20])
    scan = tracefile.scan(path)
    assert scan.problem and not scan.is_complete


@given(st.binary(max_size=200))
def test_any_bytes_are_looked_at_without_a_traceback(data: bytes) -> None:
    assert tracefile.is_closed(data, data) in (True, False)
