"""The process that ``tracekit-capture run`` starts: it runs the script as Python would, under capture."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import runpy
import sys
import types
from pathlib import Path
from typing import Any

from capture.errors import CaptureError
from capture.launch import PLAN_VARIABLE
from capture.options import DEFAULT_DIRECTORY, environment_overrides, make_options
from capture.recorder import Session


def main() -> None:
    """Run the planned program; its exit code is this process's."""
    plan = json.loads(os.environ.pop(PLAN_VARIABLE))
    name, is_module = plan["name"], plan["is_module"]
    sys.argv = [name, *sys.argv[1:]]
    sys.path[0] = str(Path.cwd() if is_module else Path(name).resolve().parent)
    try:
        with _capture(plan):
            if is_module:
                runpy.run_module(name, run_name="__main__", alter_sys=True)
            else:
                _run_script(name)
    except CaptureError as error:
        sys.stderr.write(f"error: {error.problem}\n" + (f"  fix: {error.hint}\n" if error.hint else ""))
        raise SystemExit(2) from error


def _run_script(name: str) -> None:
    """Run a script as ``python NAME`` does: ``__file__`` is absolute, ``sys.argv[0]`` is what was typed."""
    path = Path(name).absolute()
    if path.suffix in (".pyc", ".pyz", ".zip"):
        runpy.run_path(str(path), run_name="__main__")
        return
    code = compile(path.read_bytes(), str(path), "exec")
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


@contextlib.contextmanager
def _capture(plan: dict[str, Any]) -> Any:
    """The capture around the program: none if it has its own sessions."""
    unit = plan["unit"]
    if unit == "auto" and _imports_capture(plan["name"], is_module=plan["is_module"]):
        yield
        return
    options = make_options({"whole": unit != "optimizer"})
    session = Session(Path(environment_overrides().get("output_dir", DEFAULT_DIRECTORY)), options)
    with session, _optimizer_steps(session, is_on=unit == "optimizer"):
        yield


@contextlib.contextmanager
def _optimizer_steps(session: Session, *, is_on: bool) -> Any:
    """Let every optimizer step of the program end a step of the capture."""
    if not is_on:
        yield
        return
    from torch.optim.optimizer import register_optimizer_step_post_hook

    hook = register_optimizer_step_post_hook(lambda *_: session.step())
    try:
        yield
    finally:
        hook.remove()


def _imports_capture(name: str, *, is_module: bool) -> bool:
    """Tell whether a program imports this package; one that does it indirectly is noticed when it opens a session."""
    path = _source_of(name, is_module=is_module)
    if path is None:
        return False
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return any(_is_capture_import(node) for node in ast.walk(tree))


def _is_capture_import(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[0] == "capture" for alias in node.names)
    return isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "capture"


def _source_of(name: str, *, is_module: bool) -> Path | None:
    if not is_module:
        return Path(name)
    import importlib.util

    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None


if __name__ == "__main__":
    main()
