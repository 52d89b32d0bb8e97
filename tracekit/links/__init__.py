"""Links between events, and the chains they make: operator, launch, stream, runtime, hardware.

Rules in order of certainty: an id that both events carry, a flow arrow, enclosure in time on the same thread,
order in time. Keys always hold the session, and process, core and model where they are known, because ids repeat
across all of them. No rule fans out: see ``match``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import polars as pl

from tracekit import clock, tables
from tracekit.links import chains, remarks
from tracekit.links.chains import Found
from tracekit.links.executions import executions
from tracekit.links.launches import is_launch, launches, of_work
from tracekit.links.match import indexed, pair
from tracekit.links.operators import echoing, operators
from tracekit.links.rows import WORK_KINDS, Rows, load, present
from tracekit.links.submits import submits, submitted

_BATCH_ROWS = 1_000_000
"""Sessions are linked together up to this many rows of launches and device work."""


@dataclass(frozen=True)
class Linked:
    """What ``build`` returns: rows of ``tables.LINKS``, ``tables.CHAINS`` and ``tables.NOTES``."""

    links: pl.DataFrame
    chains: pl.DataFrame
    notes: pl.DataFrame


def build(events: pl.LazyFrame, flows: pl.LazyFrame, sessions: pl.LazyFrame) -> Linked:
    """Link the events of every session and make the chains.

    Every primary device event of lane ``hardware`` is in exactly one chain, linked or not. Sessions never
    link to one another. They are taken in batches, so that memory is bounded by the largest session's
    launches and device work; without any of those, two narrow columns are all that is read.

    Args:
        events: ``tables.EVENTS``.
        flows: ``tables.FLOWS``.
        sessions: ``tables.SESSIONS``.

    Returns:
        Links sorted by cause and effect; chains sorted by session and first known time; notes about what is
        missing, ambiguous or out of causal order.
    """
    counts = present(events)
    lanes = _lanes(counts)
    known = sessions.select("session", "process_id").collect()
    link_rows, chain_rows, notes = [tables.LINKS.empty()], [tables.CHAINS.empty()], [tables.NOTES.empty()]
    for batch in _batches(counts):
        rows = load(events, batch)
        if rows.is_empty:
            continue
        found, ambiguous = _find(rows, flows)
        made = chains.assemble(found, _of(lanes, batch), _of(known, batch))
        link_rows.append(tables.LINKS.conform(chains.link(made, found.executions.stages)))
        chain_rows.append(_numberless(made))
        notes.append(remarks.ambiguous(ambiguous))
    finished = _numbered(pl.concat(chain_rows))
    notes += [remarks.remarks(finished, lanes), clock.causality(finished)]
    all_links = pl.concat(link_rows) if len(link_rows) < 3 else pl.concat(link_rows).sort("from_id", "to_id")
    return Linked(all_links, finished, pl.concat(notes).sort("session", "code"))


def _lanes(counts: pl.DataFrame) -> pl.DataFrame:
    """Which lanes each session has, as far as chains run through them."""
    lane, kind = pl.col("lane"), pl.col("kind")
    return counts.group_by("session", maintain_order=True).agg(
        has_dispatch=(lane.eq("dispatch") & kind.is_in(["op", "call"])).any(),
        has_stream=(lane.eq("stream") & kind.eq("call")).any(),
        has_runtime=(lane.eq("runtime") & kind.eq("call")).any(),
        has_hardware=(lane.eq("hardware") & kind.is_in(list(WORK_KINDS))).any(),
    )


def _batches(counts: pl.DataFrame) -> Iterator[list[str]]:
    """Sessions that may have chains, packed into batches of bounded size."""
    is_op = pl.col("lane").eq("dispatch") & pl.col("kind").eq("op")
    sizes = (
        counts.filter(~is_op)
        .group_by("session")
        .agg(pl.col("rows").sum())
        .sort("session")
        .with_columns(batch=pl.col("rows").cum_sum() // _BATCH_ROWS)
    )
    for part in sizes.partition_by("batch", maintain_order=True):
        yield part["session"].to_list()


def _of(frame: pl.DataFrame, batch: list[str]) -> pl.DataFrame:
    return frame.filter(pl.col("session").is_in(batch)).with_columns(pl.col("session").cast(pl.Enum(batch)))


def _find(rows: Rows, flows: pl.LazyFrame) -> tuple[Found, pl.DataFrame]:
    """Run the rules; also counts what time alone decided, as ``what`` and ``events``."""
    is_framework = pl.col("source") == "kineto"
    made, twice = launches(rows.calls, rows.streams)
    work = indexed(rows.hardware.filter(is_framework), "effect")
    of = of_work(made, work, flows)
    runs = executions(rows.system, rows.hardware.filter(~is_framework))
    queued = submits(rows.system)
    origin = pair(
        made.rename({"launch": "cause"}),
        queued.filter("is_main").rename({"submit": "effect"}),
        ("session", "sequence_id"),
    )
    queued = queued.join(
        origin.select(submit="effect", launch="cause"), on="submit", how="left", validate="1:1", maintain_order="left"
    )
    by_submit = submitted(queued, runs.records)
    linked = by_submit.pairs.select("submit", cause="record", submit_method="method")
    records = runs.records.join(linked, on="cause", how="left", validate="1:1", maintain_order="left")
    echo = echoing(rows.calls)
    launched = pl.concat([of.pairs.select(launch="cause"), origin.select(launch="cause")]).unique()
    must = is_launch(made, launched)
    asked = made.join(pl.concat([must, launched]).unique(), on="launch", how="semi").rename({"launch": "effect"})
    found_ops = operators(asked, rows.operators, echo).rename({"effect": "launch"})
    framework_work, bare = _framework_work(work, of.pairs, rows.operators, echo)
    found = Found(made, found_ops, queued, replace(runs, records=records), framework_work, bare, must)
    counted = {
        "sequence numbers": twice + int(origin["ambiguous"].sum()),
        "correlations": of.ambiguous,
        "exec ids": runs.ambiguous,
        "submits": by_submit.ambiguous,
    }
    return found, pl.DataFrame({"what": list(counted), "events": list(counted.values())})


def _framework_work(
    work: pl.DataFrame, pairs: pl.DataFrame, ops: pl.LazyFrame, echo: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Device work of the framework's trace with its launch, and the operators of what has no launch."""
    alone = work.join(pairs, on="effect", how="anti").with_columns(thread_id=pl.lit(None, dtype=pl.Int64))
    bare = operators(alone, ops, echo).rename({"effect": "work"})
    linked = work.join(pairs, on="effect", how="left", validate="1:1", maintain_order="left")
    return linked.select(
        "session",
        "core_index",
        "model_id",
        "execution_id",
        "kind",
        "name",
        "stream_id",
        "start_ns",
        "end_ns",
        "method",
        work="effect",
        launch="cause",
        device_ns=pl.col("end_ns") - pl.col("start_ns"),
        event_ids=pl.concat_list("event_id"),
    ), bare


def _numberless(made: pl.DataFrame) -> pl.DataFrame:
    """Rows of ``tables.CHAINS`` without their number, in its types."""
    return tables.CHAINS.conform(made.with_columns(chain_id=pl.lit(0, dtype=pl.Int64)))


def _numbered(rows: pl.DataFrame) -> pl.DataFrame:
    """Chains in order of session and first known time, numbered."""
    first_ns = pl.min_horizontal("dispatch_start_ns", "submit_ns", "wait_start_ns", "hardware_start_ns")
    order = ("session", "_first_ns", "submit_ns", "hardware_start_ns", "launch_id", "stream_id", "_hardware_id")
    return (
        rows.with_columns(_first_ns=first_ns, _hardware_id=pl.col("hardware_ids").list.first())
        .sort(order, nulls_last=True, maintain_order=True)
        .with_columns(chain_id=pl.int_range(pl.len(), dtype=pl.Int64))
        .drop("_first_ns", "_hardware_id")
    )
