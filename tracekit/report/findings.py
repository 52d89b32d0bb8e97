"""Advice with its evidence, from the metric of that name."""

from __future__ import annotations

import polars as pl

from tracekit.metrics.base import Inputs
from tracekit.report.charts import session_labels
from tracekit.report.model import Finding, Place
from tracekit.report.results import Results
from tracekit.report.words import duration

FINDING_LIMIT = 40
_EVIDENCE_LIMIT = 6


def findings(results: Results, origin_ns: int) -> list[Finding]:
    """Findings, the most time at stake first, with places in the timeline; empty where there are none.

    Args:
        results: the metric ``advice`` and the tables that its evidence names.
        origin_ns: zero of the timeline.
    """
    advice = results.get("advice")
    if advice is None:
        return []
    found = advice.sort("at_stake_ns", descending=True, nulls_last=True, maintain_order=True).head(FINDING_LIMIT)
    places = _places(found, results.inputs, origin_ns)
    names = session_labels(results)
    return [
        Finding(
            title=_sentence(row["message"]),
            text="" if len(names) == 1 else f"In {names.get(row['session'], row['session'])}.",
            action=_sentence(row["next_step"]),
            stake_ns=row["at_stake_ns"],
            formula=row["formula"],
            evidence=places.get(number, []),
        )
        for number, row in enumerate(found.to_dicts())
    ]


def _sentence(text: str | None) -> str:
    """Text with a capital letter in front and a full stop behind; names of code keep their case."""
    if not text:
        return ""
    head = text.split(maxsplit=1)[0]
    first = text[0] if any(mark in head for mark in "_:.") else text[0].upper()
    return first + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _places(found: pl.DataFrame, inputs: Inputs, origin_ns: int) -> dict[int, list[Place]]:
    """The stretches of time that the evidence of each finding (by its number) names."""
    wanted = (
        found.select("evidence", "evidence_ids").with_row_index("finding")
        .with_columns(pl.col("evidence_ids").list.head(_EVIDENCE_LIMIT))
        .explode("evidence_ids", empty_as_null=False).rename({"evidence_ids": "id"}).with_row_index("rank")
    )  # fmt: skip
    ids = wanted["id"].unique().to_list()
    times = ("dispatch_start_ns", "submit_ns", "hardware_start_ns", "hardware_end_ns", "dispatch_end_ns")
    chains = inputs.chains.filter(pl.col("chain_id").is_in(ids)).select(
        "session", "name", id="chain_id", evidence=pl.lit("chain"),
        start=pl.min_horizontal(*times), end=pl.max_horizontal(*times),
    )  # fmt: skip
    events = inputs.events.filter(pl.col("event_id").is_in(ids)).select(
        "session", "name", id="event_id", evidence=pl.lit("event"), start="start_ns", end="end_ns"
    )
    known = pl.concat([chains, events]).filter(pl.col("start").is_not_null()).collect()
    rows = wanted.join(known, on=["evidence", "id"]).sort("rank").to_dicts()
    out: dict[int, list[Place]] = {}
    for row in rows:
        start, end = row["start"] - origin_ns, row["end"] - origin_ns
        place = Place(f"{row['name']} at {duration(start)}", row["session"], start, end)
        out.setdefault(row["finding"], []).append(place)
    return out
