"""What lies in a submission is read or rejected, whatever an archive says about itself."""

import bz2
import errno
import gzip
import hashlib
import io
import os
import random
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.batch import archives as archives_module
from grader.batch import contents as contents_module
from grader.batch.contents import Contents, read
from grader.batch.rejected import Code, Rejected, shown
from grader.batch.tree import OUTSIDE, tree_of
from grader.judge.snapshot import tree_sha256

KNOWN = ("gelu.py", "softmax.py")
GELU = b"def gelu(x):\n    return x\n"


def zipped(path: Path, *entries: tuple[str, bytes], **fields: int) -> Path:
    """A zip with these entries, whose records say what `fields` says."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            info = zipfile.ZipInfo("x")
            info.filename = name
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = fields.get("mode", stat.S_IFREG | 0o644) << 16
            archive.writestr(info, content)
    return path


def tarred(path: Path, *members: tuple[str, bytes | tarfile.TarInfo]) -> Path:
    mode = next((f"w:{kind}" for kind in ("gz", "bz2", "xz") if path.name.endswith(kind)), "w")
    with tarfile.open(path, mode) as archive:
        for name, content in members:
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.name = name
            info.size = len(content) if isinstance(content, bytes) else 0
            archive.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return path


def link(kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo()
    info.type, info.linkname = kind, "/etc/passwd"
    return info


def written(folder: Path, **files: bytes) -> Path:
    for name, content in files.items():
        (folder / name.replace("__", "/")).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name.replace('__', '/')}.py").write_bytes(content)
    return folder


WAYS: dict[str, Callable[[Path], Path]] = {
    "folder": lambda at: written(at / "it", assignment__gelu=GELU),
    "zip": lambda at: zipped(at / "it.zip", ("assignment/gelu.py", GELU)),
    "zip called otherwise": lambda at: zipped(at / "it.dat", ("assignment/gelu.py", GELU)),
    "tar.gz": lambda at: tarred(at / "it.tar.gz", ("assignment/gelu.py", GELU)),
    "tar.bz2": lambda at: tarred(at / "it.tar.bz2", ("assignment/gelu.py", GELU)),
    "tar.xz": lambda at: tarred(at / "it.tar.xz", ("assignment/gelu.py", GELU)),
    "tar": lambda at: tarred(at / "it.tar", ("assignment/gelu.py", GELU)),
    "one more folder": lambda at: zipped(at / "it.zip", ("work/assignment/gelu.py", GELU)),
    "backslashes": lambda at: zipped(at / "it.zip", ("work\\assignment\\gelu.py", GELU)),
    "without the folder": lambda at: zipped(at / "it.zip", ("gelu.py", GELU)),
    "a file": lambda at: written(at / "it", gelu=GELU) / "gelu.py",
    "a zip in a folder": lambda at: zipped(written(at / "it") / "gelu.zip", ("gelu.py", GELU)).parent,
}


@pytest.fixture
def at(tmp_path: Path) -> Path:
    (tmp_path / "it").mkdir()
    return tmp_path


@pytest.mark.parametrize("way", WAYS)
def test_the_same_tree_comes_out_of_every_layout(at, way):
    tree = tree_of(read(WAYS[way](at)), KNOWN)
    assert tree
    assert dict(tree.files) == {"gelu.py": GELU}


@pytest.mark.parametrize(
    "name", ["../gelu.py", "a/../../gelu.py", "/gelu.py", "C:/gelu.py", "C:gelu.py", "..\\gelu.py", "\\gelu.py"]
)
@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_name_that_leads_out_rejects_the_archive_and_is_named(at, name, pack):
    with pytest.raises(Rejected, match="leads out of the submission") as raised:
        read(pack(at / "it.zip", ("softmax.py", GELU), (name, GELU)))
    assert raised.value.code is Code.UNSAFE_PATH
    assert shown(name) in str(raised.value)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_listed_and_not_read(at, kind):
    found = read(tarred(at / "it.tar", ("gelu.py", GELU), ("data.py", link(kind))))
    assert dict(found.sources) == {"gelu.py": GELU}
    assert "link" in found.ignored["data.py"]


@pytest.mark.parametrize("way", ["zip", "tar", "folder"])
def test_a_module_that_is_a_link_rejects_the_submission(at, way):
    written(at / "it", softmax=GELU)
    if way == "folder":
        (at / "it" / "gelu.py").symlink_to("/etc/passwd")
    mode = stat.S_IFLNK | 0o777
    path = {
        "zip": lambda: zipped(at / "it.zip", ("softmax.py", GELU), ("gelu.py", b"/etc/passwd"), mode=mode),
        "tar": lambda: tarred(at / "it.tar", ("softmax.py", GELU), ("gelu.py", link())),
        "folder": lambda: at / "it",
    }[way]()
    found = read(path)
    if way == "zip":
        found.sources["softmax.py"] = GELU  # its mode says that it is a link, too
    with pytest.raises(Rejected, match=r"gelu.py is a link") as raised:
        tree_of(found, KNOWN)
    assert raised.value.code is Code.LINK


def test_a_linked_folder_is_not_entered(at):
    written(at / "elsewhere", assignment__gelu=GELU)
    (at / "it" / "assignment").symlink_to(at / "elsewhere" / "assignment")
    found = read(at / "it")
    assert not found.sources
    assert found.links == {"assignment"}
    assert tree_of(found, KNOWN) is None


def test_a_pipe_in_a_folder_is_not_waited_for(at):
    os.mkfifo(written(at / "it", softmax=GELU) / "gelu.py")
    assert set(read(at / "it").sources) == {"softmax.py"}


def limited(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(contents_module if hasattr(contents_module, name) else archives_module, name, value)


def test_limits_hold_while_content_streams_whatever_sizes_are_told(at, monkeypatch):
    limited(monkeypatch, MOST_OUT_BYTES=1 << 20)
    with pytest.raises(Rejected, match="unpacked, it has more than 1 MiB") as raised:
        read(zipped(at / "it.zip", *((f"{number}.py", bytes(300_000)) for number in range(4))))
    assert raised.value.code is Code.TOO_BIG
    with pytest.raises(Rejected, match="unpacked, it has more than 1 MiB"):
        read(tarred(at / "it.tar.gz", ("data.bin", bytes(2 << 20)), ("gelu.py", GELU)))


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"MOST_FILE_BYTES": 10}, "has more than 0 MiB"),
        ({"MOST_ENTRIES": 1}, "more than 1 files"),
        ({"MOST_DEPTH": 1}, "too long or too deep"),
        ({"MOST_NAME_BYTES": 6}, "too long or too deep"),
        ({"MOST_PATH_BYTES": 8}, "too long or too deep"),
        ({"MOST_IN_BYTES": 20}, r"it\.zip has more than 0 MiB"),
    ],
)
def test_each_limit_has_its_sentence(at, monkeypatch, limits, words):
    limited(monkeypatch, **limits)
    with pytest.raises(Rejected, match=words) as raised:
        read(zipped(at / "it.zip", ("a/gelu.py", GELU), ("a/softmax.py", GELU)))
    assert raised.value.code is Code.TOO_BIG


def test_what_describes_a_member_of_a_tar_is_counted_too(at, monkeypatch):
    """A long name, which Python reads at one go."""
    limited(monkeypatch, MOST_OUT_BYTES=1 << 20)
    path = tarred(at / "it.tar.gz", ("n" * (2 << 20), GELU), ("gelu.py", GELU))
    with pytest.raises(Rejected, match="unpacked, it has more than 1 MiB"):
        read(path)


def test_members_of_a_zip_are_counted_before_there_is_an_object_of_each(at, monkeypatch):
    limited(monkeypatch, MOST_ENTRIES=2)
    path = zipped(at / "it.zip", *((f"{number}.txt", b"") for number in range(3)))
    monkeypatch.setattr(zipfile.ZipFile, "_RealGetContents", lambda self: pytest.fail("they are objects already"))
    with pytest.raises(Rejected, match="more than 2 files"):
        read(path)


def test_two_archives_and_no_source_are_rejected_with_both_names(at):
    for name in ("a.zip", "b.zip"):
        zipped(at / "it" / name, ("gelu.py", GELU))
    with pytest.raises(Rejected, match=r"there are a\.zip and b\.zip, and no Python source") as raised:
        read(at / "it")
    assert raised.value.code is Code.AMBIGUOUS


def test_what_lies_beside_the_one_archive_is_listed(at):
    zipped(at / "it" / "work.zip", ("gelu.py", GELU))
    (at / "it" / "readme.txt").write_text("see the zip")
    assert read(at / "it").ignored == {"readme.txt": "beside the archive"}


def test_an_archive_in_an_archive_is_not_opened(at):
    inner = zipped(at / "inner.zip", ("softmax.py", GELU)).read_bytes()
    found = read(zipped(at / "it.zip", ("gelu.py", GELU), ("more.zip", inner)))
    assert set(found.sources) == {"gelu.py"}
    assert found.ignored == {"more.zip": "an archive in it is not opened"}


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_same_name_twice_counts_once_if_contents_are_equal(at):
    found = read(zipped(at / "it.zip", ("gelu.py", GELU), ("gelu.py", GELU)))
    assert "twice, both alike" in found.notes[0]
    with pytest.raises(Rejected, match="twice, with different contents") as raised:
        read(zipped(at / "it.zip", ("gelu.py", GELU), ("gelu.py", b"x = 1\n")))
    assert raised.value.code is Code.DUPLICATE


def test_modules_whose_names_differ_by_case_only_are_rejected_and_others_are_noted():
    with pytest.raises(Rejected, match=r"gelu.py and Gelu.py"):
        tree_of(Contents({"gelu.py": GELU, "Gelu.py": GELU}), KNOWN)
    tree = tree_of(Contents({"gelu.py": GELU, "caf\u00e9.py": GELU, "Caf\u00e9.py": GELU}), KNOWN)
    assert tree
    assert any("one name on some disks" in note for note in tree.notes)


def test_a_name_that_is_file_and_folder_is_rejected(at):
    with pytest.raises(Rejected, match="is a file and a folder"):
        read(zipped(at / "it.zip", ("gelu.py", GELU), ("gelu.py/x.py", GELU)))


def test_a_zip_that_points_before_its_start_is_its_own_fault_and_not_the_disks(at):
    path = zipped(at / "it.zip", ("gelu.py", GELU))
    content = bytearray(path.read_bytes())
    at_end = content.index(b"PK\x05\x06") + 16  # where its table begins
    content[at_end : at_end + 4] = (int.from_bytes(content[at_end : at_end + 4], "little") + 1).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(Rejected, match="no whole archive") as raised:
        read(path)
    assert raised.value.code is Code.BAD_ARCHIVE


def changed(content: bytes, place: int = 1_000) -> bytes:
    """The same with another byte at a place."""
    return content[:place] + bytes([content[place] ^ 0xFF]) + content[place:][1:]


NO_ARCHIVES = {
    "nothing": (b"", "is empty"),
    "rar": (b"Rar!\x1a\x07\x00rest", "a RAR archive: ask for a zip"),
    "7z": (b"7z\xbc\xaf\x27\x1crest", "a 7z archive"),
    "web page": (b"\n <!DOCTYPE html><title>Sign in", "a web page"),
    "pdf": (b"%PDF-1.7", "a PDF"),
    "cut off zip": (b"PK\x03\x04 and no more", "no whole archive"),
    "gzip of no tar": (gzip.compress(b"no tar" * 1000), "no whole archive"),
    "cut off gzip": (gzip.compress(random.Random(0).randbytes(20_000))[:9_000], "no whole archive"),
    "changed bz2": (changed(bz2.compress(random.Random(0).randbytes(2_000))), "no whole archive"),
    "changed gzip": (changed(gzip.compress(bytes(2_000), mtime=0), -8), "no whole archive"),
    "text": (b"just some text", "no whole archive"),
}


@pytest.mark.parametrize("kind", NO_ARCHIVES)
def test_what_is_no_archive_is_called_by_its_name(at, kind):
    content, words = NO_ARCHIVES[kind]
    (at / "it.zip").write_bytes(content)
    with pytest.raises(Rejected, match=words) as raised:
        read(at / "it.zip")
    assert raised.value.code is Code.BAD_ARCHIVE


def test_an_encrypted_zip_and_an_unknown_method_are_told(at):
    path = zipped(at / "it.zip", ("gelu.py", GELU))
    plain = path.read_bytes()
    place = plain.index(b"PK\x01\x02")
    path.write_bytes(plain[: place + 8] + b"\x01" + plain[place + 9 :])
    with pytest.raises(Rejected, match="without a password"):
        read(path)
    path.write_bytes(plain[: place + 10] + b"\x09" + plain[place + 11 :])  # Deflate64
    with pytest.raises(Rejected, match="few programs read"):
        read(path)


def test_a_zip_cut_off_or_changed_anywhere_is_rejected_or_read(at):
    """Nothing else comes out, whatever bytes there are."""
    whole = zipped(at / "it.zip", ("assignment/gelu.py", GELU), ("notes.txt", b"n")).read_bytes()
    for place in range(len(whole)):
        for broken in (whole[:place], whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]):
            (at / "it.zip").write_bytes(broken)
            try:
                read(at / "it.zip")
            except Rejected:
                continue


def test_utf8_names_without_the_flag_are_read_as_utf8(at):
    path = zipped(at / "it.zip", ("zo\u00eb/gelu.py", GELU))
    flagless = bytearray(path.read_bytes())
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = flagless.index(magic) + offset
        flagless[place : place + 2] = b"\0\0"
    path.write_bytes(flagless)
    assert list(read(path).sources) == ["zo\u00eb/gelu.py"]


def test_what_an_operating_system_leaves_is_ignored_with_the_reason(at):
    entries = (
        ("__MACOSX/._gelu.py", b"\0"), (".DS_Store", b"\0"), ("a/._softmax.py", b"\0"), (".venv/lib/x.py", GELU),
        ("gelu.py", GELU), ("gelu.so", b"\x7fELF"), ("__pycache__/gelu.cpython-311.pyc", b"\0"), ("x.ipynb", b"{}"),
    )  # fmt: skip
    found = read(zipped(at / "it.zip", *entries))
    assert set(found.sources) == {"gelu.py"}
    assert set(found.ignored) == {name for name, _ in entries} - {"gelu.py"}
    assert found.ignored["a/._softmax.py"] == "left by the operating system"


def test_names_that_are_not_utf8_are_shown_escaped(at):
    name = os.fsdecode(b"caf\xe9\x1b[31m.py")
    (at / "it" / name).write_bytes(GELU)
    written(at / "it", gelu=GELU)
    assert shown(next(iter(set(read(at / "it").sources) - {"gelu.py"}))) == "caf\\udce9\\x1b[31m.py"


def test_the_package_is_the_shallowest_folder_assignment_with_a_module_in_it():
    tree = tree_of(
        Contents(
            {"gelu.py": b"1", "a/assignment/gelu.py": GELU, "a/assignment/own/more.py": b"2",
             "a/b/assignment/gelu.py": b"3", "assignment/other.py": b"4"}
        ), KNOWN,
    )  # fmt: skip
    assert tree
    assert tree.folder == "a/assignment"
    assert set(tree.files) == {"gelu.py", "own/more.py"}
    assert tree.ignored["gelu.py"] == OUTSIDE


def test_two_packages_at_one_depth_are_rejected_with_both_names():
    with pytest.raises(Rejected, match="in a/assignment and b/assignment") as raised:
        tree_of(Contents({"a/assignment/gelu.py": GELU, "b/assignment/gelu.py": GELU}), KNOWN)
    assert raised.value.code is Code.AMBIGUOUS


@pytest.mark.parametrize(
    ("there", "meant"),
    [("Softmax.py", "Softmax.py"), ("softmax (1).py", "softmax (1).py"), ("soft_max.py", "soft_max.py")],
)
def test_a_missing_module_has_a_proposal_that_is_never_applied(there, meant):
    tree = tree_of(Contents({"gelu.py": GELU, there: GELU}), KNOWN)
    assert tree
    assert tree.proposals == {"softmax.py": meant}
    assert "softmax.py" not in tree.files


def test_the_hash_is_that_of_paths_and_contents_in_their_order():
    parts = (b"a.py", b"1\n", b"b/c.py", b"")
    framed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    assert tree_sha256({"b/c.py": b"", "a.py": b"1\n"}) == hashlib.sha256(b"grader.tree/1\0" + framed).hexdigest()
    assert tree_sha256({"a.py": b"", "b": b"c"}) != tree_sha256({"a.p": b"y", "b": b"c"})


def test_nothing_of_a_submission_is_changed(at):
    path = zipped(at / "it.zip", ("gelu.py", GELU))
    before = path.read_bytes(), path.stat().st_mtime_ns, sorted(os.listdir(at))
    read(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns, sorted(os.listdir(at))) == before


def test_what_cannot_be_read_is_told_and_tried_again(at, monkeypatch):
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    written(at / "it", gelu=GELU)
    monkeypatch.setattr(contents_module, "_opened", refused)
    with pytest.raises(
        Rejected, match=r"cannot be read \(Permission denied\): it is tried again .* may read it"
    ) as raised:
        read(at / "it")
    assert raised.value.code is Code.IO


def test_folders_may_be_as_deep_as_an_archive_says_and_no_deeper(at):
    parts = ["a"] * (archives_module.MOST_DEPTH - 1)
    written(at.joinpath("it", *parts), gelu=GELU)
    assert list(read(at / "it").sources) == ["/".join([*parts, "gelu.py"])]
    at.joinpath("it", *parts, "a", "a").mkdir(parents=True)  # empty ones, too
    with pytest.raises(Rejected, match="is too long or too deep: ask for it packed anew") as raised:
        read(at / "it")
    assert raised.value.code is Code.TOO_BIG


def test_a_path_that_the_system_cannot_open_is_too_long(at):
    place = os.open(at / "it", os.O_RDONLY)
    for _ in range(20):  # 20 times 200 bytes
        os.mkdir("a" * 200, dir_fd=place)
        inner = os.open("a" * 200, os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    with pytest.raises(Rejected, match="is too long or too deep") as raised:
        read(at / "it")
    assert raised.value.code is Code.TOO_BIG


def headers_of_headers(path: Path) -> Path:
    """A tar that says of each header that another one says its name, more often than Python recurses."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 4
    long_name = info.tobuf(tarfile.GNU_FORMAT) + b"gelu".ljust(tarfile.BLOCKSIZE, b"\0")
    path.write_bytes(long_name * 3000 + tarfile.TarInfo("gelu.py").tobuf() + bytes(1024))
    return path


def test_a_tar_that_python_gives_up_on_is_rejected(at):
    with pytest.raises(Rejected, match=r"it.tar needs too much memory or is nested too deep: ask for it packed anew"):
        read(headers_of_headers(at / "it.tar"))


@pytest.mark.parametrize(
    "error", [MemoryError(), RecursionError(), OSError(errno.ENAMETOOLONG, "File name too long")], ids=repr
)
def test_what_is_too_much_to_read_is_not_our_mistake(at, monkeypatch, error):
    def refused(*_: object) -> None:
        raise error

    written(at / "it", gelu=GELU)
    monkeypatch.setattr(contents_module, "_opened", refused)
    with pytest.raises(Rejected, match="ask for it packed anew") as raised:
        read(at / "it")
    assert raised.value.code is Code.TOO_BIG
