from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["tables.md", "metrics.md"])
def test_generated_page_is_current(page: str) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == generator().PAGES[page](), "run `python docs/generate.py`"
