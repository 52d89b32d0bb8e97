"""A side of a comparison as a small JSON file that lives in a repository, without the trace."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from tracekit._version import __version__
from tracekit.comparison import Side
from tracekit.errors import ArchiveError

FORMAT = "tracekit-baseline"
VERSION = 1

_OPS = {"name": pl.String(), "executions": pl.Float64(), "device_ns": pl.Float64(), "host_ns": pl.Float64()}
_SEQUENCE = {"name": pl.String(), "device_ns": pl.Int64()}


def to_json(side: Side) -> str:
    """The side as readable JSON: measures with one value per step, operators, and the order of executions."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "tracekit_version": __version__,
        "name": side.name,
        "per_step": side.per_step,
        "samples": {measure: list(values) for measure, values in side.samples.items()},
        "ops": {name: side.ops[name].to_list() for name in _OPS},
        "sequence": {name: side.sequence[name].to_list() for name in _SEQUENCE},
    }
    lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in document.items())
    return "{\n" + lines + "\n}\n"


def is_baseline(path: Path) -> bool:
    """Whether a file looks like a baseline."""
    if not path.is_file() or path.suffix != ".json":
        return False
    with path.open("rb") as file:
        return FORMAT.encode() in file.read(200)


def from_json(path: Path) -> Side:
    """Read a baseline.

    Raises:
        ArchiveError: if the file is not a baseline that this version reads.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != FORMAT or document["version"] != VERSION:
            raise ArchiveError(
                f"{path}: baseline version {document['version']}, this tracekit reads {VERSION}",
                hint="write it again with `tracekit baseline`",
            )
        return Side(
            name=str(document["name"]),
            samples={str(k): [float(x) for x in v] for k, v in document["samples"].items()},
            ops=pl.DataFrame(document["ops"], schema=_OPS),
            sequence=pl.DataFrame(document["sequence"], schema=_SEQUENCE),
            per_step=bool(document["per_step"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, pl.exceptions.PolarsError) as error:
        raise ArchiveError(
            f"{path}: not a baseline: {error}", hint="write it again with `tracekit baseline`"
        ) from error
