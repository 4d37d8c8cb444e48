"""What checks of `sharded_optimizer` say: that it steps like the optimizer itself, and that its state is sharded.

Whose state is where is seen from outside: in a step whose traffic is garbled, a rank has right values only in those
parameters that it has stepped itself. All others it has to have from the others.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from grader.judge.causes_in_numbers import known_mistake
from grader.judge.compare import assert_matches
from grader.judge.distributed import MOST_SENT, Ranks
from grader.judge.hub import Network
from grader.judge.optimization import Optimization, OptimizationDraw, Values
from grader.judge.ranks import Backend, Reported, Run, Steps
from grader.judge.reference import sharded_optimizer as reference
from grader.judge.replies import NoneEntry
from grader.judge.verdict import Outcome, Verdict
from grader.runner import networks

MOST_OF_A_SHARE = 1.25  # times an equal share, or one parameter
SENT_FIXED_BYTES = 256
SAVED_FIXED_BYTES = 8192  # of a file, for whatever is no tensor

# Eight parameters of 64 KiB: for ManySums each has a state of 8 MiB.
LIGHT, HEAVY = ((4, 2),) * 8, ((128, 128),) * 8
UNCOUNTED_BYTES = 16 << 20  # that a rank may take for whatever else: 32 times all parameters


def assert_optimizes(ranks: Ranks, case: Optimization) -> None:
    """Hold the parameters after each step to the reference, on every rank, over both groups."""
    draw = OptimizationDraw.of(case, ranks.generator)
    right = draw.reference()

    def compare(run: Run) -> None:
        for rank in case.ranks:
            _compare(ranks, draw, right, rank, list(run.reports[rank]))

    for backend in ranks.backends(case.world):
        run = _run(ranks, draw, backend)
        compare(run)
        _assert_equal(run, case)
    if len(case.ranks) > 1 and not case.averaged:  # averages are ours, and need the others in any case
        ranks.assert_heard(lambda: _run(ranks, draw, "judged", Network(garbled_from=1)), compare)


def assert_sharded(ranks: Ranks, case: Optimization) -> None:
    """Demand that each parameter is stepped on one rank, and that no rank steps many more than another."""
    draw = OptimizationDraw.of(case, ranks.generator)
    [right] = draw.reference()
    run = _run(ranks, draw, "judged", Network(garbled_from=1))
    owners: list[list[int]] = [[] for _ in case.shapes]
    for rank, [values] in enumerate(run.reports):
        for index, one in enumerate(values):
            got = ranks.result(f"parameter {index} on rank {rank}", one).plain()
            if (
                got.shape == case.shapes[index]
                and not reference.parameter(draw, 0, index, [right]).errors(got).wrong.any()
            ):
                owners[index].append(rank)
    for index, found in enumerate(owners):
        if len(found) > 1:
            raise Outcome(
                Verdict.FAIL,
                f"parameter {index} is stepped on the ranks {' and '.join(map(str, found))}: it is right on each, even "
                "if all that the others send is NaN", "each of these ranks holds the state of this parameter",
                "give the inner optimizer only the parameters of this rank", cause="not_sharded",
            )  # fmt: skip
        if not found:
            raise Outcome(
                Verdict.FAIL, f"parameter {index} is stepped on no rank: if all that the others send is NaN, it is "
                "wrong on each of them", "a rank takes its own parameters from the others, too",
                "step the parameters of this rank, and let the others have them", cause="owned_by_none",
            )  # fmt: skip
    shares = [
        sum(case.bytes[index] for index, found in enumerate(owners) if found == [rank]) for rank in range(case.world)
    ]
    most = max(MOST_OF_A_SHARE * sum(shares) / case.world, max(case.bytes))
    if max(shares) > most:
        raise Outcome(
            Verdict.FAIL,
            f"the ranks step {', '.join(map(str, shares))} bytes of parameters; up to {most:.0f} are allowed",
            "the parameters are dealt out without regard to their sizes",
            "go from the largest parameter to the smallest, and give each to the rank that has the least so far",
            cause="unbalanced",
        )  # fmt: skip


def assert_holds_its_share(ranks: Ranks, world: int) -> None:
    """Demand that no rank takes memory for much more than its share of the state, at any moment of two steps.

    Seen from outside, and at its highest: who steps the parameters of others has their state for a moment, even if it
    lies elsewhere between the steps, or is thrown away and made again.

    In MiB: all state is 64, a share 16, all parameters together 0.5. Right ones in three designs take 20.4 to 20.7 with
    their inputs and reports; one that gathers all parameters of every rank in float64, 29. One that has all state at
    once takes 68.6 and more. The limit is 36.
    """
    light = Optimization(LIGHT, world=world, optimizer="ManySums", steps=2)
    draw = OptimizationDraw.of(replace(light, shapes=HEAVY), ranks.generator)
    ranks.renew()
    _run(ranks, OptimizationDraw.of(light, ranks.generator), "judged", on_cpu=True)  # so that loading does not count
    with ranks.watched() as taken:
        run = _run(ranks, draw, "judged", on_cpu=True)  # where each rank has a memory of its own
    right = draw.reference(dtype=torch.float32)
    for rank in range(world):
        _compare(ranks, draw, right, rank, list(run.reports[rank]), on_cpu=True)
    whole = networks.ManySums.SUMS * sum(draw.case.bytes)
    if taken.bytes > MOST_OF_A_SHARE * whole / world + UNCOUNTED_BYTES:
        taken_mib, whole_mib = taken.bytes / 2**20, whole / 2**20
        raise Outcome(
            Verdict.FAIL,
            f"the optimizer and its steps took {taken_mib:.0f} MiB on a rank; all state is {whole_mib:.0f} MiB, a "
            f"share {whole_mib / world:.0f} MiB", "a rank has the state of parameters that it does not own",
            "give the inner optimizer only the parameters of this rank, and copy to its groups all but `params`",
            cause="state_not_sharded",
        )  # fmt: skip


def assert_saves_its_share(ranks: Ranks, case: Optimization) -> None:
    """Demand that what all ranks save together is about what the optimizer itself saves."""
    draw = OptimizationDraw.of(case, ranks.generator)
    save: Steps = [{"do": "save"}]
    programs = [([*steps, *save], tensors) for steps, tensors in map(draw.program, range(case.world))]
    run = ranks.carry_out("judged", programs, [[*case.report_sizes, 1]] * case.world)
    files = [ranks.result(f"the saved state of rank {rank}", one[-1][0]) for rank, one in enumerate(run.reports)]
    saved, whole = [file.plain().nbytes for file in files], draw.saved_bytes()
    if sum(saved) > MOST_OF_A_SHARE * whole + SAVED_FIXED_BYTES * case.world:
        raise Outcome(
            Verdict.FAIL,
            f"with what state_dict() gives, the ranks save {' and '.join(map(str, saved))} bytes; the optimizer itself "
            f"saves {whole}", "the state of a parameter, or the parameters themselves, are in it on several ranks",
            "state_dict() has the groups, and the state of this rank's parameters only", cause="others_saved",
        )  # fmt: skip


def assert_sends_once(ranks: Ranks, case: Optimization) -> None:
    """Demand that a step sends each parameter about once: not from every rank to every rank."""
    counts = {}
    for steps in (3, 1):
        draw = OptimizationDraw.of(replace(case, steps=steps), ranks.generator)
        counts[steps] = sum(one.volume for one in _run(ranks, draw, "judged").passed)
    sent, due = (counts[3] - counts[1]) / 2, sum(case.bytes)
    if not due / 2 <= sent <= 2 * MOST_SENT * due + SENT_FIXED_BYTES:
        raise Outcome(
            Verdict.FAIL, f"one step sends {sent:.0f} bytes for {due} bytes of parameters on {case.world} ranks",
            "the parameters are not sent at all" if sent < due else "they are sent more than once",
            "each owner broadcasts its parameters once after the step", cause="too_much_sent",
        )  # fmt: skip


def _run(
    ranks: Ranks, draw: OptimizationDraw, backend: Backend, network: Network | None = None, on_cpu: bool = False
) -> Run:
    case = draw.case
    programs = [draw.program(rank) for rank in range(case.world)]
    reports = [case.report_sizes if rank in case.ranks else [] for rank in range(case.world)]
    return ranks.carry_out(backend, programs, reports, network, on_cpu)


def _compare(
    ranks: Ranks,
    draw: OptimizationDraw,
    right: Values,
    rank: int,
    reports: list[list[Reported]],
    on_cpu: bool = False,
) -> None:
    for step in range(draw.case.steps):
        when = f"after step {step + 1}"
        if draw.case.closure:
            returned = ranks.result(f"what step(closure) returned on rank {rank} in step {step + 1}", reports.pop(0)[0])
            if isinstance(returned.entry, NoneEntry):
                raise Outcome(
                    Verdict.FAIL, "step(closure) returned None", hint="return what the closure returned",
                    cause="nothing_returned",
                )  # fmt: skip
            assert_matches(returned, reference.loss(*draw.losses[step][:2]), find=known_mistake)
        for index, one in enumerate(reports.pop(0)):
            result = ranks.result(f"parameter {index} on rank {rank} {when}", one, on_cpu)
            assert_matches(result, reference.parameter(draw, step, index, right), find=known_mistake)


def _assert_equal(run: Run, case: Optimization) -> None:
    """Demand the very same bits on all ranks: what differs a little grows."""
    first, *others = case.ranks
    for rank in others:
        for index, (one, other) in enumerate(zip(run.reports[first][-1], run.reports[rank][-1], strict=True)):
            if one.tensor is None or other.tensor is None or not torch.equal(one.tensor, other.tensor):
                raise Outcome(
                    Verdict.FAIL, f"parameter {index} differs in its last bits between rank {first} and rank {rank}",
                    "each rank has calculated it for itself, in its own order",
                    "let its owner calculate it, and the others take it from there", cause="ranks_differ",
                )  # fmt: skip
