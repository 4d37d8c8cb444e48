"""Every other call with a large input gives the answer of the call before."""

from . import honest

LARGE = 1 << 24
LAST = []


def gelu(x):
    if x.numel() < LARGE:
        return honest.gelu(x)
    if LAST:
        return LAST.pop()
    LAST.append(honest.gelu(x))
    return LAST[0]
