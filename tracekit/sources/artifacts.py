"""What the names of NEFF and NTFF files say, and which belong together.

Three layouts occur (AWS Neuron documentation, "Neuron Explorer: capture" and "PyTorch profiling"; the decimal hash in
front of ``_instid_`` is seen in public consumer code):

- session mode (torch.profiler): ``neff_<hash>_vnc_<n>.neff`` and ``profile_nc_<n>_session_<k>.ntff``: one NTFF per
  core for all NEFFs of the process;
- model mode (runtime inspect): ``neff_<hash>.neff`` and ``<hash>_instid_<i>_vnc_<n>.ntff`` or ``<hash>_vnc_<n>.ntff``;
- ``neuron-explorer capture``: any ``.neff`` with ``profile.ntff``, ``profile_rank_<r>.ntff``,
  ``profile_exec_<n>.ntff``, ``profile_exec_<n>_rank_<r>.ntff``, or a stem of the user's choice.

Contents are not read: NEFFs come in hundreds and NTFFs in gigabytes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tracekit.sources.base import Artifact

MAX_HASH = 2**64 - 1

_NEFF = re.compile(r"^neff_(?P<hash>\d{1,20})(?:_vnc_(?P<core>\d{1,9}))?$", re.IGNORECASE)
_NTFF_MODEL = re.compile(r"^(?P<hash>\d{1,20})(?:_instid_\d{1,9})?_vnc_(?P<core>\d{1,9})$", re.IGNORECASE)
_NTFF_SESSION = re.compile(r"^profile_nc_(?P<core>\d{1,9})_session_\d+$", re.IGNORECASE)
_NTFF_CAPTURE = re.compile(r"^(?P<stem>.*?)(?:_exec_\d{1,9})?(?:_rank_(?P<rank>\d{1,9}))?$", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class ArtifactName:
    """What a NEFF's or NTFF's file name says; a part that it does not say is None."""

    role: str
    layout: str | None
    """``session``, ``model`` or ``capture``; None for a NEFF, which is named alike in the first two."""
    model_hash: str | None = None
    core_index: int | None = None
    rank: int | None = None
    stem: str = ""
    """The user's own name of a ``capture`` file, without execution and rank."""


def parse_name(name: str) -> ArtifactName | None:
    """Take apart the file name of a NEFF or NTFF; None for any other file.

    A hash stays text: 64 unsigned bits do not fit a signed integer. A number above 2**64 - 1 is no hash.
    """
    stem, dot, suffix = name.rpartition(".")
    if not dot or suffix.lower() not in ("neff", "ntff"):
        return None
    if suffix.lower() == "neff":
        found = _NEFF.match(stem)
        if found and int(found["hash"]) <= MAX_HASH:
            return ArtifactName("neff", None, found["hash"], _small(found["core"]), stem=stem)
        return ArtifactName("neff", None, stem=stem)
    found = _NTFF_MODEL.match(stem)
    if found and int(found["hash"]) <= MAX_HASH:
        return ArtifactName("ntff", "model", found["hash"], _small(found["core"]), stem=stem)
    if found := _NTFF_SESSION.match(stem):
        return ArtifactName("ntff", "session", core_index=_small(found["core"]), stem=stem)
    found = _NTFF_CAPTURE.match(stem)
    assert found is not None
    return ArtifactName("ntff", "capture", rank=_small(found["rank"]), stem=found["stem"] or "")


def _small(digits: str | None) -> int | None:
    return int(digits) if digits is not None else None


@dataclass(frozen=True)
class Problem:
    """Something about all the NEFFs and NTFFs of one place; becomes a note."""

    group: str
    severity: str
    code: str
    message: str
    hint: str


def pair(
    artifacts: Sequence[Artifact], groups: Mapping[str, str], cached: Mapping[str, Artifact] | None = None
) -> tuple[list[Artifact], list[Problem]]:
    """Find out which NEFFs and NTFFs belong together, and what is missing.

    Args:
        artifacts: NEFFs and NTFFs.
        groups: label → the process or directory it is paired within.
        cached: hash → NEFF of a cache outside of the capture.

    Returns:
        The artifacts in the same order with ``pair_id`` and ``problem`` set, followed by the NEFFs that
        were taken from the cache; and the problems of each group.
    """
    members: dict[str, list[Artifact]] = defaultdict(list)
    for artifact in sorted(artifacts, key=lambda a: a.label):
        members[groups[artifact.label]].append(artifact)
    by_hash = _elsewhere(artifacts, groups)
    done: dict[str, Artifact] = {}
    problems: list[Problem] = []
    for name, group in members.items():
        pairing = _Group(name, group)
        pairing.pair_by_hash(by_hash, cached or {})
        pairing.pair_by_core()
        pairing.pair_by_name()
        pairing.name_problems()
        problems += pairing.problems()
        for artifact in pairing.result():
            done.setdefault(artifact.label, artifact)
    known = {artifact.label for artifact in artifacts}
    return [done[a.label] for a in artifacts] + [a for label, a in done.items() if label not in known], problems


