"""Each way in which a course exports its submissions is recognised, and nobody in it is lost."""

import hashlib
import itertools
from datetime import UTC, datetime
from pathlib import Path

import pytest

from grader.batch.contents import read
from grader.batch.layouts import Entry, Export, Source, Student, read_export, recognised
from grader.located import Mistake

GRADESCOPE = """\
---
submission_101:
  :submitters:
  - :name: "No"
    :sid: 0123
    :email: no@example.edu
  - :name: Ada Example
    :sid:
    :email: ada@example.edu
  :created_at: 2026-10-02 21:58:03.365935000 Z
  :score: 3.0
submission_102:
  :submitters:
  - :name: "Gau\u00df, Carl"
    :sid: "3032"
  :created_at: 2026-10-02 23:30:00 +0200
  :history: !ruby/object:Attempt
    - :score: 1.0
submission_103:
  :created_at: unknown
"""


def made(root: Path, *names: str) -> Path:
    """Files with these names; folders where one ends in a slash."""
    for name in names:
        path = root / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text(GRADESCOPE if name.endswith("submission_metadata.yml") else "x = 1\n")
    return root


def short_hash(name: str) -> str:
    """What an id has for letters that it lacks."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def by_id(export: Export) -> dict[str, Entry]:
    assert len({entry.id for entry in export.entries}) == len(export.entries)
    return {entry.id: entry for entry in export.entries}


EXPORTS = {
    Source.GRADESCOPE: ("a_export/submission_metadata.yml", "a_export/submission_101/gelu.py"),
    Source.MOODLE: ("Ada Example_7_assignsubmission_file/gelu.py", "Carl_8_assignsubmission_file_/gelu.py"),
    Source.CANVAS: ("exampleada_1001_5_gelu.py", "gau\u00dfcarl_LATE_1002_6_work.zip", "readme.txt"),
    Source.GITHUB: ("kernels-ada-l/.git/HEAD", "kernels-ada-l/gelu.py", "kernels-carl/.git/HEAD", "kernels-eve/x"),
    Source.PLAIN: ("ada/gelu.py", "carl.zip", "eve.py", "notes.txt"),
}
THEIRS = {
    Source.GRADESCOPE: ("a_export/submission_101/submission_metadata.yml", "a_export/submission_101/.git/HEAD"),
    Source.MOODLE: ("Carl_8_assignsubmission_file_/submission_metadata.yml", "E_9_assignsubmission_file_a_1_5_gelu.py"),
    Source.CANVAS: ("eve_1009_7_x_1001_assignsubmission_file_gelu.py", "eve_1009_8_y_1001_assignsubmission_file_a.py"),
    Source.GITHUB: ("kernels-eve/submission_metadata.yml", "kernels-eve/submission_101/gelu.py"),
    Source.PLAIN: ("ada/submission_metadata.yml", "ada/submission_101/gelu.py", "ada/.git/HEAD", "a_1_2_b.py"),
}
SIGNS, ADA = str.maketrans("01", "!+"), "fdee"  # signs that an id has no letters for; how the hash of "ada" begins
MARKERS = {
    Source.GRADESCOPE: "a_export/submission_metadata.yml is there",
    Source.MOODLE: "2 of 2 names hold _assignsubmission_",
    Source.CANVAS: "2 of 3 names are as Canvas writes them",
    Source.GITHUB: "2 of 3 folders hold .git",
    Source.PLAIN: "nothing of another source",
}


@pytest.mark.parametrize("source", Source)
def test_a_source_is_recognised_by_what_it_writes(tmp_path, source):
    assert recognised(made(tmp_path, *EXPORTS[source], "__MACOSX/._x", ".DS_Store")) == (source, MARKERS[source])
    assert read_export(tmp_path).ignored[".DS_Store"] == "left by the operating system"


@pytest.mark.parametrize("source", Source)
def test_what_one_student_hands_in_makes_no_class_that_of_another_source(tmp_path, source):
    """By the names of their files, or by what is in these: all others would be ignored."""
    made(tmp_path, *EXPORTS[source], *THEIRS[source])
    assert recognised(tmp_path)[0] is source
    read_export(tmp_path)


def test_nobody_finds_a_name_with_the_id_of_another_one(tmp_path):
    """Ids are of 64 bits; of 16 of them, one in 65,536 names is another's."""
    alike = next(
        name for number in itertools.count() if short_hash(name := f"Ada{number:b}".translate(SIGNS))[:4] == ADA
    )
    made(tmp_path, "ada/gelu.py", f"{alike}/gelu.py")
    assert len(by_id(read_export(tmp_path))) == 2


