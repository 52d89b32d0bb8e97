from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sources.memory_sink import MemorySink
from tracekit.sources._neuron_rows import Batch, Emitter, attributes_json

KEYS = ("nc_idx", "lnc_idx", "device_core_idx", "exec_id", "nrta_seq_id", "thread_id", "size", "tensor_id", "model_id")
NUMBERS = st.integers(-3, 3) | st.sampled_from([2**31, 2**63, 2**64 - 1, 2**64, 2**70, -(2**63)])
VALUES = NUMBERS | NUMBERS.map(str) | st.none() | st.booleans() | st.text(max_size=3) | st.floats(allow_nan=False)
COLUMN_KEYS = {
    "core_index": (("nc_idx", "lnc_idx"), 2**31),
    "physical_core": (("device_core_idx",), 2**31),
    "execution_id": (("exec_id",), 2**63),
    "sequence_id": (("nrta_seq_id",), 2**64),
    "thread_id": (("thread_id",), 2**63),
    "moved_bytes": (("size",), 2**63),
}


def whole(value: object) -> int | None:
    """The number a value spells."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch("-?[0-9]{1,20}", value) else None


@settings(deadline=None)
@given(rows=st.lists(st.dictionaries(st.sampled_from(KEYS), VALUES), min_size=1, max_size=8))
def test_every_attribute_is_in_its_column_or_still_an_attribute(rows):
    batch = Batch()
    for attributes in rows:
        batch.add("nrt_tensor_write", 0, 1, dict(attributes))
    frame = batch.frame()
    for attributes, row in zip(rows, frame.iter_rows(named=True), strict=True):
        kept = json.loads(row["attrs_json"] or "{}")
        for column, (keys, limit) in COLUMN_KEYS.items():
            fitting = [n for key in keys if (n := whole(attributes.get(key))) is not None and 0 <= n < limit]
            assert row[column] == (fitting[0] if fitting else None)
            for key in keys:
                value = attributes.get(key)
                gone = value is None or whole(value) == row[column] is not None
                assert (key not in kept) == gone
                if not gone:
                    assert whole(kept[key]) == whole(value)
        assert row["model_id"] == (None if attributes.get("model_id") in (None, "") else str(attributes["model_id"]))
        assert ("tensor_id" in kept) == (attributes.get("tensor_id") is not None)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        pytest.param({}, None, id="empty"),
        pytest.param({"a": None}, None, id="only_absent"),
        pytest.param({"b": 1, "a": "x"}, '{"a":"x","b":1}', id="sorted"),
        pytest.param(
            {"tensor_id": "17", "model_name": "17"}, '{"model_name":"17","tensor_id":17}', id="numbers_as_text"
        ),
        pytest.param({"a": "007", "b": "1.5", "c": "-3"}, '{"a":"007","b":"1.5","c":-3}', id="only_canonical_numbers"),
        pytest.param({"a": 2**70}, f'{{"a":{2**70}}}', id="beyond_64_bits"),
        pytest.param({"a": "x\u2028y\nz"}, '{"a":"x\u2028y\\nz"}', id="line_separators"),
    ],
)
def test_attributes_as_json(attributes, expected):
    assert attributes_json([{"k": 1}, attributes, {"k": 2}]) == ['{"k":1}', expected, '{"k":2}']


def test_the_artifacts_process_counts_where_rows_name_none():
    sink = MemorySink("fetch_json", session="own")
    emitter = Emitter(sink, process_id=7)
    batch = Batch()
    batch.add("kbl_exec_pre", 0, 1, {})
    batch.add("kbl_exec_pre", 1, 2, {}, ("i-1", 8))
    emitter.give(batch)
    emitter.give(Batch())
    emitter.finish()
    assert sink.events_frame().select("session", "process_id", "event_id").rows() == [
        ("own", 7, 0),
        ("i-1_pid_8", 8, 1),
    ]
    assert sink.notes == []
