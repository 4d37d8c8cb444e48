"""What goes wrong before any code runs: each hazard of an intake, beside submissions that must not suffer from it.

Each folder below `submissions/broken/` has an `expect.yaml`: what is handed in, since git cannot hold most of it, and
what must come out.
"""

import gzip
import hashlib
import io
import lzma
import os
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

from grader.batch import archives, contents
from grader.batch.intake import Intake, Status, take_in
from grader.batch.layouts import Source
from grader.batch.rejected import shown
from tests.staff.conftest import STAFF

BROKEN = sorted((STAFF / "submissions" / "broken").iterdir())
HAZARDS = {
    "a path that leads out", "backslashes between folders", "links, devices and pipes in a tar",
    "a link in a zip, by its mode", "links in a folder", "a bomb", "the same name twice",
    "names that are one on some disks", "a name that is a file and a folder", "no archive that can be read",
    "names in UTF-8 without the flag", "names that do something, or are no text",
    "what operating systems leave behind", "one more folder on top", "nothing in it", "a file that cannot be read",
    "a repository that runs programs", "two intakes at once",
}  # fmt: skip
KEYS = {
    "hazard", "handed_in", "status", "code", "said", "files", "folder", "source", "limits", "unreadable", "at_once",
}  # fmt: skip
KNOWN = ("gelu.py", "softmax.py")
LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"
Spec = Mapping[str, Any]


def expectation(folder: Path) -> dict[str, Any]:
    return yaml.safe_load((folder / "expect.yaml").read_text())


def content_of(entry: Spec) -> bytes:
    return archived(entry["archive"]) if "archive" in entry else entry["content"].encode() * entry.get("times", 1)


def archived(spec: Spec) -> bytes:
    """An archive of some kind, damaged as it says."""
    kind, _, compression = spec["kind"].partition(".")
    whole = zip_of(spec) if kind == "zip" else tar_of(spec["entries"])
    packed = {"gz": gzip.compress, "xz": lzma.compress, "": bytes}[compression](whole)
    return packed[: spec.get("cut_to", len(packed))]


def zip_of(spec: Spec) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in [
            *spec["entries"],
            *({"name": f"{n}.txt", "content": ""} for n in range(spec.get("empty_files", 0))),
        ]:
            info = zipfile.ZipInfo("x")
            info.filename, info.compress_type = entry["name"], zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFLNK | 0o777 if "link" in entry else stat.S_IFREG | 0o644) << 16
            archive.writestr(info, entry["link"] if "link" in entry else content_of(entry))
    whole = bytearray(file.getvalue())
    for key, places, change in (
        ("encrypted", {LOCAL: 6, CENTRAL: 8}, b"\1\0"), ("flagless", {LOCAL: 6, CENTRAL: 8}, b"\0\0"),
        ("method", {LOCAL: 8, CENTRAL: 10}, int(spec.get("method", 0)).to_bytes(2, "little")),
        ("declares", {LOCAL: 22, CENTRAL: 24}, int(spec.get("declares", 0)).to_bytes(4, "little")),
    ):  # fmt: skip
        for magic, offset in places.items() if key in spec else ():
            at = whole.index(magic) + offset
            whole[at : at + len(change)] = change
    return bytes(whole)


def tar_of(entries: list[Spec]) -> bytes:
    kinds = {"device": tarfile.CHRTYPE, "pipe": tarfile.FIFOTYPE}
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for entry in entries:
            info = tarfile.TarInfo(entry["name"])
            content = content_of(entry) if "content" in entry else b""
            info.size = len(content)
            if "link" in entry or "hard_link" in entry:
                info.type = tarfile.SYMTYPE if "link" in entry else tarfile.LNKTYPE
                info.linkname = entry.get("link") or entry["hard_link"]
            elif "type" in entry:
                info.type = kinds[entry["type"]]
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def fill(folder: Path, entries: list[Spec]) -> None:
    folder.mkdir()
    for entry in entries:
        raw = entry.get("bytes_of_name")
        path = folder / (os.fsdecode(raw.encode("latin-1")) if raw else entry["name"])
        path.parent.mkdir(parents=True, exist_ok=True)
        if "link" in entry:
            path.symlink_to(entry["link"])
        elif "hard_link" in entry:
            path.hardlink_to(folder / entry["hard_link"])
        else:
            path.write_bytes(content_of(entry))


