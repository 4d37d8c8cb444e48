"""What the commands share: one run of checks, the options of several, and how a wrong command is told.

Exit codes: 0 all passed, 1 something failed, 2 usage, 3 the grader's own fault, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import gc
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from grader.doctor import Machine, can_run_kernels, can_run_ranks, uses_gpu
from grader.judge.output import clean
from grader.judge.server import RunnerBroken
from grader.judge.servers import Servers
from grader.judge.snapshot import Refused, Snapshot
from grader.judge.verdict import Verdict
from grader.rubric import Rubric, RubricError
from grader.sandbox.bubblewrap import Bubblewrap
from grader.sandbox.levels import Device, Unconfined
from grader.sandbox.obstacles import why_not_confined

if TYPE_CHECKING:
    from grader.result import Result

STUBS = Path(__file__).resolve().parent.parent / "assignment"
PASSED, FAILED, USAGE, OURS = 0, 1, 2, 3
STOPPED = 130  # by Ctrl-C, as shells report it

OnDevice = Annotated[
    Literal["cpu", "cuda"] | None,
    typer.Option("--device", help="cpu: interpreted; by default a GPU if there is one"),
]
Gpus = Annotated[
    int,
    typer.Option("--gpus", min=1, metavar="N", help="that ranks of a training share; NCCL needs one for each"),
]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="also write the result as JSON")]


@dataclass(frozen=True)
class Command:
    """One run of checks as a command asks for it."""

    rubric: Rubric
    names: tuple[str, ...]
    submission: Path
    seed: int | None
    device: Device | None  # None: a GPU if there is one
    gpus: int  # at most, where there is one
    confined: bool
    json: Path | None
    staff: bool

    def run(self) -> None:
        """Run checks and show the result; ends the command with its exit code."""
        refuse_paths(self.submission, self.json)
        machine = _machine_for(self.device, self.gpus)
        if self.confined:
            refuse_unconfined()
        with ours_to_tell():
            snapshot = Snapshot.of(self.submission)
            sandbox = Bubblewrap(snapshot.folder) if self.confined else Unconfined()
            servers = Servers.on(machine, sandbox, self.gpus)
            try:
                result = self._judge(snapshot, servers, machine)
            except KeyboardInterrupt:
                print("Stopped before the first check.", file=sys.stderr)
                raise typer.Exit(STOPPED) from None
            finally:
                servers.close()
                snapshot.remove()
        if servers.unreturned_bytes:
            missing = f"{servers.unreturned_bytes >> 20} MiB of its memory are still in use"
            print(f"Set this GPU aside before the next submission: {missing}.", file=sys.stderr)
        _finish(result, self.rubric, self.json, self.staff)

    def _judge(self, snapshot: Snapshot, servers: Servers, machine: Machine) -> Result:
        if not (can_run_kernels(machine) and can_run_ranks(machine)):
            servers.start()  # imports torch while this process does
        note("importing torch ...")
        from grader.judge.plugin import Judge, Obstacles
        from grader.judge.run import JudgeFailed, Selection, run_checks
        from grader.terminal import Progress, make_console

        note("")
        gc.enable()  # see grader/__main__.py
        cannot_run, options = Obstacles.on(machine), self._options()
        judge = Judge(snapshot, servers, self.rubric, self.seed, cannot_run, staff=self.staff, options=options)
        checks = Selection(self.names, hidden=self.staff).checks(self.rubric)
        try:
            with Progress(make_console(), self.rubric) as progress:
                return run_checks(judge, checks, progress, clean(self.submission.resolve().name))
        except JudgeFailed as error:
            print(f"The grader itself failed: {error}", file=sys.stderr)
            raise typer.Exit(OURS) from None

    def _options(self) -> str:
        """What a command that replays one check needs besides."""
        words = [] if self.submission == STUBS else ["--submission", shlex.quote(clean(str(self.submission)))]
        words += ["--device", self.device] if self.device else []
        words += ["--gpus", str(self.gpus)] if self.gpus > 1 else []
        return "".join(f" {word}" for word in [*words, *(["--sandbox"] if self.confined and not self.staff else [])])


def _machine_for(device: Device | None, gpus: int) -> Machine:
    """This machine, without its GPU where the CPU is asked for; refuses GPUs that cannot be used."""
    machine = Machine.here()
    if gpus > 1 and gpus > len(machine.gpus):
        usage(f"{gpus} GPUs are asked for, and there are {len(machine.gpus)} here")
    if device == "cuda" and not uses_gpu(machine):
        usage("there is no GPU here that torch can use: `python -m grader doctor` says why")
    return replace(machine, gpus=()) if device == "cpu" else machine


def _finish(result: Result, rubric: Rubric, json: Path | None, staff: bool) -> None:
    from grader.summary import show_result
    from grader.terminal import make_console

    if json:
        result.write(json)
    show_result(result, rubric, make_console(), staff, json)
    if result.run.stopped:
        raise typer.Exit(STOPPED)
    verdicts = {check.verdict for check in result.checks}
    if Verdict.GRADER_ERROR in verdicts:
        raise typer.Exit(OURS)
    raise typer.Exit(PASSED if verdicts <= {Verdict.PASS, Verdict.SKIPPED} else FAILED)


def read_rubric() -> Rubric:
    """The rubric; ends the command where it cannot be read."""
    try:
        return Rubric.read()
    except RubricError as error:
        print(f"The rubric cannot be read: {error}", file=sys.stderr)
        raise typer.Exit(OURS) from None


@contextmanager
def ours_to_tell() -> Iterator[None]:
    """A submission that is refused, or a runner that does not start, in one sentence."""
    try:
        yield
    except Refused as error:
        print(f"The submission is refused: {clean(str(error))}.", file=sys.stderr)
        raise typer.Exit(FAILED) from None
    except RunnerBroken as error:
        print(f"The grader itself failed: {error}", file=sys.stderr)
        raise typer.Exit(OURS) from None


def refuse_paths(submission: Path, json: Path | None) -> None:
    """End the command where the submission is no folder, or the file cannot be written."""
    if not submission.is_dir():
        is_file = submission.is_file()
        usage(f"{submission} is a file: give its folder" if is_file else f"there is no folder {submission}")
    if json:
        refuse_target(json)


def refuse_unconfined() -> None:
    """End the command where submissions cannot be confined on this machine."""
    if obstacle := why_not_confined():
        print(f"Submissions cannot be confined here: {obstacle.sentence}.\n-> {obstacle.remedy}", file=sys.stderr)
        raise typer.Exit(OURS)


def refuse_target(file: Path) -> None:
    """End the command where a file cannot be written."""
    if not file.absolute().parent.is_dir():
        usage(f"there is no folder {file.parent} to write {file.name} to")
    if file.is_dir() or not os.access(file.absolute().parent, os.W_OK):
        usage(f"{file} cannot be written")


def note(text: str) -> None:
    """A passing line, on a terminal only; the next one replaces it."""
    if sys.stderr.isatty():
        print(f"{text:<60}", end="\r", flush=True, file=sys.stderr)


def usage(sentence: str) -> NoReturn:
    """End the command: it was not a right one."""
    sentence = clean(sentence)
    print(f"{sentence[:1].upper()}{sentence[1:]}{'' if sentence.endswith('?') else '.'}", file=sys.stderr)
    raise typer.Exit(USAGE)
