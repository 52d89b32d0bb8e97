"""What holds for every test: no deadline per example, since machines that run tests are shared and noisy."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("tracekit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tracekit")
