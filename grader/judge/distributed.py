"""What checks of several ranks say: `ranks.train(case)` trains with the submission, and compares every rank.

Each scenario runs twice: on a process group whose far end is the judge, which sees who sends what and knows at once
where ranks wait for different things; and over gloo, or NCCL where each rank has a GPU, as a training would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch

from grader.judge.causes_in_numbers import known_mistake
from grader.judge.collectives import Part
from grader.judge.compare import assert_matches
from grader.judge.footprint import Footprint
from grader.judge.hub import Network, Passed
from grader.judge.ranks import Backend, RankProcesses, Reported, Run, Steps
from grader.judge.reference import ddp as reference
from grader.judge.replies import NoneEntry
from grader.judge.submission import Result
from grader.judge.training import Draw, Gradients, Plan, Reference, Training, mean_of
from grader.judge.verdict import Outcome, Verdict

LEAST_EARLY = 0.5  # of the gradients' bytes, sent before the last gradients exist: of eight equal layers 7/8 can be
AFTER = {"DDP": "after the construction", "broadcast_module": "after broadcast_module"}

NEARLY = 1e-6  # of its square, that a gradient in float32 is off

MOST_SENT = 1.05  # times the gradients
PADDING_BYTES = 64  # of a bucket: to a multiple of the number of ranks, say
FLAGS_BYTES, FLAGS_FIXED_BYTES = 16, 128  # on the wire, for telling each other which parameters were used


@dataclass(frozen=True)
class Traffic:
    """What one step of a training sends, seen from the network."""

    collectives: float
    volume: float  # bytes on a rank's wire: an all-reduce sends its tensor twice, as a ring does
    largest: int  # bytes of the largest collective


@dataclass(frozen=True)
class Overlap:
    """What the only step of a training sends, seen from the network, in bytes on a rank's wire."""

    early: int  # of gradients, before a rank's last ones existed: as they were found in what every rank gave
    volume: int  # in all
    waited: bool  # whether a backward went no further before it had a result


