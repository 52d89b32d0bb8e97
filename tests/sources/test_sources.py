from __future__ import annotations

import subprocess
import sys

import pytest

from tracekit import tables
from tracekit.sources import SOURCES, source


def test_every_reader_is_what_its_entry_says():
    ranks = []
    for name, reader in SOURCES.items():
        assert reader.name == name
        assert name in tables.SOURCE_NAMES
        assert reader.grade in {"D", "C", "T", "R"}
        assert source(name) is reader
        ranks.append(reader.rank)
    assert ranks == sorted(set(ranks))


def test_an_unknown_reader_is_a_key_error():
    with pytest.raises(KeyError):
        source("nothing")
    assert "nothing" not in SOURCES


def test_asking_which_readers_exist_imports_none_of_them():
    code = (
        "import sys, tracekit.sources as s; assert 'ntrace' in s.SOURCES and len(s.SOURCES) > 3; "
        "assert not {'numpy', 'pyarrow', 'msgspec', 'tracekit.sources.base'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
