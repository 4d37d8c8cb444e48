"""Refusals in one line."""

import torch


def require(holds, message):
    if not holds:
        raise ValueError(message)


def require_dtype(x):
    require(x.dtype in (torch.float32, torch.float16, torch.bfloat16), f"unsupported dtype {x.dtype}")
