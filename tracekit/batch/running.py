"""Run tasks: several at once within a budget of memory, one bad one never touching the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import polars as pl

from tracekit.batch.executors import Executors
from tracekit.batch.ledger import Ledger
from tracekit.batch.tasks import STATUSES, Outcome, Task, failed, ingest_task
from tracekit.tables import Column, Table

RESULTS = Table(
    name="batch_results",
    doc="One row per capture of a batch.",
    key=("capture",),
    columns=(
        Column("capture", pl.String(), "File, directory or URL."),
        Column("status", pl.String(), "stored, known (the archive held it), failed or skipped.", values=STATUSES),
        Column("profile", pl.String(), "Name in the archive.", nullable=True),
        Column("read_bytes", pl.Int64(), "Bytes that were read.", unit="B"),
        Column("event_count", pl.Int64(), "Events stored.", nullable=True),
        Column("took_ns", pl.Int64(), "Time of the worker.", nullable=True, unit="ns"),
        Column("attempts", pl.Int64(), "How often it was tried."),
        Column("warning_count", pl.Int64(), "Notes of the profile that are errors or warnings.", nullable=True),
        Column("problem", pl.String(), "Why it failed; of a stored one, the gravest of its warnings.", nullable=True),
        Column("hint", pl.String(), "What to do about it.", nullable=True),
    ),
)

WORKER_BYTES = 200_000_000
"""Memory of a worker process before it reads (measured: 165 MB)."""
GROWTH = 5
"""Memory per byte of JSON while links are being built (measured: up to 4.3, for a trace that is all launches)."""
PACKED = 12
"""Bytes of JSON per compressed byte of a trace."""
_POLL_S = 0.5

Progress = Callable[[list[Outcome], int, int], None]
"""Called with the outcomes so far, the bytes of their tasks, and the bytes of all tasks."""


def results(outcomes: Iterable[Outcome]) -> pl.DataFrame:
    """``RESULTS``, sorted by capture."""
    rows = [{n: _encodable(getattr(o, "name" if n == "capture" else n)) for n in RESULTS.names} for o in outcomes]
    return RESULTS.rows(rows).sort("capture", "status")


def _encodable(value: object) -> object:
    """Text without the stand-ins for bytes of file names that are no UTF-8."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def run(
    tasks: Iterable[Task],
    archive: str,
    executors: Executors,
    ledger: Ledger,
    *,
    retry: int = 0,
    fail_fast: bool = False,
    limit_bytes: int | None = None,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Ingest tasks; each gives exactly one outcome, in no fixed order.

    A worker that dies (killed, out of memory, crashed) takes the tasks that ran with it; these are run again, one by
    one, so that only the one that kills its worker fails.

    Args:
        tasks: in the order to start them.
        archive: directory or URL.
        executors: where to run.
        ledger: told of every capture that is stored.
        retry: how often a failed task is tried again.
        fail_fast: start nothing more after a failure.
        limit_bytes: memory that all workers together may take, as estimated; a task above it runs alone.
        progress: called about twice a second.

    Raises:
        KeyboardInterrupt: when interrupted; what was stored until then is in the ledger.
    """
    batch = _Batch(archive, executors, ledger, retry, fail_fast, limit_bytes, progress, deque(tasks))
    return batch.run()


@dataclass
class _Batch:
    archive: str
    executors: Executors
    ledger: Ledger
    retry: int
    fail_fast: bool
    limit_bytes: int | None
    progress: Progress | None
    waiting: deque[Task]
    suspects: deque[Task] = field(default_factory=deque)
    running: dict[Future[Outcome], Task] = field(default_factory=dict)
    attempts: dict[tuple[str, ...], int] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    done_bytes: int = 0
    stopped: bool = False

    def run(self) -> list[Outcome]:
        total = sum(task.size_bytes for task in self.waiting)
        while self.waiting or self.suspects:
            is_alone = not self.waiting
            with ExitStack() as stack:
                start = self.executors.alone if is_alone else self.executors.start
                self._drain(stack.enter_context(start()), 1 if is_alone else self.executors.width, total)
        return self.outcomes

    def _drain(self, executor: Executor, width: int, total: int) -> None:
        """Work off what waits, until all is done or the executor breaks."""
        source = self.suspects if not self.waiting else self.waiting
        while source or self.running:
            while source and len(self.running) < width and self._fits(source[0]):
                self._submit(executor, source.popleft())
            finished, _ = wait(self.running, _POLL_S, FIRST_COMPLETED)
            broken = [f for f in finished if not self._take(f, is_alone=width == 1)]
            if self.progress:
                self.progress(self.outcomes, self.done_bytes, total)
            if broken:
                self.suspects.extend(self.running.values())
                self.running.clear()
                return

    def _fits(self, task: Task) -> bool:
        if self.limit_bytes is None or not self.running:
            return True
        return sum(map(memory_bytes, (task, *self.running.values()))) <= self.limit_bytes

    def _submit(self, executor: Executor, task: Task) -> None:
        self.attempts[task.paths] = self.attempts.get(task.paths, 0) + 1
        try:
            self.running[executor.submit(ingest_task, task, self.archive)] = task
        except BrokenExecutor as error:
            gone: Future[Outcome] = Future()
            gone.set_exception(error)
            self.running[gone] = task

    def _take(self, future: Future[Outcome], *, is_alone: bool) -> bool:
        """Book a finished task; false if its executor broke under it."""
        task = self.running.pop(future)
        try:
            outcome = future.result()
        except (BrokenExecutor, CancelledError):
            if is_alone:
                hint = "it needs more memory than there is, or it crashes the reader"
                self._book(task, failed(task, "the worker process died while reading it", hint), self.suspects)
            else:
                self.suspects.append(task)
            return False
        except Exception as error:  # noqa: BLE001 - whatever an engine raises is about this task only
            problem = f"{type(error).__name__}: {error}"
            outcome = failed(task, problem, "see the log of the scheduler and of its workers")
        self._book(task, outcome)
        return True

    def _book(self, task: Task, outcome: Outcome, again: deque[Task] | None = None) -> None:
        tried = self.attempts.get(task.paths, 0)
        if outcome.status == "failed" and tried <= self.retry and not self.stopped:
            (self.waiting if again is None else again).append(task)
            return
        self.outcomes.append(replace(outcome, attempts=tried))
        self.done_bytes += task.size_bytes
        if outcome.profile and outcome.content_id:
            self.ledger.add(task.key, outcome.profile, outcome.content_id)
        if outcome.status == "failed" and self.fail_fast:
            self.stopped = True
            rest = [*self.waiting, *self.suspects]
            self.outcomes += [Outcome(t.name, "skipped", attempts=0) for t in rest]
            self.waiting.clear()
            self.suspects.clear()


def memory_bytes(task: Task) -> int:
    """Memory that a worker is expected to need for a task."""
    return WORKER_BYTES + GROWTH * (task.size_bytes + (PACKED - 1) * task.packed_bytes)
