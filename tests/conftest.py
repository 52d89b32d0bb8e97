"""What holds for every test: no deadline per example, since machines that run tests are shared and noisy.

``make test`` takes the same examples each time, so that what it says depends on the code alone; ``make fuzz`` takes
new ones, to find what nobody thought of.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", _COMMON, print_blob=True)
settings.register_profile("tracekit", _COMMON, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tracekit"))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive for ``--cache`` that all tests and all of their worker processes share: each capture is read once.

    For captures that no test writes or changes.
    """
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
