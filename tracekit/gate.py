"""Limits on a comparison: what a pull request may cost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from xml.etree import ElementTree

from tracekit.comparison import MEASURES, Comparison
from tracekit.errors import QueryError

_LIMIT = re.compile(r"^\+?(-?\d+(?:\.\d+)?)\s*(%|ns|us|µs|ms|s)?$")
_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


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

    @property
    def reason(self) -> str:
        """One line that says what was found and what was allowed."""
        change = self.after - self.before
        share = f" ({100 * change / self.before:+.1f} %)" if self.before else ""
        unit = "" if self.unit == "count" else " ns"
        found = f"{self.limit.measure} {self.before:,.10g} → {self.after:,.10g}{unit}{share}"
        if self.passed and change > 0 and self.verdict == "noise":
            return f"{found}, limit {self.limit.text}: within the noise (p = {self.p_value:.2g})"
        return f"{found}, limit {self.limit.text}"


def parse_limit(measure: str, text: str) -> Limit:
    """Read a limit such as ``+5%``, ``+0`` or ``+20us``.

    Raises:
        QueryError: if it is none of these.
    """
    match = _LIMIT.match(text.strip())
    if not match:
        raise QueryError(f"{measure}: {text!r} is not a limit", hint="write +5%, +0, or +20us")
    number, unit = Decimal(match[1]), match[2]
    if unit == "%":
        return Limit(measure, text, float(number / 100), None)
    return Limit(measure, text, None, float(number * _UNITS[unit or "ns"]))


def parse_limits(section: Mapping[str, object]) -> list[Limit]:
    """Limits of a ``[gate]`` section: ``device_time = "+5%"``, and a table ``gap`` by cause.

    Raises:
        QueryError: if a value is not a limit.
    """
    limits = []
    for name, value in section.items():
        if isinstance(value, Mapping):
            limits += [parse_limit(f"{name}.{cause}", str(text)) for cause, text in value.items()]
        else:
            limits.append(parse_limit(name.removeprefix("max_").replace("max-", ""), str(value)))
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

    Growth beyond a limit that the test calls noise passes: both sides must have enough samples for it
    to say so (``significance``); with single captures the limit alone decides.

    Raises:
        QueryError: if a measure does not exist.
    """
    listed = list(limits)
    check_names(listed)
    outcomes = []
    for limit in listed:
        row = comparison.total(limit.measure)
        before, after = float(str(row["a"])), float(str(row["b"]))
        verdict = str(row["verdict"])
        p_value = row["p_value"]
        passed = limit.allows(before, after) or verdict == "noise"
        outcomes.append(
            Outcome(
                limit,
                before,
                after,
                str(row["unit"]),
                passed,
                verdict,
                float(str(p_value)) if p_value is not None else None,
            )
        )
    return outcomes


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
