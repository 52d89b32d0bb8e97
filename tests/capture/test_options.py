"""Options are checked before the workload starts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.errors import CaptureError
from capture.options import OVERRIDES_VARIABLE, Options, make_options, parse_ranges


@given(st.sets(st.integers(0, 40), min_size=1))
def test_numbers_written_as_a_list_are_read_back(numbers: set[int]) -> None:
    assert parse_ranges(",".join(map(str, numbers))) == numbers


@given(st.integers(0, 100), st.integers(0, 100))
def test_a_range_holds_both_ends(first: int, length: int) -> None:
    assert parse_ranges(f"{first}-{first + length}") == set(range(first, first + length + 1))


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "-1", "1-2-3", "0x1"])
def test_what_is_no_list_of_numbers_is_an_error(text: str) -> None:
    with pytest.raises(CaptureError, match="list of numbers"):
        parse_ranges(text)


@pytest.mark.parametrize("given", [{"wait": "2"}, {"wait": 2.5}, {"active": None}, {"labels": ["a"]}])
def test_a_value_of_the_wrong_kind_is_named(given: dict[str, object]) -> None:
    with pytest.raises(CaptureError, match=f"{next(iter(given))}=.*must be"):
        make_options(given)


def test_values_that_mean_something_clear_are_taken() -> None:
    options = make_options({"modes": "runtime, DEVICE", "labels": None, "ranks": 0})
    assert (options.modes, options.labels, options.ranks) == (("RUNTIME", "DEVICE"), {}, "0")


def test_no_list_means_all() -> None:
    assert parse_ranges(None) is None


def test_modes_and_labels_are_text() -> None:
    options = make_options({"modes": ["device"], "labels": {"batch": 4}})
    assert options.modes == ("DEVICE",)
    assert options.labels == {"batch": "4"}


def test_options_of_run_win_and_labels_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = {"active": 7, "labels": {"run": "2"}, "output_dir": "x"}
    monkeypatch.setenv(OVERRIDES_VARIABLE, json.dumps(overrides))
    options = make_options({"active": 1, "wait": 5, "labels": {"batch": 4}})
    assert (options.active, options.wait) == (7, 5)
    assert options.labels == {"batch": "4", "run": "2"}


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_broken_overrides_are_no_overrides(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(OVERRIDES_VARIABLE, text)
    assert make_options({}) == Options()


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 9), st.integers(1, 9))
def test_steps_of_a_schedule(wait: int, warmup: int, active: int, repeat: int) -> None:
    options = Options(wait=wait, warmup=warmup, active=active, repeat=repeat)
    assert options.step_count == (wait + warmup + active) * repeat
