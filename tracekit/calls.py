"""Host calls as a tree, with the device work each of them launched: what statistics of operators add up.

Two sets of rules give frames of the same columns, ``CALLS``, one row per call:

``own``: operators, ranges and runtime calls nest by time on their own thread, Python frames between them
are no one's children; device work belongs to the operator of its chain.

``torch``: what ``torch.profiler``'s ``key_averages()`` does, exactly, from the events of trace.json alone:
every quirk of torch 2.13 included. The rules, their sources and a proof stand in ``tests/parity``.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from tracekit import nesting
from tracekit.tables import Frame

_NAME, _CATEGORY = pl.col("name"), pl.col("category")
_LANE, _KIND = pl.col("lane"), pl.col("kind")
_LENGTH = pl.col("end_ns") - pl.col("start_ns")
_TRACK = ("session", "process_id", "thread_id")

_TEXT = pl.Categorical()
"""Few values in millions of rows: numbers to sort, group and carry along, not strings."""

CALLS: dict[str, pl.DataType] = {
    "session": _TEXT,
    "start_ns": pl.Int64(),
    "name": _TEXT,
    "overload": _TEXT,
    "kind": _TEXT,
    "inside": _TEXT,
    "shapes": _TEXT,
    "self_cpu_ns": pl.Int64(),
    "total_cpu_ns": pl.Int64(),
    "self_device_ns": pl.Int64(),
    "total_device_ns": pl.Int64(),
    "execution_count": pl.Int64(),
}
"""Columns of a frame of calls. ``overload`` is null unless the capture recorded overload names."""

_READ = ("session", "event_id", "process_id", "thread_id", "start_ns", "end_ns", "name", "kind")
"""What a tree is built from; the rest of a row, its attributes above all, never comes into memory."""

_OVERLOADED = r"^(\w+(?:::\w+)+)\.(\w+)$"

_HOST_KINDS = ("op", "annotation", "python", "call", "sync", "memory", "model", "copy_in", "copy_out", "copy")

# Names that torch leaves out (torch/autograd/profiler_util.py, _filter_name).
_FILTERED = (
    "[memory]",
    "[OutOfMemory]",
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
)
_OWNERS = ("op", "annotation")
_FRAMEWORK = ("cpu_op", "user_annotation", "python_function")
_NEVER_ATTRIBUTED = ("mtia_ccp_events", "hpu_op")
_COLLECTIVE_RANGE = r"^(nccl|gloo|mpi|ucc|xccl):\w+$"
_INPUT_DIMS = r'"Input Dims"\s*:\s*(\[[\[\]\d,\s-]*\])'
_TENSOR_LIST = r"\[(?:\[[\d,-]*\],?)+\]"
_UNFINISHED = r'"finished"\s*:\s*false'


def own(
    events: pl.LazyFrame, chains: pl.LazyFrame, *, inside: pl.Expr | None = None, with_shapes: bool = False
) -> pl.LazyFrame:
    """The calls of every host thread, and work that no call is known to have launched.

    Args:
        events: ``tables.EVENTS``.
        chains: ``tables.CHAINS``.
        inside: which events a call is said to be ``inside`` of, the nearest one; None: null for all.
        with_shapes: read input shapes; they are null otherwise.

    Returns:
        ``CALLS``. ``kind`` is that of the event; for work without an operator that of its chain, with
        its device time as self and total, and no host time.
    """
    is_host = (_LANE == "dispatch") | ((_LANE == "runtime") & (pl.col("source") == "kineto"))
    hosts = events.filter(pl.col("is_primary") & is_host & _KIND.is_in(_HOST_KINDS))
    ran = chains.filter(pl.col("hardware_start_ns").is_not_null())
    launched = ran.group_by("session", event_id="dispatch_id").agg(
        kernel_ns=pl.col("device_ns").sum(), execution_count=pl.len().cast(pl.Int64)
    )
    owners = hosts.filter(_KIND.is_in(_OWNERS)).join(launched, on=["session", "event_id"], how="semi")
    read = hosts if inside is not None else hosts.filter(_KIND != "python")
    read = read.select(*_READ, *([input_shapes().alias("shapes")] if with_shapes else []))
    both = pl.concat([_encoded(read), _encoded(launched)], how="diagonal")
    tree = _walked(both, lambda frame: _own_tree(frame, inside))
    owners = owners.select("session", dispatch_id="event_id")
    orphans = ran.join(owners, on=["session", "dispatch_id"], how="anti").select(
        "session",
        "kind",
        start_ns="hardware_start_ns",
        end_ns="hardware_end_ns",
        name=pl.coalesce("execution_name", "name"),
        self_device_ns="device_ns",
        total_device_ns="device_ns",
        execution_count=pl.lit(1, dtype=pl.Int64),
    )
    return pl.concat([tree, _conformed(orphans)])


def torch(events: pl.LazyFrame, *, inside: pl.Expr | None = None, with_shapes: bool = False) -> pl.LazyFrame:
    """The events that ``key_averages()`` adds up, with what it adds.

    Args:
        events: ``tables.EVENTS``; only rows of trace.json (source ``kineto``) take part, primary or not.
        inside: as in ``own``.
        with_shapes: as in ``own``; without recorded shapes as with no inputs, which torch does not tell apart.

    Returns:
        ``CALLS``. ``kind`` is ``host``, ``annotation``, ``device`` or ``device_annotation``. Names that the
        C++ ABI mangled stay as they stand in the file.
    """
    recorded = events.filter(pl.col("source") == "kineto").with_columns(
        shapes=input_shapes().fill_null("[]") if with_shapes else pl.lit(None, dtype=pl.String),
        is_unfinished=pl.col("attrs_json").str.contains(_UNFINISHED).fill_null(value=False),
    )
    recorded = recorded.select(
        *_READ, "category", "shapes", "lane", "phase", "external_id", "correlation_id", "is_unfinished"
    )
    complete = recorded.filter(pl.col("phase") == "complete")
    on_device = _named(complete.filter((_LANE == "hardware") & ~_NAME.is_in(_FILTERED)))
    hosts = _placed(complete.filter((_LANE != "hardware") & ~_KIND.is_in(["window", "other"])))
    kept = _named(hosts).filter(~_NAME.is_in(_FILTERED)).cache()
    kernels = _exact(on_device).filter(~_CATEGORY.is_in(_NEVER_ATTRIBUTED))
    launched = kernels.group_by("session", own_id="external_id").agg(
        kernel_ns=_LENGTH.sum(), execution_count=pl.len().cast(pl.Int64)
    )
    fronts = pl.col("is_front") & (pl.col("own_id") > 0)
    given = kept.filter(fronts).select("session", "event_id", "own_id").join(launched, on=["session", "own_id"])
    kept = kept.join(given.drop("own_id"), on=["session", "event_id"], how="left").cache()
    instants = _uncovered(recorded, kept)
    tracked = pl.concat([kept.filter(~pl.col("is_async")), instants], how="diagonal")
    frames = [
        _walked(tracked, lambda frame: _torch_tree(frame, inside)),
        _conformed(kept.filter("is_async").with_columns(kind=_host_kind(), total_cpu_ns=_LENGTH)),
        _conformed(
            _exact(on_device).with_columns(
                kind=pl.when(_KIND == "annotation").then(pl.lit("device_annotation")).otherwise(pl.lit("device")),
                self_device_ns=_LENGTH,
                total_device_ns=_LENGTH,
            )
        ),
    ]
    return pl.concat(frames)


def _walked(rows: pl.LazyFrame, walk: Callable[[pl.DataFrame], pl.DataFrame]) -> pl.LazyFrame:
    """Build a tree of all rows, once they are all there; nothing may be cut away before."""
    return rows.map_batches(
        lambda frame: _conformed(walk(frame)),
        predicate_pushdown=False,
        projection_pushdown=False,
        slice_pushdown=False,
        schema=CALLS,
    )


def _own_tree(both: pl.DataFrame, inside: pl.Expr | None) -> pl.DataFrame:
    """Python frames are ``inside`` of what the calls are, but no one's children.

    Args:
        both: host events, then what each event launched: these rows have no time.
        inside: as in ``own``.
    """
    work = ("kernel_ns", "execution_count")
    launch_count = both["start_ns"].null_count()
    hosts, launched = both.head(both.height - launch_count), both.tail(launch_count)
    if launch_count:
        key = ["session", "event_id"]
        hosts = hosts.drop(work).join(launched.select(*key, *work), on=key, how="left", maintain_order="left")
        hosts = hosts.with_columns(pl.when(_KIND.is_in(_OWNERS)).then(pl.col(work)))
    named = _named(hosts)
    if inside is not None:
        named = _inside(nesting.nested(named, _TRACK), inside).filter(_KIND != "python")
    return _measured(nesting.nested(named, _TRACK))


def _torch_tree(tracked: pl.DataFrame, inside: pl.Expr | None) -> pl.DataFrame:
    tree = _without_duplicates(_inside(nesting.nested(tracked, _TRACK), inside))
    return tree.with_columns(kind=_host_kind())


def _host_kind() -> pl.Expr:
    is_annotation = _CATEGORY == "user_annotation"
    return pl.when(is_annotation).then(pl.lit("annotation")).otherwise(pl.lit("host"))


def _conformed(calls: Frame) -> Frame:
    """The columns of ``CALLS``; times and counts that a row does not have are 0."""
    have = calls.collect_schema()
    numbers = [name for name, dtype in CALLS.items() if dtype == pl.Int64]
    columns = [
        (pl.col(name) if name in have else pl.lit(None)).cast(dtype).alias(name) for name, dtype in CALLS.items()
    ]
    return calls.select(columns).with_columns(pl.col(numbers).fill_null(0))


def _encoded(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.with_columns(pl.col(pl.String).cast(_TEXT))


def input_shapes() -> pl.Expr:
    """``Input Dims`` as torch groups by them, where a list of tensors is one ``[]``; null where not recorded."""
    dims = pl.col("attrs_json").str.extract(_INPUT_DIMS).str.replace_all(r"\s", "")
    flat = dims.str.slice(1, dims.str.len_chars() - 2).str.replace_all(_TENSOR_LIST, "[]")
    return pl.lit("[") + flat.str.replace_all(",", ", ", literal=True) + pl.lit("]")


def _named(events: Frame) -> Frame:
    """All steps under one name, and an operator's overload (``aten::add.Tensor``) in a column of its own."""
    parts = _NAME.str.extract_groups(_OVERLOADED).struct
    step = pl.when(_NAME.str.starts_with("ProfilerStep#")).then(pl.lit("ProfilerStep*"))
    of_op = pl.coalesce(step, parts.field("1"), "name")
    is_op = _KIND == "op"
    return events.with_columns(
        name=pl.when(is_op).then(_each(of_op)).otherwise(_each(pl.coalesce(step, "name"))),
        overload=pl.when(is_op).then(_each(parts.field("2"))),
    )


