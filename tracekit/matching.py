"""Operators of two sides, matched, and whether each of them changed."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from tracekit.sides import NUMBERS, SIDE_OPS
from tracekit.significance import Verdict, judge_all
from tracekit.tables import Column, Table

STATUSES = ("added", "removed", "changed", "noise", "unproven", "same")

OPS = Table(
    name="diff_ops",
    doc="Device time and self CPU time per operator, per step; the changes sum to the change of the whole.",
    key=("name", "a_shapes", "b_shapes"),
    columns=(
        Column("name", pl.String(), "Operator, or the execution that no operator launched."),
        Column("a_shapes", pl.String(), "Input shapes, first side; null unless both sides have them.", nullable=True),
        Column("b_shapes", pl.String(), "Second side; others than the first side's where matched by order.", True),
        Column(
            "status",
            pl.String(),
            "added, removed, or what the test of `verdict` says of its executions, device time and self CPU time: "
            "changed if any of them is, unproven where there are too few samples.",
            values=STATUSES,
        ),
        Column("p_value", pl.Float64(), "Smallest of its tests, adjusted for testing all operators.", nullable=True),
        Column("a_executions", pl.Float64(), "Executions per sample, first side."),
        Column("b_executions", pl.Float64(), "Second side."),
        Column("a_device_ns", pl.Float64(), "Device time per sample, first side.", unit="ns"),
        Column("b_device_ns", pl.Float64(), "Second side.", unit="ns"),
        Column("device_change_ns", pl.Float64(), "b − a.", unit="ns"),
        Column("a_host_ns", pl.Float64(), "Self CPU time per sample, first side.", unit="ns"),
        Column("b_host_ns", pl.Float64(), "Second side.", unit="ns"),
        Column("host_change_ns", pl.Float64(), "b − a.", unit="ns"),
    ),
)


def ops_changed(before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """Match the operators of two sides and say which changed.

    They match by name; of one name by shapes where both sides have them, and what is left by its order. Of a name
    whose shapes one side does not know, all shapes are added up.

    Args:
        before: ``sides.SIDE_OPS``.
        after: likewise.

    Returns:
        ``OPS``, the largest change of device time (then host time) first.
    """
    both = _matched(before, after)
    means = (pl.col(name).list.mean().fill_null(0) for name in _LISTS)
    rows = both.with_columns(means).with_columns(
        device_change_ns=pl.col("b_device_ns") - pl.col("a_device_ns"),
        host_change_ns=pl.col("b_host_ns") - pl.col("a_host_ns"),
        **_judged(both),
    )
    is_equal = pl.all_horizontal(pl.col(f"a_{number}") == pl.col(f"b_{number}") for number in NUMBERS)
    status = (
        pl.when(both["a_executions"].is_null())
        .then(pl.lit("added"))
        .when(both["b_executions"].is_null())
        .then(pl.lit("removed"))
        .when(is_equal)
        .then(pl.lit("same"))
        .otherwise("verdict")
    )
    size = (pl.col("device_change_ns").abs(), pl.col("host_change_ns").abs())
    found = OPS.conform(rows.with_columns(status=status))
    return found.sort(*size, *OPS.key, descending=[True, True, False, False, False])


_LISTS = tuple(f"{side}_{number}" for side in "ab" for number in NUMBERS)


def _matched(before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """Operators of both sides in one row each: name, a_shapes, b_shapes and ``_LISTS``, null where there is none."""
    known = pl.col("shapes").is_not_null()
    everywhere = before.filter(known).select("name").join(after.filter(known).select("name"), on="name", how="semi")
    alike = everywhere["name"].unique().implode()
    left, right = (_sided(ops, alike, label) for ops, label in ((before, "a"), (after, "b")))
    exact = left.join(
        right,
        left_on=["name", "a_shapes"],
        right_on=["name", "b_shapes"],
        nulls_equal=True,
        how="inner",
        coalesce=False,
    ).drop("name_right")
    rest = [
        side.join(exact, on=["name", f"{label}_shapes"], how="anti", nulls_equal=True).with_columns(
            _nth=pl.int_range(pl.len()).over("name")
        )
        for side, label in ((left, "a"), (right, "b"))
    ]
    others = rest[0].join(rest[1], on=["name", "_nth"], how="full", coalesce=True).drop("_nth")
    return pl.concat([exact, others], how="diagonal")


def _sided(ops: pl.DataFrame, with_shapes: pl.Series, label: str) -> pl.DataFrame:
    """Operators of one side with its label on the columns; those that are not ``with_shapes`` added up by name."""
    is_apart = pl.col("name").is_in(with_shapes)
    shapes = pl.when(is_apart).then("shapes").alias("shapes")
    added = (
        _added_up(ops.with_columns(shapes))
        if ops.select((~is_apart & pl.col("shapes").is_not_null()).any()).item()
        else ops
    )
    return added.select("name", *(pl.col(column).alias(f"{label}_{column}") for column in ("shapes", *NUMBERS)))


def _added_up(ops: pl.DataFrame) -> pl.DataFrame:
    """Operators of equal name and shapes as one, sample by sample; by their means where one of them has no more."""
    key = ["name", "shapes"]
    shortest = pl.col("executions").list.len().min().over(key)
    is_thinned = pl.col("executions").list.len() != shortest
    thinned = ops.with_columns(_few=is_thinned.any().over(key)).with_columns(
        pl.when("_few").then(pl.concat_list(pl.col(number).list.mean())).otherwise(number).alias(number)
        for number in NUMBERS
    )
    at = pl.int_ranges(pl.col("executions").list.len()).alias("_at")
    flat = thinned.with_row_index("_order").with_columns(at).explode("_at", *NUMBERS)
    summed = flat.group_by(*key, "_at").agg(pl.col(NUMBERS).sum(), pl.col("_order").min())
    listed = summed.sort("_at").group_by(key).agg(pl.col(NUMBERS), pl.col("_order").min())
    return SIDE_OPS.conform(listed.sort("_order"))


def _judged(both: pl.DataFrame) -> dict[str, pl.Series]:
    """For each operator what the tests say: verdict, and the smallest p_value of its times."""
    pairs = {n: list(zip(*(both[f"{side}_{n}"].to_list() for side in "ab"), strict=True)) for n in NUMBERS}
    given = {n: [(a or [], b or []) for a, b in of] for n, of in pairs.items()}
    counts = judge_all(given["executions"], exact=True)
    times = judge_all([*given["device_ns"], *given["host_ns"]])
    each = list(zip(counts, times[: both.height], times[both.height :], strict=True))
    return {
        "verdict": pl.Series([_together(v.verdict for v in found) for found in each], dtype=pl.String),
        "p_value": pl.Series([_smallest(found) for found in each], dtype=pl.Float64),
    }


def _together(verdicts: Iterable[str]) -> str:
    found = set(verdicts)
    return next((v for v in ("changed", "unproven", "noise") if v in found), "same")


def _smallest(verdicts: Iterable[Verdict]) -> float | None:
    return min((v.p_value for v in verdicts if v.p_value is not None), default=None)
