from __future__ import annotations

import pytest

from tracekit.cli.units import change, duration, plural, ratio, size, told


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0 ns"), (999, "999 ns"), (999_949, "999.9 µs"), (999_983, "1.0 ms"), (-999_983, "−1.0 ms"), (None, "")],
)
def test_a_duration_is_never_a_thousand_of_its_unit(ns: int | None, text: str) -> None:
    assert duration(ns) == text


@pytest.mark.parametrize(("count", "text"), [(999, "999 B"), (999_960, "1.0 MB"), (999_940, "999.9 kB")])
def test_a_size_is_never_a_thousand_of_its_unit(count: int, text: str) -> None:
    assert size(count) == text


def test_plural() -> None:
    assert [plural(n, "file") for n in (0, 1, 2_358)] == ["0 files", "1 file", "2,358 files"]


def test_negative_numbers_have_one_kind_of_minus() -> None:
    assert (ratio(-0.829, signed=True), ratio(0.05, signed=True), ratio(-0.5)) == ("−82.9 %", "+5.0 %", "−50.0 %")
    assert (size(-2_000), duration(-2 * 10**9), change(-2_000, 3_000)) == ("−2.0 kB", "−2.00 s", "−2.0 → 3.0 µs")


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("offset 1234567 ns, residual 10 ns", "offset 1.2 ms, residual 10 ns"),
        ("offset -1234567 ns", "offset −1.2 ms"),
        ("1 event(s) lost", "1 event lost"),
        ("20 flow event(s) lost: no id", "20 flow events lost: no id"),
        ("a.json: 1,204 hardware execution(s) start", "a.json: 1,204 hardware executions start"),
        ("core7 1234 ns2 of nc_1234 ns", "core7 1234 ns2 of nc_1234 ns"),
    ],
)
def test_stored_messages_are_told_in_human_units(stored: str, shown: str) -> None:
    assert told(stored) == shown
