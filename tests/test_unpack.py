"""Archives from strangers: every attack is really built here, and must not touch anything outside its directory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit import unpack as unpack_module
from tracekit.errors import DiscoveryError
from tracekit.unpack import Limits, Unpacked, unpack, unpack_file

TRACE = b'{"traceEvents": [{"ph": "X", "ts": 1, "dur": 2, "pid": 1, "tid": 1, "name": "a"}]}'
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "tar": bytes,
    "tar.gz": gzip.compress,
    "tar.bz2": bz2.compress,
    "tar.xz": lzma.compress,
    "tar.zst": zstandard.compress,
}


def tar_of(*members: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    """A tar of plain files (name, content) and of hand-made headers."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
    return out.getvalue()


def zip_of(*members: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content, compress_type=method)
    return out.getvalue()


def odd(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    """A tar header of a link or device."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory that holds only an archive, so that anything else in it has escaped."""
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def read(place: Path, content: bytes, limits: Limits | None = None, *, all_wanted: bool = True) -> Unpacked:
    archive = place / "a.bin"
    archive.write_bytes(content)
    try:
        return unpack(archive, place / "out", lambda *_: all_wanted, limits or Limits())
    finally:
        outside = [p for p in place.parent.rglob("*") if p not in (place, archive) and (place / "out") not in p.parents]
        assert outside in ([], [place / "out"]), "something was written outside of the target"
        assert all(p.is_dir() or p.is_file() for p in place.rglob("*"))
        assert not [p for p in place.rglob("*") if p.is_symlink()]


def contents(unpacked: Unpacked) -> dict[str, bytes]:
    return {m.name: m.path.read_bytes() for m in unpacked.members if m.path is not None}


@pytest.mark.parametrize("packing", PACKERS)
def test_tar_of_every_packing_gives_its_files(place: Path, packing: str) -> None:
    content = PACKERS[packing](tar_of(("run/trace.json", TRACE), ("run/b/x.json", b"{}")))
    assert contents(read(place, content)) == {"run/trace.json": TRACE, "run/b/x.json": b"{}"}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_of_every_method_gives_its_files(place: Path, method: int) -> None:
    unpacked = read(place, zip_of(("run/trace.json", TRACE), ("empty", b""), method=method))
    assert contents(unpacked) == {"run/trace.json": TRACE}
    assert [(m.name, m.size_bytes) for m in unpacked.members] == [("run/trace.json", len(TRACE)), ("empty", 0)]


def test_what_is_not_wanted_is_listed_with_its_size_only(place: Path) -> None:
    for content in (tar_of(("a.ntff", b"x" * 5000)), zip_of(("a.ntff", b"x" * 5000))):
        unpacked = read(place, content, all_wanted=False)
        assert [(m.name, m.size_bytes, m.path) for m in unpacked.members] == [("a.ntff", 5000, None)]


ESCAPES = [
    "../evil.json",
    "a/../../evil.json",
    "/etc/evil.json",
    "..\\evil.json",
    "C:\\evil.json",
    "c:/evil.json",
    "a/..",
]


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("build", [tar_of, zip_of], ids=["tar", "zip"])
def test_name_that_leaves_the_archive_refuses_it(place: Path, build: Callable[..., bytes], name: str) -> None:
    with pytest.raises(DiscoveryError, match=r"unsafe archive.*outside") as caught:
        read(place, build(("trace.json", TRACE), (name, TRACE)))
    assert caught.value.hint


def test_symbolic_link_is_left_out_and_nothing_goes_through_it(place: Path, tmp_path: Path) -> None:
    target = tmp_path / "secret"
    content = tar_of(odd("link", tarfile.SYMTYPE, str(tmp_path)), ("link/secret", TRACE), ("trace.json", TRACE))
    unpacked = read(place, content)
    assert not target.exists()
    assert contents(unpacked) == {"link/secret": TRACE, "trace.json": TRACE}
    assert unpacked.left_out[0][0] == "link"
    assert "symbolic link" in unpacked.left_out[0][1]


def test_symbolic_link_in_zip_is_left_out(place: Path) -> None:
    link = zipfile.ZipInfo("link.json")
    link.external_attr = 0o120777 << 16
    unpacked = read(place, zip_of((link, b"/etc/passwd"), ("trace.json", TRACE)))
    assert contents(unpacked) == {"trace.json": TRACE}
    assert "symbolic link" in dict(unpacked.left_out)["link.json"]


def test_hard_link_is_the_earlier_member_and_never_a_file_outside(place: Path) -> None:
    inside = tar_of(("a/trace.json", TRACE), odd("b/trace.json", tarfile.LNKTYPE, "a/trace.json"))
    assert contents(read(place, inside)) == {"a/trace.json": TRACE, "b/trace.json": TRACE}
    lost = read(place, tar_of(("c.json", TRACE), odd("x.json", tarfile.LNKTYPE, "etc/passwd")))
    assert "hard link" in dict(lost.left_out)["x.json"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../../etc/passwd"])
def test_hard_link_out_refuses_the_archive(place: Path, target: str) -> None:
    with pytest.raises(DiscoveryError, match="unsafe"):
        read(place, tar_of(odd("x.json", tarfile.LNKTYPE, target)))


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE])
def test_device_pipe_and_sparse_file_are_left_out(place: Path, kind: bytes) -> None:
    unpacked = read(place, tar_of(odd("dev/x.json", kind), ("trace.json", TRACE)))
    assert contents(unpacked) == {"trace.json": TRACE}
    assert [name for name, _ in unpacked.left_out] == ["dev/x.json"]


