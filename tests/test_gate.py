"""Limits: how they are written, and when a gate must not let anything pass."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit import gate
from tracekit.comparison import Comparison, diff
from tracekit.errors import QueryError, TracekitError
from tracekit.sides import COUNTS, MEASURES, SIDE_OPS, Side


def measured(name: str = "side", **values: float | Sequence[float]) -> Side:
    """A side whose measures are 0 but for ``values``."""
    given = {m: [float(v)] if isinstance(v, int | float) else list(v) for m, v in values.items()}
    length = max((len(v) for v in given.values()), default=1)
    samples = {measure: given.get(measure, [0.0] * length) for measure in MEASURES}
    sequence = pl.DataFrame(schema={"name": pl.String, "device_ns": pl.Int64})
    return Side(name, samples, SIDE_OPS.empty(), sequence, per_step=False)


def checked(a: Side, b: Side, *limits: tuple[str, str]) -> list[gate.Outcome]:
    found: Comparison = diff(a, b)
    return gate.check(found, [gate.parse_limit(*limit) for limit in limits])


@pytest.mark.parametrize(
    ("text", "before", "after", "allowed"),
    [
        ("+5%", 100, 105, True),
        ("+5%", 100, 106, False),
        ("+0", 6, 6, True),
        ("+0", 6, 7, False),
        ("+2us", 1_000, 3_000, True),
        ("2us", 1_000, 3_001, False),
        ("-10%", 100, 91, False),
        ("-10%", 100, 90, True),
    ],
)
def test_limits(text: str, before: float, after: float, allowed: bool) -> None:
    assert gate.parse_limit("window", text).allows(before, after) is allowed


@pytest.mark.parametrize("text", ["", "five", "+5 parsecs", "5%%", "+-5%", "--5%", "++5%", "5 5"])
def test_bad_limits_are_explained(text: str) -> None:
    with pytest.raises(QueryError, match="is not a limit"):
        gate.parse_limit("device_time", text)


@given(st.sampled_from(list(MEASURES)), st.integers(-1000, 1000), st.sampled_from(["", "ns", "us", "ms", "s", "%"]))
def test_a_limit_is_in_the_unit_of_its_measure(measure: str, number: int, unit: str) -> None:
    """No time limits a count, and no bare number a time: 5 would be 5 ns, 20us be 20,000 executions."""
    is_wrong = (measure in COUNTS) == bool(unit) if unit != "%" and (number or unit) else False
    if is_wrong:
        with pytest.raises(QueryError):
            gate.parse_limit(measure, f"{number}{unit}")
    else:
        assert gate.parse_limit(measure, f"{number}{unit}").measure == measure


@pytest.mark.parametrize("name", ["device_time", "device-time", "max_device_time", "max-device-time"])
def test_a_file_takes_the_names_of_the_options(name: str) -> None:
    (limit,) = gate.parse_limits({name: "+5%"})
    assert (limit.measure, limit.ratio) == ("device_time", 0.05)


@pytest.mark.parametrize("name", ["gap", "max_gap", "max-gap"])
def test_a_file_limits_gaps_by_cause_and_in_all(name: str) -> None:
    limits = gate.parse_limits({name: {"runtime": "+1us", "not-dispatched": "+10%", "total": "+5%"}})
    assert [x.measure for x in limits] == ["gap.runtime", "gap.not_dispatched", "gap"]
    assert limits[0].amount == 1_000
    gate.check_names(limits)
    gate.check_names(gate.parse_limits({"gap.runtime": "+1us", "max": {"both": "+5%"}, "executions": 0}))
    with pytest.raises(QueryError, match="is a table"):
        gate.parse_limits({"window": {"a": "+5%"}})


def test_a_side_that_lost_its_device_fails_and_says_so() -> None:
    recorded = measured(device_time=403_300, executions=6, host_time=100_000, window=500_000, operators=6)
    lost = measured(host_time=90_000, window=500_000, operators=6)
    limits = [("device_time", "+5%"), ("executions", "+0"), ("gap", "+5%"), ("window", "+5%"), ("host_time", "+5%")]
    outcomes = checked(recorded, lost, *limits)
    assert [o.passed for o in outcomes] == [False, False, False, False, True]
    assert "no device work at all" in outcomes[0].reason
    assert all(o.passed for o in checked(lost, lost, *limits))
    only_device = measured(device_time=403_300, executions=6, window=500_000)
    assert [o.passed for o in checked(recorded, only_device, *limits)] == [True] * 4 + [False]


def test_growth_passes_only_where_the_test_says_chance() -> None:
    base = [100.0, 101, 99, 102, 98, 100, 103, 97]
    chance = [*base[:-1], 500.0]
    drift = [x * 1.03 for x in base]
    limit = ("window", "+1%")
    (outcome,) = checked(measured(window=base), measured(window=chance), limit)
    assert outcome.passed and "within the noise (p = " in outcome.reason
    (outcome,) = checked(measured(window=base), measured(window=[x + 4.5 for x in base]), limit)
    assert outcome.verdict == "noise" and not outcome.passed, "small, but no chance: the limit decides"
    (outcome,) = checked(measured(window=[100]), measured(window=[103]), limit)
    assert not outcome.passed, "one sample proves nothing: the limit decides"
    assert checked(measured(window=base), measured(window=drift), ("window", "+5%"))[0].passed


def test_a_measure_that_one_side_lacks_is_told() -> None:
    whole = measured("new")
    part = Side("old.json", {"window": [1.0]}, whole.ops, whole.sequence, per_step=False)
    with pytest.raises(TracekitError, match=r"old\.json: no measure 'device_time'") as caught:
        checked(part, whole, ("device_time", "+5%"))
    assert "new" not in caught.value.problem
