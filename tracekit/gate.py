"""Limits on a comparison: what a pull request may cost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from xml.etree import ElementTree

from tracekit import significance
from tracekit.comparison import Comparison
from tracekit.errors import QueryError
from tracekit.sides import COUNTS, MEASURES

_LIMIT = re.compile(r"^([+-]?\d+(?:\.\d+)?)\s*(%|ns|us|µs|ms|s)?$")
_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_OF_HOST = ("host_time", "host_self_time", "host_only", "operators")
"""Measures that say something where no device was recorded."""


@dataclass(frozen=True)
class Limit:
    """The most that a measure may grow: by a share of the first side, or by an amount in its unit."""

    measure: str
    text: str
    ratio: float | None
    amount: float | None

    def allows(self, before: float, after: float) -> bool:
        """Whether ``after`` is within the limit."""
        room = before * self.ratio if self.ratio is not None else float(self.amount or 0)
        return after <= before + room


@dataclass(frozen=True)
class Outcome:
    """One limit, checked."""

    limit: Limit
    before: float
    after: float
    unit: str
    passed: bool
    verdict: str
    p_value: float | None
    remark: str = ""
    """Why it passed or failed, where the numbers alone do not say so."""

    @property
    def reason(self) -> str:
        """One line that says what was found and what was allowed."""
        change = self.after - self.before
        share = f" ({100 * change / self.before:+.1f} %)" if self.before else ""
        unit = "" if self.unit == "count" else " ns"
        found = f"{self.limit.measure} {self.before:,.10g} → {self.after:,.10g}{unit}{share}"
        return f"{found}, limit {self.limit.text}" + (f": {self.remark}" if self.remark else "")


def parse_limit(measure: str, text: str) -> Limit:
    """Read a limit such as ``+5%``, ``+0`` or ``+20us``.

    Times need a unit, unless they are 0, and counts have none: ``+5`` on a time would mean 5 ns, ``+20us`` on
    a count 20,000 of them.

    Args:
        measure: a measure, written as ``measure_name`` takes it.
        text: the limit.

    Raises:
        QueryError: if it is none of these.
    """
    name = measure_name(measure)
    match = _LIMIT.match(text.strip())
    if not match:
        raise QueryError(f"{name}: {text!r} is not a limit", hint="write +5%, +0, or +20us")
    number, unit = Decimal(match[1]), match[2]
    if unit == "%":
        return Limit(name, text, float(number / 100), None)
    if unit and name in COUNTS:
        raise QueryError(f"{name}: {text!r} is a time, and {name} is a count", hint="write +5% or +0")
    if not unit and number and name not in COUNTS:
        raise QueryError(f"{name}: {text!r} has no unit", hint=f"write {text.strip()}% or {text.strip()}us")
    return Limit(name, text, None, float(number * _UNITS[unit or "ns"]))


def measure_name(text: str) -> str:
    """A measure as people write it: dashes for underscores, ``max_`` before it, ``gap.total`` for ``gap``."""
    name = text.strip().replace("-", "_").removeprefix("max_")
    return "gap" if name == "gap.total" else name


def parse_limits(section: Mapping[str, object]) -> list[Limit]:
    """Limits of a ``[gate]`` section: ``device_time = "+5%"``, and a table ``gap`` by cause.

    Names are those of the options of ``tracekit gate``, with or without ``max``.

    Raises:
        QueryError: if a value is not a limit.
    """
    limits = []
    for name, value in section.items():
        if not isinstance(value, Mapping):
            limits.append(parse_limit(name, str(value)))
            continue
        if measure_name(name) not in ("gap", "max"):
            raise QueryError(f"{name} is a table, not a limit", hint='write device_time = "+5%"; gap may be a table')
        prefix = "gap." if measure_name(name) == "gap" else ""
        limits += [parse_limit(prefix + cause, str(text)) for cause, text in value.items()]
    return limits


def check_names(limits: Iterable[Limit]) -> None:
    """Refuse limits on measures that no comparison has.

    Raises:
        QueryError: naming the first unknown measure and all known ones.
    """
    for limit in limits:
        if limit.measure not in MEASURES:
            raise QueryError(f"no measure {limit.measure!r}", hint=f"measures are {', '.join(sorted(MEASURES))}")


def check(comparison: Comparison, limits: Iterable[Limit]) -> list[Outcome]:
    """Check every limit.

    Growth beyond a limit passes only where the test of ``significance`` finds that chance explains it: both
    sides must have enough samples for it to say so; with single captures the limit alone decides. A side
    that lost the device's or the host's work altogether fails: what was not recorded is not fast.

    Raises:
        TracekitError: if a measure does not exist, or a side does not have it.
    """
    listed = list(limits)
    check_names(listed)
    lost = _lost(comparison)
    return [_checked(limit, comparison.total(limit.measure), lost) for limit in listed]


def _checked(limit: Limit, row: Mapping[str, object], lost: Iterable[str]) -> Outcome:
    before, after = float(str(row["a"])), float(str(row["b"]))
    p_value = None if row["p_value"] is None else float(str(row["p_value"]))
    is_within, is_chance = limit.allows(before, after), significance.is_chance(p_value)
    missing = next((lane for lane in lost if (limit.measure in _OF_HOST) == (lane == "host")), None)
    remark = ""
    if missing:
        remark = f"the second side has no {missing} work at all, the first one has: was it recorded?"
    elif not is_within and is_chance:
        remark = f"within the noise (p = {p_value:.2g})"
    passed = (is_within or is_chance) and not missing
    return Outcome(limit, before, after, str(row["unit"]), passed, str(row["verdict"]), p_value, remark)


def _lost(comparison: Comparison) -> list[str]:
    """Who worked on the first side and does nothing on the second: device, host."""
    lanes = {"device": ("device_time", "executions"), "host": ("host_time", "operators")}
    known = {row["measure"]: (row["a"], row["b"]) for row in comparison.totals.to_dicts()}
    values = {lane: [known.get(measure, (0, 0)) for measure in measures] for lane, measures in lanes.items()}
    return [lane for lane, of in values.items() if any(a for a, _ in of) and not any(b for _, b in of)]


def junit(outcomes: Iterable[Outcome], name: str) -> str:
    """The outcomes as a JUnit XML file: one test case per limit."""
    checked = list(outcomes)
    failed = [o for o in checked if not o.passed]
    suite = ElementTree.Element("testsuite", name=name, tests=str(len(checked)), failures=str(len(failed)))
    for outcome in checked:
        case = ElementTree.SubElement(suite, "testcase", classname="tracekit.gate", name=outcome.limit.measure)
        if not outcome.passed:
            ElementTree.SubElement(case, "failure", message=outcome.reason)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def github_annotations(outcomes: Iterable[Outcome]) -> str:
    """The outcomes as GitHub workflow commands: an error per exceeded limit, else one notice."""
    failed = [f"::error title=tracekit gate::{_escaped(o.reason)}" for o in outcomes if not o.passed]
    return "\n".join(failed or ["::notice title=tracekit gate::every limit holds"])


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