def _each(rewritten: pl.Expr) -> pl.Expr:
    """``rewritten`` of each row's name, evaluated once for every name there is: they are few."""

    def rewrite(names: pl.Series) -> pl.Series:
        known = names.unique()
        new = known.cast(pl.String).to_frame("name").select(rewritten).to_series().cast(names.dtype)
        if new.null_count() == len(new):
            return names.clear(len(names))
        return names if new.equals(known) else names.replace_strict(known, new, return_dtype=names.dtype)

    return _NAME.map_batches(rewrite, return_dtype=pl.self_dtype())


def _inside(tree: pl.DataFrame, chosen: pl.Expr | None) -> pl.DataFrame:
    if chosen is None:
        return tree
    return nesting.taken(nesting.nearest(tree, chosen, "_around"), "name", "_around", "inside")


def _measured(tree: pl.DataFrame) -> pl.DataFrame:
    """Self and total times of a tree of ``nested`` with ``kernel_ns``."""
    measured = nesting.below(tree, _LENGTH, "_below").with_columns(
        total_cpu_ns=_LENGTH,
        self_cpu_ns=_LENGTH - pl.col("_below"),
        self_device_ns=pl.col("kernel_ns").fill_null(0),
    )
    return nesting.totals(measured, pl.col("kernel_ns"), "total_device_ns")


