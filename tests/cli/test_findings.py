"""Findings on screen: no number of one session stands for another's."""

from __future__ import annotations

import pytest

from tests.metrics.build import Row
from tracekit.cli import output
from tracekit.cli.findings import print_findings
from tracekit.metrics.advice import ADVICE


def finding(session: str, stake_ns: int, message: str) -> Row:
    return {
        "session": session,
        "finding": "host_bound",
        "subject": "dispatch",
        "at_stake_ns": stake_ns,
        "formula": "sum",
        "message": message,
        "next_step": "dispatch fewer operators",
        "occurrence_count": 1,
        "evidence": "chain",
        "evidence_ids": [stake_ns],
    }


def shown(capsys: pytest.CaptureFixture[str], *rows: Row) -> str:
    print_findings(output.console(), ADVICE.rows(rows), evidence=True)
    return " ".join(capsys.readouterr().out.split())


def test_numbers_are_those_of_the_session_with_the_most_at_stake(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, finding("a", 4_000, "waits 20 %"), finding("b", 5_000, "waits 21 %"))
    assert text.startswith("9.0 µs at stake in 2 sessions, most (5.0 µs) in b: waits 21 %. Dispatch fewer operators.")
    assert text.endswith("chain 5000")


def test_what_holds_for_each_session_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, finding("a", 4_000, "twice"), finding("b", 5_000, "twice"))
    assert text.startswith("9.0 µs at stake in 2 sessions, in each: twice.")


def test_one_session_needs_no_name_and_none_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, finding("a", 4_000, "once")).startswith("4.0 µs at stake: once.")
    assert shown(capsys) == "no findings"
