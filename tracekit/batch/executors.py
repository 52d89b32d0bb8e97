"""Where tasks run: one ``Executor`` interface for processes of this machine and for a Dask cluster."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import wait

from tracekit.batch.tasks import work_alone
from tracekit.errors import TracekitError

_ADDRESS = re.compile(r"\w+://\S+|[^\s/]+:\d+")


@dataclass(frozen=True)
class Executors:
    """How to start an executor, and how many tasks to give it at once.

    ``start`` is called again when an executor broke; ``alone`` gives one with a single worker, for tasks that may
    have broken one.
    """

    width: int
    start: Callable[[], AbstractContextManager[Executor]]
    alone: Callable[[], AbstractContextManager[Executor]]
    is_local: bool = True


def local_processes(count: int) -> Executors:
    """Worker processes on this machine; they end with the process that started them, however that ends."""
    return Executors(count, lambda: _pool(count), lambda: _pool(1))


@contextlib.contextmanager
def _pool(count: int) -> Iterator[Executor]:
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _start_worker, (count > 1,))
    try:
        yield pool
    finally:
        processes = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        pool.shutdown(wait=True)


def _start_worker(is_one_of_many: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if is_one_of_many:
        work_alone()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


@contextlib.contextmanager
def cluster(address: str, count: int) -> Iterator[Executors]:
    """A running Dask scheduler (``tcp://host:port``), or with ``local`` one of this machine with ``count`` workers.

    Workers need the paths of the captures and of the archive: a shared file system, or object storage.

    Raises:
        TracekitError: if distributed is not installed, or the scheduler does not answer.
    """
    try:
        import distributed
    except ImportError as error:
        raise TracekitError("--scheduler needs Dask", hint="pip install 'tracekit[cluster]'") from error
    hint = "start one with `dask scheduler`, or use --scheduler local"
    if address != "local" and not _ADDRESS.fullmatch(address):
        raise TracekitError(f"{address}: no address of a Dask scheduler, which is HOST:PORT", hint=hint)
    with contextlib.ExitStack() as stack:
        if address == "local":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tracekit-dask-"))
            started = distributed.LocalCluster(  # type: ignore[no-untyped-call]
                n_workers=count, threads_per_worker=1, dashboard_address=None, local_directory=folder, silence_logs=40
            )
            address = stack.enter_context(started).scheduler_address
        try:
            client = distributed.Client(address, set_as_default=False, timeout="20s")  # type: ignore[no-untyped-call]
            stack.enter_context(client)
        except (OSError, ValueError, TypeError) as error:
            raise TracekitError(f"{address}: no Dask scheduler answers", hint=hint) from error
        width = 2 * max(count, sum(client.nthreads().values()))  # type: ignore[no-untyped-call]

        @contextlib.contextmanager
        def start() -> Iterator[Executor]:
            yield client.get_executor(pure=False, retries=3)  # type: ignore[no-untyped-call]

        yield Executors(width, start, start, is_local=False)
