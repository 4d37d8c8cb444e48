"""A student's commands, thin: `check` (the default), `bench`, `pack`, `doctor`. Staff's are in a package of their own.

Exit codes: 0 all passed, 1 something failed, 2 usage, 3 the grader's own fault, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from grader.closest import closest
from grader.command import (
    FAILED,
    OURS,
    PASSED,
    STOPPED,
    STUBS,
    Command,
    Gpus,
    Json,
    OnDevice,
    note,
    ours_to_tell,
    read_rubric,
    refuse_paths,
    refuse_target,
    usage,
)
from grader.doctor import Machine, confinement, examine, render, uses_gpu
from grader.judge.servers import Servers
from grader.judge.snapshot import Snapshot
from grader.judge.verdict import Verdict
from grader.rubric import Rubric
from grader.sandbox.obstacles import why_not_confined

STAFF_COMMANDS = Path(__file__).parent / "staff" / "commands.py"  # not in what students get
NO_SPEED_HERE = (
    "speed is measured on a GPU that torch can use, and there is none here (`doctor` says why). What a CPU can tell: "
    "`check` says whether a kernel is right, and docs/measurements.md how fast kernels can be"
)
PICTURES = (".svg", ".png")

app = typer.Typer(add_completion=False, no_args_is_help=False, pretty_exceptions_enable=False, rich_markup_mode=None)

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[PROBLEM[.CHECK]]...", help="what to check; all by default")
]


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

    Examples: check; check softmax; check softmax.layouts --seed 7; check gelu --submission old --json result.json
    """
    rubric = read_rubric()
    _refuse_unknown(names or (), rubric)
    Command(rubric, tuple(names or ()), submission, seed, device, gpus, sandbox, json, staff=False).run()


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

    Examples: bench; bench softmax; bench matmul --plot matmul.svg; bench --submission old --json speeds.json
    """
    rubric = read_rubric()
    timed = [problem for problem, entry in rubric.problems.items() if entry.speed]
    for name in names or ():
        if name not in timed:
            usage(f"nothing of `{name}` is timed; there are {', '.join(timed)}")
    refuse_paths(submission, json)
    _refuse_plot(plot)
    machine = Machine.here()
    if not uses_gpu(machine):
        usage(NO_SPEED_HERE)
    with ours_to_tell():
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
        session = Session(rubric, meter_of(snapshot, servers), gpu.memory_bytes, gpu.name, note)
        measured.by(session, names, ladders=plot is not None, told=lambda row: show_row(row, console))
    except KeyboardInterrupt:
        measured.stopped = True
    finally:
        note("")
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


@app.command()
def pack(
    submission: Annotated[Path, typer.Option(help="folder with the modules")] = STUBS,
    out: Annotated[Path, typer.Option(metavar="FILE", help="what to write, ending in .zip")] = Path("submission.zip"),
) -> None:
    """Write the file to hand in, and say what in it will be graded. Runs nothing.

    Ends with 0 if all can be graded, with 1 if something that is named will earn nothing.
    """
    from grader.pack.handed_in import hand_in
    from grader.terminal import make_console

    rubric = read_rubric()
    refuse_paths(submission, None)
    if out.suffix != ".zip":
        usage(f"what is handed in is a .zip, and {out.name} ends otherwise")
    refuse_target(out)
    with ours_to_tell():
        snapshot = Snapshot.of(submission)
        try:
            whole = hand_in(submission, snapshot, rubric, out, make_console())
        finally:
            snapshot.remove()
    if whole is None:
        usage(f"{submission} has no module of a problem ({', '.join(f'{name}.py' for name in rubric.problems)})")
    raise typer.Exit(PASSED if whole else FAILED)


@app.command()
def doctor() -> None:
    """Say what this machine can run, and what to do about the rest."""
    from grader.terminal import make_console

    findings = [*examine(Machine.here()), confinement(why_not_confined())]
    render(findings, make_console())
    raise typer.Exit(FAILED if any(finding.level == "problem" for finding in findings) else PASSED)


def _refuse_unknown(names: Sequence[str], rubric: Rubric) -> None:
    checks = [
        f"{problem}.{name}" for problem, entry in rubric.problems.items() for name in (*entry.checks, *entry.speed)
    ]
    known = [*rubric.problems, *checks]
    for name in names:
        if name in rubric.public.coming:
            usage(f"`{name}` is not built yet; there are {', '.join(rubric.problems)}")
        if name not in known:
            problem, _, wanted = name.partition(".")
            of_problem = [check for check in checks if check.startswith(f"{problem}.")]
            close = closest(wanted, [check.partition(".")[2] for check in of_problem])
            if of_problem and wanted and not close:
                usage(f"there is no check `{name}`; there are {', '.join(of_problem)}")
            close = f"{problem}.{close}" if close else closest(name, [*known, *_commands()])
            suggestion = f"did you mean `{close}`?" if close else f"there are {', '.join(rubric.problems)}"
            usage(f"there is no problem or check `{name}`; {suggestion}")


def _refuse_plot(plot: Path | None) -> None:
    if not plot:
        return
    if plot.suffix not in PICTURES:
        usage(f"a picture is {' or '.join(PICTURES)}, and {plot.name} ends otherwise")
    refuse_target(plot)
    if find_spec("matplotlib") is None:
        usage("matplotlib draws the picture, and is not installed here: `uv sync` brings it")


def _commands() -> list[str]:
    """The names of all commands that there are here."""
    return [command.callback.__name__ for command in app.registered_commands if command.callback]


def main() -> None:
    """Entry of `python -m grader`: without a command it is `check`."""
    if STAFF_COMMANDS.is_file():
        import_module("grader.staff.commands").add_to(app)
    arguments = sys.argv[1:]
    if not arguments or (arguments[0] not in (*_commands(), "--help", "-h")):
        arguments = ["check", *arguments]
    try:
        app(args=arguments, prog_name="python -m grader")
    except Exception as error:
        traceback.print_exc()
        print(f"The grader itself failed ({type(error).__name__}): please report this.", file=sys.stderr)
        sys.exit(OURS)
