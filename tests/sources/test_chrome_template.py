"""Reading by template equals reading event by event, and what is no plain event is left alone."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tracekit.sources import _chrome_piece, _chrome_template
from tracekit.sources._chrome_piece import Piece, bracketed
from tracekit.sources._chrome_result import Result
from tracekit.sources._chrome_text import Text

BASE = 1_790_857_026_000_000_000


def kineto(event: dict[str, object]) -> str:
    """An event as torch 2.13 spells it."""
    lines = [
        f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in event.items() if key not in ("dur", "args")
    ]
    text = "  {\n" + ",\n".join(lines)
    if "dur" in event:
        args = event["args"] if isinstance(event["args"], str) else json.dumps(event["args"])[1:-1]
        text += f',\n    "dur": {event["dur"]}\n    ,\n    "args": {{\n      {args}\n    }}'
    return text + "\n  }"


def older(event: dict[str, object]) -> str:
    """An event as Kineto spelt it before: several keys on a line."""
    head = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in event.items() if k not in ("ts", "dur", "args"))
    text = f'  {{\n    {head},\n    "ts": {event["ts"]}'
    if "dur" in event:
        text += f', "dur": {event["dur"]},\n    "args": {json.dumps(event["args"])}'
    return text + "\n  }"


LAYOUTS = {
    "kineto": kineto,
    "older": older,
    "indented": lambda event: json.dumps(event, indent=3),
    "one line": json.dumps,
    "minified": lambda event: json.dumps(event, separators=(",", ":")),
}


def piece(events: list[str], between: str = ",\n") -> bytes:
    return bracketed(between.join(events).encode())


def span(name: str, ts: object = 5205805511579.75, dur: object = 2.5, **more: object) -> dict[str, object]:
    head: dict[str, object] = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 2, "ts": ts, "dur": dur}
    return head | {"args": {"External id": 7} | more}


def both(text: bytes) -> tuple[Result | None, Result]:
    whole = Piece(1000, 1000 + len(text) - 2, BASE)
    return _chrome_piece._by_template(text, whole), _chrome_piece._by_event(text, whole)


def rows(batch: pa.RecordBatch | None) -> list[dict[str, object]]:
    return [] if batch is None else batch.to_pylist()


def assert_same(found: Result | None, expected: Result) -> None:
    assert found is not None
    assert rows(found.events) == rows(expected.events)
    assert rows(found.flows) == rows(expected.flows)
    assert rows(found.samples) == rows(expected.samples)
    assert found.threads == expected.threads and found.marks == expected.marks
    assert found.event_count == expected.event_count and found.report == expected.report
    assert (found.state, found.stop) == (expected.state, expected.stop)
    assert sorted(map(repr, summed(found))) == sorted(map(repr, summed(expected)))


def summed(result: Result) -> list[tuple[str, str | None, int]]:
    counts: dict[tuple[str, str | None], int] = {}
    for phase, category, count in result.counts:
        counts[phase, category] = counts.get((phase, category), 0) + count
    return [(*key, count) for key, count in counts.items()]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_plain_event_follows_the_template(layout):
    texts = [LAYOUTS[layout](span(f"aten::op{i % 5}", 100 + i, i / 4)) for i in range(40)]
    split = _chrome_template.split(piece(texts), 0)
    assert split is not None
    assert split.rest == b"[]" and split.rows.event_id.tolist() == list(range(40))
    assert_same(*both(piece(texts)))


NAMES = st.sampled_from(["aten::mul", 'q"uo\\te', "},\n  {", "naïve ∑", '"ts": 5', "", "\u2028", "a" * 300])
TIMES = st.one_of(
    st.integers(0, 4 * 10**15 + 5),
    st.decimals(0, 10**13, places=3, allow_nan=False),
    st.floats(0, 1e12, allow_nan=False).map(lambda x: round(x, 5)),
    st.just("-3"),
    st.just("1e3"),
)
ARGS = st.fixed_dictionaries(
    {},
    optional={
        "External id": st.one_of(st.integers(0, 10**8), st.text(max_size=3)),
        "correlation": st.integers(-(2**65), 2**65),
        "ts": st.integers(0, 9),
        "nested": st.sampled_from([[{"ph": "X", "ts": 1, "dur": 2, "args": {}}, {"ph": "X"}], {"a": {"dur": 1}}, []]),
    },
)
EVENTS = st.one_of(
    st.builds(
        lambda name, ts, dur, args: {**span(name), "ts": Raw(ts), "dur": Raw(dur), "args": args},
        NAMES,
        TIMES,
        TIMES,
        ARGS,
    ),
    st.builds(lambda name: {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": name}}, NAMES),
    st.builds(lambda i: {"ph": "s", "id": i, "pid": 1, "tid": 2, "ts": 5, "cat": "ac2g", "name": "x"}, st.integers(0)),
    st.builds(lambda name: {"ph": "X", "pid": name, "tid": "Spans", "ts": 5, "name": "Trace"}, NAMES),
    st.builds(lambda: {"ph": "i", "name": "[memory]", "pid": 1, "tid": 2, "ts": 5, "s": "t", "args": {"Bytes": 3}}),
)


class Raw(float):
    """A number that ``json`` writes as it was drawn."""

    def __new__(cls, text: object) -> Raw:
        made = super().__new__(cls, float(str(text)))
        made.text = format(text, "f") if isinstance(text, Decimal) else str(text)
        return made

    def __repr__(self) -> str:
        return str(self.text)


@given(st.lists(EVENTS, min_size=1, max_size=12), st.sampled_from(sorted(LAYOUTS)), st.randoms())
def test_template_equals_event_by_event(events, layout, chance):
    first = span("first")
    texts = [LAYOUTS["indented"](e) if layout == "indented" or "dur" not in e else _spelt(e, layout) for e in events]
    texts.insert(chance.randrange(len(texts) + 1), LAYOUTS[layout](first))
    found, expected = both(piece(texts))
    event(f"by template: {found is not None}")
    if found is not None:
        assert_same(found, expected)


def _spelt(event: dict[str, object], layout: str) -> str:
    marked = LAYOUTS[layout]({**event, "ts": 1111111111, "dur": 2222222222})
    return marked.replace("1111111111", repr(event["ts"]), 1).replace("2222222222", repr(event["dur"]), 1)


BROKEN = {
    "attributes end twice": '"a": 1}, {"b": 2',
    "a key behind the attributes": '"a": 1}, "b": {"c": 2',
    "a string that does not end": '"a": "x',
    "not a number": '"a": NaN',
    "a stray comma": '"a": 1,',
}


@pytest.mark.parametrize("args", BROKEN.values(), ids=BROKEN)
def test_attributes_that_are_not_one_object_stop_the_template(args):
    texts = [kineto(span(f"op{i}")) for i in range(4)]
    texts[2] = kineto(span("odd") | {"args": args})
    found, _ = both(piece(texts))
    assert found is None


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"pid": "Spans"}, id="process is text"),
        pytest.param({"pid": 2**70}, id="process too large"),
        pytest.param({"ph": "B"}, id="another phase"),
        pytest.param({"name": 5}, id="name is a number"),
        pytest.param({"more": 1}, id="another key"),
    ],
)
def test_head_that_is_not_plain_is_left_to_the_other_reader(odd):
    texts = [kineto(span(f"op{i}")) for i in range(4)]
    event = {**{k: v for k, v in span("odd").items() if k not in ("ts", "dur", "args")}, **odd}
    texts[2] = kineto(event | {key: span("odd")[key] for key in ("ts", "dur", "args")})
    split = _chrome_template.split(piece(texts), 0)
    assert split is not None
    assert split.rest_ids.tolist() == [2] and split.rows.event_id.tolist() == [0, 1, 3]


NUMBERS = st.one_of(
    st.integers(0, 10**17).map(str),
    st.decimals(0, 10**16, places=3).map(lambda d: format(d, "f")),
    st.decimals(0, 10**6).map(lambda d: format(d, "f")),
    st.text("0123456789.-e", min_size=1, max_size=20),
)


@given(st.lists(st.tuples(NUMBERS, st.sampled_from([",", "\n", " }", "x"])), min_size=1, max_size=9))
def test_numbers_are_exact_or_refused(items):
    text, positions = b"", []
    for number, after in items:
        positions.append(len(text) + 1)
        text += f" {number}{after}".encode()
    nanos, ends, fits = Text(text).numbers(np.array(positions))
    for (number, _), start, ns, end, plain in zip(items, positions, nanos, ends, fits, strict=True):
        whole, point, fraction = number.partition(".")
        is_plain = (
            whole.isdigit()
            and (len(whole) == 1 or whole[0] != "0")
            and int(whole) < 4 * 10**15
            and (not point or (fraction.isdigit() and len(fraction) <= 3))
        )
        # What follows a number that is cut short by another character is the template's to check.
        if is_plain:
            assert plain and ns == int(Decimal(number) * 1000) and end - start == len(number)
        elif plain:
            assert ns == int(Decimal(text[start:end].decode()) * 1000)


def test_learning_needs_a_complete_event():
    assert _chrome_template.learn(piece([kineto({"ph": "M", "name": "x", "pid": 1, "tid": 1, "ts": 5})])) is None
    assert _chrome_template.learn(b"[]") is None
