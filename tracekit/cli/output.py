"""What commands share: options, tables on screen and in files, human units, progress."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from tracekit.errors import TracekitError
from tracekit.tables import Column, Table

if TYPE_CHECKING:
    import polars as pl

    from tracekit.ingestion import Progress
    from tracekit.profile import Profile

FORMATS = ("table", "json", "csv", "parquet")
_Command = TypeVar("_Command", bound=Callable[..., object])
_WIDTH = 80
_EPOCH_NS = 10**17
"""Above this a number of nanoseconds is a point in time (1973 and later), below it a duration."""
_HEADINGS = {"bound_ratio": "by", "bytes_per_second": "bandwidth"}
_UNCOUNTED = ("early", "last", "matched", "never ran", "small", "unfinished")
"""Headings of counts that are no nouns: they have no plural."""


def console(*, stderr: bool = False) -> Console:
    """A console that uses colour only on a terminal and 80 columns elsewhere; ``NO_COLOR`` is respected."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDTH
    return Console(stderr=stderr, width=width, highlight=False, soft_wrap=False, emoji=False, markup=False)


def printable(text: str) -> str:
    """``text`` without control characters: file and event names cannot move the cursor or add lines."""
    spaced = text.replace("\u00a0", " ").replace("\u202f", " ")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in spaced)


def duration(ns: int | float | None) -> str:
    """Nanoseconds for people: ``403.3 µs``; empty for null."""
    if ns is None:
        return ""
    for unit, digits, name in ((1, 0, "ns"), (1_000, 1, "µs"), (1_000_000, 1, "ms")):
        if round(abs(ns) / unit, digits) < 1_000:
            return f"{ns / unit:.{digits}f} {name}"
    return f"{ns / 1e9:,.2f} s"


def change(before: float, after: float) -> str:
    """Two durations in one unit, that of the smaller one: ``2,355.0 → 403.3 µs``."""
    smaller = min((abs(v) for v in (before, after) if v), default=0)
    for limit, unit, name in ((1e3, 1, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms"), (float("inf"), 1e9, "s")):
        if smaller < limit:
            digits = 0 if unit == 1 else 1
            return f"{before / unit:,.{digits}f} → {after / unit:,.{digits}f} {name}"
    raise AssertionError


def size(value: int | float | None) -> str:
    """Bytes for people: ``12.3 MB`` (powers of ten); empty for null."""
    if value is None:
        return ""
    amount = float(value)
    for unit, digits in (("B", 0), ("kB", 1), ("MB", 1), ("GB", 1)):
        if round(abs(amount), digits) < 1_000:
            return f"{amount:.{digits}f} {unit}"
        amount /= 1_000
    return f"{amount:.1f} TB"


def plural(count: int, noun: str) -> str:
    """A count with its noun: ``1 file``, ``2,358 files``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def ratio(value: float | None) -> str:
    """A share for people: ``49.4 %``; empty for null."""
    return "" if value is None else f"{100 * value:.1f} %"


def moment(ns: int | None) -> str:
    """A Unix time for people, UTC with nanoseconds."""
    if ns is None:
        return ""
    from datetime import datetime, timezone

    seconds, rest = divmod(ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S}.{rest:09d}"


class OutputFile(click.Path):
    """A file to write, in a directory that is there: told before any work is done."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path.

        Raises:
            TracekitError: if its directory is not there.
        """
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            raise TracekitError(f"{path}: there is no directory {path.parent}", hint="make it, or name another file")
        return path


def format_option(command: _Command) -> _Command:
    """Add ``--format`` and ``-o``."""
    command = click.option("-o", "--output", type=OutputFile(), help="Write to a file instead of the screen.")(command)
    return click.option(
        "--format", "form", type=click.Choice(FORMATS), help="table (default on screen), json, csv or parquet."
    )(command)


def path_argument(command: _Command) -> _Command:
    """Add PATH: an archive, a stored profile, or raw input; and the options to choose in it."""
    for option in (
        click.option("--neff-cache", multiple=True, type=click.Path(path_type=Path), help="Look for NEFFs here too."),
        click.option("--cache", type=click.Path(path_type=Path), help="Archive for raw input (default: user's cache)."),
        click.option("--profile", "profile_id", help="Which profile of an archive."),
    ):
        command = option(command)
    return click.argument("path", type=click.Path(path_type=Path))(command)


def scope_options(command: _Command) -> _Command:
    """Add ``--step N`` and ``--all``."""
    command = click.option("--all", "everything", is_flag=True, help="Measure everything, warm-up included.")(command)
    return click.option("--step", type=int, help="Measure one step only.")(command)


def chosen_scope(step: int | None, everything: bool) -> str | int:
    """The scope that ``--step`` and ``--all`` ask for."""
    if step is not None and everything:
        raise click.UsageError("--step and --all exclude each other")
    return "all" if everything else "steps" if step is None else step


def open_for_command(
    path: Path, profile_id: str | None = None, cache: Path | None = None, neff_cache: Sequence[Path] = ()
) -> Profile:
    """Open one profile, with a progress bar and a word about the cache when raw input is read."""
    from tracekit import archive as store
    from tracekit.profile import default_cache, open_profile

    raw = not (store.is_profile(path) or store.is_archive(path))
    with reading() as progress:
        profile = open_profile(path, profile_id, cache=cache, neff_cache=neff_cache, progress=progress)
    if raw and cache is None:
        console(stderr=True).print(
            f"tables are kept in {default_cache()} (safe to delete; --cache DIR puts them elsewhere)", style="dim"
        )
    return profile


@contextmanager
def reading() -> Iterator[Progress | None]:
    """A progress bar for an ingest on standard error; nothing when that is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        tasks: dict[str, object] = {}

        def update(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)  # type: ignore[arg-type]

        yield update


def emit(
    frame: pl.DataFrame,
    table: Table,
    form: str | None = None,
    output: Path | None = None,
    *,
    title: str = "",
    columns: Sequence[str] = (),
    limit: int | None = None,
) -> None:
    """Print a result for people, or write it for machines.

    Args:
        frame: rows with the columns of ``table``.
        table: gives units and docs.
        form: one of ``FORMATS``; None takes the ending of ``output``, else a table.
        output: file to write; None prints.
        title: line above the table on screen.
        columns: columns to show on screen, in order; empty means all. What is null everywhere is left out.
        limit: rows to show on screen; the rest is counted in a last line.

    Raises:
        TracekitError: for Parquet without a file.
    """
    form = form or _form_of(output)
    if form == "table":
        text = console() if output is None else Console(file=output.open("w", encoding="utf-8"), width=_WIDTH)
        print_table(text, frame, table, title=title, columns=columns, limit=limit)
    else:
        write_rows(frame, form, output)


def _form_of(output: Path | None) -> str:
    ending = output.suffix.removeprefix(".") if output else ""
    return ending if ending in FORMATS else "table"


def write_rows(frame: pl.DataFrame, form: str, output: Path | None) -> None:
    """Write exact rows as JSON (a list of objects), CSV (lists as JSON text) or Parquet.

    Raises:
        TracekitError: for Parquet without a file, or if the file cannot be written.
    """
    import polars as pl

    if form == "parquet":
        if output is None:
            raise TracekitError("parquet cannot go to the screen", hint="add -o FILE.parquet")
        frame.write_parquet(output)
        return
    if form == "csv":
        lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List)]
        flat = frame.with_columns(
            pl.format("[{}]", pl.col(n).cast(pl.List(pl.String)).list.join(",")).alias(n) for n in lists
        )
        text = flat.write_csv()
    else:
        text = frame.write_json() + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")


