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
    of the two interquartile ranges. The test alone tells chance from difference (``is_chance``); the last two
    keep the drift that any two runs of one program show, small or on a busy machine large, from being called a
    change of the program.

    Args:
        before: one value per step or repeat.
        after: likewise.
        exact: the values are counts that do not vary by chance: when neither side varies, any difference
            is a change, however few the samples.
    """
    return judge_all([(before, after)], exact=exact)[0]


def judge_all(pairs: Sequence[tuple[Sequence[float], Sequence[float]]], *, exact: bool = False) -> list[Verdict]:
    """Compare many pairs as ``judge`` does one, with p-values for testing them together.

    They are adjusted by Benjamini and Hochberg, so that of the changes called at most ``ALPHA`` are expected
    to be chance, however many pairs there are.
    """
    known = [_without_test(before, after, exact=exact) for before, after in pairs]
    tested = [i for i, verdict in enumerate(known) if verdict is None]
    p_values = dict(zip(tested, _adjusted([_p_value(*pairs[i]) for i in tested]), strict=True))
    return [
        verdict or Verdict("changed" if p_values[i] < ALPHA and _is_large(*pairs[i]) else "noise", p_values[i])
        for i, verdict in enumerate(known)
    ]


def is_chance(p_value: float | None) -> bool:
    """Whether a test was made and finds nothing that chance does not explain."""
    return p_value is not None and p_value >= ALPHA


def _without_test(before: Sequence[float], after: Sequence[float], *, exact: bool) -> Verdict | None:
    """The verdict where no test is needed or possible, else None."""
    if not before or not after:
        return Verdict("unproven" if before or after else "same")
    first, second = set(before), set(after)
    if list(before) == list(after) or (first == second and len(first) == 1):
        return Verdict("same")
    if exact and len(first) == 1 and len(second) == 1:
        return Verdict("changed")
    return Verdict("unproven") if min(len(before), len(after)) < MIN_SAMPLES else None


def _p_value(before: Sequence[float], after: Sequence[float]) -> float:
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(before, after, alternative="two-sided").pvalue)


def _adjusted(p_values: Sequence[float]) -> list[float]:
    if len(p_values) < 2:
        return list(p_values)
    from scipy.stats import false_discovery_control

    return [float(p) for p in false_discovery_control(p_values)]


def _is_large(before: Sequence[float], after: Sequence[float]) -> bool:
    first, second = statistics.median(before), statistics.median(after)
    shift = abs(second - first)
    return shift >= MIN_CHANGE * abs(first) and shift > max(_quartile_range(before), _quartile_range(after))


def _quartile_range(values: Sequence[float]) -> float:
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return high - low
