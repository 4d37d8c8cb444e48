"""The commands, thin: parse, start the runner, run, show. `check` is the default.

Exit codes: 0 all passed, 1 something failed, 2 usage, 3 the grader's own fault, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import gc
import os
import shlex
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from grader.closest import closest
from grader.doctor import Machine, can_run_kernels, can_run_ranks, confinement, examine, render, uses_gpu
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
COMMANDS = ("check", "bench", "grade", "doctor")
NO_SPEED_HERE = (
    "speed is measured on a GPU that torch can use, and there is none here (`doctor` says why). What a CPU can tell: "
    "`check` says whether a kernel is right, and docs/measurements.md how fast kernels can be"
)
STOPPED = 130  # by Ctrl-C, as shells report it
PICTURES = (".svg", ".png")

app = typer.Typer(add_completion=False, no_args_is_help=False, pretty_exceptions_enable=False, rich_markup_mode=None)

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[PROBLEM[.CHECK]]...", help="what to check; all by default")
]
OnDevice = Annotated[
    Literal["cpu", "cuda"] | None,
    typer.Option("--device", help="cpu: interpreted; by default a GPU if there is one"),
]
Gpus = Annotated[
    int,
    typer.Option("--gpus", min=1, metavar="N", help="that ranks of a training share; NCCL needs one for each"),
]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="also write the result as JSON")]


@app.command()
def check(
    names: Names = None,
    submission: Annotated[Path, typer.Option(help="folder with the modules")] = STUBS,
    seed: Annotated[int | None, typer.Option(min=0, help="draw the inputs from this seed")] = None,
    device: OnDevice = None,
    gpus: Gpus = 1,
    sandbox: Annotated[bool, typer.Option("--sandbox", help="confine the code, as staff do")] = False,
    json: Json = None,
) -> None:
    """Run the public checks on assignment/ (the default command).

    Examples: check; check softmax; check softmax.layouts --seed 7; check gelu --submission solutions --json result.json
    """
    Command(tuple(names or ()), submission, seed, device, gpus, sandbox, json, staff=False).run()


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(metavar="[PROBLEM]...", help="all by default")] = None,
    submission: Annotated[Path, typer.Option(help="folder with the modules")] = STUBS,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="also draw speed over size, and the roofline: .svg or .png")
    ] = None,
    json: Json = None,
) -> None:
    """Measure how fast the kernels of assignment/ are, on a GPU: time, rate, part of its limit, ratio to baselines.

    Examples: bench; bench softmax; bench matmul --plot matmul.svg; bench --submission solutions --json speeds.json
    """
    rubric = _rubric()
    timed = [problem for problem, entry in rubric.problems.items() if entry.speed]
    for name in names or ():
        if name not in timed:
            _usage(f"nothing of `{name}` is timed; there are {', '.join(timed)}")
    _refuse_paths(submission, json)
    _refuse_plot(plot)
    machine = Machine.here()
    if not uses_gpu(machine):
        _usage(NO_SPEED_HERE)
    with _ours_to_tell():
        _bench(rubric, [name for name in timed if name in (names or timed)], submission, machine, plot, json)


def _bench(
    rubric: Rubric, names: Sequence[str], submission: Path, machine: Machine, plot: Path | None, json: Path | None
) -> None:
    from grader.bench.meters import meter_of
    from grader.bench.rows import Measurements, Session
    from grader.bench.table import show_bench, show_row
    from grader.terminal import make_console

    gc.enable()  # see grader/__main__.py
    snapshot, servers, console = Snapshot.of(submission), Servers.on(machine), make_console()
    gpu, measured = machine.gpus[0], Measurements()
    try:
        servers.ready()
        session = Session(rubric, meter_of(snapshot, servers), gpu.memory_bytes, gpu.name, _note)
        measured.by(session, names, ladders=plot is not None, told=lambda row: show_row(row, console))
    except KeyboardInterrupt:
        measured.stopped = True
    finally:
        _note("")
        servers.close()
        snapshot.remove()
    bench = measured.record(gpu.name, servers.versions)
    show_bench(bench, console)
    if json:
        bench.write(json)
    if plot and bench.limits:  # without them nothing else was measured
        from grader.bench.plot import draw

        draw(bench, plot)
    if measured.broken:
        raise measured.broken
    if measured.stopped:
        print("Stopped: what was measured before is told.", file=sys.stderr)
        raise typer.Exit(STOPPED)
    raise typer.Exit(PASSED if all(row.verdict is Verdict.PASS for row in bench.rows) else FAILED)


@contextmanager
def _ours_to_tell() -> Iterator[None]:
    """A submission that is refused, or a runner that does not start, in one sentence."""
    try:
        yield
    except Refused as error:
        print(f"The submission is refused: {clean(str(error))}.", file=sys.stderr)
        raise typer.Exit(FAILED) from None
    except RunnerBroken as error:
        print(f"The grader itself failed: {error}", file=sys.stderr)
        raise typer.Exit(OURS) from None


@app.command()
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
    Command((), submission, None, device, gpus, not unsafe_no_sandbox, json, staff=True).run()


@app.command()
def doctor() -> None:
    """Say what this machine can run, and what to do about the rest."""
    from grader.terminal import make_console

    findings = [*examine(Machine.here()), confinement(why_not_confined())]
    render(findings, make_console())
    raise typer.Exit(FAILED if any(finding.level == "problem" for finding in findings) else PASSED)


@dataclass(frozen=True)
class Command:
    """One run of checks as a command asks for it."""

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
        rubric = _rubric()
        _refuse_unknown(self.names, rubric)
        _refuse_paths(self.submission, self.json)
        machine = _machine_for(self.device, self.gpus)
        if self.confined and (obstacle := why_not_confined()):
            print(f"Submissions cannot be confined here: {obstacle.sentence}.\n-> {obstacle.remedy}", file=sys.stderr)
            raise typer.Exit(OURS)
        with _ours_to_tell():
            snapshot = Snapshot.of(self.submission)
            sandbox = Bubblewrap(snapshot.folder) if self.confined else Unconfined()
            servers = Servers.on(machine, sandbox, self.gpus)
            try:
                result = self._judge(rubric, snapshot, servers, machine)
            except KeyboardInterrupt:
                print("Stopped before the first check.", file=sys.stderr)
                raise typer.Exit(STOPPED) from None
            finally:
                servers.close()
                snapshot.remove()
        if servers.unreturned_bytes:
            missing = f"{servers.unreturned_bytes >> 20} MiB of its memory are still in use"
            print(f"Set this GPU aside before the next submission: {missing}.", file=sys.stderr)
        _finish(result, rubric, self.json, self.staff)

    def _judge(self, rubric: Rubric, snapshot: Snapshot, servers: Servers, machine: Machine) -> Result:
        if not (can_run_kernels(machine) and can_run_ranks(machine)):
            servers.start()  # imports torch while this process does
        _note("importing torch ...")
        from grader.judge.plugin import Judge, Obstacles
        from grader.judge.run import JudgeFailed, Selection, run_checks
        from grader.terminal import Progress, make_console

        _note("")
        gc.enable()  # see grader/__main__.py
        cannot_run, options = Obstacles.on(machine), self._options()
        judge = Judge(snapshot, servers, rubric, self.seed, cannot_run, staff=self.staff, options=options)
        checks = Selection(self.names, hidden=self.staff).checks(rubric)
        try:
            with Progress(make_console(), rubric) as progress:
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
        _usage(f"{gpus} GPUs are asked for, and there are {len(machine.gpus)} here")
    if device == "cuda" and not uses_gpu(machine):
        _usage("there is no GPU here that torch can use: `python -m grader doctor` says why")
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


def _rubric() -> Rubric:
    try:
        return Rubric.read()
    except RubricError as error:
        print(f"The rubric cannot be read: {error}", file=sys.stderr)
        raise typer.Exit(OURS) from None


def _refuse_unknown(names: tuple[str, ...], rubric: Rubric) -> None:
    checks = [
        f"{problem}.{name}" for problem, entry in rubric.problems.items() for name in (*entry.checks, *entry.speed)
    ]
    known = [*rubric.problems, *checks]
    for name in names:
        if name in rubric.public.coming:
            _usage(f"`{name}` is not built yet; there are {', '.join(rubric.problems)}")
        if name not in known:
            of_problem = [check for check in checks if check.startswith(f"{name.partition('.')[0]}.")]
            close = closest(name.partition(".")[2], [check.partition(".")[2] for check in of_problem])
            if of_problem and not close:
                _usage(f"there is no check `{name}`; there are {', '.join(of_problem)}")
            close = f"{name.partition('.')[0]}.{close}" if close else closest(name, [*known, *COMMANDS])
            suggestion = f"did you mean `{close}`?" if close else f"there are {', '.join(known)}"
            _usage(f"there is no problem or check `{name}`; {suggestion}")


def _refuse_paths(submission: Path, json: Path | None) -> None:
    if not submission.is_dir():
        is_file = submission.is_file()
        _usage(f"{submission} is a file: give its folder" if is_file else f"there is no folder {submission}")
    if json:
        _refuse_target(json)


def _refuse_target(file: Path) -> None:
    if not file.absolute().parent.is_dir():
        _usage(f"there is no folder {file.parent} to write {file.name} to")
    if file.is_dir() or not os.access(file.absolute().parent, os.W_OK):
        _usage(f"{file} cannot be written")


def _refuse_plot(plot: Path | None) -> None:
    if not plot:
        return
    if plot.suffix not in PICTURES:
        _usage(f"a picture is {' or '.join(PICTURES)}, and {plot.name} ends otherwise")
    _refuse_target(plot)
    if find_spec("matplotlib") is None:
        _usage("matplotlib draws the picture, and is not installed here: `uv sync` brings it")


def _note(text: str) -> None:
    """A passing line, on a terminal only; the next one replaces it."""
    if sys.stderr.isatty():
        print(f"{text:<60}", end="\r", flush=True, file=sys.stderr)


def _usage(sentence: str) -> None:
    sentence = clean(sentence)
    print(f"{sentence[:1].upper()}{sentence[1:]}{'' if sentence.endswith('?') else '.'}", file=sys.stderr)
    raise typer.Exit(USAGE)


def main() -> None:
    """Entry of `python -m grader`: without a command it is `check`."""
    arguments = sys.argv[1:]
    if not arguments or (arguments[0] not in (*COMMANDS, "--help", "-h")):
        arguments = ["check", *arguments]
    try:
        app(args=arguments, prog_name="python -m grader")
    except Exception as error:
        traceback.print_exc()
        print(f"The grader itself failed ({type(error).__name__}): please report this.", file=sys.stderr)
        sys.exit(OURS)
