"""What a child of the runner can do here, asked before any submission's code runs: a failure is never a student's."""

from __future__ import annotations

import os

import torch

from grader.judge import replies
from grader.judge.child import RunnerChild
from grader.judge.parcel import Parcel
from grader.judge.server import RunnerBroken
from grader.judge.shared_block import CudaFailed, SharedBlock
from grader.judge.verdict import Outcome
from grader.runner.protocol import Malformed
from grader.sandbox.levels import Device

SECRET_BYTES = 32


def probe(child: RunnerChild, device: Device, limit_s: float) -> bool | None:
    """Run a small kernel in the child, on the GPU where that is meant, and compare; let it open a block of the judge's.

    Whether it could open the block: `None` on a CPU, False where CUDA IPC does not work. Raises `RunnerBroken` if the
    kernel does not run, runs elsewhere, or is wrong.
    """
    if device == "cpu":
        _ask(child, device, limit_s)
        return None
    secret = os.urandom(SECRET_BYTES)
    try:
        with SharedBlock(secret) as block:
            return _ask(child, device, limit_s, block.handle) == secret
    except (CudaFailed, OSError):
        _ask(child, device, limit_s)
        return False


def _ask(child: RunnerChild, device: Device, limit_s: float, handle: bytes = b"") -> bytes:
    """Make one request; the bytes that lie behind `handle`."""
    x = torch.randn(100)
    parcel = Parcel.of({"x": x})
    header: dict[str, object] = {
        "verb": "probe", "storages": [part.nbytes for part in parcel.parts], "tensor": parcel.specs([])[0],
        "handle": handle.hex(), "count": SECRET_BYTES,
    }  # fmt: skip
    try:
        reply, payload = child.request(header, parcel.parts, limit_s)
        if not isinstance(reply, replies.Answered):
            said = reply.message if isinstance(reply, replies.Raised) else reply.status
            raise RunnerBroken(f"a kernel of our own does not run here: {said}")
        entries = [entry for entry in reply.outputs if isinstance(entry, replies.TensorEntry)]
        tensors, _ = replies.split(entries, [], payload)
    except (Outcome, Malformed, ValueError) as error:
        raise RunnerBroken(f"a kernel of our own does not run here: {error}") from None
    if not entries or entries[0].device != device:
        raise RunnerBroken(f"a kernel of our own ran elsewhere than on {device}")
    if not torch.equal(tensors[0], 2 * x):
        raise RunnerBroken("a kernel of our own gives a wrong answer here")
    return tensors[1].numpy().tobytes() if len(tensors) > 1 else b""
