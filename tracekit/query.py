"""SQL over stored tables, read-only: one SELECT at a time, and no function that opens a file.

The dialect is that of Polars. Tables are ``runs`` (one row per profile, labels as columns), the stored tables, and
every metric by its name; each has a ``profile`` column first. Only tables that a query names are opened, and filters
and column choices reach the Parquet files.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Protocol

import polars as pl
from polars.exceptions import PolarsError

from tracekit import tables
from tracekit.durations import DURATIONS
from tracekit.errors import VERIFY_HINT, QueryError, damage
from tracekit.metrics import METRICS
from tracekit.runs import RUNS
from tracekit.tables import Column, Table

TABLE_NAMES = ("runs", "durations", *tables.TABLES, *METRICS)
"""Everything that can stand behind FROM."""

_STATEMENTS = ("SELECT", "WITH", "FROM", "VALUES", "EXPLAIN")
_LEADING = re.compile(r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_OPENS_FILES = re.compile(r"\b(?:read|scan)_\w+", re.IGNORECASE)
_OTHER_SCAN = re.compile(r"^\s*(?:\w+ )?(?:CSV|NDJSON|JSON|IPC|PYTHON|DELTA|ICEBERG|LINES?) SCAN", re.I | re.M)
_PARAMETER = re.compile(r"(?<![:\w]):([A-Za-z_]\w*)")
_DECLARED = re.compile(r"^--\s*:(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<default>\S.*?)\s*$", re.MULTILINE)


class Queryable(Protocol):
    """What a query reads: a profile or an archive."""

    def sql_table(self, name: str) -> pl.LazyFrame:
        """One of ``TABLE_NAMES``, with a ``profile`` column first."""


def query(found: Queryable, sql: str) -> pl.LazyFrame:
    """The result of one SQL query.

    Raises:
        QueryError: if the query is not valid, or does anything but read the tables; one line, with near matches
            for unknown names.
    """
    text = sql.strip().rstrip(";").strip()
    if re.fullmatch(r"show\s+tables", text, re.IGNORECASE):
        return table_list().lazy()
    check(text)
    opened = {name: found.sql_table(name) for name in named_tables(text)}
    try:
        frame = pl.SQLContext(opened).execute(text)
        frame.collect_schema()
        plan = frame.explain(optimized=False)
    except PolarsError as error:
        raise _explained(error, opened) from error
    if _OTHER_SCAN.search(plan):
        raise QueryError("the query reads a file that is not a table of the archive", hint=_CATALOGUE_HINT)
    return frame


def collect(frame: pl.LazyFrame) -> pl.DataFrame:
    """Run a query in bounded memory.

    Raises:
        QueryError: if it fails on the data, e.g. by a cast.
    """
    try:
        return frame.collect(engine="streaming")
    except PolarsError as error:
        raise _explained(error, {}) from error


def check(sql: str) -> None:
    """Refuse what is not one reading statement over the archive's own tables.

    The whole text counts, comments and string literals included: what a parser might see as code
    must not hide from this check.

    Raises:
        QueryError: with the reason.
    """
    match = re.match(r"[A-Za-z]+", sql[_LEADING.match(sql).end() :])  # type: ignore[union-attr]
    first = match.group().upper() if match else ""
    if not sql:
        raise QueryError("the query is empty", hint='try "SELECT * FROM runs"')
    if first not in _STATEMENTS:
        raise QueryError(
            f"{first or sql[:20]!r} is not allowed: queries only read",
            hint=f"a query starts with {', '.join(_STATEMENTS[:2])} or SHOW TABLES",
        )
    opening = _OPENS_FILES.search(sql)
    if opening:
        raise QueryError(
            f"{opening.group()} is not allowed: queries read the tables of the archive only", hint=_CATALOGUE_HINT
        )


_CATALOGUE_HINT = f"tables are {', '.join(TABLE_NAMES)}"


def named_tables(sql: str) -> list[str]:
    """Tables that a query may mean: stored ones that occur as a word; metrics, which cost more, behind FROM or JOIN."""
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    places = {place.lower() for place in re.findall(r"(?i)(?:\bfrom|\bjoin|,)[\s(\"`]*(\w+)", sql)}
    return [name for name in TABLE_NAMES if name in (places if name in METRICS else words)]


def table_of(frame: pl.DataFrame) -> Table:
    """Columns of a result as a table: the units are those that the names end in."""
    units = {"_ns": "ns", "_bytes": "B", "_ratio": "ratio"}
    columns = (
        Column(name, dtype, "", True, next((u for end, u in units.items() if name.endswith(end)), None))
        for name, dtype in frame.schema.items()
    )
    return Table("result", "Result of a query.", (), tuple(columns))


def table_list() -> pl.DataFrame:
    """Name and meaning of every table."""
    docs = (
        {t.name: t.doc for t in (RUNS, DURATIONS)}
        | {t.name: t.doc for t in tables.TABLES.values()}
        | {m: METRICS[m].doc for m in METRICS}
    )
    return pl.DataFrame({"name": list(docs), "doc": list(docs.values())})


def _explained(error: PolarsError, opened: Mapping[str, pl.LazyFrame]) -> QueryError:
    """An error of the engine in one line, with what the user may have meant."""
    problem = str(error).partition("\n")[0].strip()
    if damage(error):
        return QueryError(f"a stored file is damaged: {problem}", hint=VERIFY_HINT)
    unknown = re.search(r"relation '([^']*)' was not found", problem)
    if unknown:
        hint = _near(unknown.group(1), TABLE_NAMES) or _CATALOGUE_HINT
        return QueryError(f"no table {unknown.group(1)!r}", hint=hint)
    column = re.search(r"(?:unable to find column|no column named) ['\"]([^'\"]*)['\"]", problem)
    if column:
        listed = re.search(r"valid columns: \[(.*?)\]", problem)
        valid = re.findall(r'"([^"]*)"', listed.group(1)) if listed else []
        for frame in opened.values():
            valid += [c for c in frame.collect_schema() if c not in valid]
        name = column.group(1)
        label = re.fullmatch(r"(?:\w+\.)?label_(\w+)", name)
        if label and not difflib.get_close_matches(name, (c for c in valid if c.startswith("label_")), 1, 0.85):
            key = label.group(1)
            hint = f"set it: tracekit archive label ARCHIVE PROFILE {key}=…, or tracekit batch … --label {key}=…"
            return QueryError(f"no profile has the label {key!r}", hint=hint)
        return QueryError(f"no column {name!r}", hint=_near(name, valid) or f"columns are {', '.join(valid[:12])}, …")
    problem = re.sub(r"^sql parser error: ", "", problem)
    return QueryError(f"the query is not valid: {problem}", hint="the dialect is that of Polars SQL")


def _near(name: str, known: Iterable[str]) -> str:
    names = list(known)
    parts = [n for n in names if len(name) > 2 and (name.lower() in n.lower() or n.lower() in name.lower())]
    found = dict.fromkeys([*difflib.get_close_matches(name, names, 3, 0.6), *parts])
    return f"did you mean {' or '.join(list(found)[:3])}?" if found else ""


@dataclass(frozen=True)
class NamedQuery:
    """A query in a file: comment lines say what it answers and declare parameters (``-- :name = default``)."""

    name: str
    doc: str
    sql: str
    defaults: Mapping[str, str]

    def filled(self, values: Mapping[str, str]) -> str:
        """The SQL with its parameters as literals: numbers as they are, all else as quoted text.

        Raises:
            QueryError: if a value is for no parameter, or a parameter has no value.
        """
        unknown = sorted(set(values) - set(self.defaults))
        if unknown:
            known = ", ".join(self.defaults) or "none"
            raise QueryError(f"@{self.name} has no parameter {', '.join(unknown)}", hint=f"it has {known}")
        merged = {**self.defaults, **values}
        return _PARAMETER.sub(lambda m: _literal(merged[m.group(1)]) if m.group(1) in merged else m.group(), self.sql)


def _literal(value: str) -> str:
    if re.fullmatch(r"-?\d+(\.\d+)?", value):
        return value
    return "'" + value.replace("'", "''") + "'"


def named_queries(folders: Sequence[Path] = ()) -> dict[str, NamedQuery]:
    """Queries in files ``<name>.sql`` by name: those that come with tracekit, then those of ``folders``, which win."""
    shipped = resources.files("tracekit") / "queries"
    files = [f for f in shipped.iterdir() if f.name.endswith(".sql")]
    found = {name: _parsed(name, text) for name, text in ((f.name[:-4], f.read_text("utf-8")) for f in files)}
    for folder in folders:
        for path in sorted(folder.glob("*.sql")):
            try:
                found[path.stem] = _parsed(path.stem, path.read_text("utf-8"))
            except (OSError, UnicodeDecodeError) as error:
                raise QueryError(f"{path}: cannot be read: {error}") from error
    return dict(sorted(found.items()))


def _parsed(name: str, text: str) -> NamedQuery:
    comments = [line[2:].strip() for line in text.splitlines() if line.startswith("--")]
    defaults = {m["name"]: m["default"] for m in _DECLARED.finditer(text)}
    doc = " ".join(line for line in comments if not line.startswith(":"))
    sql = "\n".join(line for line in text.splitlines() if not line.startswith("--")).strip()
    return NamedQuery(name, doc, sql, defaults)


def named_query(name: str, folders: Sequence[Path] = ()) -> NamedQuery:
    """The query of that name.

    Raises:
        QueryError: if there is none; the hint lists near matches or all.
    """
    known = named_queries(folders)
    if name not in known:
        raise QueryError(f"no query @{name}", hint=_near(name, known) or f"queries are @{', @'.join(known)}")
    return known[name]
