"""A process that has imported torch and forks for every program: importing it each time takes seconds.

It never profiles itself, so each program starts as a fresh one does. Requests come as JSON lines on stdin
(argv, cwd, env, output, errors); "pid" and "exit" lines go to stdout.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

_answer = threading.Lock()


def serve() -> None:
    import torch
    import torch._inductor.config
    import torch.distributed

    assert torch.profiler
    say({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            run(request)
        say({"id": request["id"], "pid": pid})
        threading.Thread(target=reap, args=(request["id"], pid), daemon=True).start()


def say(message: dict[str, Any]) -> None:
    with _answer:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def reap(request_id: int, pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    say({"id": request_id, "exit": os.waitstatus_to_exitcode(status)})


def run(request: dict[str, Any]) -> None:
    """Become the program; never returns."""
    code = 1
    try:
        prepare(request)
        code = execute(request["argv"])
    except BaseException:  # noqa: BLE001  # as the interpreter does at top level
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def prepare(request: dict[str, Any]) -> None:
    os.setpgid(0, 0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for descriptor, name in ((1, "output"), (2, "errors")):
        os.dup2(os.open(request[name], flags, 0o644), descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    paths = request["env"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [*paths, *(path for path in sys.path if path not in paths)]


def execute(argv: list[str]) -> int:
    try:
        if argv[0] == "-m":
            sys.argv = argv[1:]
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(argv)
            sys.path.insert(0, str(Path(argv[0]).resolve().parent))
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as done:
        if isinstance(done.code, str):
            print(done.code, file=sys.stderr)
            return 1
        return int(done.code or 0)
    return 0


if __name__ == "__main__":
    serve()
