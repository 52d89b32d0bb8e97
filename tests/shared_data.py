"""The project's shared test data, where it lies beside the checkout; tests skip without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"
CORPUS = SHARED / "corpus"
NEURON = SHARED / "neuron"
SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="no shared test data beside the checkout")


def corpus_truth() -> dict[str, dict[str, Any]]:
    """``expected.json``: file → independently computed numbers; empty where there is no corpus."""
    path = CORPUS / "expected.json"
    return json.loads(path.read_text()) if path.is_file() else {}