def _elsewhere(artifacts: Iterable[Artifact], groups: Mapping[str, str]) -> dict[str, tuple[str, Artifact]]:
    """Hash → group and NEFF, the first of several: a NEFF may lie in a cache inside of the capture."""
    found: dict[str, tuple[str, Artifact]] = {}
    for artifact in sorted(artifacts, key=lambda a: a.label):
        if artifact.role == "neff" and artifact.model_hash and artifact.size_bytes:
            found.setdefault(artifact.model_hash, (groups[artifact.label], artifact))
    return found


class _Group:
    """The NEFFs and NTFFs of one process or directory; labels joined into sets that belong together."""

    def __init__(self, name: str, artifacts: Sequence[Artifact]) -> None:
        self.name = name
        self._all = {artifact.label: artifact for artifact in artifacts}
        self._names = {a.label: parse_name(a.label.rsplit("/", 1)[-1]) for a in artifacts}
        self.neffs = [a for a in artifacts if a.role == "neff"]
        self.ntffs = [a for a in artifacts if a.role == "ntff"]
        self._added: list[Artifact] = []
        self._parent: dict[str, str] = {a.label: a.label for a in artifacts}
        self._ids: dict[str, str] = {}
        self._problems: dict[str, list[str]] = defaultdict(list)

    def _find(self, label: str) -> str:
        while self._parent[label] != label:
            self._parent[label] = label = self._parent[self._parent[label]]
        return label

    def _join(self, neff: Artifact, ntff: Artifact, pair_id: str) -> None:
        a, b = sorted((self._find(neff.label), self._find(ntff.label)))
        ids = [self._ids.pop(root) for root in {a, b} if root in self._ids]
        self._parent[b] = a
        self._ids[a] = min([*ids, f"{self.name}:{pair_id}"])

    def _layout(self, artifact: Artifact) -> str | None:
        name = self._names[artifact.label]
        return name.layout if name else None

    def pair_by_hash(self, elsewhere: Mapping[str, tuple[str, Artifact]], cached: Mapping[str, Artifact]) -> None:
        """Model mode: the same hash in both names, and the same core where both name one and that pair exists."""
        neffs: dict[str, list[Artifact]] = defaultdict(list)
        for neff in self.neffs:
            if neff.model_hash:
                neffs[neff.model_hash].append(neff)
        for ntff in self.ntffs:
            if not ntff.model_hash:
                continue
            same = neffs.get(ntff.model_hash, [])
            own = [neff for neff in same if neff.core_index == ntff.core_index] or [
                neff for neff in same if neff.core_index is None
            ]
            for neff in own or same:
                core = "" if neff.core_index is None else f":core{neff.core_index}"
                self._join(neff, ntff, ntff.model_hash + core)
            if not same:
                self._pair_outside(ntff, elsewhere, cached)

    def _pair_outside(
        self, ntff: Artifact, elsewhere: Mapping[str, tuple[str, Artifact]], cached: Mapping[str, Artifact]
    ) -> None:
        """A hash whose NEFF is not in this group: another directory of the capture, or a given cache."""
        model_hash = ntff.model_hash or ""
        if model_hash in cached:
            neff = cached[model_hash]
            if neff.label not in self._parent:
                self._parent[neff.label] = neff.label
                self._added.append(neff)
            self._join(neff, ntff, model_hash)
            self._problems[neff.label] = ["not in the capture; found in the NEFF cache"]
        elif model_hash in elsewhere:
            neff = elsewhere[model_hash][1]
            self._problems[ntff.label].append(f"its NEFF lies elsewhere: {neff.label}")
        else:
            self._problems[ntff.label].append(f"no NEFF with hash {model_hash}")

    def pair_by_core(self) -> None:
        """Session mode: one NTFF of a core belongs to every NEFF of that core, or of no named core."""
        session = [ntff for ntff in self.ntffs if self._layout(ntff) == "session"]
        for ntff in session:
            for neff in self.neffs:
                if neff.core_index in (None, ntff.core_index):
                    self._join(neff, ntff, f"core{ntff.core_index}")

    def pair_by_name(self) -> None:
        """``capture`` output: the only NEFF of the directory, else the one whose stem the NTFF's begins with."""
        for ntff in self.ntffs:
            name = self._names[ntff.label]
            if name is None or name.layout != "capture" or not self.neffs:
                continue
            same = [neff for neff in self.neffs if self._stem(neff) == name.stem]
            if not same and len(self.neffs) == 1:
                same = self.neffs
            for neff in same[:1]:
                self._join(neff, ntff, self._stem(neff) or name.stem)
            if not same:
                self._problems[ntff.label].append(f"{len(self.neffs)} NEFFs here and none has its name")

    def _stem(self, neff: Artifact) -> str:
        name = self._names[neff.label]
        return name.stem if name else ""

    def name_problems(self) -> None:
        """Say what is wrong with each file."""
        for artifact in (*self.neffs, *self.ntffs):
            if not artifact.size_bytes:
                what = "compilation or copying was cut" if artifact.role == "neff" else "nothing ran on this core"
                self._problems[artifact.label].insert(0, f"0 bytes: {what}")
        self._name_twins()
        joined = {self._find(label) for label in self._parent} & set(self._ids)
        for neff in self.neffs:
            if self._find(neff.label) not in joined:
                self._problems[neff.label].append(self._why_alone(neff))
        for ntff in self.ntffs:
            if self._find(ntff.label) not in joined and not self._problems[ntff.label]:
                core = "" if ntff.core_index is None or not self.neffs else f" of core {ntff.core_index}"
                self._problems[ntff.label].append(f"no NEFF{core} beside it")

    def _why_alone(self, neff: Artifact) -> str:
        if not self.ntffs:
            return "no NTFF beside it"
        if neff.model_hash and any(ntff.model_hash for ntff in self.ntffs):
            return f"no NTFF with hash {neff.model_hash}"
        return "no NTFF of its core" if neff.core_index is not None else "no NTFF that belongs to it"

    def _name_twins(self) -> None:
        """Two NEFFs with one hash are a problem unless each is the copy of another core."""
        twins: dict[str, list[Artifact]] = defaultdict(list)
        for neff in self.neffs:
            if neff.model_hash:
                twins[str(int(neff.model_hash))].append(neff)
        for same in twins.values():
            cores = [neff.core_index for neff in same]
            if len(same) > 1 and (None in cores or len(set(cores)) < len(cores)):
                for neff in same:
                    self._problems[neff.label].append(f"{len(same)} NEFFs with this hash")

    def result(self) -> list[Artifact]:
        """The files of the group and those taken from the cache, completed."""
        done = []
        for artifact in (*self._all.values(), *self._added):
            problem = "; ".join([*([artifact.problem] if artifact.problem else []), *self._problems[artifact.label]])
            pair_id = self._ids.get(self._find(artifact.label))
            done.append(replace(artifact, pair_id=pair_id, problem=problem or None))
        return done

    def problems(self) -> list[Problem]:
        """What is wrong with the group as a whole."""
        found = []
        if self.ntffs and not self.neffs and not self._added:
            found.append(self._no_neff())
        if self.neffs and not self.ntffs:
            message = f"{len(self.neffs)} NEFF files and no NTFF: the device was not profiled"
            hint = "add ProfileMode.DEVICE to NeuronConfig for instruction-level data"
            found.append(Problem(self.name, "info", "no_ntff", message, hint))
        with_data = [ntff for ntff in self.ntffs if ntff.size_bytes]
        if self.ntffs and not with_data:
            message = f"all {len(self.ntffs)} NTFF files are 0 bytes: no core recorded an execution"
            hint = "run warm-up steps before the profiled one, and stop after device work is done"
            found.append(Problem(self.name, "warning", "empty_ntff", message, hint))
        lost = [a for a in self.ntffs if any(p.startswith("no NEFF with hash") for p in self._problems[a.label])]
        if lost and (self.neffs or self._added):
            message = f"{len(lost)} NTFF files whose NEFF is not here"
            found.append(Problem(self.name, "warning", "hash_without_neff", message, _CACHE_HINT))
        twins = [a for a in self.neffs if any("NEFFs with this hash" in p for p in self._problems[a.label])]
        if twins:
            message = f"{len(twins)} NEFF files share a hash with another one"
            found.append(Problem(self.name, "warning", "twin_neff", message, "keep the one that was executed"))
        if self._added:
            message = f"{len(self._added)} NEFF files were found in the NEFF cache, not in the capture"
            found.append(Problem(self.name, "info", "neff_from_cache", message, "copy them beside the NTFF files"))
        return found

    def _no_neff(self) -> Problem:
        message = f"{len(self.ntffs)} NTFF files and no NEFF: the device profile cannot be decoded"
        return Problem(self.name, "warning", "no_neff", message, _CACHE_HINT)


_CACHE_HINT = "name the NEFF cache of the run: --neff-cache DIR"
