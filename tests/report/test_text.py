"""Text of a trace in a page: it cannot end its element, and what is unseen is shown."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.report.text import LONGEST, script_json, visible

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_json_in_a_script_element_can_be_read_and_cannot_leave_it(value: object) -> None:
    text = script_json(value)
    assert not set(text) & set("<>&\u2028\u2029")
    json.loads(text)


@pytest.mark.parametrize("attack", ["</script>", "<!--<script>", "]]>", "&lt;", "</SCRIPT\n>"])
def test_what_would_end_the_element_comes_back_as_text(attack: str) -> None:
    assert json.loads(script_json({"name": attack})) == {"name": attack}
    assert "</" not in script_json({"name": attack})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("\x1b[2J", "␛[2J", id="terminal escape"),
        pytest.param("a\x00b", "a␀b", id="nul"),
        pytest.param("x\u202ey", "x⟨U+202E⟩y", id="direction override"),
        pytest.param("a\u200bb", "a⟨U+200B⟩b", id="zero width"),
        pytest.param("\ud800", "⟨U+D800⟩", id="lone surrogate"),
        pytest.param("tab\tand\nline", "tab\tand\nline", id="tab and newline"),
        pytest.param("名前 é 🙂", "名前 é 🙂", id="letters"),
    ],
)
def test_unseen_characters_are_shown(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_long_text_is_cut() -> None:
    assert len(visible("x" * 100_000)) == LONGEST
    assert visible("x" * 100_000).endswith("…")


def test_numbers_that_json_lacks_become_null() -> None:
    assert script_json([float("nan"), float("inf"), 1.5]) == "[null,null,1.5]"
