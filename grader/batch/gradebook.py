"""The gradebook: one SQLite file with who handed in what, every run, and what people decided. `SCHEMA` documents it.

The driver of a batch is the only one that writes, one transaction a result, so that after a crash at any moment there
is a result or there is none. Readers may look meanwhile. Points are not in it: `results.py` computes them from the
runs, by the rubric as it is now.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Literal

from grader.batch.layouts import Student
from grader.batch.times import Extension

FILE = "gradebook.sqlite"
REMOTE = ("nfs", "cifs", "smb", "9p", "lustre", "beegfs", "gpfs", "ceph", "afs", "fuse.sshfs")  # types of file systems
VERSION = 1
SCHEMA = """
-- One attempt of a submission, as it came in. A newer one under the same id has a higher number.
CREATE TABLE attempt (
    submission TEXT NOT NULL,          -- id: lower case ASCII, safe as a file name
    attempt INTEGER NOT NULL,          -- 1, 2, ...
    name TEXT NOT NULL,                -- in the export
    source TEXT NOT NULL,              -- gradescope, canvas, moodle, github, plain; roster: of who is missing
    status TEXT NOT NULL,              -- ok, no_submission, rejected
    tree_sha256 TEXT NOT NULL,         -- of its Python files, which lie in trees/; of no files where there are none
    code TEXT,                         -- why it is rejected, for programs
    reason TEXT NOT NULL,              -- the same for people: what was found where, and what to do
    notes TEXT NOT NULL,               -- JSON, a list of sentences for staff
    submitted_at TEXT,                 -- ISO 8601 in UTC; written once
    submitted_at_source TEXT,          -- who says so
    late INTEGER,                      -- 0 or 1 where the export says no more than that
    PRIMARY KEY (submission, attempt)
);
-- Those who handed it in.
CREATE TABLE student (
    submission TEXT NOT NULL, attempt INTEGER NOT NULL,
    place INTEGER NOT NULL,            -- 0, 1, ... in the order of the export
    student TEXT NOT NULL,             -- JSON: sid, email, login, name, platform_id, ...
    PRIMARY KEY (submission, attempt, place)
);
-- One run of checks on an attempt.
CREATE TABLE run (
    number INTEGER PRIMARY KEY,
    submission TEXT NOT NULL, attempt INTEGER NOT NULL,
    key TEXT NOT NULL,                 -- hash of all that a result depends on but the hardware
    device TEXT NOT NULL,              -- the GPU's name, or "cpu"
    problems TEXT NOT NULL,            -- JSON: the problems that were checked
    state TEXT NOT NULL,               -- running, done, failed, lost, held, dropped: see State
    slot TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL,
    started_at TEXT NOT NULL, ended_at TEXT,
    result TEXT,                       -- grader.result/1
    error TEXT                         -- of a failed one
);
CREATE INDEX run_of_attempt ON run (submission, attempt);
-- What a person decided on a review: it counts wherever the same files give the same reason.
CREATE TABLE decision (
    tree_sha256 TEXT NOT NULL, check_id TEXT NOT NULL, reason TEXT NOT NULL,
    decision TEXT NOT NULL,            -- accept, reject
    words TEXT NOT NULL, decided_at TEXT NOT NULL,
    PRIMARY KEY (tree_sha256, check_id, reason)
);
-- Dates of students of their own, as staff gave them to the last batch or report that was given any.
CREATE TABLE extension (
    student TEXT PRIMARY KEY,          -- sid:..., email:...
    due TEXT,                          -- ISO 8601 in UTC
    extra_s REAL NOT NULL              -- seconds on top
);
-- An answer that arrived twice for the same run, and was dropped; a slot that was set aside; and the like.
CREATE TABLE note (noted_at TEXT NOT NULL, words TEXT NOT NULL);
"""

Decided = Literal["accept", "reject"]


class State(StrEnum):
    """What became of a run."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"  # no result: ours
    LOST = "lost"  # its driver died, or was told to kill it
    HELD = "held"  # of a regrade that nobody has taken yet
    DROPPED = "dropped"  # of a regrade that nobody took before the next one


class GradebookError(Exception):
    """A gradebook that cannot be used, in one sentence."""


@dataclass(frozen=True)
class Row:
    """One attempt."""

    submission: str
    attempt: int
    name: str
    source: str
    status: Literal["ok", "no_submission", "rejected"]
    tree_sha256: str
    code: str | None
    reason: str
    notes: tuple[str, ...]
    submitted_at: datetime | None
    submitted_at_source: str | None
    late: bool | None
    students: tuple[Student, ...]

    @property
    def key(self) -> tuple[str, int]:
        return self.submission, self.attempt


@dataclass(frozen=True)
class RunRow:
    """One run, without its result."""

    number: int
    key: str
    device: str
    problems: tuple[str, ...]
    state: State
    slot: str
    error: str | None
    grader_errors: int  # checks in the result that ended so


