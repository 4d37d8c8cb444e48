"""Staff's commands. Students do not get this folder, and `grader/cli.py` goes without it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from grader.command import FAILED, PASSED, Command, Gpus, Json, OnDevice, read_rubric, usage
from grader.rubric import ROOT
from grader.staff import batch


def add_to(app: typer.Typer) -> None:
    """Add them to the student's."""
    app.command()(grade)
    app.command()(release)
    batch.add_to(app)


def grade(
    submission: Annotated[Path, typer.Argument(help="folder with the modules, or with a folder assignment")],
    device: OnDevice = None,
    gpus: Gpus = 1,
    unsafe_no_sandbox: Annotated[
        bool, typer.Option("--unsafe-no-sandbox", help="run its code with your rights; the result says so")
    ] = False,
    json: Json = None,
) -> None:
    """Staff: run public and hidden checks on one submission, confined."""
    if unsafe_no_sandbox:
        print("UNCONFINED: this submission's code runs with your rights; results say so.", file=sys.stderr)
    Command(read_rubric(), (), submission, None, device, gpus, not unsafe_no_sandbox, json, staff=True).run()


def release(
    dest: Annotated[Path, typer.Argument(metavar="DEST", help="a folder that is not there yet, or is empty")],
    as_zip: Annotated[
        bool, typer.Option("--zip", help="write one reproducible .zip, which DEST names, instead")
    ] = False,
    gradescope: Annotated[
        bool, typer.Option("--gradescope", help="write a .zip that is an autograder: public checks, as feedback")
    ] = False,
) -> None:
    """Staff: write the student repository, scanned for what is staff's.

    Ends with 1, and writes nothing, if anything of solutions, hidden checks or staff's files is in it.
    """
    from grader.release.git import changed, date_of
    from grader.release.plan import FOLDERS, STAFF, Plan, Unplanned, templates
    from grader.release.scan import scan
    from grader.release.secrets import Secrets
    from grader.release.write import occupied, write_folder, write_zip

    if obstacle := occupied(dest, as_zip or gradescope):
        usage(obstacle)
    if gradescope:
        _write_preview(dest)
    try:
        plan = Plan.of(ROOT)
        findings = scan(plan, Secrets.of(ROOT), ROOT)
    except Unplanned as error:
        print(f"Nothing is written: {error}.", file=sys.stderr)
        raise typer.Exit(FAILED) from None
    for finding in findings:
        print(finding, file=sys.stderr)
    if findings:
        print(f"Nothing is written: {len(findings)} times something of staff's is in the release.", file=sys.stderr)
        raise typer.Exit(FAILED)
    if not plan.tracked:
        print(f"This is no git repository: all files of {', '.join(FOLDERS)} are released.", file=sys.stderr)
    if names := sorted(changed(ROOT) & set(plan.files) - set(templates())):
        print(f"Released as they lie here, not as committed: {', '.join(names)}.", file=sys.stderr)
    if as_zip:
        write_zip(dest, plan, read_rubric().public.assignment)
    else:
        write_folder(dest, plan, date_of(ROOT), told=lambda sentence: print(sentence, file=sys.stderr))
    print(f"{dest}: {len(plan.files)} files, without {', '.join(f'{folder}/' for folder in STAFF)}.")
    raise typer.Exit(PASSED)


def _write_preview(dest: Path) -> None:
    """Write Gradescope's autograder of public checks; ends the command."""
    from grader.files import write_whole
    from grader.release.plan import Unplanned
    from grader.reports.gradescope_zips import preview_zip

    try:
        content = preview_zip(ROOT, read_rubric())
    except Unplanned as error:
        print(f"Nothing is written: {error}.", file=sys.stderr)
        raise typer.Exit(FAILED) from None
    write_whole(dest, content)
    print(f"{dest}: an autograder for Gradescope. It runs the public checks, and holds nothing that students lack.")
    raise typer.Exit(PASSED)
