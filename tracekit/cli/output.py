"""What commands share: options, tables on screen and in files."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar, cast

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from tracekit.cli.units import duration, minus, moment, plural, ratio, size, told
from tracekit.errors import TracekitError
from tracekit.tables import Column, Table
from tracekit.vocabulary import FIRST_DATE_NS

if TYPE_CHECKING:
    import polars as pl


_TEXT_ENDINGS = ("", "txt", "text", "log", "out", "md")
FORMATS = ("table", "json", "csv", "parquet")
_Command = TypeVar("_Command", bound=Callable[..., object])
_WIDTH = 80
_HEADINGS = {"bound_ratio": "by", "bytes_per_second": "bandwidth"}
NO_HEADINGS: Mapping[str, str] = {}
_UNCOUNTED = ("early", "last", "matched", "never ran", "small", "unfinished")
"""Headings of counts that are no nouns: they have no plural."""


_FILLING = re.compile(r" +((?:\x1b\[[0-9;]*m)*)\n")
"""Blanks that only fill a line up to the width, before what ends its colour."""


class _Trimmed:
    """A stream that leaves out the blanks at the end of lines."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(_FILLING.sub(r"\1\n", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def console(*, stderr: bool = False) -> Console:
    """A console that uses colour only on a terminal and 80 columns elsewhere; ``NO_COLOR`` is respected."""
    stream = sys.stderr if stderr else sys.stdout
    return _console(stream, None if stream.isatty() else _WIDTH)


def _console(stream: IO[str], width: int | None) -> Console:
    file = cast("IO[str]", _Trimmed(stream))
    return Console(file=file, width=width, highlight=False, soft_wrap=False, emoji=False, markup=False)


@contextmanager
def screen(output: Path | None) -> Iterator[Console]:
    """Where text goes: the screen, or a file of 80 columns."""
    if output is None:
        yield console()
        return
    with output.open("w", encoding="utf-8") as file:
        yield _console(file, _WIDTH)


def printable(text: str) -> str:
    """``text`` without control characters: file and event names cannot move the cursor or add lines."""
    spaced = text.replace("\u00a0", " ").replace("\u202f", " ")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in spaced)


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
        if str(path) == "-":
            self.fail("'-' is no file: name one", param, ctx)
        if not path.parent.is_dir():
            raise TracekitError(f"{path}: there is no directory {path.parent}", hint="make it, or name another file")
        return path


def format_option(command: _Command) -> _Command:
    """Add ``--format`` and ``-o``."""
    command = click.option("-o", "--output", type=OutputFile(), help="Write to a file instead of the screen.")(command)
    return click.option(
        "--format", "form", type=click.Choice(FORMATS), help="table (default on screen), json, csv or parquet."
    )(command)


def scope_options(command: _Command) -> _Command:
    """Add ``--step N`` and ``--all``."""
    command = click.option("--all", "everything", is_flag=True, help="Measure everything, warm-up included.")(command)
    return click.option("--step", type=int, help="Measure one step only.")(command)


def chosen_scope(step: int | None, everything: bool) -> str | int:
    """The scope that ``--step`` and ``--all`` ask for."""
    if step is not None and everything:
        raise click.UsageError("--step and --all exclude each other")
    return "all" if everything else "steps" if step is None else step


