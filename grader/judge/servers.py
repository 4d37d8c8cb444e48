"""The runner's server for one device, started again if a submission has killed it. Imports no torch at the top."""

from __future__ import annotations

import time

from grader.doctor import Gpu, Machine, uses_gpu
from grader.judge.server import RunnerBroken, RunnerServer
from grader.sandbox.levels import Device, Sandbox, Unconfined

PROBE_LIMIT_S = 120.0  # a cold compiler on a GPU
PROBE_S = {"cpu": 0.1, "cuda": 1.0}  # on the machines of docs/measurements.md
MOST_SLACK = 8.0  # limits are stretched by the probe's time, but never more than this


class Servers:
    """Owns at most one server at a time."""

    def __init__(self, gpu: Gpu | None = None, sandbox: Sandbox | None = None) -> None:
        """For kernels on a GPU, or interpreted without one; unconfined without a sandbox."""
        self.gpu, self.sandbox = gpu, sandbox or Unconfined()
        self.device: Device = "cuda" if gpu else "cpu"
        self.slack = 1.0  # by how much this machine is slower than the one that limits were set on
        self.versions: dict[str, str] = {}  # of torch, triton and numpy, once a server is ready
        self._server: RunnerServer | None = None
        self._probed = False

    @classmethod
    def on(cls, machine: Machine, sandbox: Sandbox | None = None) -> Servers:
        """For kernels on a machine's first GPU, or interpreted where it cannot be used."""
        return cls(machine.gpus[0] if uses_gpu(machine) else None, sandbox)

    def start(self) -> RunnerServer:
        """The living server; a new one where there is none. Does not wait for it."""
        if self._server is None or not self._server.sound:
            self.close()
            self._server = RunnerServer(self.device, self.sandbox, self.gpu.uuid if self.gpu else "")
        return self._server

    def ready(self) -> RunnerServer:
        """The living server, once a kernel of our own has run on it. Raises `RunnerBroken`."""
        server = self.start()
        self.versions = server.await_ready()
        if not self._probed:
            self.slack = min(max(self._probe(server) / PROBE_S[self.device], 1.0), MOST_SLACK)
            self._probed = True
        return server

    def close(self) -> None:
        if self._server:
            self._server.close()
        self._server = None

    def _probe(self, server: RunnerServer) -> float:
        """Seconds that a small kernel of our own takes in a fresh child, its answer compared."""
        import torch

        from grader.judge import replies
        from grader.judge.child import RunnerChild
        from grader.judge.parcel import Parcel
        from grader.judge.verdict import Outcome
        from grader.runner.protocol import Malformed

        x = torch.randn(100)
        parcel = Parcel.of({"x": x})
        child, start = RunnerChild(server), time.monotonic()
        try:
            header: dict[str, object] = {
                "verb": "probe", "storages": [part.nbytes for part in parcel.parts], "tensor": parcel.specs([])[0]
            }  # fmt: skip
            reply, payload = child.request(header, parcel.parts, PROBE_LIMIT_S)
            if not isinstance(reply, replies.Answered):
                said = reply.message if isinstance(reply, replies.Raised) else reply.status
                raise RunnerBroken(f"a kernel of our own does not run here: {said}")
            [answer], _ = replies.split([e for e in reply.outputs if isinstance(e, replies.TensorEntry)], [], payload)
            if not torch.equal(answer, 2 * x):
                raise RunnerBroken("a kernel of our own gives a wrong answer here")
            return time.monotonic() - start
        except (Outcome, Malformed, ValueError) as error:
            raise RunnerBroken(f"a kernel of our own does not run here: {error}") from None
        finally:
            child.end()
