"""An engine whose jobs are a function of ours in the driver's own process, with recorded results, say: for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from grader.batch.engines import CPU, Job, Slot, Told


class Inline:
    """As many slots as are wanted, each a thread."""

    def __init__(self, answer: Callable[[Job, Slot], str], slots: int = 1, kinds: Sequence[str] = ()) -> None:
        """`answer` gives the JSON text of a result, or raises `EngineError`."""
        self.answer = answer
        self.all_slots = [Slot(f"inline/{at}", kind) for at, kind in enumerate(kinds or [CPU] * slots)]
        self._threads = ThreadPoolExecutor(len(self.all_slots))

    def slots(self) -> list[Slot]:
        return list(self.all_slots)

    def submit(self, job: Job, slot: Slot, told: Told) -> Future[str]:
        return self._threads.submit(self.answer, job, slot)

    def close(self, kill: bool = False) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