def _exact(on_device: pl.LazyFrame) -> pl.LazyFrame:
    """Take back the nanosecond by which Kineto widens projected annotations on each side."""
    widened = (_CATEGORY == "gpu_user_annotation") & (_LENGTH >= 2)
    shift = pl.when(widened).then(1).otherwise(0)
    return on_device.with_columns(start_ns=pl.col("start_ns") + shift, end_ns=pl.col("end_ns") - shift)


def _placed(hosts: pl.LazyFrame) -> pl.LazyFrame:
    """Ids, and threads as torch assigns them: a linked call is on the thread of what launched it."""
    is_framework = _CATEGORY.is_in(_FRAMEWORK)
    external = pl.col("external_id").fill_null(0)
    collective = (_CATEGORY == "user_annotation") & _NAME.str.contains(_COLLECTIVE_RANGE)
    linked = pl.when(is_framework).then(0).otherwise(external)
    known = hosts.with_columns(
        own_id=pl.when(is_framework).then(external).otherwise(pl.col("correlation_id").fill_null(0)),
        linked_id=linked,
        is_async=pl.col("is_unfinished") | collective,
        is_framework=is_framework,
    ).with_columns(is_front=(pl.col("linked_id") == 0) & ~pl.col("is_async"))
    known = known.cache()
    thread = pl.struct("process_id", "thread_id")
    known = (
        known.join(_stopper(known), on="session", how="left")
        .with_columns(_thread=pl.when("is_framework").then(thread).otherwise("_stopper"))
        .cache()
    )
    launchers = known.filter((pl.col("own_id") > 0) & (pl.col("is_framework") | pl.col("is_front")))
    by_id = (
        launchers.sort("start_ns", "event_id")
        .group_by("session", linked_id="own_id")
        .agg(
            _front=pl.col("_thread").filter(pl.col("is_front") & ~_NAME.is_in(_FILTERED)).last(),
            _parent=pl.col("_thread").filter("is_framework").last(),
        )
    )
    resolved = pl.when(pl.col("linked_id") > 0).then(pl.coalesce("_front", "_parent", "_thread")).otherwise("_thread")
    return (
        known.join(by_id, on=["session", "linked_id"], how="left")
        .with_columns(_thread=resolved)
        .with_columns(
            process_id=pl.col("_thread").struct.field("process_id"),
            thread_id=pl.col("_thread").struct.field("thread_id"),
        )
        .drop("_thread", "_stopper", "_front", "_parent")
    )