def test_gradescope_tells_who_and_when(tmp_path):
    made(tmp_path, "submission_metadata.yml", *(f"submission_{number}/gelu.py" for number in (101, 102, 104)))
    export = read_export(tmp_path)
    found = by_id(export)
    assert found["gradescope-101"].students == (
        Student(sid="0123", email="no@example.edu", name="No"), Student(email="ada@example.edu", name="Ada Example"),
    )  # fmt: skip
    assert found["gradescope-101"].submitted_at == datetime(2026, 10, 2, 21, 58, 3, 365935, UTC)
    assert found["gradescope-102"].submitted_at == datetime(2026, 10, 2, 21, 30, tzinfo=UTC)
    assert found["gradescope-102"].students == (Student(sid="3032", name="Gau\u00df, Carl"),)
    assert set(export.ignored) == {"submission_103", "submission_104"}
    assert "not there" in export.ignored["submission_103"]
    assert "does not name it" in export.ignored["submission_104"]


def test_moodle_has_folders_or_prefixes_for_students_and_groups(tmp_path):
    made(
        tmp_path, "Ada Example_7_assignsubmission_file/a/gelu.py", "Group 2_12_assignsubmission_file_/gelu.py",
        "Carl O'Neil_8_assignsubmission_file_gelu.py", "Carl O'Neil_8_assignsubmission_file_softmax.py",
        "Eve_9_assignsubmission_onlinetext/text.html", "Default group_assignsubmission_file/gelu.py", "grades.csv",
    )  # fmt: skip
    export = read_export(tmp_path)
    found = by_id(export)
    assert {id: sorted(read(entry.place).sources) for id, entry in found.items()} == {
        "moodle-7": ["a/gelu.py"], "moodle-12": ["gelu.py"], "moodle-8": ["gelu.py", "softmax.py"],
        f"moodle-default-group-{short_hash('Default group')}": ["gelu.py"],
    }  # fmt: skip
    assert found["moodle-8"].students == (Student(name="Carl O'Neil", platform_id="8", platform="moodle"),)
    assert export.ignored == {
        "Eve_9_assignsubmission_onlinetext": "text that was typed in",
        "grades.csv": "not named as Moodle names submissions",
    }


def test_canvas_files_of_one_user_are_one_submission_with_the_names_that_they_had(tmp_path):
    made(
        tmp_path, "exampleada_1001_50_gelu.py", "exampleada_1001_51_softmax-2.py", "exampleada_1001_49_softmax-1.py",
        "no_LATE_1002_52_gelu-1.py", "no_LATE_1002_53_gelu.py", "LATE_anon_x9Y_54_work.zip", "eve_1003_text.html",
        "o_brien_1004_55_my_gelu.py",
    )  # fmt: skip
    export = read_export(tmp_path)
    found = by_id(export)
    assert {id: {name: path.name for name, path in entry.place.items()} for id, entry in found.items()} == {
        "canvas-1001": {
            "gelu.py": "exampleada_1001_50_gelu.py", "softmax.py": "exampleada_1001_51_softmax-2.py",
            "softmax-1.py": "exampleada_1001_49_softmax-1.py",
        },
        "canvas-1002": {"gelu.py": "no_LATE_1002_53_gelu.py", "gelu-1.py": "no_LATE_1002_52_gelu-1.py"},
        f"canvas-anon-x9y-{short_hash('x9Y')}": {"work.zip": "LATE_anon_x9Y_54_work.zip"},
        "canvas-1004": {"my_gelu.py": "o_brien_1004_55_my_gelu.py"},
    }  # fmt: skip
    assert {id: entry.late for id, entry in found.items()} == {
        "canvas-1001": False, "canvas-1002": True, f"canvas-anon-x9y-{short_hash('x9Y')}": True, "canvas-1004": False,
    }  # fmt: skip
    assert export.ignored == {"eve_1003_text.html": "text that was typed in"}