def emit(
    frame: pl.DataFrame,
    table: Table,
    form: str | None = None,
    output: Path | None = None,
    *,
    title: str = "",
    columns: Sequence[str] = (),
    limit: int | None = None,
    more: str = "",
    headings: Mapping[str, str] = NO_HEADINGS,
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
        more: what to type to see the rest.
        headings: column → what stands above it on screen, where its name does not do.

    Raises:
        TracekitError: for Parquet without a file.
    """
    form = form or _form_of(output)
    if form == "table":
        with screen(output) as out:
            print_table(out, frame, table, title=title, columns=columns, limit=limit, more=more, headings=headings)
    else:
        write_rows(frame, form, output)


def _form_of(output: Path | None) -> str:
    """The format that a file's ending asks for.

    Raises:
        TracekitError: if that is one that is not written here.
    """
    ending = output.suffix.removeprefix(".").lower() if output else ""
    if ending in _TEXT_ENDINGS:
        return "table"
    if ending not in FORMATS:
        raise TracekitError(f"{output}: .{ending} files are not written", hint="use .json, .csv, .parquet or .txt")
    return ending


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
    headings: Mapping[str, str] = NO_HEADINGS,
    numbers: Collection[str] = (),
) -> None:
    """Print rows with human units in at most the console's width.

    Long text is cut in the middle; columns that do not fit are named below the table. ``more`` says what to
    type to see the rows beyond ``limit``; ``headings`` replaces the names of columns; ``numbers`` are
    columns of text to be set like numbers.
    """
    shown_name = functools.partial(_heading, given=headings)
    names = _telling(frame, columns or table.names)
    if title:
        out.print(title, style="bold")
    if frame.is_empty():
        out.print("  (none)", style="dim")
        return
    shown = frame.head(limit) if limit else frame
    cells = {name: _cells(_column(table, name), shown[name].to_list()) for name in names}
    names, left_out = _fitting({n: shown_name(n) for n in names}, cells, out.width)
    widths = _widths({n: shown_name(n) for n in names}, cells, out.width)
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in names:
        justify: Literal["left", "right"] = "left" if _is_text(frame, name) and name not in numbers else "right"
        grid.add_column(shown_name(name), justify=justify, no_wrap=True)
    for row in range(shown.height):
        grid.add_row(*(Text(_fit(cells[n][row], widths[n])) for n in names))
    out.print(grid)
    if limit and frame.height > limit:
        out.print(f"  … {plural(frame.height - limit, 'more row')}{f': {more}' if more else ''}", style="dim")
    if left_out:
        out.print(f"  … and {', '.join(map(shown_name, left_out))} (--format json or csv)", style="dim")


def _fitting(names: Mapping[str, str], cells: Mapping[str, Sequence[str]], total: int) -> tuple[list[str], list[str]]:
    """Columns (of ``names`` → headings) that fit when text is cut to 16 characters, and those that do not."""
    kept: list[str] = []
    used = 0
    for name, heading in names.items():
        widest = max(len(c) for c in cells[name])
        used += max(len(heading), widest if _is_whole(name) else min(16, widest)) + (2 if kept else 0)
        if used > total and kept:
            break
        kept.append(name)
    return kept, list(names)[len(kept) :]


def _widths(names: Mapping[str, str], cells: Mapping[str, Sequence[str]], total: int) -> dict[str, int]:
    """Width of each column (of ``names`` → headings) so that all fit: the widest give way.

    None gets narrower than its heading or 16 characters.
    """
    widths = {n: max(len(heading), *(len(c) for c in cells[n])) for n, heading in names.items()}
    floor = {n: widths[n] if _is_whole(n) else max(len(head), min(16, widths[n])) for n, head in names.items()}
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
    if column is None or column.unit != "ns" or not any(isinstance(v, int) and v > FIRST_DATE_NS for v in values):
        return cells
    days = {text[:10] for text in cells if text}
    return [text[11:] for text in cells] if len(days) == 1 else cells


def cell(column: Column | None, value: object) -> str:
    """One value as text, in the unit of its column."""
    if value is None:
        return ""
    unit = column.unit if column else None
    if unit == "ns" and isinstance(value, (int, float)):
        is_change = column is not None and column.name.endswith("change_ns")
        return moment(int(value)) if value > FIRST_DATE_NS else duration(value, signed=is_change)
    if unit == "B" and isinstance(value, (int, float)):
        return size(value)
    if unit == "B/s" and isinstance(value, (int, float)):
        return f"{size(value)}/s"
    if unit == "ratio" and isinstance(value, (int, float)):
        return ratio(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        is_name = column is not None and column.name.endswith(("_id", "_index", "step", "rank"))
        return minus(str(value) if is_name else f"{value:,}")
    if isinstance(value, float):
        return minus(f"{value:,.3g}")
    return printable(str(value))


def _telling(frame: pl.DataFrame, names: Sequence[str]) -> list[str]:
    """Columns that say something: with any value, and not the same session in each row."""
    known = [n for n in names if n in frame.columns and frame[n].null_count() < frame.height]
    return [n for n in known if n != "session" or frame[n].n_unique() > 1]


def _column(table: Table, name: str) -> Column | None:
    return table[name] if name in table.names else None


def _heading(name: str, given: Mapping[str, str] = NO_HEADINGS) -> str:
    if name in given or name in _HEADINGS:
        return given.get(name) or _HEADINGS[name]
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
    """Print notes as short paragraphs, the gravest first; equal ones of several sessions or files once."""
    import polars as pl

    from tracekit.tables import SEVERITIES

    weight = pl.col("severity").replace_strict(list(SEVERITIES), [2, 1, 0], return_dtype=pl.Int64)
    merged = (
        notes.group_by("severity", "code", "message", "hint", maintain_order=True)
        .agg(
            paths=pl.col("path").filter(pl.col("path") != ".").unique(maintain_order=True),
            sessions=pl.col("session").n_unique(),
        )
        .sort(weight, maintain_order=True)
    )
    if merged.is_empty():
        return
    out.print("Notes", style="bold")
    styles = {"error": "red", "warning": "yellow", "info": "dim"}
    for row in merged.head(limit).iter_rows(named=True):
        paths = row["paths"]
        others = f" and {plural(len(paths) - 1, 'more file')}" if len(paths) > 1 else ""
        where = f"{paths[0]}{others}: " if paths else ""
        times = f" (in each of {row['sessions']} sessions)" if row["sessions"] > 1 >= len(paths) else ""
        head = Text(f"{row['severity']} ", style=styles[row["severity"]])
        body = Text(printable(f"{where}{told(row['message']).rstrip('.')}{times}"))
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
