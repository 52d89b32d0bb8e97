"""Run programs under capture in processes of their own, as users do."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from capture import manifest

REPOSITORY = Path(__file__).resolve().parents[2]
STANDIN = Path(__file__).resolve().parent / "standin"
EXAMPLES = REPOSITORY / "capture" / "examples"
TIMEOUT_S = 240


@contextmanager
def mounted_disk(disk: Path, size: str) -> Iterator[Path]:
    """A file system of ``size``; without the right to mount one, the test is skipped."""
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("cannot mount a small disk here")
    yield disk
    subprocess.run(["umount", disk], check=True)


class Zygote:
    """The client of ``zygote.py``; one per test session."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("zygote.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self._inboxes: dict[int, queue.Queue[dict[str, Any]]] = {}
        assert self._process.stdout is not None
        assert json.loads(self._process.stdout.readline())["ready"]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            self._inboxes[message["id"]].put(message)

    def start(self, argv: list[str], cwd: Path, env: dict[str, str]) -> Job:
        number = len(self._inboxes)
        inbox: queue.Queue[dict[str, Any]] = queue.Queue()
        self._inboxes[number] = inbox
        logs = cwd.parent / f"{cwd.name}-logs"
        logs.mkdir(exist_ok=True)
        output, errors = logs / f"{number}.out", logs / f"{number}.err"
        request = {"id": number, "argv": argv, "cwd": str(cwd), "env": env}
        request |= {"output": str(output), "errors": str(errors)}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Job(inbox.get(timeout=TIMEOUT_S)["pid"], output, errors, inbox)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=TIMEOUT_S)


@dataclass
class Job:
    """A program that was started."""

    pid: int
    output_path: Path
    errors_path: Path
    inbox: queue.Queue[dict[str, Any]] = field(repr=False)
    returncode: int | None = None

    def wait(self) -> Job:
        try:
            self.returncode = self.inbox.get(timeout=TIMEOUT_S)["exit"]
        except queue.Empty:
            os.killpg(self.pid, signal.SIGKILL)  # its process group is its own: see zygote.prepare
            raise AssertionError(f"still running after {TIMEOUT_S} s: {self.stderr}") from None
        return self

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait_for(self, text: str) -> None:
        """Wait until the program has printed something."""
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self.stdout:
            assert self.inbox.empty(), f"ended before it printed {text!r}: {self.stderr}"
            assert time.monotonic() < deadline
            time.sleep(0.02)

    @property
    def stdout(self) -> str:
        return self.output_path.read_text() if self.output_path.exists() else ""

    @property
    def stderr(self) -> str:
        return self.errors_path.read_text() if self.errors_path.exists() else ""


@dataclass(frozen=True)
class Workplace:
    """A directory to run programs in; captures go below it."""

    path: Path
    find_zygote: Callable[[], Zygote]

    def environment(self, standin: str | None = None, **variables: str) -> dict[str, str]:
        hidden = ("NEURON_", "TRACEKIT_CAPTURE", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "PYTEST_")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        paths = [str(REPOSITORY), *([str(STANDIN / standin)] if standin else [])]
        return {**clean, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", **variables}

    def script(self, code: str, name: str = "script.py") -> Path:
        path = self.path / name
        path.write_text(textwrap.dedent(code))
        return path

    def start(self, *arguments: str | Path, standin: str | None = None, **variables: str) -> Job:
        """Start a Python program: a script, or -m and a module, with its arguments."""
        environment = self.environment(standin, **variables)
        return self.find_zygote().start([str(argument) for argument in arguments], self.path, environment)

    def python(self, *arguments: str | Path, standin: str | None = None, **variables: str) -> Job:
        """Run a Python program to its end."""
        return self.start(*arguments, standin=standin, **variables).wait()

    def command(self, *arguments: str | Path, standin: str | None = None, **variables: str) -> Job:
        """Run ``tracekit-capture``."""
        return self.python("-m", "capture", *arguments, standin=standin, **variables)

    def tracekit(self, *arguments: str | Path) -> str:
        """Run ``tracekit`` in a fresh interpreter, as on another machine; its output."""
        done = subprocess.run(
            [sys.executable, "-m", "tracekit", *map(str, arguments)],
            cwd=self.path,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def manifests(self, below: str = ".") -> list[manifest.Manifest]:
        return [manifest.read(path.parent) for path in sorted((self.path / below).rglob(manifest.FILE_NAME))]


@pytest.fixture(scope="session")
def _zygote() -> Iterator[Callable[[], Zygote]]:
    """Started when the first test needs it."""
    started: list[Zygote] = []

    def find() -> Zygote:
        if not started:
            started.append(Zygote())
        return started[0]

    yield find
    for zygote in started:
        zygote.close()


@pytest.fixture
def workplace(tmp_path: Path, _zygote: Callable[[], Zygote]) -> Workplace:
    path = tmp_path / "work"
    path.mkdir()
    return Workplace(path, _zygote)


@pytest.fixture
def make_manifest() -> Callable[..., manifest.Manifest]:
    """A manifest of a finished capture on Neuron; keywords replace sections."""

    def make(**sections: object) -> manifest.Manifest:
        made = manifest.Manifest(
            tool={"name": "tracekit-capture", "version": "0"},
            host={"hostname_hash": "0123456789ab"},
            versions={},
            device={"kind": "neuron"},
            process={"pid": 1, "rank": None, "world_size": None, "run_id": None, "rank_filter": None},
            schedule={"unit": "step", "wait": 2, "warmup": 1, "active": 1, "repeat": 1},
            session={"name": "i-1_pid_1/1", "cycle": 0},
            modes=["DEVICE", "RUNTIME"],
            status="complete",
        )
        for name, value in sections.items():
            setattr(made, name, value)
        return made

    return make
