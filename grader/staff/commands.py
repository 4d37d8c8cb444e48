"""Staff's commands. Students do not get this folder, and `grader/cli.py` goes without it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from grader.command import Command, Gpus, Json, OnDevice, read_rubric


def add_to(app: typer.Typer) -> None:
    """Add them to the student's."""
    app.command()(grade)


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