@pytest.mark.parametrize("packing", ["tar.gz", "tar.bz2", "tar.xz", "tar.zst"])
@pytest.mark.parametrize("all_wanted", [True, False])
def test_tar_bomb_is_refused_whether_or_not_it_is_wanted(place: Path, packing: str, all_wanted: bool) -> None:
    bomb = PACKERS[packing](tar_of(("trace.json", b" " * 8_000_000)))
    with pytest.raises(DiscoveryError, match="bomb"):
        read(place, bomb, Limits(ratio_floor_bytes=1_000_000), all_wanted=all_wanted)
    assert sum(p.stat().st_size for p in (place / "out").rglob("*") if p.is_file()) < 4_000_000


def test_zip_bomb_is_refused_even_if_its_header_lies_about_the_size(place: Path) -> None:
    with pytest.raises(DiscoveryError, match="bomb"):
        read(place, zip_of(("trace.json", b" " * 8_000_000)), Limits(ratio_floor_bytes=1_000_000))


def test_real_traces_are_no_bomb(place: Path) -> None:
    trace = (
        b"[" + b",\n".join(b'{"ph":"X","name":"aten::mul","ts":%d.%03d}' % (i, i % 997) for i in range(50_000)) + b"]"
    )
    assert (
        contents(read(place, gzip.compress(tar_of(("t.json", trace))), Limits(ratio_floor_bytes=0)))["t.json"] == trace
    )


def test_total_and_member_count_are_limited(place: Path) -> None:
    many = tar_of(*((f"{n}.json", TRACE) for n in range(30)))
    with pytest.raises(DiscoveryError, match="more than 10 members"):
        read(place, many, Limits(member_count=10))
    with pytest.raises(DiscoveryError, match="GiB"):
        read(place, many, Limits(total_bytes=500))


def test_full_disk_is_told_before_it_is_full(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 600

    monkeypatch.setattr(unpack_module.shutil, "disk_usage", lambda _: Usage)
    with pytest.raises(DiscoveryError, match="disk space") as caught:
        read(place, tar_of(("a.json", b"x" * 5000)), Limits(free_bytes=0))
    assert "TMPDIR" in caught.value.hint


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE])
def test_endless_header_is_not_read_into_memory(place: Path, kind: bytes) -> None:
    header = tarfile.TarInfo("h")
    header.type, header.size = kind, 60_000_000
    content = header.tobuf(tarfile.GNU_FORMAT) + bytes(60_000_000)
    with pytest.raises(DiscoveryError, match="absurdly long"):
        read(place, content, Limits(header_bytes=1_000_000))


def test_negative_size_ends_the_archive(place: Path) -> None:
    header = bytearray(tarfile.TarInfo("a.json").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = struct.pack(">Bxxxq", 0xFF, -4096)[:12].rjust(12, b"\xff")
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header)
    with pytest.raises(DiscoveryError):
        read(place, bytes(header) + bytes(2048))


@pytest.mark.parametrize("cut_directory", [False, True])
def test_encrypted_zip_is_named(place: Path, cut_directory: bool) -> None:
    content = bytearray(zip_of(("trace.json", TRACE)))
    content[6] |= 1
    directory = content.index(b"PK\x01\x02")
    content[directory + 8] |= 1
    with pytest.raises(DiscoveryError, match=r"encrypted zip.*trace\.json") as caught:
        read(place, bytes(content[:directory] if cut_directory else content))
    assert "password" in caught.value.hint


