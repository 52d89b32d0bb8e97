"""Find every file of a capture, say what each is, and which process it belongs to.

``discover`` takes files, directories and archives of any layout and gives one ``Discovery``; ``captures`` splits a
tree of many captures into the inputs of one ``discover`` each.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path

import polars as pl

from tracekit import tables
from tracekit.errors import DiscoveryError
from tracekit.recognise import printable, recognise
from tracekit.sessions import assign, process_of, trace_stem
from tracekit.sources.artifacts import pair
from tracekit.sources.base import Artifact, Session
from tracekit.unpack import LIMITS, Limits
from tracekit.walk import Findings, Found, Remark, stem_of_archive, walk

__all__ = ["Discovery", "discover"]

EXPECTED = "a Kineto trace (trace.json), a Neuron profile directory, or a .tar, .tar.gz, .tar.zst or .zip of one"

_CACHE_HASH = re.compile(r"(?<!\d)\d{12,20}(?!\d)")


@dataclass(frozen=True)
class Discovery:
    """What was found at the inputs."""

    root: Path
    """What labels and session paths are relative to; an archive counts as a directory."""
    name: str
    """What a person would call it."""
    artifacts: tuple[Artifact, ...]
    sessions: tuple[Session, ...]
    notes: pl.DataFrame
    """``tables.NOTES``."""
    ignored: tuple[tuple[str, str], ...]
    """Label and reason of everything that nothing reads."""


def discover(
    paths: Sequence[Path], *, workdir: Path, neff_cache: Sequence[Path] = (), limits: Limits = LIMITS
) -> Discovery:
    """Find and recognise everything at ``paths``.

    Args:
        paths: files, directories or archives; together one profile.
        workdir: a directory to unpack into; the caller owns and deletes it.
        neff_cache: directories to look for NEFFs that the capture does not hold.
        limits: what an archive may cost.

    Returns:
        Artifacts, sessions and ignored files in a fixed order: sorted by name.

    Raises:
        DiscoveryError: there is nothing, nothing readable, or nothing that tracekit knows; or an archive is
            unsafe.
    """
    inputs = _inputs(paths)
    root = _root(inputs)
    findings = Findings()
    for path in inputs:
        parts = () if path == root else tuple(printable(p) for p in path.relative_to(root).parts)
        walk(path, parts, findings, workdir, limits)
    files = {found.label: found for found in reversed(findings.files)}
    ignored, remarks = findings.ignored, findings.remarks
    ordered = [files[label] for label in sorted(files)]
    ignored += [
        (found.label, found.kind.reason) for found in ordered if found.kind.reason and found.kind.role == "other"
    ]
    _check_useful(inputs, ordered, ignored)
    context = tuple(printable(part) for part in root.parts[1:][-2:])
    assigned = assign(ordered, context)
    remarks += assigned.remarks
    artifacts = _pair(assigned.artifacts, neff_cache, remarks)
    remarks += _lost_files(artifacts) + _artifacts_only(artifacts) + _no_system_trace(artifacts)
    name = _name(inputs, root, context)
    return Discovery(root, name, artifacts, assigned.sessions, _notes(remarks), tuple(sorted(set(ignored))))


def _inputs(paths: Sequence[Path]) -> list[Path]:
    """Absolute paths that exist, each once, without those that lie in another one."""
    if not paths:
        raise DiscoveryError("nothing to read", hint=f"name {EXPECTED}")
    absolute = sorted({Path(os.path.abspath(path)) for path in paths})  # noqa: PTH100 - a link's own name counts
    for path in absolute:
        shown = printable(str(path))
        try:
            mode = path.stat().st_mode
        except FileNotFoundError as error:
            raise DiscoveryError(f"{shown}: no such file or directory", hint=_near(path)) from error
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise DiscoveryError(f"{shown}: cannot be read: {why}", hint="check its permissions") from error
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise DiscoveryError(f"{shown}: neither a file nor a directory", hint=f"name {EXPECTED}")
    folders = {path for path in absolute if path.is_dir()}
    return [path for path in absolute if not folders & set(path.parents)]


def _near(path: Path) -> str:
    """What to do about a path that is not there: the name that was perhaps meant, else what is expected."""
    try:
        names = [p.name for p in path.parent.iterdir()]
    except OSError:
        return f"there is no {printable(str(path.parent))} either; name {EXPECTED}"
    found = get_close_matches(path.name, names, n=1)
    return f"did you mean {printable(str(path.with_name(found[0])))}?" if found else f"name {EXPECTED}"


def _root(inputs: Sequence[Path]) -> Path:
    """The only input if it is a directory or an archive, else the directory that holds all inputs."""
    if len(inputs) > 1:
        return Path(os.path.commonpath([path.parent for path in inputs]))
    only = inputs[0]
    if only.is_dir() or recognise(only, only.name, only.stat().st_size, is_input=True).is_archive:
        return only
    return only.parent


_PLAIN_NAMES = ("capture", "explorer", "output", "profile", "trace", "traces")
"""Names that say nothing by themselves: the folder above goes in front."""


def _name(inputs: Sequence[Path], root: Path, context: tuple[str, ...]) -> str:
    only = inputs[0] if len(inputs) == 1 else root
    stem = stem_of_archive(only.name) if only == root else trace_stem(only.name)
    process = process_of((), context)
    if process is not None and stem in ("trace", process.time):
        return process.name
    if stem in _PLAIN_NAMES and only.parent.name:
        return printable(f"{only.parent.name}-{stem}")
    return printable(stem) or trace_stem(printable(inputs[0].name)) or "profile"


def _check_useful(inputs: Sequence[Path], files: Sequence[Found], ignored: Sequence[tuple[str, str]]) -> None:
    """Raise unless at least one file is worth a profile."""
    if any(f.kind.format or f.kind.role in ("neff", "ntff", "device_table") for f in files):
        return
    place = printable(str(inputs[0])) if len(inputs) == 1 else f"{len(inputs)} inputs"
    hint = f"expected {EXPECTED}"
    lost = [f for f in files if f.kind.role == "trace"]
    if lost:
        shown = place if inputs == [lost[0].path] else f"{place}: {lost[0].label}"
        hint = "the program may have been killed before the trace was written; capture again"
        raise DiscoveryError(f"{shown}: {lost[0].problem or 'cannot be read'}", hint=hint)
    names = {label.rpartition("/")[2] for label, _ in ignored}
    if {"events.parquet", "sessions.parquet"} <= names:
        raise DiscoveryError(
            f"{place}: a stored profile without its manifest.json: it was not copied whole",
            hint="copy the directory again, or ingest the capture again",
        )
    if not files and not ignored:
        raise DiscoveryError(f"{place}: empty, there is no file in it", hint=hint)
    if len(inputs) == 1 and len(files) == 1 and ignored and inputs[0].is_file():
        raise DiscoveryError(f"{place}: not recognised: {ignored[0][1]}", hint=hint)
    if any(f.kind.role == "manifest" for f in files):
        hint = "the capture ended before it wrote a trace; capture again, with fewer steps if it was killed"
    seen = "; ".join(f"{label[-60:]}: {reason[:80]}" for label, reason in ignored[:2])
    roles = ", ".join(sorted({f.kind.role for f in files if f.kind.role != "other"}))
    found = "; ".join(text for text in (roles and f"found only {roles}", seen) if text)
    raise DiscoveryError(f"{place}: no trace among {len(files)} files ({found})", hint=hint)


def _pair(artifacts: Sequence[Artifact], neff_cache: Sequence[Path], remarks: list[Remark]) -> tuple[Artifact, ...]:
    """Artifacts with NEFFs and NTFFs paired within their session, or their directory where they have none."""
    binaries = [a for a in artifacts if a.role in ("neff", "ntff")]
    groups = {a.label: a.session or a.label.rpartition("/")[0] or "." for a in binaries}
    sessions = {a.session for a in binaries}
    wanted = {a.model_hash for a in binaries if a.role == "ntff" and a.model_hash}
    wanted -= {a.model_hash for a in binaries if a.role == "neff"}
    paired, problems = pair(binaries, groups, _cached(neff_cache, wanted, remarks))
    for p in problems:
        session = p.group if p.group in sessions else None
        path = None if session else p.group
        remarks.append(Remark(p.severity, p.code, path, p.message, p.hint, session))
    done = {a.label: a for a in (*artifacts, *paired)}
    return tuple(done[label] for label in sorted(done))


def _cached(folders: Sequence[Path], wanted: Set[str | None], remarks: list[Remark]) -> dict[str, Artifact]:
    """Hash → NEFF in one of the cache directories, of the hashes that are wanted; by file or directory name."""
    found: dict[str, Artifact] = {}
    for folder in folders:
        if not folder.is_dir():
            shown = printable(str(folder))
            remarks.append(Remark("warning", "no_neff_cache", None, f"NEFF cache {shown}: no such directory"))
            continue
        for place, below, names in os.walk(folder):
            below.sort()
            for name in sorted(n for n in names if n.lower().endswith(".neff")):
                hashes = _CACHE_HASH.findall(name) or _CACHE_HASH.findall(Path(place).name)
                path = Path(place, name)
                for model_hash in hashes:
                    if model_hash in wanted and path.is_file():
                        label = "/".join(("neff-cache", folder.name, *path.relative_to(folder).parts))
                        size = path.stat().st_size
                        neff = Artifact(path, printable(label), "neff", model_hash=model_hash, size_bytes=size)
                        found.setdefault(model_hash, neff)
    return found


def _lost_files(artifacts: Sequence[Artifact]) -> list[Remark]:
    """What is wrong with traces and system files; NEFFs and NTFFs have notes of their own."""
    lost = []
    for artifact in artifacts:
        if artifact.problem and artifact.role in ("trace", "system"):
            is_copy = "which is read" in artifact.problem
            severity, code = ("info", "duplicate_file") if is_copy else ("warning", "damaged_file")
            lost.append(Remark(severity, code, artifact.label, artifact.problem, None, artifact.session))
    return lost


def _artifacts_only(artifacts: Sequence[Artifact]) -> list[Remark]:
    if any(artifact.format for artifact in artifacts):
        return []
    message = "only compiled graphs and device profiles: there is no trace, so there are no events"
    hint = "capture with torch.profiler and NeuronConfig, or export: neuron-explorer view --ingest-only"
    return [Remark("warning", "artifacts_only", None, message, hint)]


def _no_system_trace(artifacts: Sequence[Artifact]) -> list[Remark]:
    """Processes that the runtime wrote files for, and whose system trace is not among them."""
    system = {a.session for a in artifacts if a.role == "system" and a.format}
    if None in system:
        return []
    traced = {a.session for a in artifacts if a.role == "trace"}
    ran = {a.session for a in artifacts if a.role in ("neff", "ntff") or a.label.endswith("trace_info.pb")}
    message = "no system trace (ntrace.pb, or an export of it): device time cannot be told"
    hint = "copy ntrace.pb too, pass ProfileMode.RUNTIME to NeuronConfig, or export: neuron-explorer view --ingest-only"
    lacking = sorted(s for s in (ran & traced) - system if s)
    return [Remark("warning", "no_system_trace", None, message, hint, session) for session in lacking]


def _notes(remarks: Sequence[Remark]) -> pl.DataFrame:
    return tables.NOTES.rows([asdict(remark) for remark in dict.fromkeys(remarks)])


def artifact_rows(artifacts: Sequence[Artifact]) -> pl.DataFrame:
    """``tables.ARTIFACTS`` of what was found."""
    names = {"path": "label"}
    return tables.ARTIFACTS.rows([{n: getattr(a, names.get(n, n)) for n in tables.ARTIFACTS.names} for a in artifacts])
