"""Times by the submission's own word, for its author: only where the judge cannot share its device memory.

Nothing that is graded rests on them. Arguments are made here, and answers are thrown away.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from tensors import DTYPES
from timing import Calls

COLD_BYTES = 256 << 20  # of arguments that are used in turns, at least: none of them is left in the cache
LEAST_SETS, MOST_SETS = 2, 48
ROUNDS, ROUND_S = 12, 0.02


class Estimate(Calls):
    """The same with arguments of this process's own, and CUDA's events around the calls."""

    def __init__(self, module: Any, header: dict[str, Any], device: str) -> None:
        """`header`: what `Calls` takes, and inputs (shape, dtype, requires_grad)."""
        super().__init__(module, header, device)
        each = sum(math.prod(spec["shape"]) * DTYPES[spec["dtype"]].itemsize for spec in header["inputs"])
        count = min(max(-(-COLD_BYTES // each), LEAST_SETS), MOST_SETS)
        self.sets = [[self._normal(spec) for spec in header["inputs"]] for _ in range(count)]

    def run(self) -> list[float]:
        """Seconds of a call, of each round, after calls that may compile and tune."""
        self._seconds(len(self.sets))
        calls = math.ceil(ROUND_S / max(self._seconds(len(self.sets)), 1e-6))
        return [self._seconds(calls) for _ in range(ROUNDS)]

    def _seconds(self, calls: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        kept: list[Sequence[object]] = [()] * len(self.sets)  # so that answers, too, lie where none was just now
        torch.cuda.synchronize()
        start.record()
        for number in range(calls):
            kept[number % len(kept)] = self.call(self.sets[number % len(kept)])
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / calls

    def _normal(self, spec: dict[str, Any]) -> torch.Tensor:
        tensor = torch.empty(spec["shape"], dtype=DTYPES[spec["dtype"]], device=self.device).normal_()
        return tensor.requires_grad_(True) if spec["requires_grad"] else tensor
