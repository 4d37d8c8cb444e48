"""Whose a submission is and when it came in: what staff's tables say, and every mistake in them with its line."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from grader.batch.join import Course, joined
from grader.batch.layouts import Entry, Source, Student
from grader.batch.people import identity, read_names, read_roster
from grader.batch.times import Extension, Times, read_extensions, read_times
from grader.located import Mistake

NO = Student("0123", "no@example.edu", name="No")
GAUSS = Student("3032", None, "cf", 'Gauß, "Carl" 🎉')
ROSTER = """\
SID,Email,Login,GitHub,canvas_id,Moodle_ID,Name,seat
0123,no@example.edu,,no-hub,1001,7,No,12
3032,,cf,,1002,,"Gauß, ""Carl"" 🎉",

,eve@example.edu,,Eve-Hub,,,Eve,14
"""
WORKSHEET = """\
Identifier,Full name,ID number,Email address,Status,Grade,Last modified (submission)
Participant 7,No,0123,no@example.edu,Submitted for grading,,"Friday, 2 October 2026, 9:58 PM"
Participant 8,Carl,,carl@example.edu,No submission,,-
"""


@pytest.fixture
def table(tmp_path):
    """Write a table: `table("roster.csv", text)`."""

    def write(name: str, text: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def entry(id: str, *students: Student, name: str = "") -> Entry:
    return Entry(id, Path(id), students, name=name)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.encode("utf-8-sig"),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.replace(",", ";").replace("Gauß;", "Gauß,").encode(),
        lambda text: text.replace(",", "\t").replace("Gauß\t", "Gauß,").encode(),
    ],
    ids=["BOM", "CRLF", "semicolons", "tabs"],
)
def test_a_roster_is_read_as_spreadsheets_write_it(table, change):
    roster = read_roster(table("roster.csv", change(ROSTER)))
    assert [(one.sid, one.email, one.login, one.name) for one in roster.students] == [
        ("0123", "no@example.edu", None, "No"), ("3032", None, "cf", 'Gauß, "Carl" 🎉'),
        (None, "eve@example.edu", None, "Eve"),
    ]  # fmt: skip


# The table, the line, and what is said.
ROSTER_MISTAKES = [
    ("name,seat\nNo,12\n", 1, "no column is called sid or email or login or github or canvas_id or moodle_id"),
    ("emial\nno@example.edu\n", 1, "found `emial`; did you mean `email`?"),
    ("", 1, "found nothing"),
    ("sid,name\n0123,No\n,Eve\n", 3, "there is none of sid, email, login, github, canvas_id, moodle_id"),
    ("sid\n0123\n\n0123\n", 4, "sid `0123` is in line 2, too"),
    ("email\nNo@example.edu\nno@EXAMPLE.edu\n", 3, "email `no@EXAMPLE.edu` is in line 2, too"),
    ("sid,name\n1,\"two\nlines\"\n1,x\n", 4, "sid `1` is in line 2, too"),
    ("sid,SID\n1,2\n", 1, "there are two columns `sid`"),
    ("sid\n1,2\n", 2, "there are 2 values for 1 columns"),
    (b"sid,name\n1,No\n2,Gau\xdf\n", 3, "this is not UTF-8; save it as CSV in UTF-8"),
    ("sid\n\x1b[31m\n\x1b[31m\n", 3, r"sid `\x1b[31m` is in line 2, too"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "said"), ROSTER_MISTAKES, ids=[row[2] for row in ROSTER_MISTAKES])
def test_a_mistake_in_a_roster_is_one_sentence_with_file_and_line(table, text, line, said):
    with pytest.raises(Mistake) as raised:
        read_roster(table("roster.csv", text))
    assert str(raised.value).startswith(f"roster.csv, line {line}: ")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_roster_that_is_not_there_is_named(tmp_path):
    with pytest.raises(Mistake, match=r"^roster\.csv cannot be read \(No such file or directory\)$"):
        read_roster(tmp_path / "roster.csv")


@pytest.mark.parametrize(
    ("student", "known_as"),
    [
        (Student("0123", "a@b", "ada", "Ada", "7", "moodle"), "sid:0123"),
        (Student(email="Ada@Example.edu", login="ada"), "email:ada@example.edu"),
        (Student(login="Ada-L"), "login:ada-l"),
        (Student(platform_id="x9Y", platform="canvas-anon"), "canvas-anon:x9Y"),
        (Student(name="Ada"), ""),
    ],
)
def test_a_student_is_known_by_the_first_of_its_ids_and_never_by_name(student, known_as):
    assert identity(student) == known_as


@pytest.mark.parametrize(
    ("source", "student", "name"),
    [
        (Source.GRADESCOPE, Student(email="NO@example.edu", name="somebody else"), "No"),
        (Source.CANVAS, Student(platform_id="1001", platform="canvas"), "No"),
        (Source.MOODLE, Student(platform_id="7", platform="moodle"), "No"),
        (Source.GITHUB, Student(login="No-Hub", platform_id="No-Hub", platform="github"), "No"),
        (Source.GITHUB, Student(login="eve-hub", platform_id="eve-hub", platform="github"), "Eve"),
    ],
)
def test_a_student_gets_what_the_roster_knows(table, source, student, name):
    found = joined([entry("x", student)], source, Course(read_roster(table("roster.csv", ROSTER))))
    [known] = found.entries[0].students
    assert (known.name, known.platform_id) == (name, student.platform_id)
    assert identity(known) in ("sid:0123", "email:eve@example.edu")
    assert name not in [one.name for one in found.absent]
    assert len(found.absent) == 2
    assert not found.strangers


@pytest.mark.parametrize(
    "student",
    [
        Student(name="No"), Student(login="cf", platform_id="cf", platform="github"), Student("123"),
        Student(platform_id="1001", platform="moodle"),
    ],
    ids=["the same name", "the campus login of somebody else", "an id without its zero", "another platform's id"],
)  # fmt: skip
def test_what_only_looks_like_a_student_of_the_roster_is_a_stranger(table, student):
    found = joined([entry("x", student)], Source.GITHUB, Course(read_roster(table("roster.csv", ROSTER))))
    assert found.strangers == ("x",)
    assert found.entries[0].students == (student,)
    assert len(found.absent) == 3


def test_every_member_of_a_group_is_looked_up(table):
    group = entry("x", Student("0123"), Student(login="CF"), Student("9"))
    found = joined([group], Source.GRADESCOPE, Course(read_roster(table("roster.csv", ROSTER))))
    assert [one.name for one in found.entries[0].students] == ["No", GAUSS.name, None]
    assert [one.name for one in found.absent] == ["Eve"]
    assert not found.strangers


PLAIN = [entry(f"plain-{number}", name=name) for number, name in enumerate(("cf", "cf.zip", "CF (2).tar.gz", "eve.py"))]


def test_plain_submissions_are_one_students_if_the_roster_says_so(table):
    found = joined(PLAIN, Source.PLAIN, Course(read_roster(table("roster.csv", ROSTER))))
    assert [list(map(identity, one.students)) for one in found.entries] == [["sid:3032"]] * 3 + [[]]
    assert found.strangers == ("plain-3",)
    assert not found.warnings


def test_plain_submissions_that_look_alike_are_several_and_a_warning_without_a_roster():
    found = joined(PLAIN, Source.PLAIN, Course())
    assert not any(one.students for one in found.entries)
    [warning] = found.warnings
    assert warning.startswith("cf and cf.zip and CF (2).tar.gz look like attempts of one student")


def test_names_say_whose_a_file_is(table):
    names = read_names(table("names.csv", "name,sid,email\ncf/,3032,\ncf.zip,3032,\ncf.zip,,no@example.edu\nx,1,\n"))
    found = joined(PLAIN, Source.PLAIN, Course(read_roster(table("roster.csv", ROSTER)), names))
    assert [list(map(identity, one.students)) for one in found.entries[:2]] == [["sid:3032"], ["sid:3032", "sid:0123"]]
    assert found.warnings == ("`x` belongs to somebody, and is not there",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("file,sid\na,1\n", "names.csv, line 1: no column is called name"),
        ("name,number\na,1\n", "names.csv, line 1: no column is called sid or email or login"),
        ("name,sid\n,1\n", "names.csv, line 2: `name` is empty"),
        ("name,sid\na,\n", "names.csv, line 2: `a` is nobody's"),
    ],
)
def test_a_mistake_in_names_is_told(table, text, said):
    with pytest.raises(Mistake) as raised:
        read_names(table("names.csv", text))
    assert str(raised.value).startswith(said)


AT = datetime(2026, 10, 2, 21, 58, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "id,submitted_at\nx,2026-10-02T21:58:00Z\n", "SID,Submitted_At\n0123,2026-10-02 23:58 +02:00\n",
        "email,submitted_at\nNO@example.edu,2026-10-02 21:58:00 UTC\nother@example.edu,\n",
    ],
)  # fmt: skip
def test_a_time_is_found_by_submission_or_student(table, text):
    times = read_times(table("times.csv", text))
    [found] = joined([entry("x", NO)], Source.CANVAS, Course(times=times)).entries
    assert (found.submitted_at, found.submitted_at_source) == (AT, "times file")


def test_a_time_of_the_submission_goes_before_one_of_its_student(table):
    text = "id,sid,submitted_at\n,0123,2026-10-01T00:00Z\nx,,2026-10-02T21:58Z\n"
    times = read_times(table("times.csv", text))
    [found] = joined([entry("x", NO)], Source.PLAIN, Course(times=times)).entries
    assert found.submitted_at == AT


def test_an_entry_without_a_row_keeps_the_time_that_it_has(table):
    times = read_times(table("times.csv", "id,submitted_at\ny,2026-10-01T00:00Z\n"))
    claimed = Entry("x", Path("x"), submitted_at=AT, submitted_at_source="commit (claimed)")
    found = joined([claimed], Source.GITHUB, Course(times=times))
    assert found.entries == (claimed,)
    assert found.warnings == ("there is a time of `y`, and no such submission",)


def test_moodles_worksheet_says_who_and_when(table):
    times = read_times(table("grades.csv", WORKSHEET), ZoneInfo("Europe/Berlin"))
    entries = [entry(id, Student(name="?", platform_id=id, platform="moodle")) for id in ("7", "8", "12")]
    found = joined(entries, Source.MOODLE, Course(times=times)).entries
    assert [(list(map(identity, one.students)), one.submitted_at) for one in found] == [
        (["sid:0123"], datetime(2026, 10, 2, 19, 58, tzinfo=UTC)), (["email:carl@example.edu"], None),
        (["moodle:12"], None),
    ]  # fmt: skip
    assert found[0].submitted_at_source == "moodle worksheet"


TIME_MISTAKES = [
    ("id,submitted_at\nx,2026-10-02T21:58:00\n", 2, "`2026-10-02T21:58:00` has no zone: write one behind it"),
    ("id,submitted_at\nx,2026-10-02\n", 2, "`2026-10-02` has no zone"),
    ("id,submitted_at\nx,soon\n", 2, "`soon` is no point in time"),
    ("id,submitted_at\nx,0001-01-01T00:00+14:00\n", 2, "is no point in time"),
    ("id,when\nx,2026-10-02T21:58Z\n", 1, "no column is called submitted_at, found `id`, `when`"),
    ("name,submitted_at\nNo,2026-10-02T21:58Z\n", 1, "no column is called id or sid or email"),
    ("sid,submitted_at\n,2026-10-02T21:58Z\n", 2, "there is none of id, sid, email"),
    ("sid,submitted_at\n1,2026-10-02T21:58Z\n1,2026-10-03T21:58Z\n", 3, "`1` stands there twice"),
    (WORKSHEET, 2, "`2026-10-02 21:58:00` has no zone"),
    (WORKSHEET.replace("Participant 8", "Teilnehmer/in8"), 3, "`Identifier` is `Teilnehmer/in8`, and must be"),
    (WORKSHEET.replace("Last modified (submission)", "Zuletzt"), 1, "no column is called last modified (submission)"),
]


@pytest.mark.parametrize(("text", "line", "said"), TIME_MISTAKES, ids=[row[2] for row in TIME_MISTAKES])
def test_a_mistake_in_times_is_told_with_its_line(table, text, line, said):
    zone = None if "no zone" in said else UTC
    with pytest.raises(Mistake) as raised:
        read_times(table("times.csv", text), zone)
    assert str(raised.value).startswith(f"times.csv, line {line}: ")
    assert said in str(raised.value)


def test_extensions_are_dates_or_hours(table):
    text = "sid,email,due,extra_hours\n0123,,2026-10-05T00:00+02:00,\n,Eve@example.edu,,1.5\n"
    assert read_extensions(table("extensions.csv", text)) == {
        "sid:0123": Extension(datetime(2026, 10, 4, 22, tzinfo=UTC)),
        "email:eve@example.edu": Extension(extra=timedelta(minutes=90)),
    }


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("1,,", "there must be either `due` or `extra_hours`"), ("1,2026-10-05T00:00Z,1", "there must be either"),
        (",,1", "there is none of sid, email"), ("1,2026-10-05,", "`2026-10-05` has no zone"),
        ("1,,-1", "`extra_hours` must be more than 0"), ("1,,two", "`extra_hours` is `two`, and must be a number"),
        ("1,,nan", "`extra_hours` is `nan`"), ("1,,inf", "`extra_hours` is `inf`"), ("1,,1e30", "`extra_hours` is"),
    ],
)  # fmt: skip
def test_a_mistake_in_extensions_is_told(table, row, said):
    with pytest.raises(Mistake) as raised:
        read_extensions(table("extensions.csv", f"sid,due,extra_hours\n{row}\n"))
    assert str(raised.value).startswith("extensions.csv, line 2: ")
    assert said in str(raised.value)


def test_without_tables_nothing_is_added():
    found = joined([entry("x", NO)], Source.GRADESCOPE, Course())
    assert (found.entries, found.absent, found.strangers, found.warnings) == ((entry("x", NO),), (), (), ())
    assert Times().applied(entry("x", NO)) == entry("x", NO)
