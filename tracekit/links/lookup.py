"""Find the chains that an event belongs to, and all events of one chain."""

from __future__ import annotations

import polars as pl

_PARTS = ("dispatch_id", "launch_id", "stream_id", "submit_id", "wait_id")
_SHOWN = ("event_id", "lane", "kind", "name", "process_id", "thread_id", "stream_id", "core_index", "physical_core")


def chains_of(chains: pl.LazyFrame, links: pl.LazyFrame, event_id: int) -> pl.DataFrame:
    """Chains that hold an event, or a host stage next to what they hold, in order.

    Args:
        chains: ``tables.CHAINS``.
        links: ``tables.LINKS``.
        event_id: the event.

    Returns:
        ``tables.CHAINS``; empty if no chain runs through the event.
    """
    around = {event_id}
    for _ in range(3):
        found = chains.filter(_holds(sorted(around))).sort("chain_id").collect(engine="streaming")
        if not found.is_empty():
            return found
        around |= _neighbours(links, around)
    return found


def events_of(chain: dict[str, object], links: pl.LazyFrame, events: pl.LazyFrame) -> pl.DataFrame:
    """Events of one chain: those it names and the host stages between them, in order of lane and time.

    Args:
        chain: one row of ``tables.CHAINS``.
        links: ``tables.LINKS``.
        events: ``tables.EVENTS``.

    Returns:
        ``event_id``, ``lane``, ``kind``, ``name``, the columns that place it, ``start_ns``, ``end_ns``.
    """
    hardware = chain["hardware_ids"]
    assert isinstance(hardware, list)
    named = {value for part in _PARTS if isinstance(value := chain[part], int)} | set(hardware)
    below = named - {chain["dispatch_id"], chain["launch_id"]}
    around = _stages(events, _neighbours(links, below))
    around |= _stages(events, _neighbours(links, around)) if around else set()
    rows = events.filter(pl.col("event_id").is_in(sorted(named | around))).select(*_SHOWN, "start_ns", "end_ns")
    depth = pl.col("lane").replace_strict({"dispatch": 0, "stream": 1, "runtime": 2, "hardware": 3})
    return rows.sort(depth, "start_ns", "event_id").collect(engine="streaming")


def _holds(ids: list[int]) -> pl.Expr:
    parts = pl.any_horizontal(pl.col(_PARTS).is_in(ids))
    return parts | pl.col("hardware_ids").list.eval(pl.element().is_in(ids)).list.any()


def _neighbours(links: pl.LazyFrame, ids: set[int]) -> set[int]:
    """Events linked to any of ``ids``, in either direction."""
    known = sorted(ids)
    met = links.filter(pl.col("from_id").is_in(known) | pl.col("to_id").is_in(known)).collect(engine="streaming")
    return (set(met["from_id"]) | set(met["to_id"])) - ids


def _stages(events: pl.LazyFrame, ids: set[int]) -> set[int]:
    """Those of ``ids`` that are host stages of the runtime."""
    rows = events.filter(pl.col("event_id").is_in(sorted(ids)), pl.col("lane") == "runtime")
    return set(rows.select("event_id").collect(engine="streaming")["event_id"])
