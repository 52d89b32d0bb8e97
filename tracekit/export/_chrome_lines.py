"""Rows of the tables as lines of Chrome trace JSON ("Trace Event Format" of Chromium), as polars expressions."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

SEPARATOR = ",\n"
_ALLOCATOR = ("[memory]/Total Allocated", "[memory]/Total Reserved")
"""Counters that the Chrome reader makes from ``[memory]`` instants."""

_ARGS: Mapping[str, str] = {
    "device": "core_index",
    "physical_core": "physical_core",
    "stream": "stream_id",
    "External id": "external_id",
    "correlation": "correlation_id",
    "nrt_sequence_id": "sequence_id",
    "exec_id": "execution_id",
    "bytes": "moved_bytes",
}
"""Key in ``args`` → column, for rows of other sources; ``sources._chrome_exported`` reads them back."""

_FACTS = {
    "process_name": "name",
    "process_labels": "labels",
    "process_sort_index": "sort_index",
    "thread_name": "name",
    "thread_sort_index": "sort_index",
}
"""Metadata event → the key of its value."""


def events(frame: pl.LazyFrame, labels: pl.LazyFrame, base_ns: int) -> pl.LazyFrame:
    """``line``: one complete or instant event, or both halves of an event that was spelled in two.

    Args:
        frame: ``tables.EVENTS`` of one session.
        labels: rows of ``labelled``.
        base_ns: time zero of the trace.
    """
    identity = pl.format(',"id":"{}"', "event_id")
    is_other = pl.col("phase").fill_null("complete")
    begins = [_text("name", "name"), _optional("cat", _quoted("category")), *_owner(), _time("start_ns", base_ns)]
    ends = [_text("name", "name"), _optional("cat", _quoted("category")), *_owner(), _time("end_ns", base_ns)]
    args = _optional("args", pl.col("attrs_json"))
    length = pl.lit(',"dur":') + _microseconds(pl.col("end_ns") - pl.col("start_ns"))
    line = (
        pl.when(is_other == "instant").then(_line("i", *begins, pl.lit(',"s":"t"'), args))
        .when(is_other == "begin_end")
        .then(pl.concat_str(_line("B", *begins, args), pl.lit(SEPARATOR), _line("E", *ends)))
        .when(is_other == "async")
        .then(pl.concat_str(_line("b", *begins, identity, args), pl.lit(SEPARATOR), _line("e", *ends, identity)))
        .otherwise(_line("X", *begins, length, args))
    )  # fmt: skip
    return _with_labels(frame.with_columns(category=_category(), attrs_json=_attributes()), labels).select(line=line)


def _category() -> pl.Expr:
    """The category as it stood in a Chrome trace, as JSON; of other sources with source, lane and kind before it."""
    told = pl.concat_str("source", "lane", "kind", "category", separator=":", ignore_nulls=True)
    return pl.when(pl.col("source") == "kineto").then(pl.col("category")).otherwise(told)


def _attributes() -> pl.Expr:
    """All ``args`` as they stood in a Chrome trace; of other sources what has a column, and the attributes."""
    own = [_optional(key, pl.col(column).cast(pl.String)) for key, column in _ARGS.items()]
    parts = [*own, _optional("model_id", _quoted("model_id")), _optional("attrs", pl.col("attrs_json"))]
    inner = pl.concat_str(parts).str.strip_prefix(",")
    whole = pl.when(inner != "").then(pl.concat_str(pl.lit("{"), inner, pl.lit("}")))
    return pl.when(pl.col("source") == "kineto").then(pl.col("attrs_json")).otherwise(whole)


def flows(frame: pl.LazyFrame, labels: pl.LazyFrame, base_ns: int) -> pl.LazyFrame:
    """``line``: one flow event; ``bp`` is ``e`` where the arrow ends at the enclosing event, ``n`` where not.

    Args:
        frame: ``tables.FLOWS`` of one session.
        labels: rows of ``labelled``.
        base_ns: time zero of the trace.
    """
    letter = pl.col("phase").replace_strict(["start", "step", "end"], ["s", "t", "f"], return_dtype=pl.String)
    binds = pl.when("binds_enclosing").then(pl.lit('"e"')).when(~pl.col("binds_enclosing")).then(pl.lit('"n"'))
    parts = [
        _optional("name", _quoted("name")),
        _optional("cat", _quoted("category")),
        _text("id", "flow_id"),
        *_owner(),
        _time("at_ns", base_ns),
        _optional("bp", binds),
    ]
    return _with_labels(frame, labels).select(line=_line(letter, *parts))


def samples(frame: pl.LazyFrame, labels: pl.LazyFrame, base_ns: int, *, has_allocator: bool) -> pl.LazyFrame:
    """``line``: one counter event per sample, or per counter event that had more than numbers.

    Args:
        frame: ``tables.SAMPLES`` of one session.
        labels: rows of ``labelled``.
        base_ns: time zero of the trace.
        has_allocator: whether the session has the instants that allocator counters come from.
    """
    if has_allocator:
        frame = frame.filter(~pl.col("counter").is_in(_ALLOCATOR))
    owner = labels.filter(pl.col("process_label").is_not_null()).unique("process_id", keep="first", maintain_order=True)
    value = pl.when(pl.col("value").is_finite()).then(pl.col("value").cast(pl.String)).otherwise(
        pl.format('"{}"', pl.col("value").cast(pl.String))
    )  # fmt: skip
    series = pl.concat_str(pl.lit("{"), _quoted("series"), pl.lit(":"), value, pl.lit("}"))
    counter, core, unit = pl.col("counter"), pl.col("core_index").cast(pl.String), pl.col("unit")
    # What no Chrome trace gave is told by the category; the id keeps the cores apart in a viewer.
    is_other = core.is_not_null() | unit.is_not_null() | ~counter.str.contains("/", literal=True)
    named = frame.with_columns(
        name=pl.when(is_other).then(counter).otherwise(counter.str.extract(r"(?s)^(.*)/", 1)),
        series=pl.when(is_other).then(pl.lit("value")).otherwise(counter.str.extract(r"/([^/]*)$", 1)),
        category=pl.when(is_other).then(pl.format("sample:{}:{}", core.fill_null(""), unit.fill_null(""))),
        identity=pl.when(is_other).then(pl.format("core {}", core)),
        attrs_json=pl.when(~is_other).then(pl.col("attrs_json")),
    )
    once = pl.struct("name", "process_id", "at_ns", "attrs_json").is_first_distinct() | pl.col("attrs_json").is_null()
    told = [_optional("cat", _quoted("category")), _optional("id", _quoted("identity"))]
    args = pl.lit(',"args":') + pl.coalesce("attrs_json", series)
    line = _line("C", _text("name", "name"), *told, *_owner(), _time("at_ns", base_ns), args)
    return named.filter(once).join(owner, on="process_id", how="left").select(line=line)


def labelled(threads: pl.LazyFrame) -> pl.LazyFrame:
    """Processes and threads whose id is text: process_id, thread_id, process_label, thread_label."""
    columns = ("process_id", "thread_id", "process_label", "thread_label")
    return threads.select(columns).filter(pl.any_horizontal(pl.col("process_label", "thread_label").is_not_null()))


def threads(frame: pl.LazyFrame) -> pl.LazyFrame:
    """``line``: one metadata event per fact of a process or thread.

    A process whose id is text is named once beside each thread it was seen with, so that the reader finds the same.

    Args:
        frame: ``tables.THREADS`` of one session.
    """
    labels = labelled(frame)
    lines = []
    for fact, key in _FACTS.items():
        rows = frame.filter(pl.col(fact).is_not_null()).with_columns(value=_quoted(fact))
        if fact.startswith("process_"):
            of_process = labels.filter(pl.col("process_label").is_not_null())
            rows = rows.select("process_id", "value").join(of_process, on="process_id", how="left")
        args = pl.concat_str(pl.lit(f',"args":{{"{key}":'), "value", pl.lit("}"))
        lines.append(rows.select(line=_line("M", pl.lit(f',"name":"{fact}"'), *_owner(), pl.lit(',"ts":0.000'), args)))
    return pl.concat(lines)


def _with_labels(frame: pl.LazyFrame, labels: pl.LazyFrame) -> pl.LazyFrame:
    keys = ["process_id", "thread_id"]
    return frame.join(labels, on=keys, how="left", nulls_equal=True, maintain_order="left")


def _line(phase: str | pl.Expr, *fields: pl.Expr) -> pl.Expr:
    letter = pl.lit(phase) if isinstance(phase, str) else phase
    return pl.concat_str(pl.lit('{"ph":"'), letter, pl.lit('"'), *fields, pl.lit("}"))


def _owner() -> list[pl.Expr]:
    """``pid`` and ``tid``: text where the trace had text, left out where it had none."""
    return [
        _optional("pid", pl.coalesce(_quoted("process_label"), pl.col("process_id").cast(pl.String))),
        _optional("tid", pl.coalesce(_quoted("thread_label"), pl.col("thread_id").cast(pl.String))),
    ]


def _time(column: str, base_ns: int) -> pl.Expr:
    return pl.lit(',"ts":') + _microseconds(pl.col(column) - base_ns)


def _microseconds(ns: pl.Expr) -> pl.Expr:
    """Nanoseconds as microseconds with three decimals: exact."""
    digits = ns.abs().cast(pl.String).str.zfill(4)
    sign = pl.when(ns < 0).then(pl.lit("-")).otherwise(pl.lit(""))
    return pl.concat_str(sign, digits.str.head(-3), pl.lit("."), digits.str.tail(3))


def _text(key: str, column: str) -> pl.Expr:
    return pl.lit(f',"{key}":') + _quoted(column)


def _optional(key: str, value: pl.Expr) -> pl.Expr:
    """A member, or nothing where its value is null."""
    return pl.concat_str(pl.lit(f',"{key}":'), value).fill_null("")


def _quoted(column: str) -> pl.Expr:
    """A column as JSON; null stays null."""
    whole = pl.struct(pl.col(column).alias("k")).struct.json_encode()
    return pl.when(pl.col(column).is_not_null()).then(whole.str.strip_prefix('{"k":').str.strip_suffix("}"))
