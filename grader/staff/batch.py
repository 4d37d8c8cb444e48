"""Staff's commands for a class: `batch`, `regrade`, `review`, `report`.

Exit codes: 0 every submission has a result, 1 some need a person's attention, 2 usage, 3 no slot or the grader's fault,
130 stopped by Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from grader.closest import did_you_mean
from grader.command import FAILED, OURS, PASSED, STOPPED, OnDevice, read_rubric, refuse_unconfined, usage
from grader.doctor import Gpu, Machine, uses_gpu
from grader.judge.output import clean
from grader.located import Mistake
from grader.rubric import Rubric

if TYPE_CHECKING:
    from rich.console import Console

    from grader.batch.engines import Slot
    from grader.batch.gradebook import Gradebook, Row
    from grader.batch.intake import Report
    from grader.batch.local import Local
    from grader.batch.session import Ended, Session
    from grader.reports.canvas import Filled

Grades = Annotated[Path, typer.Argument(metavar="GRADES", help="folder of the gradebook, as given to batch --out")]
Only = Annotated[
    list[str] | None, typer.Option("--only", metavar="PROBLEM", help="check this problem only; may be repeated")
]
Slots = Annotated[
    int | None,
    typer.Option(
        "--slots", min=1, metavar="N", help="submissions at a time; by default one a GPU, or a quarter of the cores"
    ),
]
Unsafe = Annotated[
    bool, typer.Option("--unsafe-no-sandbox", help="run submissions' code with your rights; results say so")
]
Extensions = Annotated[
    Path | None, typer.Option(metavar="FILE", help="CSV of students' own dates: sid or email, and due or extra_hours")
]


def add_to(app: typer.Typer) -> None:
    """Add them to the others."""
    for command in (batch, regrade, review, report):
        app.command()(command)


def batch(
    submissions: Annotated[Path, typer.Argument(help="folder or archive, as the course's platform exports it")],
    out: Annotated[Path, typer.Option("--out", metavar="GRADES", help="folder of the gradebook")] = Path("grades"),
    only: Only = None,
    source: Annotated[
        Literal["gradescope", "moodle", "canvas", "github", "plain"] | None,
        typer.Option("--from", help="where it is from; by default it is recognised"),
    ] = None,
    roster: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CSV of the class: sid, email, login, github, canvas_id, ...")
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV that says whose a file or folder is: name, and sid or email"),
    ] = None,
    times: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="CSV of times (id, sid or email; submitted_at), or Moodle's grading worksheet"
        ),
    ] = None,
    zone: Annotated[
        str | None, typer.Option(metavar="NAME", help="of times in --times that have none: Europe/Berlin, UTC")
    ] = None,
    extensions: Extensions = None,
    all_attempts: Annotated[
        bool, typer.Option("--all-attempts", help="grade attempts that cannot give a grade, too")
    ] = False,
    slots: Slots = None,
    device: OnDevice = None,
    unsafe_no_sandbox: Unsafe = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say who was found where, and run and write nothing")
    ] = False,
) -> None:
    """Staff: grade a class. What was graded before, and has not changed, is not run again."""
    from grader.batch.admission import admit
    from grader.batch.intake import take_in
    from grader.batch.join import Course
    from grader.batch.late import Deadlines
    from grader.batch.layouts import Source
    from grader.batch.people import read_names, read_roster
    from grader.batch.show import show_intake
    from grader.batch.times import NO_TIMES, read_extensions, read_times
    from grader.terminal import make_console

    rubric, console = read_rubric(), make_console()
    problems = _problems(rubric, only)
    with _told():
        course = Course(
            read_roster(roster) if roster else None, read_names(names) if names else {},
            read_times(times, _zone(zone)) if times else NO_TIMES,
        )  # fmt: skip
        extended = read_extensions(extensions) if extensions else None
        known = [f"{problem}.py" for problem in rubric.problems]
        came_in = take_in(submissions, known, Source(source) if source else None, course)
    show_intake(_only_about(came_in, problems, rubric), console, Deadlines(rubric.public.late, extended or {}))
    if dry_run:
        raise typer.Exit(FAILED if any(one.status == "rejected" for one in came_in.submissions) else PASSED)
    engine_of = _Engine(device, slots, confined=not unsafe_no_sandbox)
    with _told(), _session(out, rubric, problems, console, create=True) as session:
        if extended is not None:
            session.book.extend(extended)
        admit(session.book, out, came_in)
        engine = engine_of.on(session.scratch)
        rows = session.book.attempts() if all_attempts else session.counting()
        tasks = session.lacking(rows, engine_of.kind)
        known_before = sum(row.status == "ok" for row in rows) - len(tasks)
        if known_before:
            console.print(f"{known_before} of them are graded already, and have not changed.")
        _finish(session, session.run(tasks, engine), out)


def regrade(
    grades: Grades,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="submissions; all by default")] = None,
    only: Only = None,
    yes: Annotated[bool, typer.Option("--yes", help="let the new results count without asking")] = False,
    take: Annotated[
        bool, typer.Option("--take", help="run nothing: let the results of the last regrade count")
    ] = False,
    slots: Slots = None,
    device: OnDevice = None,
    unsafe_no_sandbox: Unsafe = False,
) -> None:
    """Staff: run submissions again, show what changes, drops first, and let it count if you say so."""
    from grader.batch.regrade import changes, show_changes, write_changes
    from grader.terminal import make_console

    rubric, console = read_rubric(), make_console()
    engine_of = None if take else _Engine(device, slots, confined=not unsafe_no_sandbox)
    with _told(), _session(grades, rubric, _problems(rubric, only), console) as session:
        rows = _asked_for(session, ids)
        ended = None
        if engine_of:
            session.book.drop_held(rows)
            ended = session.run(session.everything(rows), engine_of.on(session.scratch), held=True)
        held = session.book.held(rows)
        if not held:
            usage("there are no results of a regrade to take" if take else "none of these has files that can be run")
        with_new = [row for row in rows if session.book.held([row])]
        found = changes(session.book, rows, rubric)
        file = write_changes(grades, found)
        show_changes(found, len(with_new), console)
        console.print(f"Written to {file}.")
        if not (yes or take or (sys.stdin.isatty() and typer.confirm("Let the new results count?"))):
            console.print(
                f"The old results count. `regrade {grades} --take` lets the new ones count, and runs nothing."
            )
        else:
            with session.book.transaction():
                session.book.take(held)
            console.print(f"{len(held)} new results count.")
        if ended and (ended.stopped or ended.without_slots):
            raise typer.Exit(STOPPED if ended.stopped else OURS)


def review(
    grades: Grades,
    id: Annotated[str | None, typer.Argument(metavar="[ID", help="submission")] = None,
    check: Annotated[str | None, typer.Argument(metavar="CHECK", help="problem.check, or a problem: all of it")] = None,
    decision: Annotated[Literal["accept", "reject"] | None, typer.Argument(metavar="accept|reject]")] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="why, for the record")] = "",
) -> None:
    """Staff: show what waits for a person, with the evidence; or decide it: accept lets points stand, reject is 0."""
    from grader.batch.reviews import decide, show_reviews
    from grader.terminal import make_console

    rubric, console = read_rubric(), make_console()
    if (check is None) != (decision is None):
        usage("a decision takes the submission, the check, and `accept` or `reject`")
    if decision and not reason.strip():
        usage("a decision takes a --reason, which is kept with it")
    with _told():
        book = _opened(grades)
        if id is None or check is None or decision is None:
            show_reviews(book, rubric, grades, console, id)
            raise typer.Exit(PASSED)
        decided = decide(book, rubric, id, check, decision, reason)
    for name in decided:
        console.print(f"{decision}: {name}")
    console.print("Points follow at once: no run is needed. `report` writes everything anew.")


def report(
    grades: Grades,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="by default GRADES/report")] = None,
    canvas: Annotated[
        Path | None, typer.Option(metavar="FILE", help="the gradebook that Canvas exports, to be filled in")
    ] = None,
    column: Annotated[
        int | None, typer.Option(metavar="ID", help="of the Canvas assignment: the number behind its title there")
    ] = None,
    extensions: Extensions = None,
) -> None:
    """Staff: write all that is made from a gradebook: summary, CSV, JSON, Gradescope, Canvas, feedback for students."""
    from grader.batch.grades import graded
    from grader.batch.times import read_extensions
    from grader.reports.canvas import ExportRefused
    from grader.reports.summary import show_tally
    from grader.reports.write import CanvasExport, write_reports
    from grader.terminal import make_console

    rubric, console = read_rubric(), make_console()
    if (canvas is None) != (column is None):
        usage("Canvas takes both: --canvas FILE, its export, and --column ID, the number behind the assignment's title")
    with _told():
        book = _opened(grades)
        if extensions:
            with book.transaction():
                book.extend(read_extensions(extensions))
        folder = out or grades / "report"
        export = CanvasExport(canvas.read_bytes(), column) if canvas and column is not None else None
        try:
            written = write_reports(graded(book, rubric), rubric, folder, export)
        except ExportRefused as error:
            usage(str(error))
    show_tally(written.tally, rubric, console)
    for sentence in written.without_grade:
        console.print(f"Nothing for Gradescope: {clean(sentence)}", soft_wrap=True)
    if written.canvas:
        _show_canvas(written.canvas, console)
    for note in book.notes()[-5:]:
        console.print(f"note: {clean(note)}", soft_wrap=True)
    console.print(f"Written to {folder}.")
    raise typer.Exit(PASSED if written.tally.whole else FAILED)


def _only_about(came_in: Report, problems: Sequence[str], rubric: Rubric) -> Report:
    """Without words on modules that nobody asked for."""
    others = tuple(f"there is no {problem}.py" for problem in rubric.problems if problem not in problems)
    return replace(
        came_in,
        submissions=tuple(
            replace(one, notes=tuple(note for note in one.notes if not note.startswith(others)))
            for one in came_in.submissions
        ),
    )


def _show_canvas(filled: Filled, console: Console) -> None:
    """What of a Canvas export did not go as one may think."""
    console.print(f"Canvas: {filled.written} cells written, {filled.unchanged} were right already.")
    for name, found in (
        ("another grade stood there", filled.changed), ("a grade without a row", filled.without_row),
        ("a row without a grade", filled.without_grade), ("left alone", filled.left_alone), ("unclear", filled.unclear),
    ):  # fmt: skip
        for one in found:
            console.print(f"  {name}: {clean(one)}", soft_wrap=True)


@dataclass(frozen=True)
class _Engine:
    """The engine that is asked for; ends the command where there is no slot for it."""

    device: Literal["cpu", "cuda"] | None
    wanted: int | None
    confined: bool

    def __post_init__(self) -> None:
        if self.confined:
            refuse_unconfined()
        else:
            print("UNCONFINED: submissions' code runs with your rights; results say so.", file=sys.stderr)
        if not self.slots:
            print("There is no slot: no GPU that is free, and no core.", file=sys.stderr)
            raise typer.Exit(OURS)

    @cached_property
    def slots(self) -> list[Slot]:
        """Those that can be used now; says which GPU cannot, and why."""
        from grader.batch.local import slots_of, why_busy

        machine = Machine.here()

        def busy(gpu: Gpu) -> str:
            if why := why_busy(gpu):
                print(f"{gpu.name} {gpu.uuid} is not used: {why}.", file=sys.stderr)
            return why

        if self.device == "cuda" and not uses_gpu(machine):
            usage("there is no GPU here that torch can use: `python -m grader doctor` says why")
        return slots_of(replace(machine, gpus=()) if self.device == "cpu" else machine, self.wanted, busy)

    @property
    def kind(self) -> str:
        return self.slots[0].kind

    def on(self, scratch: Path) -> Local:
        """With a folder for temporary files."""
        from grader.batch.local import Local

        return Local(self.slots, scratch.resolve(), self.confined)


@contextmanager
def _told() -> Iterator[None]:
    """What is wrong with the command, a file or the gradebook, in one sentence."""
    from grader.batch.gradebook import GradebookError
    from grader.batch.lock import Locked
    from grader.batch.trees import TreeGone

    try:
        yield
    except (Mistake, GradebookError, Locked, TreeGone) as error:
        usage(str(error))
    except OSError as error:
        usage(f"{error.filename or 'a file'} cannot be used ({error.strerror})")


@contextmanager
def _session(
    grades: Path, rubric: Rubric, problems: tuple[str, ...], console: Console, create: bool = False
) -> Iterator[Session]:
    """The gradebook of a folder under its lock."""
    from grader.batch.gradebook import Gradebook
    from grader.batch.lock import locked
    from grader.batch.session import Session

    if create:
        grades.mkdir(parents=True, exist_ok=True)
    else:
        _opened(grades).close()
    with locked(grades):
        book = Gradebook.create(grades)
        session = Session(book, grades, rubric, console, problems)
        session.open()
        yield session
        book.close()


def _opened(grades: Path) -> Gradebook:
    """Raises `GradebookError`."""
    from grader.batch.gradebook import Gradebook

    return Gradebook.open(grades)


def _zone(name: str | None) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError):
        usage(f"there is no zone `{clean(str(name), 40)}`: Europe/Berlin is one, and UTC")


def _problems(rubric: Rubric, only: Sequence[str] | None) -> tuple[str, ...]:
    """The problems that are asked for, in the rubric's order."""
    for name in only or ():
        if name not in rubric.problems:
            usage(f"there is no problem `{clean(name, 40)}`{did_you_mean(name, rubric.problems)}")
    return tuple(problem for problem in rubric.problems if not only or problem in only)


