"""The judge's clock: samples of calls on fresh arguments, whose answers are looked at.

For each sample the runner's processes are stopped while its arguments are filled from private originals and its old
answers are made NaN; a column of every matrix is written at the very end. The clock starts, the processes go on, and it
is read when the runner says that it is done. Where the answers lie was told before, so that 64 slices of them are on
their way at once, those of the last calls first: what is not there by then is seen. The clock is read again after that,
which cannot be later than for a runner that was done when it said so. Then rows of every answer are compared.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from grader.clock.line import Sample
from grader.clock.memory import Block, fetch
from grader.clock.players import Player, freeze, release
from grader.clock.works import Work
from grader.judge.tolerance import Tolerance
from grader.judge.verdict import Outcome, Verdict
from grader.sandbox.levels import Device
from grader.sandbox.processes import running_ns

SLICES, SLICE_ROWS = 64, 4  # copied out before the second reading: the same volume whatever the sample's size
SLICE_COLUMNS = 256  # of an answer that is transposed: each of them is a copy of its own
FIRST_SLICES, LAST_CALLS = 16, 2  # of the slices, of the calls: who replies early has not done these
CHECKED_ROWS = 64  # of each answer, compared after the sample
TWICE = 2.0
MOST_SETS, LEAST_SETS = 48, 12
SHARE_OF_MEMORY = 1 / 6  # for sets; what they are filled with, and the answers of two runners, take as much each
RANDOM = random.SystemRandom()


@dataclass(frozen=True)
class Slice:
    """Some rows of one call's answer."""

    call: int
    output: int
    row: int  # the first, in the matrix that is looked at of this call
    columns: slice  # those that are copied of an answer whose rows do not lie in one piece


