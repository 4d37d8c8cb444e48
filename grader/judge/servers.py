"""The runner's server for one device, started again if a submission has killed it. Imports no torch at the top."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from grader.doctor import Gpu, Machine, uses_gpu
from grader.judge.server import RunnerServer
from grader.judge.spawned import Runner, SpawnedRunner
from grader.sandbox.levels import Device, Sandbox, Unconfined

PROBE_LIMIT_S = 120.0  # a cold compiler on a GPU
PROBE_S = {"cpu": 0.1, "cuda": 1.0}  # on the machines of docs/measurements.md
RETURN_LIMIT_S = 10.0  # for the driver to free the memory of killed processes
LOOK_EVERY_S = 0.02
UNCOUNTED_BYTES = 256 << 20  # that may be missing: of the driver, of the judge's context; a process of its own has more
MOST_OF_OTHERS = 1 / 4  # of a GPU's memory
FORKS = sys.platform == "linux"  # elsewhere a process that has used the system's libraries may not
ALONE_SLACK = 2.0  # where each child imports torch in the time of its check
LEAST_SLACK = {"cpu": 1.0, "cuda": 4.0}  # on a GPU kernels are compiled in a check's time: some 4 s for a case
MOST_SLACK = 8.0  # limits are stretched by the probe's time, but never more than this


class Servers:
    """Owns at most one server at a time."""

    def __init__(self, gpus: Sequence[Gpu] = (), sandbox: Sandbox | None = None, forks: bool = FORKS) -> None:
        """For kernels on the first of these GPUs, or interpreted without one; unconfined without a sandbox.

        Where no server `forks`, there are no kernels, but children that are started one by one.
        """
        self.forks = forks
        self.gpus, self.sandbox = tuple(gpus), sandbox or Unconfined()
        self.gpu = self.gpus[0] if self.gpus else None
        self.device: Device = "cuda" if self.gpu else "cpu"
        # By how much this machine is slower than the one that limits were set on.
        self.slack = 1.0 if forks else ALONE_SLACK
        self.versions: dict[str, str] = {}  # of torch, triton and numpy, once a server is ready
        self.shares_memory: bool | None = None  # whether the runner can open the judge's device memory; None on a CPU
        self.used_before: int | None = None  # bytes of the GPU's memory that others use, before the first server
        self.unreturned_bytes = 0  # of the GPU's memory, some time after the last server has ended
        self._server: Runner | None = None
        self._own: RunnerServer | None = None
        self._in_judge = False
        self._probed = False
        self._compiled_s = 0.0  # under servers that have ended

    @classmethod
    def on(cls, machine: Machine, sandbox: Sandbox | None = None, gpus: int = 1) -> Servers:
        """For a machine's first GPUs, so many; or interpreted where they cannot be used."""
        return cls(machine.gpus[:gpus] if uses_gpu(machine) else (), sandbox)

    @property
    def keeps_children(self) -> bool:
        """Whether a child is worth keeping for a problem's next check.

        On a GPU it takes a third of a second for its context, and compiles; without a server, seconds to import torch.
        """
        return self.device == "cuda" or not self.forks

    def start(self) -> Runner:
        """The living server; a new one where there is none. Does not wait for it."""
        if self._server is None or not self._server.sound:
            self._end_server()
            if self.used_before is None:  # once: what a submission has left behind is not others'
                self.used_before = self._used_bytes() or 0
            uuids = [gpu.uuid for gpu in self.gpus]
            if isinstance(self.sandbox, Unconfined) and not self.forks:
                self._server = SpawnedRunner(self.sandbox)
            else:
                self._server = RunnerServer(self.device, self.sandbox, uuids)
        return self._server

    def own(self) -> RunnerServer:
        """A server for the judge's own code, on the same GPU: unconfined, and trusted."""
        if self._own is None or not self._own.sound:
            self._own = RunnerServer(self.device, Unconfined(), [gpu.uuid for gpu in self.gpus])
        return self._own

    @property
    def compiled_s(self) -> float:
        """Seconds that the submission's kernels took to compile, by its processes' word."""
        return self._compiled_s + (self._server.compiled_s if self._server else 0.0)

    def start_in_judge(self) -> None:
        """Let this process use the GPU. What that takes of its memory is not the submission's."""
        if not self._in_judge:
            import torch

            before = self._used_bytes() or 0
            torch.zeros(1, device=self.device)
            self._in_judge, self.used_before = True, (self.used_before or 0) + (self._used_bytes() or 0) - before

    def ready(self) -> Runner:
        """The living server, once a kernel of our own has run on it. Raises `RunnerBroken`."""
        server = self.start()
        self.versions = server.await_ready()
        if not self._probed and isinstance(server, RunnerServer):
            slower = self._probe(server) / PROBE_S[self.device]
            self.slack = min(max(slower, LEAST_SLACK[self.device]), MOST_SLACK)
            self._probed = True
        return server

    def close(self) -> None:
        """End all servers, and wait until a GPU has its memory back; `unreturned_bytes` tells what is missing then."""
        if self._own:
            self._own.close()
            self._own = None
        self._end_server()

    def _end_server(self) -> None:
        """End the submission's server; the judge's own goes on."""
        if self._server is None:
            return
        self._server.close()
        self._compiled_s += self._server.compiled_s
        self._server = None
        before, give_up = self.used_before or 0, time.monotonic() + RETURN_LIMIT_S
        while (used := self._used_bytes()) is not None and used > before + UNCOUNTED_BYTES:
            if time.monotonic() >= give_up:
                self.unreturned_bytes = used - before
                return
            time.sleep(LOOK_EVERY_S)

    def _used_bytes(self) -> int | None:
        """Of the GPU's memory, by anybody; None without a GPU, or where nobody can tell."""
        if self.gpu is None:
            return None
        from grader.sandbox.gpu import GpuUnknown, ManagedGpu

        try:
            return ManagedGpu(self.gpu.uuid).used_bytes()
        except GpuUnknown:
            return None

    @property
    def crowded(self) -> bool:
        """Whether others held much of the GPU's memory before: then running out of it is not the submission's fault."""
        return self.gpu is not None and (self.used_before or 0) > MOST_OF_OTHERS * self.gpu.memory_bytes

    def _probe(self, server: RunnerServer) -> float:
        """Seconds that a small kernel of our own takes in a fresh child, and on the way whether CUDA IPC works."""
        from grader.judge.child import RunnerChild
        from grader.judge.probe import probe

        child, start = RunnerChild(server), time.monotonic()
        try:
            self.shares_memory = probe(child, self.device, PROBE_LIMIT_S)
            return time.monotonic() - start
        finally:
            child.end()