@pytest.mark.parametrize("parent", ["gpu-kernels-submissions", "anything"])
def test_a_login_with_hyphens_is_what_the_slug_leaves(tmp_path, parent):
    root = tmp_path / parent
    made(root, *(f"gpu-kernels-{login}/.git/HEAD" for login in ("ada-l", "Ada-Lovelace", "carl")))
    assert {entry.students[0].login for entry in read_export(root).entries} == {"ada-l", "Ada-Lovelace", "carl"}
    assert set(by_id(read_export(root))) == {"github-ada-l", "github-ada-lovelace", "github-carl"}


def test_plain_names_keep_apart_what_looks_alike_and_are_safe_as_file_names(tmp_path):
    made(tmp_path, "ada/gelu.py", "ada.zip", "ada (2).zip", "$(reboot).zip", "\u5f20\u4f1f.zip", "notes.txt")
    export = read_export(tmp_path)
    assert len(by_id(export)) == 5
    assert all(entry.id.isascii() and entry.id.replace("-", "").isalnum() for entry in export.entries)
    assert export.ignored == {"notes.txt": "no folder, archive or Python file"}


def test_ids_are_the_same_in_each_run_and_not_too_long(tmp_path):
    made(tmp_path, f"{'long name ' * 20}.zip", "ada.zip")
    first, second = ([entry.id for entry in read_export(tmp_path).entries] for _ in range(2))
    assert first == second
    assert all(len(one) <= 64 for one in first)


def test_a_source_can_be_forced(tmp_path):
    made(tmp_path, "exampleada_1001_50_gelu.py", "carl_1002_51_gelu.py")
    assert [entry.id[:6] for entry in read_export(tmp_path, Source.PLAIN).entries] == ["plain-", "plain-"]


def test_metadata_that_is_no_yaml_is_told_with_its_line(tmp_path):
    (tmp_path / "submission_metadata.yml").write_text("submission_1:\n  :submitters: [\n")
    with pytest.raises(Mistake, match=r"^submission_metadata\.yml, line 3 cannot be read: download the export again$"):
        read_export(tmp_path)


def test_anonymous_ids_that_differ_by_case_are_two_submissions(tmp_path):
    made(tmp_path, "anon_x9Y_54_gelu.py", "anon_X9y_55_gelu.py")
    assert len(by_id(read_export(tmp_path))) == 2


def test_of_two_attachments_with_one_name_the_last_has_it_and_the_other_is_kept_beside(tmp_path):
    made(tmp_path, "ada_7_100_gelu.py", "ada_7_101_gelu.py", "ada_7_99_gelu.py")
    [entry] = read_export(tmp_path).entries
    assert {name: path.name for name, path in entry.place.items()} == {
        "gelu.py": "ada_7_101_gelu.py",
        "ada_7_100_gelu.py": "ada_7_100_gelu.py", "ada_7_99_gelu.py": "ada_7_99_gelu.py",
    }  # fmt: skip


def test_a_linked_folder_of_a_moodle_export_is_not_entered(tmp_path):
    made(tmp_path, "elsewhere/gelu.py", "export/Carl_8_assignsubmission_file/gelu.py")
    (tmp_path / "export" / "Ada_7_assignsubmission_file").symlink_to(tmp_path / "elsewhere")
    found = by_id(read_export(tmp_path / "export"))
    assert not read(found["moodle-7"].place).sources
    assert read(found["moodle-7"].place).links


def test_a_folder_among_the_files_of_canvas_belongs_to_its_submission(tmp_path):
    made(tmp_path, "ada_7_100_work/assignment/gelu.py", "carl_8_101_gelu.py")
    found = by_id(read_export(tmp_path))
    assert set(read(found["canvas-7"].place).sources) == {"work/assignment/gelu.py"}


@pytest.mark.parametrize("source", Source)
def test_each_entry_of_the_input_comes_out_once(tmp_path, source):
    more = "a_export/more/deep/down.py" if source is Source.GRADESCOPE else "more/deep/down.py"
    root = made(tmp_path, *EXPORTS[source], "something else.txt", more)
    export = read_export(root, source)
    used = {path for entry in export.entries for path in paths_of(entry)}
    for home in {root, root / "a_export"} if source is Source.GRADESCOPE else {root}:
        there = {path.name for path in home.iterdir()} - {"submission_metadata.yml"}
        taken = {path.relative_to(home).parts[0] for path in used if path.is_relative_to(home)}
        assert taken.isdisjoint(export.ignored)
        assert there <= taken | set(export.ignored)


def paths_of(entry: Entry) -> list[Path]:
    return [entry.place] if isinstance(entry.place, Path) else list(entry.place.values())