def test_unknown_zip_method_is_a_problem_of_that_member_only(place: Path) -> None:
    content = bytearray(zip_of(("a.json", TRACE), ("b.json", TRACE)))
    content[8:10] = b"\x61\x00"
    directory = content.index(b"PK\x01\x02")
    content[directory + 10 : directory + 12] = b"\x61\x00"
    unpacked = read(place, bytes(content))
    assert contents(unpacked) == {"b.json": TRACE}
    assert unpacked.members[0].problem


def test_damaged_member_is_kept_as_far_as_it_goes(place: Path) -> None:
    content = bytearray(zip_of(("a.json", TRACE * 10), ("b.json", TRACE), method=zipfile.ZIP_STORED))
    content[60] ^= 0xFF
    unpacked = read(place, bytes(content))
    assert contents(unpacked)["b.json"] == TRACE
    assert unpacked.members[0].problem


def test_later_copy_of_a_name_replaces_the_earlier(place: Path) -> None:
    unpacked = read(place, tar_of(("a.json", b"old"), ("./a.json", b"new")))
    assert contents(unpacked) == {"a.json": b"new"}
    assert unpacked.left_out


HOSTILE = [
    "a\nb.json",
    "\x1b[2J\x1b[31mred.json",
    "quo'te\".json",
    "-rf.json",
    "…\u202e.json",
    "aux.json ",
    "x" * 250 + ".json",
]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("build", [tar_of, zip_of], ids=["tar", "zip"])
def test_hostile_name_is_kept_as_text_and_never_used_on_disk(
    place: Path, build: Callable[..., bytes], name: str
) -> None:
    unpacked = read(place, build((f"d/{name}", TRACE)))
    (member,) = unpacked.members
    assert member.name == f"d/{name}"
    assert member.path is not None
    assert member.path.name.isascii()
    assert member.path.name.isprintable()
    assert member.path.read_bytes() == TRACE
    assert not set(member.path.name) & set("\"'\n\\/ ")


def test_names_that_differ_in_case_only_do_not_overwrite_each_other(place: Path) -> None:
    unpacked = read(place, tar_of(("A.json", b"upper"), ("a.json", b"lower"), ("a.json/b.json", b"below")))
    assert contents(unpacked) == {"A.json": b"upper", "a.json": b"lower", "a.json/b.json": b"below"}
    assert len({str(m.path).lower() for m in unpacked.members}) == 3


MEMBERS = [("a.json", TRACE), ("b.json", TRACE * 3000), ("c.json", TRACE), ("d.json", bytes(range(256)) * 40)]


