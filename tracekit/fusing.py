"""Executions in a row that could be one: patterns that an operator of the library replaces, and elementwise runs."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracekit import activity, intervals

_CORE = ("session", "core_index")
_RUN_OF = (*_CORE, "_segment")
"""Executions that one operator could replace lie in one segment."""
RUN = 4
"""Elementwise executions in a row from which compiling them together is a finding."""
LAUNCH_GAP_NS = 100_000
"""What fusing saves of a gap at most: a launch. What lasts longer has a reason of its own."""


@dataclass(frozen=True)
class Pattern:
    """Executions in a row that one operator can replace: per position the operators it may be."""

    name: str
    replacement: str
    operators: tuple[frozenset[str], ...]


def _pattern(name: str, replacement: str, text: str) -> Pattern:
    return Pattern(name, replacement, tuple(frozenset(f"aten::{n}" for n in p.split("|")) for p in text.split()))


PATTERNS = (
    _pattern(
        "LayerNorm", "torch.nn.functional.layer_norm", "mean sub pow|mul|square mean add sqrt|rsqrt div|mul mul add"
    ),
    _pattern("RMSNorm", "torch.nn.functional.rms_norm", "mul|pow|square mean add rsqrt mul mul"),
    _pattern("RMSNorm without weight", "torch.nn.functional.rms_norm", "mul|pow|square mean add rsqrt mul"),
    _pattern("softmax", "torch.softmax", "amax|max sub exp sum div"),
    _pattern("GELU (tanh)", 'torch.nn.functional.gelu(approximate="tanh")', "pow mul add mul tanh add mul mul"),
    _pattern("SiLU", "torch.nn.functional.silu", "sigmoid mul"),
    _pattern(
        "attention",
        "torch.nn.functional.scaled_dot_product_attention",
        "bmm|matmul mul|div _softmax|softmax bmm|matmul",
    ),
)
"""Longer patterns first: an execution belongs to the first one that fits."""

_ELEMENTWISE_NAMES = (
    "abs", "add", "addcdiv", "addcmul", "clamp", "copy", "cos", "div", "eq", "exp", "ge", "gelu", "gt", "le", "lerp",
    "log", "lt", "maximum", "minimum", "mul", "ne", "neg", "pow", "reciprocal", "relu", "rsqrt", "rsub", "sigmoid",
    "sign", "silu", "sin", "sqrt", "square", "sub", "tanh", "threshold", "where",
)  # fmt: skip
_ELEMENTWISE = [f"aten::{name}{suffix}" for name in _ELEMENTWISE_NAMES for suffix in ("", "_")]


def executions(events: pl.LazyFrame, chains: pl.LazyFrame, scope: pl.LazyFrame) -> pl.LazyFrame:
    """Compute executions inside the windows, per core in order of time, with their place and their run.

    A run ends with its window, and at a gap in which a collective of the core runs or a copy: one operator cannot
    replace what stands on both sides of it. ``_excess_ns``: what a gap lasts beyond ``LAUNCH_GAP_NS``.

    Args:
        events: ``tables.EVENTS``.
        chains: ``tables.CHAINS``.
        scope: the windows.
    """
    ran = chains.filter((pl.col("kind") == "execution") & pl.col("hardware_start_ns").is_not_null())
    columns = ("session", "core_index", "chain_id", "name", "device_ns", "hardware_end_ns")
    rows = ran.select(*columns, start_ns="hardware_start_ns")
    windows = scope.select("session", "start_ns", "end_ns", _window_ns="start_ns")
    busy_until = pl.col("hardware_end_ns").cum_max().shift().over(_CORE)
    placed = (
        intervals.within(rows, windows, ["session"])
        .sort("start_ns", "chain_id")
        .with_columns(_at=pl.int_range(pl.len()).over(_CORE), _idle_from=pl.min_horizontal(busy_until, "start_ns"))
    )
    is_cut = (pl.col("_moved_ns") > 0) | (pl.col("_window_ns") != pl.col("_window_ns").shift()).over(_CORE)
    return (
        _with_moved(placed, events)
        .sort("start_ns", "chain_id")
        .with_columns(
            _segment=is_cut.fill_null(value=False).cum_sum().over(_CORE),
            _excess_ns=(pl.col("start_ns") - pl.col("_idle_from") - LAUNCH_GAP_NS).fill_null(0).clip(lower_bound=0),
        )
        .drop("_idle_from", "_moved_ns", "_window_ns")
    )


def _with_moved(rows: pl.LazyFrame, events: pl.LazyFrame) -> pl.LazyFrame:
    """Add ``_moved_ns``: how long a collective or a copy ran in the gap before each execution."""
    copies = activity.copies(events)
    on_device = pl.col("lane") == "hardware"
    of_core = pl.concat([activity.collectives(events), copies.filter(on_device)])
    gap = {"start": "_idle_from", "end": "start_ns"}
    known = intervals.covered(rows, of_core, list(_CORE), "_of_core_ns", **gap)
    known = intervals.covered(known, copies.filter(~on_device), ["session"], "_of_host_ns", **gap)
    moved = pl.max_horizontal("_of_core_ns", "_of_host_ns")
    return known.with_columns(_moved_ns=moved).drop("_of_core_ns", "_of_host_ns")


def occurrences(executions: pl.LazyFrame, pattern: Pattern) -> pl.LazyFrame:
    """Find a pattern; of two occurrences that overlap the first.

    Args:
        executions: those of ``executions``.
        pattern: one of ``PATTERNS``.

    Returns:
        ``session``, ``start_ns``, ``stake_ns`` (what one execution instead could save), ``chain_ids``.
    """
    size = len(pattern.operators)
    ends = [pl.col("hardware_end_ns").shift(-k).over(_RUN_OF) for k in range(size)]
    lengths = [pl.col("device_ns").shift(-k).over(_RUN_OF) for k in range(size)]
    excess = [pl.col("_excess_ns").shift(-k).over(_RUN_OF) for k in range(1, size)]
    measured = executions.with_columns(
        _end=pl.max_horizontal(ends), _longest=pl.max_horizontal(lengths), _excess=pl.sum_horizontal(excess)
    )
    overlaps = (pl.col("_at") - pl.col("_at").shift() < size).over(_CORE).fill_null(value=False)
    started = _fitting(measured, pattern).filter(~overlaps)
    if pattern.name.endswith("without weight"):
        following = frozenset({"aten::mul"})
        started = started.join(_followed(executions, size, following), on=[*_CORE, "_at"], how="anti", nulls_equal=True)
    return _with_stake(started)


def _fitting(executions: pl.LazyFrame, pattern: Pattern) -> pl.LazyFrame:
    """The executions at which a pattern begins, with the chains that make it up."""
    at = range(len(pattern.operators))
    fits = [
        pl.col("name").shift(-k).over(_RUN_OF).is_in(list(names))
        for k, names in zip(at, pattern.operators, strict=True)
    ]
    ids = [pl.col("chain_id").shift(-k).over(_RUN_OF) for k in at]
    return executions.with_columns(_fits=pl.all_horizontal(fits), chain_ids=pl.concat_list(ids)).filter("_fits")


def _followed(executions: pl.LazyFrame, size: int, names: frozenset[str]) -> pl.LazyFrame:
    """Places after which, ``size`` executions on, one of ``names`` comes."""
    later = pl.col("name").shift(-size).over(_RUN_OF)
    return executions.with_columns(_next=later).filter(pl.col("_next").is_in(list(names))).select(*_CORE, "_at")


def elementwise(executions: pl.LazyFrame) -> pl.LazyFrame:
    """Find runs of at least ``RUN`` elementwise executions that no pattern explains.

    Args:
        executions: those of ``executions``.

    Returns:
        As ``occurrences``.
    """
    members = pl.col("chain_ids").explode().alias("chain_id")
    known = pl.concat([_fitting(executions, pattern).select(members) for pattern in PATTERNS]).unique()
    alone = executions.join(known, on="chain_id", how="anti")
    is_elementwise = pl.col("name").is_in(_ELEMENTWISE)
    hole = pl.col("_at") - pl.int_range(pl.len()).over(_CORE)
    return _with_stake(
        alone.sort("_at")
        .with_columns(_run=is_elementwise.rle_id().over(_RUN_OF), _hole=hole)
        .filter(is_elementwise)
        .group_by(*_RUN_OF, "_run", "_hole")
        .agg(
            pl.col("start_ns").min(),
            _end=pl.col("hardware_end_ns").max(),
            _longest=pl.col("device_ns").max(),
            _excess=pl.col("_excess_ns").sort_by("_at").slice(1).sum(),
            chain_ids=pl.col("chain_id").sort_by("_at"),
            _size=pl.len(),
        )
        .filter(pl.col("_size") >= RUN)
    )


def _with_stake(runs: pl.LazyFrame) -> pl.LazyFrame:
    """From its first start to its last end, gaps no longer than a launch, all but the longest execution could go."""
    stake = pl.col("_end") - pl.col("start_ns") - pl.col("_excess") - pl.col("_longest")
    return runs.select("session", "start_ns", "chain_ids", stake_ns=stake)
