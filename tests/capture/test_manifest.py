"""capture.json: written whole or not at all, also on a full disk; read whatever is in it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture import manifest
from capture.errors import CaptureError


def test_reads_back_what_was_written(tmp_path: Path, make_manifest: Callable[..., manifest.Manifest]) -> None:
    made = make_manifest(labels={"batch": "4"}, reason="ü")
    made.start_clock()
    made.stop_clock()
    made.note("warning", "code", "message", "hint")
    made.note("warning", "code", "message", "hint")
    manifest.write(made, tmp_path)
    assert manifest.read(tmp_path) == made
    assert len(made.notes) == 1
    assert [path.name for path in tmp_path.iterdir()] == [manifest.FILE_NAME]
    assert json.loads((tmp_path / manifest.FILE_NAME).read_bytes())["schema_version"] == 1


def test_on_a_full_disk_the_first_file_is_rewritten_in_place(
    tmp_path: Path, make_manifest: Callable[..., manifest.Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest.write(make_manifest(status="running"), tmp_path)
    size = (tmp_path / manifest.FILE_NAME).stat().st_size
    real_open = Path.open

    def full(self: Path, mode: str = "r", *arguments: object, **keywords: object) -> object:
        if mode == "wb":
            raise OSError(28, "No space left on device")
        return real_open(self, mode, *arguments, **keywords)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", full)
    manifest.write(make_manifest(status="failed", reason="the disk is full"), tmp_path)
    many = [{"path": f"neff_{number}.neff", "size_bytes": number} for number in range(1000)]
    manifest.write(make_manifest(status="failed", reason="the disk is still full", files=many), tmp_path)
    assert manifest.read(tmp_path).reason == "the disk is still full"
    assert (tmp_path / manifest.FILE_NAME).stat().st_size == size


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("status", "reason", "process", "notes", "files", "modes", "labels", "schema_version", "unknown")


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_any_json_object_gives_a_manifest_of_the_right_types(
    tmp_path_factory: pytest.TempPathFactory, fields: dict[str, object]
) -> None:
    directory = tmp_path_factory.mktemp("any")
    (directory / manifest.FILE_NAME).write_text(json.dumps(fields))
    found = manifest.read(directory)
    assert isinstance(found.status, str) and isinstance(found.process, dict)
    assert found.reason is None or isinstance(found.reason, str)
    assert all(isinstance(note, dict) for note in found.notes)


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00"], ids=["empty", "cut", "array", "binary"])
def test_what_is_no_json_object_is_a_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / manifest.FILE_NAME).write_text(text)
    with pytest.raises(CaptureError, match=r"capture\.json"):
        manifest.read(tmp_path)


def test_both_clocks_are_read_as_one_moment() -> None:
    before = time.time_ns() - time.monotonic_ns()
    pair = manifest.clock_pair("start")
    difference = int(str(pair["start_wall_ns"])) - int(str(pair["start_monotonic_ns"]))
    assert abs(difference - before) < 1_000_000_000
