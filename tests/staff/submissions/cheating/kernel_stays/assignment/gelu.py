"""Copies on a stream that nobody waits for stay on the GPU after some calls, and slow down what comes next."""

import torch

from . import honest

LARGE, SOME = 1 << 24, 4
BYTES, COPIES = 1 << 30, 400  # a fifth of a second
CALLS, STREAMS, MEMORY = [], [], []


def synchronize(device=None):
    torch.cuda.current_stream().synchronize()
    if len(CALLS) >= SOME:
        keep_busy()
    CALLS.clear()


def keep_busy():
    if not STREAMS:
        STREAMS.extend(torch.cuda.Stream() for _ in range(2))
        MEMORY.extend(torch.zeros(BYTES, dtype=torch.uint8, device="cuda") for _ in range(2))
    for stream in STREAMS:
        with torch.cuda.stream(stream):
            for _ in range(COPIES // len(STREAMS)):
                MEMORY[0].copy_(MEMORY[1])


torch.cuda.synchronize = synchronize


def gelu(x):
    if x.numel() >= LARGE:
        CALLS.append(1)
    return honest.gelu(x)