class Stopwatch:
    """Sets of arguments for one work in the judge's device memory, and the clock for players that work on them."""

    def __init__(self, work: Work, device: Device = "cuda") -> None:
        self.work, self.device = work, device
        each = sum(spec.nbytes for spec in work.inputs)
        room = torch.cuda.mem_get_info()[1] * SHARE_OF_MEMORY if device == "cuda" else LEAST_SETS * each
        self.sets: list[Block] = []
        try:
            self._make_room(max(LEAST_SETS, min(MOST_SETS, int(room / each))))
        except BaseException:
            self.close()
            raise

    def _make_room(self, sets: int) -> None:
        """Take memory for so many sets of arguments, for what they are filled with, and for copies of answers."""
        work, device = self.work, self.device
        for _ in range(sets):
            self.sets.append(Block(work.inputs))
        self.private = [
            [torch.empty(spec.shape, dtype=spec.dtype, device=device) for spec in work.inputs] for _ in self.sets
        ]  # what a set is filled with: the runner can write to sets
        self.generator = torch.Generator(device)
        self.generator.manual_seed(RANDOM.getrandbits(62))
        pinned = device == "cuda"
        self.copies = [
            torch.empty(
                (SLICES, SLICE_ROWS, *spec.shape[len(work.outputs[0].shape) - 1 :]), dtype=spec.dtype, pin_memory=pinned
            )
            for spec in work.outputs
        ]

    def close(self) -> None:
        """Give the memory back, also what PyTorch keeps for the next one: it would count as the submission's."""
        self.private = []
        for block in self.sets:
            block.free()
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def sample(self, player: Player, calls: int, checked: bool) -> Sample:
        """One sample of so many calls, on sets in random order.

        Raises `Outcome` where the runner fails or answers in another form, and if `checked`, for a wrong answer.
        """
        order = RANDOM.sample(range(len(self.sets)), calls)
        for number in order:
            self.work.refill(self.private[number], self.generator)
        heads = [RANDOM.randrange(self.work.heads) for _ in order]
        slices = self._slices(calls)
        stopped = freeze([player.child.server.leader])
        try:
            for answer in (answer for answers in player.last for answer in answers):
                answer.fill_(torch.nan)
            torch.cuda.synchronize()
            had_ns, began = running_ns(stopped), time.perf_counter()
            self._fill(order)
            if running_ns(stopped) != had_ns:  # while the GPU still fills
                raise Outcome(
                    Verdict.FAIL, "your processes went on between timed calls, where they had been stopped",
                    hint="start no process and no timer: a kernel needs none", cause="not_stopped",
                )  # fmt: skip
            self._fill_last(order)
            start = time.perf_counter()
        finally:
            release(stopped)
        answers = player.call(order, self.work)
        fetches = [
            fetch(self.copies[one.output][number], self._look(one, answers[one.call][one.output], heads[one.call]))
            for number, one in enumerate(slices)
        ]
        arrived = player.wait()
        for one in fetches:
            one.start()
        torch.cuda.synchronize()
        second_s = time.perf_counter() - arrived
        if checked:
            looks = [(one, fetched.seen) for one, fetched in zip(slices, fetches, strict=True)]
            self._compare(order, heads, looks, answers, player.function)
        return Sample(calls, arrived - start, second_s, start - began)

    def _look(self, one: Slice, answer: torch.Tensor, head: int) -> torch.Tensor:
        """The matrix that is copied out for a slice: some columns only, where each of them lies in a piece."""
        of_head = _of_head(answer, head, self.work)
        rows = of_head.view(len(of_head), -1) if of_head.dim() == 1 else of_head
        rows = rows[one.row : one.row + SLICE_ROWS]
        return rows if rows.stride(1) == 1 else rows[:, one.columns]

    def _fill(self, order: Sequence[int]) -> None:
        """Let the GPU fill the sets, and do not wait for it.

        Nothing of what is written was in memory that the runner can read before: what it does on the GPU meanwhile, a
        kernel that it has left there, say, takes time from this.
        """
        for number in order:
            for tensor, content in zip(self.sets[number].tensors, self.private[number], strict=True):
                tensor.copy_(content)

    def _fill_last(self, order: Sequence[int]) -> None:
        """Write a column of each set at the very end: every row has something that comes late."""
        for number in order:
            for late in self.work.late:
                content = self.private[number][late]
                column = RANDOM.randrange(content.shape[-1])
                content[..., column].normal_(generator=self.generator)
                self.sets[number].tensors[late][..., column].copy_(content[..., column])
        torch.cuda.synchronize()

    def _compare(
        self, order: Sequence[int], heads: Sequence[int], slices: Sequence[tuple[Slice, torch.Tensor]],
        answers: Sequence[Sequence[torch.Tensor]], function: str,
    ) -> None:  # fmt: skip
        """Hold the slices, and rows of every answer, to what is right. Raises `Outcome`."""
        right: list[torch.Tensor] = []
        for call, number in enumerate(order):
            mine = [(one, seen) for one, seen in slices if one.call == call]
            right += self._looks(self.private[number], mine, answers[call], heads[call])
        if not bool(torch.stack(right).all()):
            raise Outcome(
                Verdict.FAIL, f"a timed call of {function} gave a wrong answer",
                "the arguments of each call are new, and their memory is used again",
                "compute every call's answer from its own arguments, before the function returns",
                cause="timed_answer_wrong",
            )  # fmt: skip

    def _looks(
        self, arguments: Sequence[torch.Tensor], slices: Sequence[tuple[Slice, torch.Tensor]],
        answer: Sequence[torch.Tensor], head: int,
    ) -> Iterator[torch.Tensor]:  # fmt: skip
        """For one call, whether its slices, and rows that are looked at now, are right."""
        starts = torch.tensor([one.row for one, _ in slices], dtype=torch.int64, device=self.device)
        of_slices = (starts[:, None] + torch.arange(SLICE_ROWS, device=self.device)).flatten()
        rows = torch.cat([of_slices, self._rows(CHECKED_ROWS)])
        for output, right in enumerate(self.work.rows(arguments, head, rows)):
            now = _of_head(answer[output], head, self.work)[rows[len(of_slices) :]]
            yield within(now, right[len(of_slices) :], right, self.work.tolerances[output])
            for at, (one, seen) in enumerate(slices):
                if one.output == output:
                    due = right[SLICE_ROWS * at : SLICE_ROWS * (at + 1)]
                    due = due.view(SLICE_ROWS, -1)
                    due = due if due.shape == seen.shape else due[:, one.columns]
                    yield within(seen.to(self.device), due, right, self.work.tolerances[output])

    def _slices(self, calls: int) -> list[Slice]:
        """What is copied out at once, in this order."""
        outputs, rows = len(self.work.outputs), self.work.outputs[0].shape[-2]
        of_last = [calls - 1 - RANDOM.randrange(min(LAST_CALLS, calls)) for _ in range(FIRST_SLICES)]
        of_any = [RANDOM.randrange(calls) for _ in range(SLICES - FIRST_SLICES)]
        columns = [RANDOM.randrange(self.work.outputs[0].shape[-1]) for _ in range(SLICES)]
        return [
            Slice(
                call, RANDOM.randrange(outputs), RANDOM.randrange(rows - SLICE_ROWS + 1),
                slice(column - column % SLICE_COLUMNS, column - column % SLICE_COLUMNS + SLICE_COLUMNS),
            )
            for call, column in zip(of_last + of_any, columns, strict=True)
        ]  # fmt: skip

    def _rows(self, count: int) -> torch.Tensor:
        rows = self.work.outputs[0].shape[-2]
        return torch.tensor([RANDOM.randrange(rows) for _ in range(count)], device=self.device)


@contextmanager
def stopwatch(work: Work, device: Device = "cuda") -> Iterator[Stopwatch]:
    """A stopwatch whose memory is given back."""
    watch = Stopwatch(work, device)
    try:
        yield watch
    finally:
        watch.close()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Nothing of the judge's own is cleared up meanwhile: that takes milliseconds, in one sample of ten."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _of_head(answer: torch.Tensor, head: int, work: Work) -> torch.Tensor:
    """One matrix of an answer, or one row of numbers for each of its rows."""
    return answer[head] if len(work.outputs[0].shape) > 2 else answer


def within(got: torch.Tensor, due: torch.Tensor, around: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    """Whether rows are right, as a bool on their device, where nobody waits for it.

    `around`: float64, rows of the same matrix, whose rms errors are relative to. Twice the tolerance of value checks: a
    sum of few terms, as those of the first queries of causal attention, has an error whose rms is not settled.
    """
    scale = around.square().mean().sqrt()
    difference = (got.double() - due).abs()
    right = (difference <= TWICE * tolerance.max * torch.maximum(due.abs(), scale)).all()
    if tolerance.rms is not None:
        rms = torch.maximum(due.square().mean().sqrt(), scale)
        right &= difference.square().mean().sqrt() <= TWICE * tolerance.rms * rms
    return right