def print_table(
    out: Console,
    frame: pl.DataFrame,
    table: Table,
    *,
    title: str = "",
    columns: Sequence[str] = (),
    limit: int | None = None,
    more: str = "",
) -> None:
    """Print rows with human units in at most the console's width.

    Long text is cut in the middle; columns that do not fit are named below the table. ``more`` says what to
    type to see the rows beyond ``limit``.
    """
    names = _telling(frame, columns or table.names)
    if title:
        out.print(title, style="bold")
    if frame.is_empty():
        out.print("  (none)", style="dim")
        return
    shown = frame.head(limit) if limit else frame
    cells = {name: _cells(_column(table, name), shown[name].to_list()) for name in names}
    names, left_out = _fitting(names, cells, out.width)
    widths = _widths(names, cells, out.width)
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in names:
        justify: Literal["left", "right"] = "left" if _is_text(frame, name) else "right"
        grid.add_column(_heading(name), justify=justify, no_wrap=True)
    for row in range(shown.height):
        grid.add_row(*(Text(_fit(cells[n][row], widths[n])) for n in names))
    out.print(grid)
    if limit and frame.height > limit:
        out.print(f"  … {plural(frame.height - limit, 'more row')}{f': {more}' if more else ''}", style="dim")
    if left_out:
        out.print(f"  … and {', '.join(map(_heading, left_out))} (--format json or csv)", style="dim")


def _fitting(names: Sequence[str], cells: Mapping[str, Sequence[str]], total: int) -> tuple[list[str], list[str]]:
    """Columns that fit side by side when text is cut to 16 characters, in order, and those that do not."""
    kept: list[str] = []
    used = 0
    for name in names:
        widest = max(len(c) for c in cells[name])
        used += max(len(_heading(name)), widest if _is_whole(name) else min(16, widest)) + (2 if kept else 0)
        if used > total and kept:
            break
        kept.append(name)
    return kept, list(names[len(kept) :])


