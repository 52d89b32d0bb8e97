from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.alignment import changes

names = st.lists(st.sampled_from("abcd"), max_size=40)


@settings(max_examples=300)
@given(names, names, st.integers(1, 12))
def test_what_is_told_turns_one_into_the_other(first: list[str], second: list[str], window: int) -> None:
    found = changes(first, second, window=window)
    rebuilt: list[str] = []
    at = 0
    for a, b, c, d in found:
        assert a < b or c < d
        rebuilt += first[at:a]
        assert len(rebuilt) == c, "what is left between two changes is equal and of equal length"
        rebuilt += second[c:d]
        at = b
    assert rebuilt + first[at:] == second
    assert (found == []) == (first == second)


def test_six_become_one_in_every_layer_of_a_long_step() -> None:
    layer = ["mm", "pow", "mean", "add", "rsqrt", "mul", "mul"]
    found = changes(layer * 5_000, ["mm", "rms_norm"] * 5_000)
    assert len(found) == 5_000
    assert {(b - a, d - c) for a, b, c, d in found} == {(6, 1)}


def test_a_long_step_is_aligned_in_linear_time() -> None:
    begun = time.process_time()
    found = changes(["mul"] * 50_000, ["add"] * 50_000)
    assert found == [(0, 50_000, 0, 50_000)]
    assert changes(["mul"] * 100_000, ["mul"] * 100_000 + ["add"]) == [(100_000, 100_000, 100_000, 100_001)]
    assert time.process_time() - begun < 5
