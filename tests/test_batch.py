"""Batches: one bad capture hurts nothing, kills leave whole profiles, and every route gives the same bytes."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

import tracekit
from tests.archive_data import NEURON, small_trace, stored
from tracekit import archive as store
from tracekit import upkeep
from tracekit.batch import Executors, Outcome, Task, cluster, local_processes, plan, run
from tracekit.batch.ledger import LEDGER, LocalLedger
from tracekit.batch.running import memory_bytes, results
from tracekit.batch.tasks import ingest_task
from tracekit.errors import SourceError, TracekitError
from tracekit.index import FOLDER as INDEX


class Here(Executor):
    """Runs tasks in this process, or breaks as a pool with a dead worker does."""

    def __init__(self, deadly: str = "") -> None:
        self.deadly = deadly
        self.most = 0

    def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        from concurrent.futures.process import BrokenProcessPool

        done: Future[Outcome] = Future()
        if self.deadly and self.deadly in args[0].name:
            done.set_exception(BrokenProcessPool("a worker died"))
        else:
            done.set_result(fn(*args, **kwargs))
        return done


def here(width: int = 3, deadly: str = "") -> Executors:
    @contextmanager
    def start() -> Iterator[Executor]:
        yield Here(deadly)

    return Executors(width, start, start)


def tree(root: Path, count: int, *, bad: int = 0) -> Path:
    """Captures of different content, the last ``bad`` of them broken in different ways."""
    for i in range(count):
        small_trace(root / f"run{i:03}" / "trace.json", 3 + i, name=f"op{i % 3}")
    broken = [b"", b"not a trace", gzip.compress(b"{")[:-9], b'{"traceEvents": [{"ph": "X", "na', os.urandom(500)]
    for i in range(bad):
        path = root / f"bad{i:03}" / "trace.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(broken[i % len(broken)])
    for path in root.rglob("*.json"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return root


def do(source: Path, archive: Path, executors: Executors | None = None, **options: object) -> list[Outcome]:
    archive.mkdir(exist_ok=True)
    ledger = LocalLedger(archive)
    made = plan([str(source)], ledger)
    return made.done + run(made.tasks, str(archive), executors or here(), ledger, **options)  # type: ignore[arg-type]


def by_status(outcomes: list[Outcome]) -> dict[str, int]:
    return {s: sum(o.status == s for o in outcomes) for s in ("stored", "known", "failed", "skipped")}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tree(tmp_path_factory.mktemp("captures"), 12, bad=5)


@pytest.fixture(scope="module")
def clean(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """The profiles of one undisturbed run."""
    archive = tmp_path_factory.mktemp("clean")
    assert by_status(do(source, archive)) == {"stored": 12, "known": 0, "failed": 5, "skipped": 0}
    return stored(archive)


def test_a_second_run_reads_nothing(source: Path, tmp_path: Path) -> None:
    do(source, tmp_path)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    again = do(source, tmp_path)
    assert by_status(again) == {"stored": 0, "known": 12, "failed": 5, "skipped": 0}
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before


def test_failures_name_file_and_reason(source: Path, tmp_path: Path) -> None:
    failed = [o for o in do(source, tmp_path) if o.status == "failed"]
    assert len({o.name for o in failed}) == 5
    for outcome in failed:
        assert "bad" in outcome.name
        assert outcome.problem and "\n" not in outcome.problem and "Traceback" not in outcome.problem


def test_what_a_stored_capture_lost_is_reported(tmp_path: Path) -> None:
    whole, cut = small_trace(tmp_path / "in" / "a" / "trace.json"), tmp_path / "in" / "b" / "trace.json"
    cut.parent.mkdir()
    cut.write_bytes(whole.read_bytes()[:-40])
    sound, damaged = sorted(do(tmp_path / "in", tmp_path / "out"), key=lambda o: o.name)
    assert (sound.status, sound.warning_count, sound.problem) == ("stored", 0, None)
    assert (damaged.status, damaged.event_count) == ("stored", 4)
    assert damaged.warning_count and "lost: the file ends too soon" in (damaged.problem or "")


def test_a_damaged_profile_is_read_again(tmp_path: Path) -> None:
    source = tree(tmp_path / "in", 2)
    do(source, tmp_path / "out")
    before = stored(tmp_path / "out")
    path = store.profile_path(tmp_path / "out", store.profile_ids(tmp_path / "out")[0]) / "events.parquet"
    path.write_bytes(path.read_bytes()[:100])
    assert by_status(do(source, tmp_path / "out")) == {"stored": 1, "known": 1, "failed": 0, "skipped": 0}
    assert stored(tmp_path / "out") == before


def test_an_unpacked_capture_gives_the_same_bytes_and_names_no_temporary_file(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    small_trace(folder / "rank0" / "trace.json")
    (folder / "rank1").mkdir()
    (folder / "rank1" / "trace.json").write_text('{"traceEvents": [{"ph":"X","name"')
    packed = shutil.make_archive(str(tmp_path / "job"), "tar", folder)
    done = [tracekit.ingest([packed], tmp_path / name) for name in ("a", "b")]
    assert done[0].first_warning == done[1].first_warning
    assert (done[0].first_warning or "").startswith("rank1/trace.json: ")
    assert stored(tmp_path / "a") == stored(tmp_path / "b")
    with pytest.raises(SourceError, match=r"^trace.json: ") as raised:
        shutil.rmtree(folder / "rank0")
        tracekit.ingest([shutil.make_archive(str(tmp_path / "bad"), "tar", folder / "rank1")], tmp_path / "c")
    assert "tmp" not in str(raised.value)


def test_changed_captures_are_read_again_and_ledgers_are_never_the_last_word(tmp_path: Path) -> None:
    source = tree(tmp_path / "in", 3)
    do(source, tmp_path / "out")
    small_trace(source / "run001" / "trace.json", 50)
    os.utime(source / "run001" / "trace.json", (1_700_000_000, 1_700_000_001))
    assert by_status(do(source, tmp_path / "out")) == {"stored": 1, "known": 2, "failed": 0, "skipped": 0}
    upkeep.remove(tmp_path / "out", store.profile_ids(tmp_path / "out")[0])
    assert by_status(do(source, tmp_path / "out"))["stored"] == 1
    (tmp_path / "out" / LEDGER).write_bytes(b'{"key": 1}\nnonsense\n\xff\xfe{"key')
    assert by_status(do(source, tmp_path / "out")) == {"stored": 0, "known": 3, "failed": 0, "skipped": 0}
    assert by_status(do(source, tmp_path / "out"))["known"] == 3


def test_files_that_changed_just_now_are_not_taken_on_trust(tmp_path: Path) -> None:
    small_trace(tmp_path / "in" / "trace.json")
    assert [t.key for t in plan([str(tmp_path / "in")], None).tasks] == [None]


def test_renamed_and_relabelled_profiles_stay_known(source: Path, tmp_path: Path) -> None:
    do(source, tmp_path)
    first, second = store.profile_ids(tmp_path)[:2]
    upkeep.rename(tmp_path, first, "mine")
    upkeep.relabel(tmp_path, second, {"a": "b"})
    assert by_status(do(source, tmp_path))["known"] == 12
    assert len(store.profile_ids(tmp_path)) == 12


def test_a_worker_that_dies_takes_only_its_own_capture(source: Path, tmp_path: Path, clean: object) -> None:
    outcomes = do(source, tmp_path, here(3, deadly="run004"))
    lost = [o for o in outcomes if o.status == "failed" and "bad" not in o.name]
    assert [Path(o.name).parent.name for o in lost] == ["run004"]
    assert "died" in (lost[0].problem or "")
    assert by_status(outcomes)["stored"] == 11


def test_fail_fast_starts_nothing_more(source: Path, tmp_path: Path) -> None:
    counted = by_status(do(source, tmp_path, here(1), fail_fast=True))
    assert counted["failed"] >= 1 and counted["skipped"] >= 1
    assert sum(counted.values()) == 17


def test_failed_captures_are_tried_again(source: Path, tmp_path: Path) -> None:
    failed = [o for o in do(source, tmp_path, retry=2) if o.status == "failed" and o.attempts]
    assert {o.attempts for o in failed} == {3}


def test_memory_is_never_promised_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [Task(f"t{i}", (f"t{i}",), 50_000_000 * (i % 5 + 1), None) for i in range(20)]
    limit = 2_500_000_000
    lock = threading.Lock()
    live: list[int] = []
    seen: list[tuple[int, int]] = []

    def pretend(task: Task, _archive: str) -> Outcome:
        with lock:
            live.append(memory_bytes(task))
            seen.append((len(live), sum(live)))
        time.sleep(0.02)
        with lock:
            live.remove(memory_bytes(task))
        return Outcome(task.name, "failed", problem="pretended")

    @contextmanager
    def start() -> Iterator[Executor]:
        with ThreadPoolExecutor(8) as pool:
            yield pool

    monkeypatch.setattr("tracekit.batch.running.ingest_task", pretend)
    huge = Task("huge", ("huge",), 10**9, None)
    done = run([*tasks, huge], str(tmp_path), Executors(8, start, start), LocalLedger(tmp_path), limit_bytes=limit)
    assert len(done) == 21
    assert max(count for count, _ in seen) > 1
    assert all(total <= limit or count == 1 for count, total in seen)


def test_results_have_one_row_per_capture(source: Path, tmp_path: Path) -> None:
    frame = results(do(source, tmp_path))
    assert frame.height == 17
    assert frame["capture"].is_sorted()
    assert frame.filter(pl.col("status") == "stored")["event_count"].sum() == sum(range(3, 15))


def test_sources_may_be_globs_lists_and_archive_files(tmp_path: Path) -> None:
    source = tree(tmp_path / "in", 4)
    subprocess.run(
        ["tar", "-czf", tmp_path / "in" / "packed.tar.gz", "-C", NEURON / "rms_naive", "capture"], check=True
    )
    listed = tmp_path / "list.txt"
    listed.write_text("# mine\nin/run000\tcommit=abc\nin/run00[12]/*.json\nin/packed.tar.gz\nin/missing\n\n")
    made = plan([f"@{listed}"], None, labels={"all": "x"})
    assert len(made.tasks) == 4
    assert dict(next(t for t in made.tasks if "run000" in t.name).labels) == {"all": "x", "commit": "abc"}
    assert [o.problem for o in made.done] and "missing" in made.done[0].name
    assert plan([str(listed)], None).tasks and not plan([str(tmp_path / "no.txt")], None).tasks
    assert len(plan([str(source / "run*" / "*.json"), str(source)], None).tasks) == 5


def test_a_tarball_and_its_directory_give_the_same_bytes(tmp_path: Path) -> None:
    shutil.copytree(NEURON / "rms_naive" / "capture", tmp_path / "mine")
    direct = tracekit.ingest([tmp_path / "mine"], tmp_path / "a")
    subprocess.run(["tar", "-cf", tmp_path / "mine.tar", "-C", tmp_path / "mine", "."], check=True)
    packed = tracekit.ingest([tmp_path / "mine.tar"], tmp_path / "b")
    assert direct.profile_id == packed.profile_id
    assert stored(tmp_path / "a") == stored(tmp_path / "b")


def test_broken_names_are_planned_and_shown(tmp_path: Path) -> None:
    for name in ("a\nb", "q'uote", "\x1b[31m", "..x", "sp ace", os.fsdecode(b"\xff\xfe")):
        small_trace(tmp_path / "in" / name / "trace.json", 3)
    outcomes = do(tmp_path / "in", tmp_path / "out")
    assert by_status(outcomes)["failed"] == 0, [o for o in outcomes if o.problem]
    assert {p.name for p in tmp_path.iterdir()} == {"in", "out"}


def test_a_defect_is_one_failed_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oh\nno")

    monkeypatch.setattr("tracekit.batch.tasks.ingest", explode)
    outcome = ingest_task(Task("x", (str(tmp_path),), 1, None), str(tmp_path))
    assert (outcome.status, outcome.problem) == ("failed", "ZeroDivisionError: oh no")


def start_batch(source: Path, archive: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tracekit", "batch", str(source), "-o", str(archive), "--jobs", "2", *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def wait_for_profiles(archive: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None and len(store.profile_ids(archive)) < count:
        time.sleep(0.01)


def alive_in_group(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_killed_batches_leave_whole_profiles_and_go_on(source: Path, clean: object, tmp_path: Path) -> None:
    chance = random.Random(6)
    for kill in range(3):
        process = start_batch(source, tmp_path)
        wait_for_profiles(tmp_path, 4 * kill + 1, process)
        time.sleep(chance.random() * 0.1)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for profile_id in store.profile_ids(tmp_path):
            assert not upkeep.verify(tmp_path, profile_id), profile_id
    assert start_batch(source, tmp_path).wait() == 1
    assert stored(tmp_path) == clean
    assert not list(tmp_path.glob(".staging-*"))


def test_workers_end_with_a_batch_that_is_killed_alone(source: Path, tmp_path: Path) -> None:
    process = start_batch(source, tmp_path)
    wait_for_profiles(tmp_path, 1, process)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while alive_in_group(process.pid):
        assert time.monotonic() < deadline, "workers outlive their batch"
        time.sleep(0.05)


def test_two_batches_into_one_archive_give_one_clean_archive(source: Path, clean: object, tmp_path: Path) -> None:
    processes = [start_batch(source, tmp_path) for _ in range(2)]
    assert [p.wait() for p in processes] == [1, 1]
    assert stored(tmp_path) == clean
    assert not [p.name for p in tmp_path.glob(".*") if p.name not in (LEDGER, INDEX)]


def test_processes_give_the_same_bytes(source: Path, clean: object, tmp_path: Path) -> None:
    do(source, tmp_path, local_processes(2))
    assert stored(tmp_path) == clean


def _kill_this_worker(task: Task, archive: str) -> Outcome:
    """Ingest, but die once, in the middle of the first task that comes."""
    flag = Path(archive).with_name("killed")
    try:
        flag.touch(exist_ok=False)
    except FileExistsError:
        return ingest_task(task, archive)
    store.new_staging(Path(archive), "half")
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def test_a_cluster_that_loses_a_worker_gives_the_same_bytes(
    source: Path, clean: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("tracekit.batch.running.ingest_task", _kill_this_worker)
    archive = tmp_path / "archive"
    with cluster("local", 2) as executors:
        outcomes = do(source, archive, executors)
    assert (tmp_path / "killed").exists()
    assert by_status(outcomes) == {"stored": 12, "known": 0, "failed": 5, "skipped": 0}
    assert stored(archive) == clean
    assert upkeep.clean(archive) != []


def test_a_scheduler_that_is_not_there_is_named(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(tracekit.TracekitError, match="nonsense"), cluster("nonsense://x", 1):
        pass


def test_manifests_hold_no_path_of_this_machine(tmp_path: Path) -> None:
    made = tracekit.ingest([NEURON / "train_small" / "capture"], tmp_path / "a")
    text = (made.path / "manifest.json").read_text()
    assert str(NEURON) not in text and str(tmp_path) not in text
    assert json.loads(text)["files"]


def test_a_list_with_a_wrong_label_is_reported(tmp_path: Path) -> None:
    tree(tmp_path / "in", 1)
    (tmp_path / "list.txt").write_text("in\tcommit=1\nin\tcommit\n")
    (wrong,) = plan([str(tmp_path / "list.txt")], None).done
    assert (wrong.status, wrong.problem) == ("failed", "line 2: 'commit' is no label")


@pytest.mark.parametrize("address", ["banana", "host", "host:port", ""])
def test_what_is_no_address_of_a_scheduler_is_told_at_once(address: str) -> None:
    with pytest.raises(TracekitError, match="no address of a Dask scheduler"), cluster(address, 1):
        pass
