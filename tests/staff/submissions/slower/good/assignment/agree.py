"""What two arguments must have in common, and which dtypes there are."""

import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def check_dtype(function: str, x: torch.Tensor) -> None:
    if x.dtype not in DTYPES:
        raise ValueError(f"{function}: the dtype is {x.dtype}, not one of float32, float16 and bfloat16")


def check_agree(function: str, **pairs: tuple[object, object]) -> None:
    """Raise ValueError for the first pair whose sides differ."""
    for what, (left, right) in pairs.items():
        if left != right:
            raise ValueError(f"{function}: {what.replace('_', ' ')} {left} and {right} differ")
