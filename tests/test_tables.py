from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.errors import SchemaError
from tracekit.tables import EVENTS, NOTES, SAMPLES, TABLES


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_every_column_is_documented_and_key_columns_exist(table) -> None:
    assert table.doc and set(table.key) <= set(table.names)
    for column in table.columns:
        assert column.doc.strip()
        if column.name.endswith("_ns"):
            assert (column.dtype, column.unit) == (pl.Int64(), "ns"), column.name
        if column.name.endswith("_bytes"):
            assert column.unit == "B", column.name


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_arrow_schema_says_what_the_table_says(table) -> None:
    schema = table.arrow_schema()
    assert schema.names == list(table.names)
    for column in table.columns:
        field = schema.field(column.name)
        assert field.nullable == column.nullable
        assert field.metadata[b"doc"].decode() == column.doc
        assert field.metadata.get(b"unit", b"").decode() == (column.unit or "")
    assert pl.DataFrame(schema.empty_table()).schema == pl.Schema(table.schema)


def test_conform_adds_what_may_be_absent_and_drops_what_is_unknown() -> None:
    frame = pl.DataFrame({"severity": ["info"], "code": ["x"], "message": ["m"], "odd": [1]})
    assert NOTES.conform(frame).columns == list(NOTES.names)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param({"at_ns": None}, "null in required column(s) at_ns", id="null"),
        pytest.param({"value": "much"}, "value is String, not Float64", id="type"),
    ],
)
def test_conform_names_the_column_at_fault(change: dict[str, object], problem: str) -> None:
    row = {"session": "s", "counter": "c", "at_ns": 1, "value": 1.0} | change
    with pytest.raises(SchemaError, match="table samples") as caught:
        SAMPLES.conform(pl.DataFrame([row]))
    assert problem in str(caught.value)


def test_conform_names_every_missing_column() -> None:
    with pytest.raises(SchemaError, match=r"missing column\(s\) event_id, session, lane"):
        EVENTS.conform(pl.DataFrame({"name": ["x"]}))


def test_text_with_fixed_values_is_checked() -> None:
    with pytest.raises(SchemaError, match="table notes"):
        NOTES.rows([{"severity": "loud", "code": "x", "message": "m"}])


def test_rows_with_an_unknown_column_are_refused() -> None:
    with pytest.raises(SchemaError, match="unknown column"):
        NOTES.rows([{"severity": "info", "code": "x", "message": "m", "extra": 1}])


@given(st.lists(st.tuples(st.sampled_from(["info", "warning", "error"]), st.text(max_size=5)), max_size=8))
def test_conform_keeps_rows_and_is_idempotent(rows: list[tuple[str, str]]) -> None:
    frame = NOTES.rows([{"severity": s, "code": "c", "message": m} for s, m in rows])
    assert frame.height == len(rows)
    assert NOTES.conform(frame).equals(frame)
    assert frame["message"].to_list() == [m for _, m in rows]