class Ranks:
    """What the fixture `ranks` gives: trainings of the submission on several ranks."""

    def __init__(self, process: RankProcesses, generator: torch.Generator) -> None:
        self._process, self.generator = process, generator

    def backends(self, world: int) -> tuple[Backend, ...]:
        """The process groups that a training of so many ranks runs on, one after the other."""
        return self._process.backends(world)

    def train(self, training: Training) -> None:
        """Hold weights at the start, and gradients after every step, to the reference: each rank, over both groups."""
        draw = Draw.of(training, self.generator)
        expected = Reference.of(draw)
        for backend in self.backends(training.world):
            self._compare(draw, expected, self._run(draw, backend))
        self._assert_heard(draw, expected)

    def assert_heard(self, garbled: Callable[[], Run], compare: Callable[[Run], None]) -> None:
        """Demand, once in a check, that ranks have what they need from each other: garbled traffic leaves some wrong.

        Not so where each rank works for itself, or where they meet in files, say, and what they send is for show.
        """
        if self._process.heard:
            return
        self._process.heard = True
        try:
            compare(garbled())
        except Outcome:
            return
        raise Outcome(
            Verdict.FAIL, "every rank has right values, even if all that the others send is NaN",
            "the ranks exchange nothing, or not through the process group",
            "what a rank needs of the others, it gets by a collective of torch.distributed", cause="not_from_others",
        )  # fmt: skip

    def _assert_heard(self, draw: Draw, expected: Reference) -> None:
        if len(draw.training.ranks) == 1:
            return
        network = Network(garbled_from=1 if draw.training.steps and draw.training.function != "broadcast_module" else 0)
        self.assert_heard(
            lambda: self._run(draw, "judged", network), lambda run: self._compare(draw, expected, run)
        )  # fmt: skip

    def traffic(self, training: Training) -> Traffic:
        """What one step sends over the network: of two trainings, the difference. Values are not compared."""
        draw = Draw.of(replace(training, steps=1), self.generator)
        self._assert_heard(draw, Reference.of(draw))
        longer, shorter = (self._passed(replace(training, steps=steps)) for steps in (3, 1))
        return Traffic(
            collectives=(len(longer) - len(shorter)) / 2,
            volume=(sum(one.volume for one in longer) - sum(one.volume for one in shorter)) / 2,
            largest=max((one.bytes for one in longer if one.gates > 0), default=0),
        )

    def overlap(self, training: Training) -> Overlap:
        """What was sent when, in a training whose network has gates, on a slow network. Values are compared as well."""
        draw = Draw.of(training, self.generator)
        expected = Reference.of(draw)
        run = self._run(draw, "judged", Network(draw.factors, draw.gates, slow=True))
        self._compare(draw, expected, run)
        return Overlap(
            early=_sent_early(expected, run.sent, draw.gates),
            volume=sum(one.volume for one in run.passed if one.gates > 0),
            waited=run.waited,
        )

    def _passed(self, training: Training) -> list[Passed]:
        return self._run(Draw.of(training, self.generator), "judged").passed

    def _run(self, draw: Draw, backend: Backend, network: Network | None = None) -> Run:
        """Carry a training out, without looking at what comes back but its form."""
        training = draw.training
        programs = [draw.program(rank) for rank in range(training.world)]
        reports = [training.report_sizes if rank in training.ranks else [] for rank in range(training.world)]
        return self.carry_out(backend, programs, reports, network)

    def carry_out(
        self,
        backend: Backend,
        programs: Sequence[tuple[Steps, dict[str, torch.Tensor]]],
        reports: Sequence[Sequence[int]],
        network: Network | None = None,
        on_cpu: bool = False,
    ) -> Run:
        """Run a program with its tensors on each rank, which has to give reports of so many values."""
        steps, tensors = zip(*programs, strict=True)
        run = self._process.run(backend, steps, tensors, network, on_cpu)
        for rank, (found, due) in enumerate(zip(run.reports, reports, strict=True)):
            if [len(values) for values in found] != list(due):
                raise Outcome(
                    Verdict.FAIL, f"on rank {rank} the network has other parameters or buffers than before",
                    hint="leave the module as it is: add nothing to it and take nothing away", cause="network_changed",
                )  # fmt: skip
        return run

    def renew(self) -> None:
        """Go on with new processes, in which nothing has run yet."""
        self._process.renew()

    def watched(self) -> AbstractContextManager[Footprint]:
        """Look at the memory of the ranks, which have run something already, while it is entered: on the CPU."""
        return self._process.watched()

    def result(self, name: str, reported: Reported, on_cpu: bool = False) -> Result:
        """A reported value, to be compared."""
        return Result(
            name, reported.entry, reported.tensor, device="cpu" if on_cpu else self._process.servers.device
        )  # fmt: skip

    def _compare(self, draw: Draw, expected: Reference, run: Run) -> None:
        training = draw.training
        for position, rank in enumerate(training.ranks):
            weights, *steps = run.reports[rank]
            self._weights(weights, draw, expected, rank)
            if training.begins_with == "evaluate":
                result = self.result(f"the output on rank {rank}, in evaluation mode,", steps.pop(0)[0])
                assert_matches(result, reference.output(expected.output, expected.trained), find=known_mistake)
            for step, gradients in enumerate(steps):
                self._gradients(gradients, draw, expected, position, step)

    def _weights(self, reported: Sequence[Reported], draw: Draw, expected: Reference, rank: int) -> None:
        values = zip(expected.weight_names, reported, expected.weights, draw.states[rank], strict=True)
        for name, one, first, own in values:
            what = f"{name} on rank {rank}, {AFTER.get(draw.training.function, 'at the start')},"
            assert_matches(self.result(what, one), reference.weight(first, own), find=known_mistake)

    def _gradients(
        self, reported: Sequence[Reported], draw: Draw, expected: Reference, position: int, step: int
    ) -> None:
        training = draw.training
        rank = training.ranks[position]
        when = f" after step {step + 1}" if training.steps > 1 else ""
        for number, (name, one) in enumerate(zip(expected.names, reported, strict=True)):
            local = [gradients[number] for gradients in expected.local[step]]
            result = self.result(f"the gradient of {name} on rank {rank}{when}", one)
            if mean_of(local) is None:
                if not isinstance(one.entry, NoneEntry):
                    raise _not_none(result.name, name in training.plan.frozen)
                continue
            filled = [_zeros(local) if gradient is None else gradient for gradient in local]
            earlier = mean_of([gradients[number] for gradients in expected.local[step - 1]]) if step else None
            if isinstance(one.entry, NoneEntry):
                raise _missing(result.name, local[position] is None)
            dtype = expected.weights[expected.weight_names.index(name)].dtype
            mixed_up = _mixed_up(number, expected.local[step], expected.names)
            advice = _advice(training, step)
            right = reference.gradient(filled, position, dtype, earlier, mixed_up, training.world, advice)
            assert_matches(result, right, find=known_mistake)


