from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.significance import is_chance, judge, judge_all

values = st.lists(st.floats(1, 1e6), min_size=5, max_size=12)
BASE = [100.0, 101, 99, 102, 98, 100, 103, 97]


@given(values)
def test_the_same_values_are_the_same(sample: list[float]) -> None:
    assert judge(sample, list(sample)).verdict == "same"


@settings(deadline=None)
@given(values, values)
def test_the_verdict_does_not_depend_on_the_order_of_sides(a: list[float], b: list[float]) -> None:
    first, second = judge(a, b), judge(b, a)
    assert first.p_value == pytest.approx(second.p_value) if first.p_value is not None else second.p_value is None


def test_a_clear_shift_is_a_change_and_a_small_one_is_noise() -> None:
    assert judge(BASE, [x * 1.3 for x in BASE]).verdict == "changed"
    assert judge(BASE, [x * 1.01 for x in BASE]).verdict == "noise"
    assert judge(BASE, [130.0]).verdict == "unproven"
    assert judge([6, 6], [1, 1], exact=True).verdict == "changed"


def test_a_wide_spread_is_noise_to_a_comparison_and_no_chance_to_a_gate() -> None:
    """Twelve steps each of one program, recorded twice on a machine that was busy the second time."""
    calm = [73.0, 74, 75, 77, 77, 78, 78, 82, 85, 85, 89, 97]
    wild = [78.0, 92, 93, 96, 101, 119, 127, 160, 188, 204, 213, 225]
    found = judge(calm, wild)
    assert found.verdict == "noise" and not is_chance(found.p_value)


def test_a_drift_that_is_real_but_small_is_noise_and_no_chance() -> None:
    found = judge(BASE, [x + 4.5 for x in BASE])
    assert found.verdict == "noise" and not is_chance(found.p_value)


def test_of_many_pairs_without_a_difference_none_is_called_one() -> None:
    """Of 300 tests three would pass p < 0.01 by chance; together they do not."""
    import numpy as np

    random = np.random.default_rng(7)
    pairs = [(list(random.normal(100, 20, 20)), list(random.normal(100, 20, 20))) for _ in range(300)]
    assert not all(is_chance(judge(*pair).p_value) for pair in pairs)
    assert all(is_chance(verdict.p_value) for verdict in judge_all(pairs))
    assert judge_all([*pairs, (BASE * 3, [x * 2 for x in BASE * 3])])[-1].verdict == "changed"
