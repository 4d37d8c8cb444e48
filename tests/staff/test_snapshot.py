"""What is graded is a copy made beforehand: its own Python files, and nothing that they lead to."""

import os
import tempfile

import pytest

from grader.judge.snapshot import MOST_BYTES, MOST_FILES, Refused, Snapshot
from grader.judge.verdict import Verdict


@pytest.fixture(autouse=True)
def snapshots_below_tmp_path(monkeypatch, tmp_path_factory):
    """Copies that a test leaves behind go with its own files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("snapshots")))


def copied(snapshot: Snapshot) -> set[str]:
    return {path.relative_to(snapshot.folder).as_posix() for path in snapshot.folder.rglob("*") if path.is_file()}


def test_the_modules_are_copied_from_the_folder_or_from_its_folder_assignment(tmp_path):
    (tmp_path / "assignment" / "own").mkdir(parents=True)
    (tmp_path / "assignment" / "gelu.py").write_text("x = 1\n")
    (tmp_path / "assignment" / "own" / "tiles.py").write_text("")
    outer, inner = Snapshot.of(tmp_path), Snapshot.of(tmp_path / "assignment")
    assert copied(outer) == copied(inner) == {"gelu.py", "own/tiles.py"}
    assert outer.sha256 == inner.sha256
    outer.remove()
    assert not outer.folder.exists()


def test_names_and_contents_change_the_hash(tmp_path):
    def hashed() -> str:
        return Snapshot.of(tmp_path).sha256

    (tmp_path / "gelu.py").write_text("a")
    first = hashed()
    (tmp_path / "gelu.py").write_text("b")
    second = hashed()
    (tmp_path / "gelu.py").rename(tmp_path / "softmax.py")
    assert len({first, second, hashed()}) == 3


def test_links_and_what_is_no_python_file_stay_behind(tmp_path):
    (tmp_path / "secret.py").write_text("answer = 42\n")
    folder = tmp_path / "submission"
    (folder / "gelu.py").mkdir(parents=True)
    (folder / "softmax.py").symlink_to(tmp_path / "secret.py")
    (folder / "linked").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe.py")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "gelu.py").write_text("")
    (folder / "data.bin").write_bytes(b"1")
    assert copied(Snapshot.of(folder)) == set()


def test_a_file_that_is_too_large_is_refused_and_not_read(tmp_path):
    with (tmp_path / "gelu.py").open("wb") as file:
        file.truncate(1 << 40)  # sparse: reading it would take the machine's memory
    with pytest.raises(Refused, match=rf"gelu\.py has more than {MOST_BYTES} bytes"):
        Snapshot.of(tmp_path)


def test_too_many_files_are_refused(tmp_path):
    for number in range(MOST_FILES + 1):
        (tmp_path / f"module{number}.py").touch()
    with pytest.raises(Refused, match="Python files"):
        Snapshot.of(tmp_path)


def test_two_paths_that_the_hash_takes_for_one_are_refused(tmp_path):
    for number, name in enumerate(("caf\u00e9.py", "cafe\u0301.py")):
        (tmp_path / name).write_text(f"x = {number}\n")
    with pytest.raises(Refused, match="are one in another spelling"):
        Snapshot.of(tmp_path)


def test_folders_without_end_are_refused(tmp_path):
    place = tmp_path
    for _ in range(250):
        place = place / "d"
        place.mkdir()
    with pytest.raises(Refused, match="folders"):
        Snapshot.of(tmp_path)


def test_a_submission_that_rewrites_itself_is_graded_and_hashed_as_it_came(grade, tmp_path):
    source = "import torch\n\n\ndef gelu(x):\n    open(PATH, 'w').write('')\n    return torch.zeros_like(x)\n"
    (tmp_path / "gelu.py").write_text(source.replace("PATH", repr(str(tmp_path / "gelu.py"))))
    hashed = Snapshot.of(tmp_path).sha256
    result = grade(tmp_path, "gelu.sizes", "gelu.shapes")
    assert {check.verdict for check in result.checks} == {Verdict.FAIL}
    assert result.submission.tree_sha256 == hashed != Snapshot.of(tmp_path).sha256


def test_a_changed_limit_of_the_server_is_not_handed_on_to_the_next_check(grade, tmp_path):
    lowers = "import os, resource\n\nresource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (3, 3))\n"
    (tmp_path / "gelu.py").write_text(lowers)
    right = "import torch\n\n\ndef softmax(x):\n    open('/dev/null').close()\n    return torch.softmax(x, -1)\n"
    (tmp_path / "softmax.py").write_text(right)
    verdicts = {check.id: check.verdict for check in grade(tmp_path, "gelu.sizes", "softmax.columns").checks}
    assert verdicts == {"gelu.sizes": Verdict.TODO, "softmax.columns": Verdict.PASS}
