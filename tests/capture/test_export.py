"""The vendor's tool, as documented, and every way it can disappoint."""

from __future__ import annotations

import os
import textwrap
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from capture import export
from capture.cli import cli
from capture.errors import CaptureError

GOOD = """
    arguments = dict(zip(sys.argv, sys.argv[1:]))
    assert sys.argv[1] == "view" and "--ingest-only" in sys.argv and Path(arguments["-d"]).is_dir()
    name = "SystemProfileEvents" if "--ignore-device-profile" in sys.argv else "Instruction"
    place = Path(arguments["--data-path"], "profiles", "global", arguments["--display-name"] + "@latest")
    place.mkdir(parents=True)
    (place / f"{name}.parquet").write_bytes(b"PAR1")
    print("done")
"""


@pytest.fixture
def capture_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "out" / "i-1_pid_1" / "123"
    directory.mkdir(parents=True)
    for name in ("ntrace.pb", "trace_info.pb", "profile_nc_0_session_0.ntff", "neff_1_vnc_0.neff"):
        (directory / name).write_bytes(b"x")
    return tmp_path / "out"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Put a neuron-explorer of one's own on PATH."""

    def put(code: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        tool = folder / "neuron-explorer"
        head = "#!/usr/bin/env python3\nimport subprocess, sys, time\nfrom pathlib import Path\n"
        tool.write_text(head + textwrap.dedent(code))
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    return put


def tables(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "explorer").rglob("*.parquet"))


def test_system_trace_first_then_the_device(capture_dir: Path, install) -> None:  # type: ignore[no-untyped-def]
    install(GOOD)
    results = export.export(capture_dir, export.Limits())
    assert [(result.half, result.problem, result.table_count) for result in results] == [
        ("system", "", 1),
        ("device", "", 1),
    ]
    assert tables(capture_dir) == ["Instruction.parquet", "SystemProfileEvents.parquet"]
    assert (capture_dir / "explorer" / "system.log").read_text() == "done\n"
    export.export(capture_dir, export.Limits())
    assert len(tables(capture_dir)) == 2, "a second export replaces the first"


def test_a_failing_half_does_not_take_the_other_with_it(capture_dir: Path, install) -> None:  # type: ignore[no-untyped-def]
    install('if "--ignore-system-profile" in sys.argv:\n    print("boom"); sys.exit(3)\n' + textwrap.dedent(GOOD))
    system, device = export.export(capture_dir, export.Limits())
    assert (system.problem, device.problem) == ("", "ended with exit code 3: boom")
    assert tables(capture_dir) == ["SystemProfileEvents.parquet"]


@pytest.mark.parametrize(
    ("code", "limits", "words"),
    [
        pytest.param("time.sleep(60)", export.Limits(time_s=0.5), "stopped after", id="hangs"),
        pytest.param(
            "subprocess.run([sys.executable, '-c', 'b = bytearray(400_000_000); import time; time.sleep(60)'])",
            export.Limits(memory_bytes=200_000_000),
            "used more than 0.2 GB",
            id="memory-of-a-child",
        ),
        pytest.param("print('nothing')", export.Limits(), "wrote no Parquet", id="writes-nothing"),
        pytest.param("raise SystemExit(1)", export.Limits(), "no output", id="silent-failure"),
    ],
)
def test_the_tool_is_stopped_and_nothing_half_done_stays(  # type: ignore[no-untyped-def]
    capture_dir: Path, install, code: str, limits: export.Limits, words: str
) -> None:
    install(code)
    begun = time.monotonic()
    (result,) = export.export(capture_dir, limits, ("system",))
    assert words in result.problem and result.fix
    assert time.monotonic() - begun < 50
    assert tables(capture_dir) == []
    assert [path.name for path in (capture_dir / "explorer").iterdir()] == ["system.log"]


def test_without_the_tool_the_command_says_what_that_means(
    capture_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("capture.host.VENDOR_TOOL_DIRECTORY", tmp_path)
    done = CliRunner().invoke(cli, ["export", str(capture_dir)])
    assert done.exit_code == 0
    assert "not on this machine" in done.output and "aws-neuronx-tools" in " ".join(done.output.split())
    assert not (capture_dir / "explorer").exists()


def test_a_capture_without_runtime_traces_needs_no_export(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no runtime or device trace"):
        export.export(tmp_path, export.Limits())


def test_command_ends_with_an_error_when_a_half_failed(capture_dir: Path, install) -> None:  # type: ignore[no-untyped-def]
    install("sys.exit(1)")
    done = CliRunner().invoke(cli, ["export", str(capture_dir), "--only", "system"])
    assert done.exit_code == 1 and "fix:" in done.output