def nest(folder: Path, levels: int) -> None:
    """Folders, each in the one before."""
    for _ in range(levels):
        folder = folder / "a"
        folder.mkdir()


def hand_in(root: Path, spec: Spec) -> Path:
    """Write what is handed in below a folder; where it is."""
    kind = spec["kind"]
    path = root / spec.get("name", "work" if kind == "folder" else f"work.{kind}")
    if kind == "folder":
        fill(path, spec["entries"])
        nest(path, spec.get("levels", 0))
    else:
        path.write_bytes(spec["bytes"].encode("latin-1") if kind == "file" else archived(spec))
    return path


def neighbours(root: Path) -> None:
    """Healthy submissions, before and after the broken one."""
    for name in ("aaa", "zzz"):
        fill(root / name, [{"name": f"assignment/{module}", "content": f"# {name}\n"} for module in KNOWN])


def state(root: Path) -> dict[Path, tuple[int, int, str]]:
    """All that can change below a folder."""
    found, waiting = {}, [root]
    while waiting:
        path = waiting.pop()
        status = path.lstat()
        waiting += path.iterdir() if stat.S_ISDIR(status.st_mode) else ()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else os.readlink(path) if path.is_symlink() else ""
        whole = content if isinstance(content, bytes) else content.encode()
        found[path] = (status.st_mode, status.st_mtime_ns, hashlib.sha256(whole).hexdigest())
    return found


def hamper(monkeypatch: pytest.MonkeyPatch, expected: Spec) -> None:
    """Smaller limits, and files that the disk does not give."""
    for name, value in expected.get("limits", {}).items():
        monkeypatch.setattr(contents if hasattr(contents, name) else archives, name, value)
    opened, unreadable = contents._opened, expected.get("unreadable")

    def refusing(path: Path) -> IO[bytes]:
        if path.name == unreadable and path.parent.name != "assignment":
            raise OSError(5, "Input/output error")
        return opened(path)

    monkeypatch.setattr(contents, "_opened", refusing)


def said(found: Intake) -> str:
    """All that staff can read of it."""
    ignored = found.tree.ignored if found.tree else contents.read(found.entry.place).ignored if not found.code else {}
    lines = [found.reason, *found.notes, *(f"{shown(path)}: {why}" for path, why in ignored.items())]
    return "\n".join([*lines, *(f"{path}: {why}" for path, why in found.mistakes.items())])


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "class").mkdir()
    yield tmp_path / "class"
    subprocess.run(["rm", "-rf", tmp_path / "class"], check=True)  # also what is too deep for Python to remove


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("folder", BROKEN, ids=lambda folder: folder.name)
def test_a_broken_submission_is_told_and_harms_nobody(folder, root, tmp_path, monkeypatch):
    expected = expectation(folder)
    neighbours(root)
    source = Source(expected.get("source", "plain"))
    alone = {one.entry.name: one.tree for one in take_in(root, KNOWN, source).submissions}
    path = hand_in(root, expected["handed_in"])
    hamper(monkeypatch, expected)
    monkeypatch.chdir(tmp_path)
    before = state(tmp_path)

    with ThreadPoolExecutor() as pool:
        first, *others = pool.map(lambda _: take_in(root, KNOWN, source), range(expected.get("at_once", 1)))
    found = {one.entry.name: one for one in first.submissions}
    assert all(other == first for other in others)
    broken = found.pop(path.name)
    assert (broken.status, broken.code) == (Status(expected["status"]), expected.get("code"))
    for sentence in expected.get("said", []):
        assert sentence in said(broken)
    assert "\x1b" not in said(broken)
    assert set(broken.tree.files if broken.tree else ()) == set(expected.get("files", []))
    assert not broken.tree or broken.tree.folder == expected.get("folder", "")
    assert {name: one.tree for name, one in found.items()} == alone
    assert state(tmp_path) == before
    assert not Path("/intake_evil.py").exists()


def test_every_hazard_is_shown():
    assert {expectation(folder)["hazard"] for folder in BROKEN} == HAZARDS


@pytest.mark.parametrize("folder", BROKEN, ids=lambda folder: folder.name)
def test_an_expectation_says_what_is_handed_in_and_what_comes_out(folder):
    expected = expectation(folder)
    assert set(expected) <= KEYS
    assert (expected["status"] == "rejected") == ("code" in expected)
    assert expected["status"] == "ok" or expected["said"]
    assert ("files" in expected) == (expected["status"] == "ok")
