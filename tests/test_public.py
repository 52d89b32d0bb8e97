from __future__ import annotations

import inspect
import subprocess
import sys

import tracekit


def test_public_names_are_these() -> None:
    assert sorted(tracekit.__all__) == sorted(
        [
            "Archive", "ArchiveError", "DiscoveryError", "IngestResult", "Profile", "QueryError", "SchemaError",
            "SourceError", "TracekitError", "__version__", "diff", "ingest", "open",
        ]
    )  # fmt: skip


def test_every_public_name_is_there_and_documented() -> None:
    for name in tracekit.__all__:
        value = getattr(tracekit, name)
        assert name == "__version__" or inspect.getdoc(value), name


def test_public_functions_are_not_shadowed_by_modules() -> None:
    code = (
        "import tracekit, tracekit.ingestion, tracekit.profile, tracekit.cli;"
        "assert callable(tracekit.ingest) and callable(tracekit.open)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_command_line_stays_light() -> None:
    code = "import sys, tracekit, tracekit.cli; sys.exit(any(m in sys.modules for m in ('polars', 'pyarrow', 'numpy')))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_name_is_an_attribute_error() -> None:
    try:
        tracekit.nonsense  # noqa: B018
    except AttributeError as error:
        assert "nonsense" in str(error)
    else:
        raise AssertionError("no error")