def _asked_for(session: Session, ids: Sequence[str] | None) -> list[Row]:
    """The rows of these submissions that can give a grade; all of them without ids."""
    rows = session.counting()
    for name in ids or ():
        if name not in {row.submission for row in rows}:
            usage(f"there is no submission `{clean(name, 80)}`{did_you_mean(name, [row.submission for row in rows])}")
    return [row for row in rows if not ids or row.submission in ids]


def _finish(session: Session, ended: Ended, grades: Path) -> NoReturn:
    """Say how it ended and how to go on; ends the command."""
    from grader.batch.attempts import warnings
    from grader.batch.grades import attempt_of, graded
    from grader.reports.summary import Tally, show_tally

    tally = Tally()
    for one in graded(session.book, session.rubric):
        tally.add(one)
    show_tally(tally, session.rubric, session.console)
    for warning in warnings(map(attempt_of, session.book.attempts())):
        session.console.print(f"Warning: {clean(warning)}.", style="yellow", soft_wrap=True)
    left = tally.ungraded
    if ended.without_slots:
        session.console.print(f"No slot is left: {len(left)} wait. Mend it, and run the same command again.")
        raise typer.Exit(OURS)
    if ended.stopped:
        session.console.print(f"Stopped: {len(left)} wait. The same command goes on from here.")
        raise typer.Exit(STOPPED)
    session.console.print(
        f"`report {grades}` writes grades and feedback, `review {grades}` shows what waits for a person."
    )
    raise typer.Exit(PASSED if tally.whole else FAILED)
