"""``tracekit chain PATH EVENT``: one chain, drawn as a small timeline."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table as Grid
from rich.text import Text

from tracekit.cli.given import Given, path_argument
from tracekit.cli.output import console, printable
from tracekit.cli.units import duration, moment
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from tracekit.profile import Profile

_EPILOG = """\b
Examples:
  tracekit chain capture/ --op aten::mul
  tracekit chain runs/ --op aten::mul --nth 3 --format json
  tracekit chain capture/ 1099511627781
"""
_BAR = 21
_NAME = 25
_COLOURS = {"dispatch": "cyan", "stream": "blue", "runtime": "magenta", "hardware": "green"}
_HOPS = (
    ("dispatch → submit", "dispatch_start_ns", "submit_ns"),
    ("submit → hardware", "submit_ns", "hardware_start_ns"),
    ("hardware", "hardware_start_ns", "hardware_end_ns"),
    ("hardware → end of wait", "hardware_end_ns", "wait_end_ns"),
)


@click.command(epilog=_EPILOG)
@path_argument
@click.argument("event", type=int, required=False)
@click.option("--op", "operator", help="Take the chains of this operator (or of this execution).")
@click.option("--nth", type=click.IntRange(min=1), default=1, show_default=True, help="Which of several chains.")
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", help="For people or machines.")
def command(
    given: Given,
    event: int | None,
    operator: str | None,
    nth: int,
    form: str,
) -> None:
    """Draw one chain: what led to EVENT and what came of it, with times and gaps.

    EVENT is an event_id of any lane; --op picks a chain by operator instead. PATH is an archive, a stored
    profile, or raw input.
    """
    if (event is None) == (operator is None):
        raise click.UsageError("name an EVENT or --op")
    from tracekit.links.lookup import events_of

    profile = given.open()
    found = _by_event(profile, event) if event is not None else _by_operator(profile, operator or "")
    if nth > found.height:
        raise TracekitError(f"there are {found.height} such chains, not {nth}", hint=f"--nth 1 to {found.height}")
    chain = found.row(nth - 1, named=True)
    events = events_of(chain, profile.links, profile.events)
    if form == "json":
        click.echo(json.dumps(_document(profile, chain, events)))
        return
    _draw(console(), chain, events, event, f"{nth} of {found.height}")


def _by_event(profile: Profile, event: int) -> pl.DataFrame:
    import polars as pl

    from tracekit.links.lookup import chains_of

    found = chains_of(profile.chains, profile.links, event)
    if found.is_empty():
        known = profile.events.filter(pl.col("event_id") == event).select("name", "lane").collect()
        if known.is_empty():
            raise TracekitError(f"no event {event} in this profile", hint="event_id is a column of `events`")
        name, lane = known.row(0)
        raise TracekitError(f"{name} (lane {lane}) launched nothing: no chain runs through it", hint="try --op")
    return found


def _by_operator(profile: Profile, operator: str) -> pl.DataFrame:
    import polars as pl

    is_named = (pl.col("name") == operator) | (pl.col("execution_name") == operator)
    found = profile.chains.filter(is_named).sort("chain_id").collect(engine="streaming")
    if found.is_empty():
        from difflib import get_close_matches

        names = profile.chains.select(pl.col("name").unique()).collect()["name"].to_list()
        near = get_close_matches(operator, names, n=3, cutoff=0.3) or sorted(names)[:3]
        raise TracekitError(
            f"no chain of {operator!r}", hint=f"there are {', '.join(near)}" if near else "the profile has no chains"
        )
    return found


def _document(profile: Profile, chain: dict[str, Any], events: pl.DataFrame) -> dict[str, object]:
    """The chain, its events, the links among them and its hops, exact."""
    import polars as pl

    ids = events["event_id"].to_list()
    links = profile.links.filter(pl.col("from_id").is_in(ids), pl.col("to_id").is_in(ids)).sort("from_id", "to_id")
    hops = [{"hop": name, "length_ns": length} for name, length in _hops(chain)]
    return {"chain": chain, "events": events.to_dicts(), "links": links.collect().to_dicts(), "hops": hops}


def _hops(chain: dict[str, Any]) -> list[tuple[str, int]]:
    known = [(name, chain[a], chain[b]) for name, a, b in _HOPS if None not in (chain[a], chain[b])]
    return [(name, end - start) for name, start, end in known]


def _draw(out: Console, chain: dict[str, Any], events: pl.DataFrame, asked: int | None, which: str) -> None:
    first, last = int(events["start_ns"].min()), int(events["end_ns"].max())  # type: ignore[arg-type]
    state = "complete" if chain["complete"] else f"without an event of lane {chain['missing']}"
    out.print(Text(_cut(printable(chain["name"]), 50), style="bold"), Text(f"{chain['kind']}, {state}", style="dim"))
    out.print(Text(f"chain {which} · {_cut(printable(chain['session']), 54)}", style="dim"))
    out.print(Text(f"starts {moment(first)}", style="dim"))
    out.print(_timeline(events, asked, first, last))
    if chain["missing"]:
        out.print(Text(f"  the capture has no event of lane {chain['missing']} for it", style="yellow"))
    for name, length in _hops(chain):
        out.print(f"  {name:<24}{duration(length):>12}" + ("  (clocks disagree)" if length < 0 else ""))
    if chain["method"]:
        out.print(Text(f"  least certain link: by {chain['method']}", style="dim"))


def _timeline(events: pl.DataFrame, asked: int | None, first: int, last: int) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    grid.add_column("lane", no_wrap=True)
    grid.add_column("event", no_wrap=True, max_width=_NAME)
    grid.add_column("start", justify="right", no_wrap=True)
    grid.add_column("length", justify="right", no_wrap=True)
    grid.add_column(Text(f"{duration(last - first):>{_BAR}}"), no_wrap=True)
    lane = ""
    for row in events.iter_rows(named=True):
        colour = _COLOURS[row["lane"]]
        grid.add_row(
            Text(row["lane"] if row["lane"] != lane else "", style=colour),
            Text(_label(row), style="bold" if row["event_id"] == asked else ""),
            f"+{duration(row['start_ns'] - first)}",
            duration(row["end_ns"] - row["start_ns"]),
            Text(_bar(row["start_ns"] - first, row["end_ns"] - first, last - first), style=colour),
        )
        lane = row["lane"]
    return grid


def _label(row: dict[str, Any]) -> str:
    """Name of an event, with the core, stream or role that tells it from its neighbours."""
    place = ""
    if row["lane"] == "hardware" and row["physical_core"] is not None:
        place = f" core {row['physical_core']}"
    elif row["stream_id"] is not None:
        place = f" stream {row['stream_id']}"
    elif row["lane"] == "dispatch" and row["kind"] == "call":
        place = " (call)"
    return _cut(printable(row["name"]), _NAME - len(place)) + place


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _bar(start: int, end: int, whole: int) -> str:
    """A bar on a line of fixed width; the shortest event is still one mark."""
    if whole <= 0:
        return "▏"
    left = min(_BAR - 1, start * _BAR // whole)
    right = max(left + 1, -(-end * _BAR // whole))
    marks = "▏" if end - start < whole // (4 * _BAR) else "█" * (right - left)
    return " " * left + marks