def _stopper(hosts: pl.LazyFrame) -> pl.LazyFrame:
    """The thread that stopped the profiler, as far as a trace shows: of the steps, else main, else the first."""
    thread = pl.struct("process_id", "thread_id")
    steps = _NAME.str.starts_with("ProfilerStep#")
    is_main = pl.col("process_id") == pl.col("thread_id")
    framework = hosts.filter("is_framework").sort("start_ns", "event_id")
    first = [thread.filter(choice).first() for choice in (steps, is_main)]
    return framework.group_by("session").agg(_stopper=pl.coalesce(*first, thread.first()))


def _uncovered(recorded: pl.LazyFrame, hosts: pl.LazyFrame) -> pl.LazyFrame:
    """Allocations outside of all host events, and all that failed, as host events without length."""
    instants = recorded.filter(_NAME.is_in(["[memory]", "[OutOfMemory]"]) & (pl.col("phase") == "instant"))
    opened = hosts.select("session", at_ns="start_ns", order=pl.lit(0), change=pl.lit(1))
    closed = hosts.select("session", at_ns="end_ns", order=pl.lit(2), change=pl.lit(-1))
    asked = instants.select("session", "event_id", at_ns="start_ns", order=pl.lit(1), change=pl.lit(0))
    open_count = pl.col("change").cum_sum().over("session")
    alone = (
        pl.concat([opened, closed, asked], how="diagonal")
        .sort("session", "at_ns", "order")
        .with_columns(open_count=open_count)
        .filter(pl.col("event_id").is_not_null() & (pl.col("open_count") == 0))
        .select("session", "event_id", is_alone=pl.lit(value=True))
    )
    found = instants.join(alone, on=["session", "event_id"], how="left")
    return found.filter((_NAME == "[OutOfMemory]") | pl.col("is_alone")).drop("is_alone")


def _without_duplicates(tree: pl.DataFrame) -> pl.DataFrame:
    """Remove only children of their parent's name, as torch does before it sums.

    What remains of a chain of such events is the outermost, with its own times, the children of the innermost
    and the kernels of the innermost *in place of* all others.
    """
    parent = pl.col("parent_position")
    siblings = tree.group_by("parent_position").agg(sibling_count=pl.len())
    named = nesting.taken(tree, "name", "parent_position", "parent_name")
    same_name = (pl.col("parent_name") == _NAME).fill_null(value=False)
    marked = named.join(siblings, on="parent_position", how="left", maintain_order="left").with_columns(
        is_dup=parent.is_not_null() & (pl.col("sibling_count") == 1).fill_null(value=False) & same_name
    )
    marked = nesting.nearest(marked, ~pl.col("is_dup"), "_above").with_columns(
        stands_for=pl.when("is_dup").then("_above").otherwise("position")
    )
    marked = nesting.taken(marked, "stands_for", "parent_position", "_parent")
    replaced = marked.filter("is_dup").select(position="parent_position", is_replaced=pl.lit(value=True))
    marked = marked.join(replaced, on="position", how="left", maintain_order="left")
    lifted = (
        marked.filter(pl.col("is_replaced").is_null())
        .group_by(position="stands_for")
        .agg(pl.col("kernel_ns").sum(), pl.col("execution_count").sum())
    )
    marked = (
        marked.drop("kernel_ns", "execution_count")
        .join(lifted, on="position", how="left", maintain_order="left")
        .with_columns(parent_position=pl.when(~pl.col("is_dup")).then("_parent"))
    )
    return _measured(marked).filter(~pl.col("is_dup"))