def _widths(names: Sequence[str], cells: Mapping[str, Sequence[str]], total: int) -> dict[str, int]:
    """Width of each column so that all fit: the widest give way, never below a heading or 16 characters."""
    widths = {n: max(len(_heading(n)), *(len(c) for c in cells[n])) for n in names}
    floor = {n: widths[n] if _is_whole(n) else max(len(_heading(n)), min(16, widths[n])) for n in names}
    while sum(widths.values()) + 2 * (len(names) - 1) > total:
        widest = max(names, key=lambda n: (widths[n] > floor[n], widths[n]))
        if widths[widest] <= floor[widest]:
            break
        widths[widest] -= 1
    return widths


def _is_whole(name: str) -> bool:
    """Numbers with a unit and times are never cut: what is left of them would be wrong."""
    return name.endswith(("_ns", "_bytes", "_per_second"))


def _cells(column: Column | None, values: Sequence[object]) -> list[str]:
    """A column's values as text; times of one day without the day."""
    cells = [cell(column, v) for v in values]
    if column is None or column.unit != "ns" or not any(isinstance(v, int) and v > _EPOCH_NS for v in values):
        return cells
    days = {text[:10] for text in cells if text}
    return [text[11:] for text in cells] if len(days) == 1 else cells


def cell(column: Column | None, value: object) -> str:
    """One value as text, in the unit of its column."""
    if value is None:
        return ""
    unit = column.unit if column else None
    if unit == "ns" and isinstance(value, (int, float)):
        return moment(int(value)) if value > _EPOCH_NS else duration(value)
    if unit == "B" and isinstance(value, (int, float)):
        return size(value)
    if unit == "B/s" and isinstance(value, (int, float)):
        return f"{size(value)}/s"
    if unit == "ratio" and isinstance(value, (int, float)):
        return ratio(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return (
            f"{value:,}"
            if column is None or not column.name.endswith(("_id", "_index", "step", "rank"))
            else str(value)
        )
    if isinstance(value, float):
        return f"{value:,.3g}"
    return printable(str(value))


def _telling(frame: pl.DataFrame, names: Sequence[str]) -> list[str]:
    """Columns that say something: with any value, and not the same session in each row."""
    known = [n for n in names if n in frame.columns and frame[n].null_count() < frame.height]
    return [n for n in known if n != "session" or frame[n].n_unique() > 1]


def _column(table: Table, name: str) -> Column | None:
    return table[name] if name in table.names else None


def _heading(name: str) -> str:
    if name in _HEADINGS:
        return _HEADINGS[name]
    for ending in ("_ns", "_bytes", "_ratio"):
        name = name.removesuffix(ending)
    if not name.endswith("_count"):
        return name.replace("_", " ")
    noun = name.removesuffix("_count").replace("_", " ")
    if noun in _UNCOUNTED:
        return noun
    if noun.endswith("y"):
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("ch", "sh", "s", "x")) else "s")


def _is_text(frame: pl.DataFrame, name: str) -> bool:
    import polars as pl

    return isinstance(frame.schema[name], pl.String)


def _fit(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    head = (room - 1) * 2 // 3
    return text[:head] + "…" + text[len(text) - (room - 1 - head) :]


def print_notes(out: Console, notes: pl.DataFrame, *, limit: int = 20) -> None:
    """Print notes as short paragraphs, the gravest first; equal ones of several sessions once."""
    import polars as pl

    from tracekit.tables import SEVERITIES

    weight = pl.col("severity").replace_strict(list(SEVERITIES), [2, 1, 0], return_dtype=pl.Int64)
    merged = (
        notes.group_by("severity", "code", "message", "hint", "path", maintain_order=True)
        .agg(pl.col("event_count").sum(), sessions=pl.len())
        .sort(weight, maintain_order=True)
    )
    if merged.is_empty():
        return
    out.print("Notes", style="bold")
    styles = {"error": "red", "warning": "yellow", "info": "dim"}
    for row in merged.head(limit).iter_rows(named=True):
        where = f"{row['path']}: " if row["path"] not in (None, ".") else ""
        times = f" (in {row['sessions']} sessions)" if row["sessions"] > 1 else ""
        head = Text(f"{row['severity']} ", style=styles[row["severity"]])
        body = Text(printable(f"{where}{row['message']}{times}"))
        hint = Text(printable(f". Hint: {row['hint']}"), style="dim") if row["hint"] else Text("")
        out.print(Padding(head + body + hint, (0, 0, 0, 2)))
    if merged.height > limit:
        out.print(f"  … {merged.height - limit:,} more: tracekit info PATH", style="dim")


def facts(out: Console, pairs: Mapping[str, str]) -> None:
    """Print name–value pairs in two aligned columns."""
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for name, value in pairs.items():
        grid.add_row(name, Text(printable(value)))
    out.print(grid)
