"""Imports only point down: the layers of the design, read from the import statements themselves."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tracekit"

LAYERS = {
    "_version": 0, "errors": 0, "vocabulary": 0,
    "tables": 1,
    "intervals": 1, "archive": 2,
    "salvage": 0, "activity": 2, "calls": 2, "stacks": 2, "nesting": 2, "significance": 2, "fusing": 2, "repeats": 2,
    "agreement": 2, "alignment": 2, "sources": 3, "clock": 3, "links": 3, "unpack": 3, "unzip": 3, "inflate": 3,
    "recognise": 3, "sessions": 4, "walk": 4, "wholeness": 4, "copies": 4, "captures": 5,
    "metrics": 4, "sink": 4, "discover": 5,
    "ingestion": 6, "doctor": 5, "baseline": 6, "gate": 6, "export": 7, "report": 7,
    "sides": 5, "matching": 5, "comparison": 5, "diffing": 8,
    "profile": 7, "lazy_tables": 7,
    "runs": 2, "upkeep": 3, "index": 3, "durations": 3, "measured": 6, "listing": 8, "query": 7,
    "remote": 7, "remote_archive": 7, "remote_upkeep": 8, "trend": 8, "batch": 9,
    "cli": 10, "__main__": 11, "__init__": 12,
}  # fmt: skip
SIBLINGS = ("sources", "metrics", "cli")
"""Files of these packages never import one another, except what the package shares."""
SHARED = {"base", "findings", "given", "output", "pipe", "sides", "units"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def layer_name(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> list[str]:
    """Absolute module names that a file imports, at any depth, those for type checking included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    mine = layer_name(path)
    assert mine in LAYERS, f"{mine} has no layer: add it to LAYERS"
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != "tracekit" or mine == "__init__":
            continue
        theirs = parts[1] if len(parts) > 1 and parts[1] in LAYERS else "__init__"
        if theirs in (mine, "__init__"):
            continue
        assert LAYERS[theirs] <= LAYERS[mine], f"{path.name} ({mine}) imports {name}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_imports_what_only_the_device_has(path: Path) -> None:
    roots = {name.split(".")[0] for name in imported(path)}
    assert not roots & {"torch", "torch_neuronx", "capture"}


def test_capture_never_imports_tracekit() -> None:
    for path in sorted((ROOT / "capture").rglob("*.py")):
        assert "tracekit" not in {name.split(".")[0] for name in imported(path)}, path


@pytest.mark.parametrize("package", SIBLINGS)
def test_siblings_do_not_import_one_another(package: str) -> None:
    names = {p.stem for p in (PACKAGE / package).glob("*.py")} - SHARED - {"__init__"}
    public = {n for n in names if not n.startswith("_")}
    for path in (PACKAGE / package).glob("*.py"):
        if path.stem == "__init__":
            continue
        for name in imported(path):
            parts = name.split(".")
            if parts[:2] == ["tracekit", package] and len(parts) > 2:
                assert parts[2] not in public - {path.stem}, f"{path.name} imports {name}"


def test_only_the_command_line_prints() -> None:
    for path in modules():
        if layer_name(path) == "cli":
            continue
        calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        assert not [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"], path
