"""Names of NEFF and NTFF files, and which belong together, by the layouts of the vendor's documentation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.sources.artifacts import MAX_HASH, Problem, pair, parse_name
from tracekit.sources.base import Artifact

H, G = "14382885777943380728", "5219"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(f"neff_{H}_vnc_3.neff", ("neff", None, H, 3, None), id="session-mode-neff"),
        pytest.param(f"neff_{H}.neff", ("neff", None, H, None, None), id="model-mode-neff"),
        pytest.param("file.neff", ("neff", None, None, None, None), id="own-name-neff"),
        pytest.param("NEFF_7.NEFF", ("neff", None, "7", None, None), id="capitals"),
        pytest.param("profile_nc_1_session_0.ntff", ("ntff", "session", None, 1, None), id="session-ntff"),
        pytest.param(f"{H}_instid_0_vnc_2.ntff", ("ntff", "model", H, 2, None), id="model-ntff"),
        pytest.param(f"{H}_vnc_2.ntff", ("ntff", "model", H, 2, None), id="model-ntff-without-instance"),
        pytest.param("profile.ntff", ("ntff", "capture", None, None, None), id="capture"),
        pytest.param("profile_rank_3.ntff", ("ntff", "capture", None, None, 3), id="capture-rank"),
        pytest.param("profile_exec_2.ntff", ("ntff", "capture", None, None, None), id="capture-exec"),
        pytest.param("mine_exec_2_rank_11.ntff", ("ntff", "capture", None, None, 11), id="capture-exec-rank"),
        pytest.param(f"neff_{2**64}.neff", ("neff", None, None, None, None), id="no-64-bit-number"),
    ],
)
def test_name_is_taken_apart(name: str, expected: tuple[object, ...]) -> None:
    found = parse_name(name)
    assert found is not None
    assert (found.role, found.layout, found.model_hash, found.core_index, found.rank) == expected


@pytest.mark.parametrize("name", ["trace.json", "neff", "x.ntff.gz", "", ".", "neff_1_vnc_0.neff.json"])
def test_other_files_are_none_of_them(name: str) -> None:
    assert parse_name(name) is None


@given(st.integers(0, MAX_HASH), st.integers(0, 127))
def test_hash_keeps_all_64_bits_as_text(model_hash: int, core: int) -> None:
    for name in (f"neff_{model_hash}_vnc_{core}.neff", f"{model_hash}_instid_0_vnc_{core}.ntff"):
        found = parse_name(name)
        assert found is not None
        assert (found.model_hash, found.core_index) == (str(model_hash), core)


@given(st.text(max_size=40), st.sampled_from([".neff", ".ntff", ".NTFF"]))
def test_any_name_is_safe(stem: str, ending: str) -> None:
    found = parse_name(stem + ending)
    assert found is not None
    assert found.role == ending[1:].lower()


def artifact(label: str, size: int = 100) -> Artifact:
    named = parse_name(label.rsplit("/", 1)[-1])
    assert named is not None
    return Artifact(
        Path(label),
        label,
        named.role,
        model_hash=named.model_hash,
        core_index=named.core_index,
        rank=named.rank,
        size_bytes=size,
    )


def paired(
    *labels: str, empty: Sequence[str] = (), cached: dict[str, Artifact] | None = None
) -> tuple[dict[str, Artifact], dict[str, Problem]]:
    """Artifacts by label and problems by code; directories are the groups."""
    artifacts = [artifact(label, 0 if label in empty else 100) for label in labels]
    groups = {label: label.rpartition("/")[0] or "." for label in labels}
    done, problems = pair(artifacts, groups, cached)
    return {a.label: a for a in done}, {p.code: p for p in problems}


def test_session_mode_pairs_every_neff_with_the_ntff_of_its_core() -> None:
    names = [f"neff_{n}_vnc_{core}.neff" for core in (0, 1) for n in (10, 11, 12)]
    done, problems = paired(*names, "profile_nc_0_session_0.ntff", "profile_nc_1_session_0.ntff")
    assert not problems
    assert all(a.problem is None for a in done.values())
    assert {a.pair_id for a in done.values()} == {".:core0", ".:core1"}
    assert all(a.pair_id == f".:core{a.core_index}" for a in done.values())


def test_session_mode_without_core_in_the_neff_name_pairs_with_all() -> None:
    done, problems = paired("neff_10.neff", "profile_nc_0_session_0.ntff", "profile_nc_1_session_0.ntff")
    assert not problems
    assert len({a.pair_id for a in done.values()}) == 1


def test_model_mode_pairs_by_hash() -> None:
    done, problems = paired(
        f"neff_{H}.neff", f"neff_{G}.neff", f"{H}_instid_0_vnc_0.ntff", f"{H}_vnc_1.ntff", f"{G}_vnc_0.ntff"
    )
    assert not problems
    assert {label: a.pair_id for label, a in done.items()} == {
        f"neff_{H}.neff": f".:{H}",
        f"{H}_instid_0_vnc_0.ntff": f".:{H}",
        f"{H}_vnc_1.ntff": f".:{H}",
        f"neff_{G}.neff": f".:{G}",
        f"{G}_vnc_0.ntff": f".:{G}",
    }


def test_model_mode_keeps_the_copies_of_two_cores_apart() -> None:
    done, problems = paired(f"neff_{H}_vnc_0.neff", f"neff_{H}_vnc_1.neff", f"{H}_vnc_0.ntff", f"{H}_vnc_1.ntff")
    assert not problems
    assert {a.pair_id for a in done.values() if a.core_index == 0} == {f".:{H}:core0"}
    assert {a.pair_id for a in done.values() if a.core_index == 1} == {f".:{H}:core1"}


def test_same_hash_in_two_processes_is_two_pairs() -> None:
    done, problems = paired(f"p/neff_{H}.neff", f"q/neff_{H}.neff", f"p/{H}_vnc_0.ntff", f"q/{H}_vnc_0.ntff")
    assert not problems
    assert {a.pair_id for a in done.values()} == {f"p:{H}", f"q:{H}"}


@pytest.mark.parametrize(
    "ntff", ["profile.ntff", "profile_rank_1.ntff", "profile_exec_2_rank_1.ntff", "file_rank_0.ntff"]
)
@pytest.mark.parametrize("neff", ["file.neff", f"neff_{H}.neff"])
def test_capture_pairs_with_the_only_neff(neff: str, ntff: str) -> None:
    done, problems = paired(neff, ntff)
    assert not problems
    assert done[neff].pair_id == done[ntff].pair_id is not None


def test_capture_pairs_by_stem_among_several_and_says_when_it_cannot() -> None:
    done, _ = paired("a.neff", "b.neff", "a.ntff", "b_rank_1.ntff", "profile.ntff")
    assert done["a.neff"].pair_id == done["a.ntff"].pair_id != done["b.neff"].pair_id
    assert done["b.neff"].pair_id == done["b_rank_1.ntff"].pair_id is not None
    assert done["profile.ntff"].pair_id is None
    assert "none has its name" in (done["profile.ntff"].problem or "")


def test_ntff_without_any_neff_is_named() -> None:
    done, problems = paired("profile_nc_0_session_0.ntff")
    assert "no NEFF" in (done["profile_nc_0_session_0.ntff"].problem or "")
    assert "--neff-cache" in problems["no_neff"].hint


def test_neff_without_any_ntff_is_named() -> None:
    done, problems = paired(f"neff_{H}.neff", f"neff_{G}.neff")
    assert {a.problem for a in done.values()} == {"no NTFF beside it"}
    assert problems["no_ntff"].severity == "info"


def test_hash_without_partner_is_named_on_both_sides() -> None:
    done, problems = paired(f"neff_{H}.neff", f"neff_{G}.neff", f"{H}_vnc_0.ntff", "77_vnc_0.ntff")
    assert done[f"neff_{G}.neff"].problem == f"no NTFF with hash {G}"
    assert done["77_vnc_0.ntff"].problem == "no NEFF with hash 77"
    assert set(problems) == {"hash_without_neff"}


def test_core_without_neff_is_named() -> None:
    done, _ = paired(f"neff_{H}_vnc_0.neff", "profile_nc_0_session_0.ntff", "profile_nc_1_session_0.ntff")
    assert done["profile_nc_1_session_0.ntff"].problem == "no NEFF of core 1 beside it"


def test_empty_files_are_named_and_still_paired() -> None:
    names = (f"neff_{H}_vnc_0.neff", "profile_nc_0_session_0.ntff")
    done, problems = paired(*names, empty=names)
    assert (done[names[0]].problem or "").startswith("0 bytes: compilation")
    assert (done[names[1]].problem or "").startswith("0 bytes: nothing ran")
    assert done[names[0]].pair_id == done[names[1]].pair_id is not None
    assert "empty_ntff" in problems


def test_two_neffs_for_one_hash_are_named() -> None:
    done, problems = paired(f"neff_{H}.neff", f"neff_{H}_vnc_0.neff", f"{H}_vnc_0.ntff")
    assert all("2 NEFFs with this hash" in (done[n].problem or "") for n in (f"neff_{H}.neff", f"neff_{H}_vnc_0.neff"))
    assert "twin_neff" in problems


def test_neff_from_the_cache_is_added_and_paired() -> None:
    cached = {H: Artifact(Path("c"), "neff-cache/c/x.neff", "neff", model_hash=H, size_bytes=5)}
    done, problems = paired(f"{H}_vnc_0.ntff", cached=cached)
    neff = done["neff-cache/c/x.neff"]
    assert neff.pair_id == done[f"{H}_vnc_0.ntff"].pair_id is not None
    assert "NEFF cache" in (neff.problem or "")
    assert set(problems) == {"neff_from_cache"}


def test_neff_elsewhere_in_the_capture_is_pointed_at() -> None:
    done, _ = paired(f"cache/neff_{H}.neff", f"p/{H}_vnc_0.ntff")
    assert done[f"p/{H}_vnc_0.ntff"].problem == f"its NEFF lies elsewhere: cache/neff_{H}.neff"


_NAMES = st.one_of(
    st.builds("neff_{}_vnc_{}.neff".format, st.integers(1, 4), st.integers(0, 2)),
    st.builds("neff_{}.neff".format, st.integers(1, 4)),
    st.builds("{}_vnc_{}.ntff".format, st.integers(1, 4), st.integers(0, 2)),
    st.builds("profile_nc_{}_session_0.ntff".format, st.integers(0, 2)),
    st.sampled_from(["profile.ntff", "profile_rank_1.ntff", "file.neff", "file.ntff"]),
)
_LABELS = st.lists(st.builds("{}/{}".format, st.sampled_from("pq"), _NAMES), unique=True, max_size=14)


@given(_LABELS, st.randoms(use_true_random=False))
def test_pairing_never_loses_invents_or_crosses(labels: list[str], random: object) -> None:
    done, _ = paired(*labels)
    assert sorted(done) == sorted(labels)
    for one in done.values():
        assert one.pair_id or one.problem, "alone, and no word why"
        for other in done.values():
            if one.pair_id and one.pair_id == other.pair_id:
                assert one.label[0] == other.label[0], "a pair across processes"
    for pair_id in {a.pair_id for a in done.values()} - {None}:
        assert {a.role for a in done.values() if a.pair_id == pair_id} == {"neff", "ntff"}
    shuffled = list(labels)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert paired(*shuffled)[0] == done, "the order of files must not matter"