@pytest.mark.parametrize("build", [*PACKERS, "zip", "zip-stored"])
def test_cut_anywhere_gives_what_lies_before_the_cut(tmp_path: Path, build: str) -> None:
    if build.startswith("zip"):
        method = zipfile.ZIP_STORED if build == "zip-stored" else zipfile.ZIP_DEFLATED
        whole = zip_of(*MEMBERS, method=method)
    else:
        whole = PACKERS[build](tar_of(*MEMBERS))
    best = 0
    for step in range(1, 40):
        place = tmp_path / str(step)
        place.mkdir()
        archive = place / "a"
        archive.write_bytes(whole[: len(whole) * step // 40])
        try:
            unpacked = unpack(archive, place / "out", lambda *_: True)
        except DiscoveryError as error:
            assert "not a readable" in error.problem
            continue
        assert unpacked.problem
        for name, content in contents(unpacked).items():
            assert dict(MEMBERS)[name].startswith(content)
        entire = [m for m in unpacked.members if m.path and m.problem is None]
        best = max(best, sum(m.path.read_bytes() == dict(MEMBERS)[m.name] for m in entire if m.path))
    assert best >= (0 if build in ("tar.bz2", "tar.xz") else 1)


def test_zip_written_as_a_stream_and_cut_is_recovered(place: Path) -> None:
    class Pipe(io.RawIOBase):
        """Cannot seek: zipfile then writes the sizes after the data."""

        def __init__(self) -> None:
            self.data = b""

        def writable(self) -> bool:
            return True

        def write(self, data: object) -> int:
            self.data += bytes(data)  # type: ignore[call-overload]
            return len(bytes(data))  # type: ignore[call-overload]

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:  # type: ignore[arg-type]
        for name, content in MEMBERS:
            archive.writestr(name, content)
    unpacked = read(place, pipe.data[: pipe.data.index(b"PK\x01\x02")])
    assert contents(unpacked) == dict(MEMBERS)
    assert "directory is missing" in (unpacked.problem or "")


@pytest.mark.parametrize("packing", ["gz", "bz2", "xz", "zst"])
def test_packed_file_is_unpacked_and_a_bomb_is_refused(tmp_path: Path, packing: str) -> None:
    pack = PACKERS[f"tar.{packing}"]
    packed = tmp_path / f"trace.json.{packing}"
    packed.write_bytes(pack(TRACE))
    member = unpack_file(packed, tmp_path / "out")
    assert member.path is not None
    assert (member.path.name, member.path.read_bytes(), member.problem) == ("trace.json", TRACE, None)
    packed.write_bytes(pack(b" " * 8_000_000))
    with pytest.raises(DiscoveryError, match="bomb"):
        unpack_file(packed, tmp_path / "out2", Limits(ratio_floor_bytes=1_000_000))


def test_several_gzip_members_are_one_file(tmp_path: Path) -> None:
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(TRACE[:20]) + gzip.compress(TRACE[20:]) + bytes(512))
    member = unpack_file(packed, tmp_path / "out")
    assert member.path is not None
    assert member.path.read_bytes() == TRACE


@settings(max_examples=60, deadline=None)
@given(
    content=st.one_of(
        st.binary(max_size=3000),
        st.builds(lambda a, n, b: a[:n] + b + a[n:], st.just(tar_of(*MEMBERS[:1])), st.integers(0, 900), st.binary()),
        st.builds(
            lambda a, n, b: a[:n] + b, st.just(zip_of(*MEMBERS[:1])), st.integers(0, 250), st.binary(max_size=400)
        ),
        st.builds(
            lambda a, n, b: a[:n] + bytes([b]) + a[n + 1 :],
            st.just(zip_of(*MEMBERS[:2])),
            st.integers(0, 400),
            st.integers(0, 255),
        ),
    )
)
def test_any_bytes_give_files_or_one_clear_error(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        archive = Path(directory, "a.bin")
        archive.write_bytes(content)
        try:
            unpacked = unpack(archive, Path(directory, "out"), lambda *_: True)
        except DiscoveryError as error:
            assert "\n" not in error.problem
            return
        for member in unpacked.members:
            assert member.path is None or Path(directory, "out") in member.path.parents


_PART = st.text(st.characters(exclude_characters="/\\\0", codec="utf-8"), min_size=1, max_size=20).filter(
    lambda part: part not in (".", "..") and part[1:2] != ":"
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.lists(_PART, min_size=1, max_size=3).map("/".join), st.binary(min_size=1, max_size=100)))
def test_every_plain_name_comes_back_as_it_went_in(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        archive = Path(directory, "a.tar")
        archive.write_bytes(tar_of(*files.items()))
        if files:
            assert contents(unpack(archive, Path(directory, "out"), lambda *_: True)) == files


_BASES = [pack(tar_of(*MEMBERS)) for pack in PACKERS.values()] + [
    zip_of(*MEMBERS, method=method)
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(_BASES), st.lists(st.tuples(st.integers(-300, 3000), st.integers(0, 255)), max_size=5))
def test_flipped_bytes_give_files_or_one_clear_error(base: bytes, flips: list[tuple[int, int]]) -> None:
    content = bytearray(base)
    for position, value in flips:
        content[max(position, -len(content)) % len(content)] = value
    with tempfile.TemporaryDirectory() as directory:
        archive = Path(directory, "a.bin")
        archive.write_bytes(content)
        try:
            unpack(archive, Path(directory, "out"), lambda *_: True)
        except DiscoveryError as error:
            assert "\n" not in str(error)
        assert {p.name for p in Path(directory).iterdir()} <= {"a.bin", "out"}


def test_member_without_a_name_is_passed_over(place: Path) -> None:
    content = zip_of(("x", TRACE), ("b.json", TRACE)).replace(b"x", b"\0")
    assert contents(read(place, content)) == {"b.json": TRACE}


def test_damaged_header_of_a_zip_member_is_named_without_its_bytes(place: Path) -> None:
    content = bytearray(zip_of(("a.json", TRACE), ("b.json", TRACE)))
    at = content.index(b"b.json")
    content[at : at + 2] = b"\x01\x02"
    unpacked = read(place, bytes(content))
    assert [m.problem for m in unpacked.members] == [None, "cannot be unpacked: its header is damaged"]
