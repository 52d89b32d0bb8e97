"""``tracekit query PATH "SELECT …"``: SQL over an archive or a profile; without SQL on a terminal, interactively."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.output import console, emit, format_option, printable
from tracekit.errors import QueryError, TracekitError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completion
    from prompt_toolkit.document import Document

    from tracekit.profile import Archive, Profile

_EPILOG = """\b
Examples:
  tracekit query runs/ "SELECT profile, label_commit, started_at FROM runs"
  tracekit query runs/ @top-ops
  tracekit query runs/ @op-p95 --param op=aten::mm -o p95.parquet
  tracekit query runs/                    interactive
"""
_HELP = """.tables            tables and what they hold
.schema TABLE      columns of a table
.queries           named queries; run one with @NAME
.format FORM       table, json or csv
.quit              leave (also Ctrl-D)
SQL may span lines and ends with ;"""
_MANY = 50
"""Profiles of which computing a metric takes long enough to say so."""
_KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "JOIN", "LEFT JOIN", "ON", "AS", "AND", "OR", "NOT"),
    *("IN", "LIKE", "IS NULL", "DESC", "DISTINCT", "HAVING", "WITH", "CASE", "WHEN", "THEN", "ELSE", "END", "COUNT("),
    *("SUM(", "AVG(", "MIN(", "MAX(", "MEDIAN(", "QUANTILE_CONT("),
)


@click.command(epilog=_EPILOG)
@click.argument("path")
@click.argument("sql", required=False)
@click.option("--file", "file", type=click.Path(path_type=Path), help="Read the SQL from a file; - is standard input.")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Value for a named query; repeatable.")
@click.option("--queries", "folder", type=click.Path(path_type=Path), help="Folder of more named queries (.sql).")
@click.option("--list", "listed", is_flag=True, help="List the named queries.")
@click.option("--limit", default=50, show_default=True, help="Rows on screen; 0 shows all.")
@format_option
def command(
    path: str,
    sql: str | None,
    file: Path | None,
    params: tuple[str, ...],
    folder: Path | None,
    listed: bool,
    limit: int,
    form: str | None,
    output: Path | None,
) -> None:
    """Ask PATH (an archive, a profile, or raw input) in SQL.

    SQL is one SELECT in the dialect of Polars, or @NAME for a named query. Tables are runs (one row per
    profile, with labels), the stored tables (events, chains, sessions, …) and every metric. Nothing is
    ever written, and no other file is read. Named queries are looked up in PATH/queries/ too.
    """
    from tracekit.profile import open_any

    if sql is not None and file is not None:
        raise click.UsageError("give SQL or --file, not both")
    folders = [f for f in (Path(path) / "queries", folder) if f is not None and f.is_dir()]
    if listed:
        _list_queries(folders)
        return
    found = open_any(path)
    if file is not None:
        sql = _text(file)
    if sql is not None:
        _answer(found, sql, _values(params), folders, form, output, limit)
    elif sys.stdin.isatty() and sys.stdout.isatty():
        _converse(found, folders, form or "table", limit)
    else:
        _answer(found, sys.stdin.read(), _values(params), folders, form, output, limit)


def _values(params: tuple[str, ...]) -> dict[str, str]:
    values = {}
    for pair in params:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--param")
        values[name] = value
    return values


def _text(file: Path) -> str:
    if str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise QueryError(f"{file}: not text: {error.reason}") from error


def _answer(
    found: Profile | Archive,
    sql: str,
    values: Mapping[str, str],
    folders: list[Path],
    form: str | None,
    output: Path | None,
    limit: int,
) -> None:
    from tracekit.query import collect, named_query, table_of

    text = sql.strip()
    if text.startswith("@"):
        text = named_query(text[1:].rstrip("; "), folders).filled(values)
    elif values:
        raise click.UsageError("--param goes with a named query (@NAME)")
    _tell_of_work(found, text)
    frame = collect(found.query(text))
    emit(frame, table_of(frame), form, output, limit=limit or None)


def _tell_of_work(found: Profile | Archive, sql: str) -> None:
    """Say on standard error what takes long, and how to have it quicker the next time."""
    from tracekit.metrics import METRICS
    from tracekit.profile import Archive
    from tracekit.query import named_tables

    if not isinstance(found, Archive):
        return
    for name in (n for n in named_tables(sql) if n in METRICS):
        count = found.unindexed(name)
        if count >= _MANY:
            place = printable(str(found.path))
            quicker = (
                "" if place.startswith("s3:/") else f"; `tracekit archive index {place} --metric {name}` keeps them"
            )
            out = console(stderr=True)
            out.print(f"computing {name} of {count:,} profiles{quicker}", style="dim", soft_wrap=True)


def _list_queries(folders: list[Path]) -> None:
    from tracekit.cli.output import facts
    from tracekit.query import named_queries

    known = named_queries(folders).values()
    defaults = {q.name: ", ".join(f"{n}={v}" for n, v in q.defaults.items()) for q in known}
    facts(console(), {f"@{q.name}": q.doc + (f" ({defaults[q.name]})" if q.defaults else "") for q in known})


def _converse(found: Profile | Archive, folders: list[Path], form: str, limit: int) -> None:
    """Read, run and print until the user leaves; errors are one line and end nothing."""
    session = _prompt(found, folders)
    out = console()
    out.print('SQL ends with ";" · .help · .quit', style="dim")
    while True:
        try:
            text = session.prompt().strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text in (".quit", ".exit", "quit", "exit"):
            return
        if text.startswith(".format"):
            wanted = text.removeprefix(".format").strip()
            if wanted in ("table", "json", "csv"):
                form = wanted
            else:
                out.print("formats are table, json and csv")
            continue
        try:
            _act(found, text, folders, form, limit)
        except TracekitError as error:
            out.print(printable(str(error)), style="red")
        except KeyboardInterrupt:
            out.print("stopped", style="dim")


def _act(found: Profile | Archive, text: str, folders: list[Path], form: str, limit: int) -> None:
    from tracekit.cli.output import facts

    word, _, rest = text.rstrip(";").partition(" ")
    if not text:
        return
    if word == ".help":
        console().print(_HELP)
    elif word == ".tables":
        _answer(found, "SHOW TABLES", {}, folders, "table", None, 0)
    elif word == ".queries":
        _list_queries(folders)
    elif word == ".schema":
        from tracekit.query import TABLE_NAMES

        name = rest.strip()
        if name not in TABLE_NAMES:
            raise QueryError(f"no table {name!r}", hint=f"tables are {', '.join(TABLE_NAMES)}")
        facts(console(), {c: str(t) for c, t in found.sql_table(name).collect_schema().items()})
    elif word.startswith("."):
        raise QueryError(f"no command {word}", hint=".help lists them")
    else:
        _answer(found, text, {}, folders, form, None, limit)


def _prompt(found: Profile | Archive, folders: list[Path]) -> PromptSession[str]:
    """A prompt with completion, and a history in the user's state directory."""
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import Completer, Completion
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.history import FileHistory
    except ImportError as error:
        hint = "pip install 'tracekit[sql]', or give the SQL as an argument"
        raise TracekitError("the interactive prompt needs prompt_toolkit", hint=hint) from error
    import platformdirs

    words = completions(found, folders)

    class Words(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            typed = document.get_word_before_cursor(WORD=True).split("(")[-1].split(",")[-1].split(".")[-1]
            whole = document.text_before_cursor.strip()
            start = whole if whole.startswith(".") and " " not in whole else typed
            for word in words:
                if start and word.lower().startswith(start.lower()):
                    yield Completion(word, -len(start))

    history = platformdirs.user_state_path("tracekit", ensure_exists=True) / "query_history"
    session: PromptSession[str] = PromptSession(
        "tracekit> ", history=FileHistory(str(history)), completer=Words(), complete_while_typing=False
    )
    session.multiline = Condition(lambda: not _is_finished(session.default_buffer.text))
    return session


def _is_finished(text: str) -> bool:
    stripped = text.strip()
    return not stripped or stripped.endswith(";") or stripped[0] in ".@" or stripped in ("quit", "exit")


def completions(found: Profile | Archive, folders: list[Path]) -> list[str]:
    """Words that a prompt offers: tables, their columns, named queries, keywords and commands."""
    from tracekit import tables
    from tracekit.metrics import METRICS
    from tracekit.query import TABLE_NAMES, named_queries

    columns = {c for t in tables.TABLES.values() for c in t.names}
    columns |= {c for m in METRICS for c in METRICS[m].table.names}
    columns |= set(found.sql_table("runs").collect_schema())
    dots = (".tables", ".schema", ".queries", ".format", ".help", ".quit")
    return [*TABLE_NAMES, *sorted(columns), *(f"@{q}" for q in named_queries(folders)), *_KEYWORDS, *dots]