class Gradebook:
    """Opened for writing by one driver, or for reading by anybody."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    @classmethod
    def create(cls, folder: Path) -> Gradebook:
        """That in a folder, for writing; a new one where there is none. Raises `GradebookError`."""
        folder.mkdir(parents=True, exist_ok=True)
        connection = _connect(folder / FILE)
        if not connection.execute("PRAGMA user_version").fetchone()[0]:
            connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA}; PRAGMA user_version = {VERSION}; COMMIT;")
        return cls._checked(connection, folder)

    @classmethod
    def open(cls, folder: Path) -> Gradebook:
        """That in a folder, as it is. Raises `GradebookError`."""
        if not (folder / FILE).is_file():
            raise GradebookError(f"there is no {FILE} in {folder}: `batch SUBMISSIONS --out {folder}` makes one")
        return cls._checked(_connect(folder / FILE), folder)

    @classmethod
    def _checked(cls, connection: sqlite3.Connection, folder: Path) -> Gradebook:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != VERSION:
            raise GradebookError(f"{folder / FILE} has schema {version}, and this grader knows {VERSION}")
        return cls(connection)

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of what is written inside, or nothing."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    # Attempts

    def add(self, row: Row) -> None:
        """Write an attempt, in the place of the same one: but the time of an attempt is written once."""
        known = self.attempt(row.submission, row.attempt)
        at, source = (row.submitted_at, row.submitted_at_source)
        if known and known.submitted_at:
            at, source = known.submitted_at, known.submitted_at_source
        self.connection.execute(
            "INSERT OR REPLACE INTO attempt VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                row.submission, row.attempt, _text(row.name), row.source, row.status, row.tree_sha256, row.code,
                _text(row.reason), json.dumps(row.notes), at and at.astimezone(UTC).isoformat(), source, row.late,
            ),
        )  # fmt: skip
        self.connection.execute("DELETE FROM student WHERE (submission, attempt) = (?, ?)", row.key)
        students = [(*row.key, place, json.dumps(asdict(student))) for place, student in enumerate(row.students)]
        self.connection.executemany("INSERT INTO student VALUES (?, ?, ?, ?)", students)

    def remove(self, source: str) -> None:
        """Forget the attempts of a source: of students who are missing, before it is looked who is missing now."""
        for table in ("student", "run", "attempt"):
            self.connection.execute(
                f"DELETE FROM {table} WHERE submission IN (SELECT submission FROM attempt WHERE source = ?)", (source,)
            )

    def attempt(self, submission: str, attempt: int) -> Row | None:
        """One attempt, or None."""
        return next(iter(self._rows("WHERE submission = ? AND attempt = ?", (submission, attempt))), None)

    def attempts(self, submission: str | None = None) -> list[Row]:
        """All attempts, or those of one submission, by id and number."""
        where, values = ("", ()) if submission is None else ("WHERE submission = ?", (submission,))
        return list(self._rows(where, values))

    def _rows(self, where: str, values: Sequence[object]) -> Iterator[Row]:
        for found in self.connection.execute(f"SELECT * FROM attempt {where} ORDER BY submission, attempt", values):
            students = self.connection.execute(
                "SELECT student FROM student WHERE (submission, attempt) = (?, ?) ORDER BY place",
                (found["submission"], found["attempt"]),
            )
            fields = dict(found) | {
                "notes": tuple(json.loads(found["notes"])),
                "submitted_at": found["submitted_at"] and datetime.fromisoformat(found["submitted_at"]),
                "late": None if found["late"] is None else bool(found["late"]),
                "students": tuple(Student(**json.loads(one["student"])) for one in students),
            }
            yield Row(**fields)

    # Runs

    def begin(self, row: Row, key: str, device: str, problems: Sequence[str], slot: str) -> int:
        """A run begins: its number."""
        cursor = self.connection.execute(
            "INSERT INTO run (submission, attempt, key, device, problems, state, slot, host, pid, started_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*row.key, key, device, json.dumps(problems), State.RUNNING, slot, platform.node(), os.getpid(), _now()),
        )
        assert cursor.lastrowid
        return cursor.lastrowid

    def end(self, number: int, state: State, result: str | None = None, error: str | None = None) -> bool:
        """A run has ended, with the JSON of its result or with an error.

        False where it had ended before: what is there stays, and a note says so.
        """
        changed = self.connection.execute(
            "UPDATE run SET state = ?, result = ?, error = ?, ended_at = ? WHERE number = ? AND state = ?",
            (state, result, error and _text(error), _now(), number, State.RUNNING),
        ).rowcount
        if not changed:
            self.note(f"run {number} ended twice; the second end, {state}, is dropped")
        return bool(changed)

    def lose_running(self) -> int:
        """Runs whose driver is dead are lost: how many. For who holds the lock, and so knows that it is."""
        return self.connection.execute(
            "UPDATE run SET state = ?, ended_at = ? WHERE state = ?", (State.LOST, _now(), State.RUNNING)
        ).rowcount

    def runs(self, row: Row) -> list[RunRow]:
        """The runs of an attempt, oldest first."""
        found = self.connection.execute(
            "SELECT number, key, device, problems, state, slot, error, (SELECT count(*) FROM"
            " json_each(result, '$.checks') WHERE value ->> 'verdict' = 'grader_error') AS grader_errors"
            " FROM run WHERE (submission, attempt) = (?, ?) ORDER BY number",
            row.key,
        )
        return [
            RunRow(
                one["number"], one["key"], one["device"], tuple(json.loads(one["problems"])), State(one["state"]),
                one["slot"], one["error"], one["grader_errors"],
            )
            for one in found
        ]  # fmt: skip

    def others_pass(self, row: Row, run: RunRow) -> bool:
        """Whether other submissions had whole results on the slot of a run, after it."""
        found = self.connection.execute(
            "SELECT 1 FROM run WHERE slot = ? AND number > ? AND submission != ? AND state = ? LIMIT 1",
            (run.slot, run.number, row.submission, State.DONE),
        )
        return found.fetchone() is not None

    def result(self, number: int) -> str | None:
        """The JSON of a run's result."""
        found = self.connection.execute("SELECT result FROM run WHERE number = ?", (number,)).fetchone()
        return str(found["result"]) if found and found["result"] else None

    def held(self, rows: Iterable[Row]) -> list[int]:
        """The runs of a regrade of these attempts that wait to be taken."""
        return [run.number for row in rows for run in self.runs(row) if run.state is State.HELD]

    def drop_held(self, rows: Iterable[Row]) -> None:
        """Runs of an earlier regrade that nobody has taken: they stay, and never count."""
        self.connection.executemany(
            "UPDATE run SET state = ? WHERE number = ?", [(State.DROPPED, number) for number in self.held(rows)]
        )

    def take(self, numbers: Iterable[int]) -> None:
        """Runs of a regrade count from now on."""
        self.connection.executemany(
            "UPDATE run SET state = ? WHERE number = ? AND state = ?",
            [(State.DONE, number, State.HELD) for number in numbers],
        )

    # Extensions, decisions and notes

    def extend(self, extensions: Mapping[str, Extension]) -> None:
        """These extensions, in the place of all that were there."""
        self.connection.execute("DELETE FROM extension")
        self.connection.executemany(
            "INSERT INTO extension VALUES (?, ?, ?)",
            [(key, one.due and one.due.isoformat(), one.extra.total_seconds()) for key, one in extensions.items()],
        )

    def extensions(self) -> dict[str, Extension]:
        """By a student's key."""
        found = self.connection.execute("SELECT * FROM extension")
        return {
            one["student"]: Extension(
                one["due"] and datetime.fromisoformat(one["due"]), timedelta(seconds=one["extra_s"])
            )
            for one in found
        }

    def decide(self, tree_sha256: str, check: str, reason: str, decision: Decided, words: str) -> None:
        """What a person decided on a review."""
        self.connection.execute(
            "INSERT OR REPLACE INTO decision VALUES (?, ?, ?, ?, ?, ?)",
            (tree_sha256, check, reason, decision, _text(words), _now()),
        )

    def decisions(self, tree_sha256: str) -> dict[tuple[str, str], Decided]:
        """Those on these files, by check and reason."""
        found = self.connection.execute("SELECT * FROM decision WHERE tree_sha256 = ?", (tree_sha256,))
        return {(one["check_id"], one["reason"]): one["decision"] for one in found}

    def note(self, words: str) -> None:
        """Something that staff may want to know later."""
        self.connection.execute("INSERT INTO note VALUES (?, ?)", (_now(), _text(words)))

    def notes(self) -> list[str]:
        return [one["words"] for one in self.connection.execute("SELECT words FROM note ORDER BY rowid")]


def _connect(file: Path) -> sqlite3.Connection:
    """Raises `GradebookError`."""
    try:
        connection = sqlite3.connect(file, isolation_level=None, timeout=30.0)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_mode = {'DELETE' if _is_remote(file) else 'WAL'}")
    except sqlite3.Error as error:
        raise GradebookError(f"{file} cannot be opened: {error}") from None
    return connection


def _is_remote(file: Path) -> bool:
    """Whether a file lies on another machine's disk: processes that share a log through shared memory must not."""
    try:
        lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return False
    mounts = {Path(line.split()[1]): line.split()[2] for line in lines}
    place = file.resolve().parent
    kind = next((mounts[folder] for folder in (place, *place.parents) if folder in mounts), "")
    return kind.startswith(REMOTE)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _text(text: str) -> str:
    """What SQLite can store: names of files may hold bytes that are no text."""
    return text.encode("utf-8", "backslashreplace").decode()
