"""A side of a comparison as a small JSON file that lives in a repository, without the trace."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import polars as pl

from tracekit._version import __version__
from tracekit.errors import ArchiveError
from tracekit.sides import NUMBERS, SIDE_OPS, Side

FORMAT = "tracekit-baseline"
VERSION = 2
READABLE = (1, 2)
"""1 has no shapes, one mean per number of an operator, and does not say what was measured."""

_SEQUENCE = {"name": pl.String(), "device_ns": pl.Int64()}
_FACTS = {"scope": None, "run_count": 1, "process_count": 1, "sequence_of": ""}
"""Facts of a side that are written as they are, and what stands for them where they are missing."""


def to_json(side: Side) -> str:
    """The side as readable JSON: measures with one value per step, operators, and the order of executions."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "tracekit_version": __version__,
        "name": side.name,
        "per_step": side.per_step,
        **{fact: getattr(side, fact) for fact in _FACTS},
        "samples": {measure: list(values) for measure, values in side.samples.items()},
        "ops": {
            **{key: side.ops[key].to_list() for key in SIDE_OPS.key},
            **{number: [_short(values) for values in side.ops[number].to_list()] for number in NUMBERS},
        },
        "sequence": {name: side.sequence[name].to_list() for name in _SEQUENCE},
    }
    lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in document.items())
    return "{\n" + lines + "\n}\n"


def is_baseline(path: Path) -> bool:
    """Whether a file is a baseline, whatever its name."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(1) == b"{" and f'"{FORMAT}"'.encode() in file.read(200)


def from_json(path: Path) -> Side:
    """Read a baseline.

    Raises:
        ArchiveError: if the file is not a baseline that this version reads, or something in it cannot be.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refused)
        if document["format"] != FORMAT or document["version"] not in READABLE:
            raise ArchiveError(
                f"{path}: baseline version {document['version']}, this tracekit reads {READABLE[-1]}",
                hint="write it again with `tracekit baseline`",
            )
        samples = {str(k): [_number(x) for x in v] for k, v in document["samples"].items()}
        lengths = {len(values) for values in samples.values()}
        if len(lengths) != 1 or 0 in lengths:
            raise ValueError(f"measures with {sorted(lengths) or 'no'} values")
        facts: dict[str, Any] = {fact: document.get(fact, otherwise) for fact, otherwise in _FACTS.items()}
        return Side(
            name=str(document["name"]),
            samples=samples,
            ops=_ops(document["ops"], lengths.pop()),
            sequence=pl.DataFrame(document["sequence"], schema=_SEQUENCE),
            per_step=bool(document["per_step"]),
            **facts,
        )
    except (ValueError, KeyError, TypeError, AttributeError, pl.exceptions.PolarsError) as error:
        problem = f"{error} is missing" if isinstance(error, KeyError) else str(error).splitlines()[0]
        raise ArchiveError(
            f"{path}: not a baseline: {problem}", hint="write it again with `tracekit baseline`"
        ) from error


def _ops(columns: Mapping[str, list[Any]], count: int) -> pl.DataFrame:
    names = columns["name"]
    values = {number: [_values(value, count) for value in columns[number]] for number in NUMBERS}
    ops = pl.DataFrame(
        {"name": names, "shapes": columns.get("shapes", [None] * len(names)), **values},
        schema={column.name: column.dtype for column in SIDE_OPS.columns},
    )
    return SIDE_OPS.conform(ops)


def _short(values: list[float]) -> list[float] | dict[str, float]:
    """Values of an operator; ones that are all the same, as of most, as one."""
    numbers = [int(value) if value.is_integer() else value for value in values]
    return {"each": numbers[0]} if len(numbers) > 1 and len(set(numbers)) == 1 else numbers


def _values(stored: object, count: int) -> list[float]:
    if isinstance(stored, Mapping):
        return [_number(stored["each"])] * count
    listed = stored if isinstance(stored, list) else [stored]
    if len(listed) not in (1, count):
        raise ValueError(f"an operator has {len(listed)} values where there are {count} samples")
    return [_number(value) for value in listed]


def _number(value: object) -> float:
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    raise ValueError(f"{value!r} is not a number")


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")
