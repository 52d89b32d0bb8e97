"""Rows that ``tracekit export --to chrome`` wrote of another source, such as the Neuron system trace.

Their category is ``<source>:<lane>:<kind>``, with ``:<category>`` behind it where the row had one. Their ``args`` hold
what has a column, and below ``attrs`` the attributes of the source. Worker processes load this module.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from tracekit.sources._chrome_args import Promoted
from tracekit.sources._chrome_categories import exported
from tracekit.sources._chrome_columns import Coded, Codes, Ints, Joined, Mask, joined
from tracekit.sources._chrome_events import ABSENT, NotStrict, Report

_INT64 = 2**63
_UINT64 = 2**64
_SAMPLE = re.compile(r"sample:([0-9]{0,9}):(.*)", re.DOTALL)


class Args(msgspec.Struct, gc=False):
    """What the export writes into ``args``; keys are those of ``export._chrome_lines``."""

    external: int = msgspec.field(name="External id", default=ABSENT)
    correlation: int = ABSENT
    device: int = ABSENT
    stream: int = ABSENT
    moved: int = msgspec.field(name="bytes", default=ABSENT)
    physical_core: int = ABSENT
    sequence: int | None = msgspec.field(name="nrt_sequence_id", default=None)
    execution: int | None = msgspec.field(name="exec_id", default=None)
    model: str | None = msgspec.field(name="model_id", default=None)
    attrs: msgspec.Raw = msgspec.Raw(b"")


_INTEGERS = ("external", "correlation", "device", "stream", "moved", "physical_core")
_OTHERS = ("sequence", "execution", "model")
_one, _many = msgspec.json.Decoder(Args), msgspec.json.Decoder(list[Args])


@dataclass(frozen=True)
class ExportedRows:
    """The rows of one batch that come from an export, and what their columns hold."""

    mask: Mask
    rows: Ints
    args: Sequence[Args]

    def attributes(self, attrs: Joined, *, strict: bool) -> Joined:
        """``args`` of every row; of these rows the attributes that their source gave."""
        found: list[bytes] = attrs.texts(np.arange(len(self.mask)))
        for row, args in zip(self.rows.tolist(), self.args, strict=True):
            found[row] = bytes(args.attrs)
        return joined(found, strict=strict)

    def fill(self, keys: Promoted) -> None:
        """Replace what was promoted from the attributes of these rows: the export wrote all that had a column."""
        for name in _INTEGERS[:-1]:
            getattr(keys, name)[self.rows] = self._integers(name)
        for name in _OTHERS:
            values = [getattr(args, name) for args in self.args]
            column = getattr(keys, name)
            if column is None:
                column = [None] * len(self.mask)
                setattr(keys, name, column)
            for row, value in zip(self.rows.tolist(), values, strict=True):
                column[row] = value

    def physical_core(self) -> Ints:
        """``physical_core`` of every row of the batch; ``ABSENT`` where there is none."""
        found: Ints = np.full(len(self.mask), ABSENT)
        found[self.rows] = self._integers("physical_core")
        return found

    def _integers(self, name: str) -> Ints:
        return np.fromiter((getattr(args, name) for args in self.args), np.int64, len(self.args))


def exported_rows(category: Coded, attrs: Joined, report: Report, *, strict: bool) -> ExportedRows | None:
    """Decode ``args`` of the rows that come from an export; None where no category says so.

    Raises:
        NotStrict: only if ``strict``: a value is not as the export writes it.
    """
    codes = [code for code, value in enumerate(category.values) if exported(value) is not None]
    mask = np.isin(category.codes, codes) if codes else None
    if mask is None or not mask.any():
        return None
    rows = np.flatnonzero(mask)
    chosen = [text or b"{}" for text in attrs.texts(rows)]
    try:
        args: Sequence[Args] = _many.decode(b"[" + b",".join(chosen) + b"]")
        fits = all(map(_fits, args))
    except (msgspec.DecodeError, TypeError):
        fits = False
    if not fits:
        if strict:
            raise NotStrict("args are not as the export writes them")
        args = [_loose(t, report) for t in chosen]
    return ExportedRows(mask, rows, args)


def _loose(text: bytes, report: Report) -> Args:
    """``args`` of one row; those that another program changed are kept as attributes."""
    try:
        args = _one.decode(text)
        if _fits(args):
            return args
    except (msgspec.DecodeError, TypeError):
        pass
    report.add("repaired_event", -1, "`args` are not as `tracekit export` writes them; the ids are left out")
    return Args(attrs=msgspec.Raw(text))


def _fits(args: Args) -> bool:
    """Whether every number fits its column, and the attributes are an object."""
    return (
        all(-_INT64 <= getattr(args, name) < _INT64 for name in _INTEGERS)
        and (args.execution is None or -_INT64 <= args.execution < _INT64)
        and (args.sequence is None or 0 <= args.sequence < _UINT64)
        and (not len(args.attrs) or bytes(args.attrs)[:1] == b"{")
    )


def sample_facts(category: str | None) -> tuple[int, str | None] | None:
    """Core (or ``ABSENT``) and unit of a counter that an export wrote of another source's sample.

    Its category is ``sample:<core>:<unit>``, both empty where there is none. None for every other counter.
    """
    found = _SAMPLE.fullmatch(category or "")
    return None if found is None else (int(found[1] or ABSENT), found[2] or None)


def parts(category: Coded) -> tuple[Coded, Coded]:
    """Category and source as they were before the export, with the codes of the rows; null where a row has none."""
    known = [exported(value) for value in category.values]
    names = [value if found is None else found.category for value, found in zip(category.values, known, strict=True)]
    sources = [None if found is None else found.source for found in known]
    return _merged(names, category.codes), _merged(sources, category.codes)


def _merged(values: Sequence[str | None], codes: Codes) -> Coded:
    """Values that may repeat, as a dictionary without repeats."""
    distinct = list(dict.fromkeys(values))
    number = np.array([distinct.index(value) for value in values], np.int32)
    return Coded(distinct, number[codes] if len(values) else codes)