def _mixed_up(number: int, local: Sequence[Gradients], names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Sums of a parameter's gradients over the ranks that used it, and of another one's over the others that used that.

    By the other one's name.
    """
    found = {}
    for other, name in enumerate(names):
        pairs = [(gradients[number], gradients[other]) for gradients in local]
        instead = [two for one, two in pairs if one is None and two is not None]
        terms = [one for one, _ in pairs if one is not None]
        if terms and instead and instead[0].shape == terms[0].shape:
            found[name] = torch.stack([one.double() for one in [*terms, *instead]]).sum(0)
    return found


def _advice(training: Training, step: int) -> str:
    """What to try where a gradient is wrong in a way that is not known; only the wrapper has hooks and handles."""
    if training.function != "DDP":
        return reference.ADVICE
    if training.backwards > 1:
        return "inside no_sync() a hook has to return at once, and what has added up is sent by the next backward"
    if step > 0:
        return "compare the steps: handles, counters and buckets of one must be gone when the next one begins"
    return reference.ADVICE


def _sent_early(reference: Reference, sent: Sequence[Part], gates: int) -> int:
    """Bytes of gradients that were in what each rank gave before it came to its last gate."""
    [local] = reference.local
    found = 0
    for number in range(len(reference.names)):
        early = [
            any(_contains(part, gradients[number]) for part in sent if part.rank == rank and part.gates < gates)
            for rank, gradients in enumerate(local)
        ]
        gradient = local[0][number]
        found += 4 * gradient.numel() if all(early) and gradient is not None else 0
    return found


def _contains(part: Part, gradient: torch.Tensor | None) -> bool:
    """Whether the elements of a gradient, or of a multiple of it, stand one after the other in what a rank gave."""
    numbers = [one.double() for one in part.tensors if one.is_floating_point()]
    if gradient is None or sum(map(len, numbers)) < gradient.numel():
        return False
    flat = gradient.flatten() / gradient.norm()
    windows = torch.cat(numbers).unfold(0, flat.numel(), 1)
    along = windows @ flat  # for each place, the multiple that fits best
    across = (windows.square().sum(1) - along.square()).clamp(min=0)
    return bool(((across <= NEARLY * along.square()) & (along != 0)).any())


def _zeros(local: Sequence[torch.Tensor | None]) -> torch.Tensor:
    return next(torch.zeros_like(one) for one in local if one is not None)


def _not_none(name: str, frozen: bool) -> Outcome:
    if frozen:
        return Outcome(
            Verdict.FAIL, f"{name} is a tensor, expected None", "the parameter is frozen: it has no gradient",
            "leave out parameters with requires_grad=False", cause="gradient_of_frozen",
        )  # fmt: skip
    return Outcome(
        Verdict.FAIL, f"{name} is a tensor, expected None",
        "no rank has used this parameter: it has no gradient, and an optimizer leaves it alone",
        "what is used on no rank keeps `grad is None`: let the ranks tell each other which parameters they have used",
        cause="gradient_of_unused",
    )  # fmt: skip


def _missing(name: str, unused: bool) -> Outcome:
    if unused:
        return Outcome(
            Verdict.FAIL, f"{name} is None",
            "this rank has not used the parameter, but another one has: it counts as zero here, and the mean is due",
            "take part with zeros, and write the mean into .grad on every rank", cause="gradient_missing",
        )  # fmt: skip
    return Outcome(
        Verdict.FAIL, f"{name} is None", "the gradient that backward has left there is gone",
        "write the mean into .grad", cause="gradient_missing",
    )  # fmt: skip


def assert_sent(
    traffic: Traffic, plan: Plan, most_collectives: int | None = None, largest: int | None = None, note: str = ""
) -> None:
    """Demand that a step sends every gradient once, in at most so many collectives of at most so many bytes."""
    due, flags = 2 * plan.gradient_bytes, FLAGS_BYTES * plan.parameters + FLAGS_FIXED_BYTES
    step = f"one step ({note})" if note else "one step"
    sent = f"{step} sends {traffic.volume:.0f} bytes in {traffic.collectives:g} collectives"
    if traffic.volume < due:
        raise Outcome(
            Verdict.FAIL, f"{sent}; averaging {plan.gradient_bytes} bytes of gradients takes {due}",
            "not all gradients go over the network: the judge carries every collective and counts",
            "all-reduce the gradient of every trainable parameter in every step", cause="too_little_sent",
        )  # fmt: skip
    if traffic.volume > due * MOST_SENT + flags:
        raise _too_much(sent, plan)
    if most_collectives is not None and traffic.collectives > most_collectives:
        raise Outcome(
            Verdict.FAIL, f"{sent}, {most_collectives} are enough",
            "each collective costs its latency, however small it is",
            "fill each bucket up to bucket_bytes" if largest else "put all gradients of a dtype into one flat tensor",
            cause="too_many_collectives",
        )  # fmt: skip
    if largest is not None and traffic.largest > largest + PADDING_BYTES:
        raise Outcome(
            Verdict.FAIL, f"a collective has {traffic.largest} bytes, bucket_bytes is {largest}",
            hint="close a bucket before the parameter that would make it larger", cause="bucket_too_large",
        )  # fmt: skip


def _too_much(sent: str, plan: Plan) -> Outcome:
    return Outcome(
        Verdict.FAIL,
        f"{sent}; averaging {plan.gradient_bytes} bytes of gradients takes {2 * plan.gradient_bytes}",
        "gradients are sent more than once, or parameters that are frozen or that no backward has reached",
        "send each trainable parameter's gradient once in a step, and nothing in no_sync()", cause="too_much_sent",
    )  # fmt: skip


def assert_overlaps(overlap: Overlap, plan: Plan) -> None:
    """Demand that most gradients are sent while the backward goes on, and that it does not wait for them."""
    due, flags = 2 * plan.gradient_bytes, FLAGS_BYTES * plan.parameters + FLAGS_FIXED_BYTES
    early = overlap.early / plan.gradient_bytes
    hint = (
        "launch a bucket from a hook as soon as its gradients are there, with async_op=True, and wait for all in "
        "finish_gradient_synchronization"
    )
    if overlap.volume > due * MOST_SENT + flags:
        raise _too_much(f"the step sends {overlap.volume} bytes", plan)
    if early < LEAST_EARLY:
        raise Outcome(
            Verdict.FAIL,
            f"when the last gradients came into being, {early:.0%} of all had been sent; "
            f"{LEAST_EARLY:.0%} are due by then, and each layer has a bucket of its own",
            "the reductions begin when the backward is through", hint, cause="no_overlap",
        )  # fmt: skip
    if overlap.waited:
        raise Outcome(
            Verdict.FAIL, "the backward waits for the result of a reduction before it goes on",
            "a hook that waits hides nothing: the network and the processor take turns", hint, cause="no_overlap",
        )  # fmt: skip
