"""Is a difference between two sets of samples real? One stated rule for diff, gate and trend."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

ALPHA = 0.01
"""Two-sided level of the Mann–Whitney U test."""
MIN_CHANGE = 0.05
"""Smallest change of the median, as a share of it, that is called a change."""
MIN_SAMPLES = 5
"""Fewer samples on a side prove nothing at ``ALPHA``: with 4 against 4 the smallest p is 0.029."""

VERDICTS = ("same", "changed", "noise", "unproven")
"""same: equal; changed: the rule holds; noise: it does not; unproven: too few samples to tell."""


@dataclass(frozen=True)
class Verdict:
    """The answer and the p-value behind it (None where no test was made)."""

    verdict: str
    p_value: float | None = None


def judge(before: Sequence[float], after: Sequence[float], *, exact: bool = False) -> Verdict:
    """Compare two sets of independent samples.

    A difference is called a change when the Mann–Whitney U test (two-sided, as ``scipy.stats.mannwhitneyu``
    computes it) gives p < ``ALPHA``, the medians differ by at least ``MIN_CHANGE``, and by more than the larger
    of the two interquartile ranges. The last two keep a slow drift between two runs from being called a change.

    Args:
        before: one value per step or repeat.
        after: likewise.
        exact: the values are counts that do not vary by chance: when neither side varies, any difference
            is a change, however few the samples.
    """
    if not before or not after:
        return Verdict("unproven" if before or after else "same")
    if list(before) == list(after) or (set(before) == set(after) and len(set(before)) == 1):
        return Verdict("same")
    if exact and len(set(before)) == 1 and len(set(after)) == 1:
        return Verdict("changed")
    if min(len(before), len(after)) < MIN_SAMPLES:
        return Verdict("unproven")
    from scipy.stats import mannwhitneyu

    p_value = float(mannwhitneyu(before, after, alternative="two-sided").pvalue)
    first, second = statistics.median(before), statistics.median(after)
    shift = abs(second - first)
    is_large = shift >= MIN_CHANGE * abs(first) and shift > max(_quartile_range(before), _quartile_range(after))
    return Verdict("changed" if p_value < ALPHA and is_large else "noise", p_value)


def _quartile_range(values: Sequence[float]) -> float:
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low
