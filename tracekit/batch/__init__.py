"""Many captures into one archive: in parallel, resumable, on this machine or on a Dask cluster."""

from __future__ import annotations

from tracekit.batch.executors import Executors, cluster, local_processes
from tracekit.batch.planning import Plan, plan
from tracekit.batch.running import RESULTS, Progress, run
from tracekit.batch.tasks import Outcome, Task

__all__ = ["RESULTS", "Executors", "Outcome", "Plan", "Progress", "Task", "cluster", "local_processes", "plan", "run"]
