"""Readers, one file per format; a new format is one file here and one line in ``SOURCES``.

Importing this package imports no reader and no data library, so that the command line starts at once;
a reader is imported when it is looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.sources.base import Source


class Sources(Mapping[str, "Source"]):
    """Readers by format name, best first; each is imported when it is first asked for.

    Args:
        modules: format name → module that holds it as ``SOURCE``, in the order of ``Source.rank``.
    """

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = dict(modules)

    def __getitem__(self, name: str) -> Source:
        found: Source = import_module(self._modules[name]).SOURCE
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


SOURCES: Mapping[str, Source] = Sources(
    {
        "explorer": "tracekit.sources.explorer",
        "system_json": "tracekit.sources.system_json",
        "fetch_json": "tracekit.sources.fetch_json",
        "ntrace": "tracekit.sources.ntrace",
        "kineto": "tracekit.sources.chrome",
    }
)
"""Every format that gives events or samples, by name."""


def source(name: str) -> Source:
    """The reader of a format.

    Raises:
        KeyError: if no reader has that name.
    """
    return SOURCES[name]
