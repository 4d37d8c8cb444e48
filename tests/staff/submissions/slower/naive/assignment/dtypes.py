"""What all problems refuse."""

import torch


def check_dtype(name, x):
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"{name} takes float32, float16 or bfloat16, got {x.dtype}")
